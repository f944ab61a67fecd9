"""What a server with Prometheus' API shows of itself in a few small questions, before anything is landed from it.

Each question is a function of its own. None selects more than known families over an hour, or a day where the hour has
none. Add here what is asked of a server. Keep out what is done about the answer.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import orjson

from collectors.protocols.http_client import HttpClient
from collectors.protocols.matrix import data_of
from collectors.samples import Family, SourceError

QUERY = "/api/v1/query"
# Families in one question; a name has some 40 characters, and a request of a few thousand passes every proxy.
FAMILIES_A_QUESTION = 50
# Five minutes with fewer samples show no interval: one of them is a quarter of it.
LEAST_SAMPLES = 4
# An hour whose mean interval is so many times that of its fullest five minutes has a gap.
WITH_A_GAP = 1.3


class Load(NamedTuple):
    """What the known families of a server hold: series and samples of an hour, and the newest sample."""

    families: int
    series: int
    samples_per_hour: int
    # Usually between two samples of a series: the median over the metered family with most series.
    interval_seconds: float | None
    newest_at: datetime | None


def program(server: HttpClient) -> str:
    """What the server calls itself, with its version."""
    try:
        data: Any = data_of(orjson.loads(server.ask("/api/v1/status/buildinfo", [], method="GET")))
        named = str(data.get("application") or "Prometheus' API")
        return f"{named} {data['version']}" if data.get("version") else named
    except (SourceError, ValueError, KeyError, AttributeError):
        return "Prometheus' API"  # many proxies pass queries alone


def clock_ahead_seconds(server: HttpClient) -> float:
    """How far the server's clock is ahead of ours; below zero where it is behind. SourceError without an answer."""
    before = time.time()
    data = _data(server, "time()")
    ours = (before + time.time()) / 2
    try:
        result = data["result"]
        # The time of the sample: VictoriaMetrics gives a vector of one, whose value is half a minute behind by design
        # (its latencyOffset).
        return float(result[0]["value"][0] if data["resultType"] == "vector" else result[1]) - ours
    except (KeyError, TypeError, ValueError, IndexError):
        raise SourceError(server.url + QUERY, 200, "answered no time, expected Prometheus' API") from None


def load(
    server: HttpClient, families: Mapping[str, Family], metered: Collection[str], matchers: Sequence[str] = ()
) -> Load:
    """What these families hold, by the server's own clock. The interval is of one of `metered`, where the server has
    one. SourceError where it refuses a question."""
    series = _series(server, families, matchers, "1h")
    is_alive = bool(series)
    series = series or _series(server, families, matchers, "1d")
    if not series:
        return Load(0, 0, 0, None, None)
    there = {name: families[name] for name in series}
    samples = _each(server, there, matchers, "sum(count_over_time({0}[1h]))") if is_alive else {}
    largest = max(series, key=lambda family: (family in metered, series[family], family))
    of_largest = {largest: families[largest]}
    counts = _each(server, of_largest, matchers, "quantile(0.5, count_over_time({0}[1h]))") if is_alive else {}
    fullest = "quantile(0.5, max_over_time(count_over_time({0}[5m])[55m:5m]))"
    most = _each(server, of_largest, matchers, fullest) if is_alive else {}
    newest = _each(server, there, matchers, "max(timestamp({0}))")
    newest = newest or _each(server, there, matchers, "max(max_over_time(timestamp({0})[1d:1m]))")
    return Load(
        len(series),
        sum(map(round, series.values())),
        sum(map(round, samples.values())),
        _interval(counts.get(largest, 0), most.get(largest, 0)),
        datetime.fromtimestamp(max(newest.values()), UTC) if newest else None,
    )


def _interval(of_an_hour: float, of_five_minutes: float) -> float | None:
    """The usual seconds between two samples, by their number in an hour and in its fullest five minutes: by these where
    the hour has a gap."""
    if not of_an_hour:
        return None
    seconds = 3600 / of_an_hour
    fullest = 300 / of_five_minutes if of_five_minutes >= LEAST_SAMPLES else seconds
    return seconds if seconds < WITH_A_GAP * fullest else fullest


def _series(server: HttpClient, families: Mapping[str, Family], matchers: Sequence[str], span: str) -> dict[str, float]:
    """Family -> its series with a sample in the span before the server's now; of a family with a label those that have
    it, as a landing asks for them."""
    found: dict[str, float] = {}
    for part in _parts(sorted(families)):
        names = f"__name__=~{json.dumps('|'.join(map(re.escape, part)), ensure_ascii=False)}"
        # Of the functions over a span this one alone keeps the names.
        promql = f"count by (__name__) (last_over_time({_selector(names, matchers)}[{span}]))"
        found |= {one["metric"].get("__name__", ""): float(one["value"][1]) for one in _vector(server, promql)}
    labelled = {name: families[name] for name in found if name in families and families[name].label}
    if not labelled:
        return found
    having = _each(server, labelled, matchers, f"count(last_over_time({{0}}[{span}]))")
    return {name: series for name, series in found.items() if name not in labelled} | having


def _each(server: HttpClient, families: Mapping[str, Family], matchers: Sequence[str], promql: str) -> dict[str, float]:
    """Family -> the value of a query, in which {0} is its selector. Over several names at once a server would refuse
    most functions: without the names two series are the same."""
    found: dict[str, float] = {}
    for part in _parts(sorted(families)):
        queries = [
            f'label_replace({promql.format(_selector_of(families[family], matchers))}, "family",'
            f' {json.dumps(family)}, "", "")'
            for family in part
        ]
        for one in _vector(server, " or ".join(queries)):
            found[one["metric"]["family"]] = float(one["value"][1])
    return found


def _parts(families: Sequence[str]) -> Iterable[Sequence[str]]:
    return (families[n : n + FAMILIES_A_QUESTION] for n in range(0, len(families), FAMILIES_A_QUESTION))


def _selector_of(family: Family, matchers: Sequence[str]) -> str:
    name = f"__name__={json.dumps(family.metric)}"
    return _selector(name, matchers if family.label is None else [f'{family.label}!=""', *matchers])


def _selector(names: str, matchers: Sequence[str]) -> str:
    return "{" + ",".join([names, *matchers]) + "}"


def _vector(server: HttpClient, promql: str) -> list[Any]:
    try:
        return list(_data(server, promql)["result"])
    except (KeyError, TypeError):
        raise SourceError(server.url + QUERY, 200, "answered no vector, expected Prometheus' API") from None


def _data(server: HttpClient, promql: str) -> Any:
    """The data of a query at the server's own now."""
    body = server.ask(QUERY, [("query", promql)])
    try:
        return data_of(orjson.loads(body))
    except ValueError as error:
        raise SourceError(server.url + QUERY, 200, f"answered what cannot be read: {error}") from error
