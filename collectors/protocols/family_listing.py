"""What a Prometheus-compatible server holds and the catalogue does not know: its families, their series and devices.

Add here how that is asked for within its bounds. Keep out which names and labels count: that is in `unknown_families`.
The listing is an audit of what is not landed: whatever goes wrong here is a line of text, and the samples land.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

import orjson

from collectors.limits import Limits
from collectors.protocols.http_client import HttpClient
from collectors.protocols.matrix import data_of
from collectors.samples import SourceError, Window
from collectors.series import SeriesRegister
from collectors.unknown_families import (
    MOST_DEVICES,
    MOST_FAMILIES_WITH_DEVICES,
    MOST_NAMES,
    NAME_PATTERN,
    is_drawn_power,
    is_listed,
)

NAMES = "/api/v1/label/__name__/values"
# Known names are among those that a server may send.
NAMES_ASKED = 2 * MOST_NAMES
# Series of all families whose devices are asked for. An answer of so many has about 5 MB.
MOST_SERIES = 10_000
ANSWER_BYTES = 16 << 20
ANSWER_SECONDS = 10.0
# At most, and of the time that a window may take.
LISTING_SECONDS = 30.0
SHARE_OF_WINDOW = 0.1
# Where in the window to look for series: most live at its end.
_ALIVE_AT = (1.0, 0.75, 0.5, 0.25, 0.0)


class FamilyListing:
    """Lists the unknown families of one server, with the source's own matchers.

    A day costs one request for names, one that counts their series at its end (four more at earlier moments, while
    families without series are left) and one for devices. `server` holds the keywords of HttpClient.
    """

    def __init__(self, url: str, matchers: Sequence[str], limits: Limits, **server: Any) -> None:
        self._matchers = tuple(matchers)
        self._seconds = min(LISTING_SECONDS, SHARE_OF_WINDOW * limits.window_seconds)
        bounds = replace(
            limits,
            answer_bytes=min(limits.answer_bytes, ANSWER_BYTES),
            answer_seconds=min(limits.answer_seconds, ANSWER_SECONDS, self._seconds),
        )
        self._server = HttpClient(url, limits=bounds, **{**server, "attempts": 1})
        self._deadline_seconds = 0.0

    def note(
        self,
        window: Window,
        unknown: Collection[str],
        known: Collection[str],
        register: SeriesRegister,
        *,
        is_day: bool,
    ) -> None:
        """Report to the register the families `unknown` and, of a whole day, all that look like power, energy or tokens
        and are not `known`, each with its series; of power and energy the devices too."""
        self._deadline_seconds = time.monotonic() + self._seconds
        self._server.start_window()
        what = "unknown families"
        try:
            names, note = set(unknown), None
            if is_day:
                looking_alike = self._names_looking_alike(window)
                names |= looking_alike - set(known)
                note = _shortened(names, len(looking_alike))
            counted = self._count(window, set(_first(names)), register)
            what = "devices of unknown families"
            if is_day:
                self._look_at_devices(counted, register)
            register.unlisted = note
        except (SourceError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            register.unlisted = f"{what} are not listed: {_reason(error)}"
        finally:
            self._server.close()

    def _names_looking_alike(self, window: Window) -> set[str]:
        fields = [
            ("match[]", self._selector(NAME_PATTERN)),
            ("start", str(window.start_us // 1_000_000)),
            ("end", str(-(-window.end_us // 1_000_000))),
            # Prometheus has it since its pull request 13396 (2024); servers without it ignore it.
            ("limit", str(NAMES_ASKED)),
        ]
        answer = orjson.loads(self._asked(NAMES, fields, method="GET"))
        # A shortened answer is one with a warning.
        names = data_of({**answer, "warnings": None} if "truncated" in str(answer.get("warnings")) else answer)
        return {name for name in names if is_listed(name)} if isinstance(names, list) else set()

    def _count(self, window: Window, names: set[str], register: SeriesRegister) -> dict[int, list[str]]:
        """Millisecond -> the families that had series then, each at the last of the moments that are looked at."""
        found: dict[int, list[str]] = {}
        for share in _ALIVE_AT:
            if not names:
                break
            at_ms = (window.start_us + round((window.end_us - window.start_us) * share)) // 1000 - (share == 1.0)
            for one in self._vector(f"count by (__name__) ({self._selector(_either(names))})", at_ms):
                name = one["metric"]["__name__"]
                register.unknown(name, int(float(one["value"][1])))
                found.setdefault(at_ms, []).append(name)
                names = names - {name}
        return found

    def _look_at_devices(self, counted: dict[int, list[str]], register: SeriesRegister) -> None:
        left = MOST_FAMILIES_WITH_DEVICES
        for at_ms, names in counted.items():
            drawn = sorted(name for name in names if is_drawn_power(name))[:left]
            if drawn:
                left -= len(drawn)
                most = max(MOST_DEVICES, MOST_SERIES // len(drawn))
                promql = f"topk by (__name__) ({most}, {self._selector(_either(drawn))})"
                for one in sorted(self._vector(promql, at_ms), key=lambda one: sorted(one["metric"].items())):
                    register.unknown_device(one["metric"]["__name__"], one["metric"])

    def _vector(self, promql: str, at_ms: int) -> list[Any]:
        fields = [
            ("query", promql),
            ("time", f"{at_ms // 1000}.{at_ms % 1000:03d}"),
            ("timeout", f"{max(1, round(ANSWER_SECONDS))}s"),
            ("partial_response", "false"),
        ]
        data: Any = data_of(orjson.loads(self._asked("/api/v1/query", fields)))
        return list(data["result"])

    def _asked(self, path: str, fields: list[tuple[str, str]], method: str | None = None) -> bytes:
        if time.monotonic() > self._deadline_seconds:
            raise ValueError(f"it took longer than {self._seconds:g} s")
        return self._server.ask(path, fields, method=method)

    def _selector(self, pattern: str) -> str:
        return "{" + ",".join([f"__name__=~{json.dumps(pattern, ensure_ascii=False)}", *self._matchers]) + "}"


def _first(names: Iterable[str]) -> list[str]:
    """As many as may be listed: power and energy first, then what looks like it or like tokens."""
    return sorted(names, key=lambda name: (not is_drawn_power(name), not is_listed(name), name))[:MOST_NAMES]


def _either(names: Iterable[str]) -> str:
    return "|".join(re.escape(name) for name in sorted(names))


def _shortened(names: Collection[str], asked: int) -> str | None:
    """What is left out of a listing of these names, None where nothing is."""
    drawn = sum(map(is_drawn_power, _first(names)))
    if len(names) <= MOST_NAMES and drawn <= MOST_FAMILIES_WITH_DEVICES:
        return None
    many = f"{asked:,} or more" if asked >= NAMES_ASKED else f"{len(names):,}"
    return (
        f"unknown families: the source has {many}, the first {MOST_NAMES} are listed, the devices of the first"
        f" {MOST_FAMILIES_WITH_DEVICES} are looked at; narrow them with matchers"
    )


def _reason(error: Exception) -> str:
    if isinstance(error, SourceError):
        return error.reason if error.status is None else f"HTTP {error.status}: {error.reason}"
    return str(error) if isinstance(error, ValueError) else "the answer is no list of metrics"
