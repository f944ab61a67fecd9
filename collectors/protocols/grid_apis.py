"""Grid intensity from APIs: Electricity Maps, the Carbon Intensity API of Great Britain, WattTime.

Add a provider here as one more class with `collect`. Keep out what a possible value is and what becomes of a missing
hour. Collectors give what the source reported, in grams of CO2e per kWh, each value under the name of what it is
(average direct, average life-cycle, marginal).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pyarrow as pa

from collectors.limits import GRID_LIMITS, Limits
from collectors.protocols.http_client import HttpClient
from collectors.samples import END_US, FIRST_US, OBSERVED_AT, SourceError, Window, microseconds

GRID_SCHEMA = pa.schema(
    [
        ("start_at", OBSERVED_AT),
        ("end_at", OBSERVED_AT),
        ("direct_gco2e_per_kwh", pa.float64()),
        ("lifecycle_gco2e_per_kwh", pa.float64()),
        ("marginal_gco2e_per_kwh", pa.float64()),
        ("is_estimated", pa.bool_()),
    ]
)
# 1 lb = 453.59237 g exactly (international pound), and 1 MWh = 1000 kWh.
GRAMS_PER_KWH_OF_LBS_PER_MWH = 0.45359237
ATTEMPTS = 4

Row = dict[str, Any]
# Marks a key that an entry lacks: that is no number, whereas null is a missing hour.
_ABSENT = object()


class GridCollector:
    """Reads one zone of one provider: a server that answers with JSON objects.

    `collect` gives the rows of GRID_SCHEMA that begin in the window (half-open), in the provider's own resolution. A
    time that is unreadable or has no zone is NULL, a value that is no number is NaN, so that both can be counted.
    Raises SourceError where the answer as a whole is not what was asked for.
    """

    def __init__(self, source: str, url: str, *, limits: Limits = GRID_LIMITS, **server: Any) -> None:
        self.source = source
        self.limits = limits
        self.server = HttpClient(url, limits=limits, attempts=ATTEMPTS, **server)

    @property
    def url(self) -> str:
        """The API's root as it may be logged."""
        return self.server.url

    def collect(self, window: Window) -> pa.Table:
        """The factors of the window. Raises SourceError."""
        raise NotImplementedError

    def _get(self, path: str, **fields: str) -> dict[str, Any]:
        body = self.server.ask(path, fields.items(), method="GET")
        try:
            answer: dict[str, Any] = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise self._failed(path, f"answered broken JSON: {error}") from error
        if not isinstance(answer, dict):
            raise self._failed(path, f"answered a {type(answer).__name__}, expected a JSON object")
        return answer

    def _failed(self, path: str, reason: str) -> SourceError:
        return SourceError(self.url + path, 200, self.server.masked(reason))

    def _entries(self, path: str, answer: Any, key: str) -> list[dict[str, Any]]:
        """The entries of an answer; one that is no object is an empty one, which has no time."""
        entries = answer.get(key) if isinstance(answer, dict) else None
        if not isinstance(entries, list) or (entries and not any(isinstance(entry, dict) for entry in entries)):
            raise self._failed(path, f"answered no list {key!r} of objects")
        return [entry if isinstance(entry, dict) else {} for entry in entries]

    def _check(
        self, path: str, entries: list[dict[str, Any]], time: str, value: str, number: Callable[[Any], float | None]
    ) -> None:
        """SourceError where there are entries, and not one of them has a time or one of them a number.

        A value that is null is a missing hour; a day of those is an answer.
        """
        if not entries:
            return
        first = f"the first is {self.server.opening(orjson.dumps(entries[0]))}"
        if not any(_instant(entry.get(time)) for entry in entries):
            raise self._failed(path, f"answered {len(entries)} entries, none with a UTC time in {time!r}; {first}")
        numbers = [number(entry.get(value, _ABSENT)) for entry in entries]
        is_number = [found is not None and not math.isnan(found) for found in numbers]
        if not any(is_number) and any(found is not None for found in numbers):
            raise self._failed(path, f"answered {len(entries)} entries, none with a number in {value!r}; {first}")

    def _expect(self, path: str, what: str, got: Any, expected: str | int) -> None:
        """SourceError where an API answers for another place, kind or unit than it was asked for."""
        if got != expected:
            raise self._failed(path, f"answered {what} {got!r}, expected {expected!r}")


