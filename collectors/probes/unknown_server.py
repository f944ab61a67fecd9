"""Questions to an unknown server with Prometheus' API.

Each is small: names of metrics first, then the series of one known metric at a time, over ten minutes. A selector over
everything would make a server of a million series send 125 MB. Status endpoints are asked, and do without where a proxy
or another product has none.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

import orjson

from collectors.limits import DEFAULTS
from collectors.protocols.family_listing import NAMES
from collectors.protocols.http_client import HttpClient
from collectors.protocols.matrix import data_of
from collectors.protocols.server_probe import clock_ahead_seconds
from collectors.samples import SourceError

SPAN = timedelta(minutes=10)
ANSWER_BYTES = 64 << 20
ANSWER_SECONDS = 30.0
STEP_SECONDS = 15
USUAL_SECONDS = (1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0)
# How far back samples are looked for: powers of two up to some eleven years.
LONGEST_RETENTION_DAYS = 4096
# How many days the index of a server may name a metric beyond its newest sample: Prometheus' longest block.
COARSEST_DAYS = 31
# Of the known metrics, so many are asked for their newest sample.
METRICS_ASKED = 5


def usual_seconds(least: float, most: float) -> float | None:
    """Of the intervals that people configure, the one between these."""
    return next((one for one in USUAL_SECONDS if least <= one <= most), None)


class Product(NamedTuple):
    """What a server is, as far as it states it."""

    name: str
    version: str | None
    retention: str | None


class UnknownServer:
    """A server, asked about the ten minutes before `at`, or before `until` where its samples ended earlier. Keywords
    are those of HttpClient.

    Every method raises SourceError where the server does not answer; an endpoint that it lacks is no error.
    """

    def __init__(self, url: str, at: datetime, matchers: Sequence[str] = (), **server: Any) -> None:
        limits = replace(DEFAULTS, answer_bytes=ANSWER_BYTES, answer_seconds=ANSWER_SECONDS)
        self.at = self.until = at
        self._matchers = tuple(matchers)
        self._client = HttpClient(url, limits=limits, **{"attempts": 2, **server})

    @property
    def url(self) -> str:
        """The server's URL as it may be shown."""
        return self._client.url

    def close(self) -> None:
        """Give the connection back."""
        self._client.close()

    def names(self) -> list[str]:
        """The names of all metrics of the ten minutes."""
        return self._names(SPAN)

    def look_back(self, known: Collection[str]) -> None:
        """Where the ten minutes have none of these metrics, look at those before their newest sample."""
        if not {*known}.intersection(self._names(SPAN)):
            self.until = self._newest_of({*known}) or self.until

    def _newest_of(self, known: set[str]) -> datetime | None:
        """The time of the newest sample of known metrics, however old; None where the server has none of them.

        Names of a span are read from an index, whose days are coarse; samples are looked for from there backwards.
        """
        days = 1
        while not (named := known & {*self._names(timedelta(days=days))}):
            days *= 2
            if days > LONGEST_RETENTION_DAYS:
                return None
        low = days // 2
        while days - low > 1:
            middle = (low + days) // 2
            if held := known & {*self._names(timedelta(days=middle))}:
                days, named = middle, held
            else:
                low = middle
        for day in range(days, days + COARSEST_DAYS + 1):
            end = self.at - timedelta(days=day - 1)
            newest = [self._newest_at(metric, end, "1d:5m") for metric in sorted(named)[:METRICS_ASKED]]
            if any(newest):
                return max(at for at in newest if at is not None)
        return None

    def _names(self, span: timedelta) -> list[str]:
        found = self._data(NAMES, [*self._span(span), *self._matched()], method="GET")
        if not isinstance(found, list):
            raise SourceError(self.url + NAMES, 200, "expected a list of metric names in 'data'")
        return sorted(name for name in found if isinstance(name, str))

    def series(self, metric: str) -> list[dict[str, str]]:
        """The labels of the series of one metric. OverLimitError where these are too many for one answer."""
        found = self._data("/api/v1/series", [("match[]", self._selector(metric)), *self._span()])
        if not isinstance(found, list):
            raise SourceError(f"{self.url}/api/v1/series", 200, "expected a list of series in 'data'")
        return [{str(k): str(v) for k, v in one.items() if k != "__name__"} for one in found if isinstance(one, dict)]

    def count(self, metric: str) -> int:
        """The number of series of one metric at the end of the ten minutes."""
        return int(self.number(f"count({self._selector(metric)})") or 0)

    def number(self, promql: str, at: datetime | None = None) -> float | None:
        """The one value of a query; None where it has no rows."""
        rows = self._rows(promql, at)
        return float(rows[0]["value"][1]) if rows else None

    def interval_seconds(self, metric: str) -> float | None:
        """The usual seconds between two samples of a metric, a gap apart: the median of one of its series, which has as
        many samples as most; None where none has two."""
        # Servers differ in whether a range has the sample at its very beginning, so it begins at an odd second.
        seconds = int(SPAN.total_seconds()) - 1
        counted = f"count_over_time({self._selector(metric)}[{seconds}s])"
        usual = self._rows(f"topk(1, {counted} <= scalar(quantile(0.5, {counted} > 1)))")
        if not usual:
            return None
        named = [(name, value) for name, value in usual[0]["metric"].items() if name.isidentifier()]
        labels = [f"{name}={orjson.dumps(value).decode()}" for name, value in named]
        # Times instead of samples: of a bare range some servers make a stream.
        looked_up = f"timestamp({self._selector(metric, *labels)})"
        times = [{float(at) for _, at in one["values"]} for one in self._rows(f"{looked_up}[{seconds}s:1s]")]
        between = [later - earlier for earlier, later in pairwise(sorted(times[0] if times else ()))]
        # A look is late by some milliseconds now and then.
        return (usual_seconds(0.97 * median(between), 1.03 * median(between)) or median(between)) if between else None

    def newest_at(self, metric: str) -> datetime | None:
        """The time of the newest sample of a metric in the hour before `until`."""
        return self._newest_at(metric, self.until, f"1h:{STEP_SECONDS}s")

    def _newest_at(self, metric: str, end: datetime, span: str) -> datetime | None:
        at = self.number(f"max(max_over_time(timestamp({self._selector(metric)})[{span}]))", at=end)
        return None if at is None else datetime.fromtimestamp(at, UTC)

    def product(self) -> Product:
        """What the server is and which version, as far as it states it."""
        build, runtime = self._maybe("/api/v1/status/buildinfo"), self._maybe("/api/v1/status/runtimeinfo")
        build, runtime = build if isinstance(build, dict) else {}, runtime if isinstance(runtime, dict) else {}
        # Mimir names itself; VictoriaMetrics answers with nothing; of the others only Prometheus has its own retention.
        name = build.get("application") or ("Prometheus" if "storageRetention" in runtime else None)
        return Product(
            str(name or "server with Prometheus' API"), build.get("version"), runtime.get("storageRetention")
        )

    def clock_seconds(self) -> float | None:
        """How far the server's clock is ahead of this machine's, in seconds; None where it gives no time."""
        try:
            return clock_ahead_seconds(self._client)
        except SourceError as refusal:
            if refusal.status != 200:
                raise
            return None

    def oldest_days(self, metric: str) -> int | None:
        """How many whole UTC dates back a metric has samples, found by halving: 0 where they began on the date of
        `until`, None where it has none now."""
        if not self._is_there(metric, 0):
            return None
        low, high = 0, 1
        while high <= LONGEST_RETENTION_DAYS and self._is_there(metric, high):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._is_there(metric, middle) else (low, middle)
        return low

    def _is_there(self, metric: str, days: int) -> bool:
        # An hour, not a moment: an exporter may have been restarted just then. Of an earlier date the first one.
        midnight = self.until.replace(hour=0, minute=0, second=0, microsecond=0)
        at = midnight - timedelta(days=days) + timedelta(hours=1) if days else self.until
        return bool(self.number(f"count(count_over_time({self._selector(metric)}[1h]))", at=at))

    def _selector(self, metric: str, *labels: str) -> str:
        named = orjson.dumps(metric).decode()
        return "{" + ",".join([f"__name__={named}", *self._matchers, *labels]) + "}"

    def _matched(self) -> list[tuple[str, str]]:
        return [("match[]", "{" + ",".join(['__name__!=""', *self._matchers]) + "}")] if self._matchers else []

    def _span(self, span: timedelta = SPAN) -> list[tuple[str, str]]:
        return [("start", str((self.until - span).timestamp())), ("end", str(self.until.timestamp()))]

    def _rows(self, promql: str, at: datetime | None = None) -> list[Any]:
        """The series of a query's vector or matrix."""
        found = self._data("/api/v1/query", [("query", promql), ("time", str((at or self.until).timestamp()))])
        result = found.get("result") if isinstance(found, dict) else None
        return [one for one in result or [] if isinstance(one, dict)]

    def _data(self, path: str, fields: Sequence[tuple[str, str]], method: str | None = None) -> Any:
        try:
            return data_of(orjson.loads(self._client.ask(path, fields, method=method)))
        except ValueError as error:
            raise SourceError(self.url + path, 200, f"answered what cannot be read: {error}") from error

    def _maybe(self, path: str) -> Any:
        """An answer, or None where the server has no such endpoint."""
        try:
            return self._data(path, [], method="GET")
        except SourceError as refusal:
            if refusal.status is None or refusal.status == 401:
                raise
            return None