class ElectricityMapsCollector(GridCollector):
    """Electricity Maps' API v3, hour by hour: direct and life-cycle averages of the consumption mix."""

    def __init__(self, source: str, url: str, *, zone: str, token_env: str, endpoint: str, **server: Any) -> None:
        super().__init__(source, url, header_envs={"auth-token": token_env}, **server)
        self._zone = zone
        self._path = f"/v3/carbon-intensity/{endpoint}"
        self._list = "history" if endpoint == "history" else "data"

    def collect(self, window: Window) -> pa.Table:
        """Two questions, one per emission factor: the API answers one at a time."""
        self.server.start_window()
        hours: dict[tuple[datetime | None, int], Row] = {}
        for factor in ("direct", "lifecycle"):
            # Hours that repeat stay apart, the n-th beside the n-th.
            seen: dict[datetime | None, int] = {}
            for start_at, entry in self._answer(factor, window):
                nth = seen[start_at] = seen.get(start_at, -1) + 1
                row = hours.setdefault((start_at, nth), {"start_at": start_at, "end_at": _after(start_at, 60)})
                row[f"{factor}_gco2e_per_kwh"] = _number(entry.get("carbonIntensity"))
                row["is_estimated"] = entry.get("isEstimated") is not False or row.get("is_estimated", False)
        return _table(hours.values(), window)

    def _answer(self, factor: str, window: Window) -> Iterator[tuple[datetime | None, dict[str, Any]]]:
        # Without the last field a zone that it does not know would become the zone of whoever asks.
        fields = {"zone": self._zone, "emissionFactorType": factor, "disableCallerLookup": "true"}
        if self._list == "data":
            fields |= {"start": _iso(window.start_at), "end": _iso(window.end_at), "temporalGranularity": "hourly"}
        answer = self._get(self._path, **fields)
        entries = self._entries(self._path, answer, self._list)
        for entry in filter(None, entries):
            self._expect(self._path, "zone", entry.get("zone", answer.get("zone")), self._zone)
            self._expect(self._path, "emissionFactorType", entry.get("emissionFactorType", factor), factor)
        self._check(self._path, entries, "datetime", "carbonIntensity", _number)
        yield from ((_instant(entry.get("datetime")), entry) for entry in entries)


class UkCarbonIntensityCollector(GridCollector):
    """The Carbon Intensity API of Great Britain, half-hour by half-hour: the direct average of the consumption mix.

    A half-hour without an `actual` value, and every one of a region, has the forecast and is estimated.
    """

    def __init__(self, source: str, url: str, *, region_id: int | None, **server: Any) -> None:
        super().__init__(source, url, **server)
        self._region_id = region_id

    def collect(self, window: Window) -> pa.Table:
        """One question; the half-hour that ends where the window begins is answered too, and left out."""
        self.server.start_window()
        period = f"{window.start_at.astimezone(UTC):%Y-%m-%dT%H:%MZ}/{window.end_at.astimezone(UTC):%Y-%m-%dT%H:%MZ}"
        if self._region_id is None:
            path = f"/intensity/{period}"
            answer: Any = self._get(path)
        else:
            path = f"/regional/intensity/{period}/regionid/{self._region_id}"
            answer = self._get(path).get("data")
            self._expect(
                path, "regionid", answer.get("regionid") if isinstance(answer, dict) else None, self._region_id
            )
        entries = self._entries(path, answer, "data")
        self._check(path, entries, "from", "intensity", self._intensity)
        return _table(map(self._row, entries), window)

    def _row(self, entry: dict[str, Any]) -> Row:
        intensity = entry.get("intensity")
        return {
            "start_at": _instant(entry.get("from")),
            "end_at": _instant(entry.get("to")),
            "direct_gco2e_per_kwh": self._intensity(intensity) if isinstance(intensity, dict) else None,
            "is_estimated": not isinstance(intensity, dict) or intensity.get("actual") is None,
        }

    @staticmethod
    def _intensity(intensity: Any) -> float | None:
        """The measured value, or else the forecast; NaN where neither is a number nor null."""
        if not isinstance(intensity, dict) or not {"actual", "forecast"} & intensity.keys():
            return math.nan
        actual = intensity.get("actual")
        return _number(intensity.get("forecast") if actual is None else actual)


class WattTimeCollector(GridCollector):
    """WattTime's API v3, five minutes by five: marginal (co2_moer) or average (co2_aoer) pounds of CO2 per MWh."""

    _VALUES: Mapping[str, str] = {"co2_moer": "marginal_gco2e_per_kwh", "co2_aoer": "direct_gco2e_per_kwh"}

    def __init__(self, source: str, url: str, *, region: str, signal_type: str, **server: Any) -> None:
        super().__init__(source, url, **server)
        self._region = region
        self._signal_type = signal_type

    def collect(self, window: Window) -> pa.Table:
        """The user's name and password give a token for half an hour, which the request carries."""
        self.server.start_window()
        self._log_in()
        path = "/v3/historical"
        answer = self._get(
            path,
            region=self._region,
            signal_type=self._signal_type,
            start=_iso(window.start_at),
            end=_iso(window.end_at),
            include_imputed_marker="true",
        )
        entries = self._entries(path, answer, "data")
        meta = answer.get("meta")
        meta = meta if isinstance(meta, dict) else {}
        self._expect(path, "region", meta.get("region"), self._region)
        self._expect(path, "signal_type", meta.get("signal_type"), self._signal_type)
        self._expect(path, "units", meta.get("units"), "lbs_co2_per_mwh")
        seconds = meta.get("data_point_period_seconds", 300)
        if not isinstance(seconds, int) or not 0 < seconds <= 3600:
            raise self._failed(path, f"answered data_point_period_seconds {seconds!r}, expected 1 to 3600")
        self._check(path, entries, "point_time", "value", _number)
        column = self._VALUES[self._signal_type]
        rows = (
            {
                "start_at": (start_at := _instant(entry.get("point_time"))),
                "end_at": _after(start_at, seconds / 60),
                column: _grams(_number(entry.get("value"))),
                "is_estimated": entry.get("imputed_data_used") is not False,
            }
            for entry in entries
        )
        return _table(rows, window)

    def _log_in(self) -> None:
        self.server.close()  # the next request sends name and password again
        token = self._get("/login").get("token")
        if not isinstance(token, str) or not token:
            raise self._failed("/login", "answered no token")
        self.server.log_in(token)


def _table(rows: Iterable[Row], window: Window) -> pa.Table:
    """Rows of GRID_SCHEMA; what begins outside the window was not asked for."""
    kept = [row for row in rows if row["start_at"] is None or window.start_at <= row["start_at"] < window.end_at]
    return pa.Table.from_pylist(kept, GRID_SCHEMA)


def _instant(text: Any) -> datetime | None:
    """The UTC instant of this century behind ISO text, or None: a time without its offset may be local and is not
    guessed."""
    try:
        at = datetime.fromisoformat(text)
        return at.astimezone(UTC) if at.tzinfo is not None and FIRST_US <= microseconds(at) < END_US else None
    except (TypeError, ValueError, OverflowError):
        return None


def _after(start_at: datetime | None, minutes: float) -> datetime | None:
    return None if start_at is None else start_at + timedelta(minutes=minutes)


def _number(value: Any) -> float | None:
    """A number as it is, None as None, anything else as NaN."""
    if value is None:
        return None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else float("nan")


def _grams(lbs_per_mwh: float | None) -> float | None:
    return None if lbs_per_mwh is None else lbs_per_mwh * GRAMS_PER_KWH_OF_LBS_PER_MWH


def _iso(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
