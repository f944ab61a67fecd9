"""A commented fleet file of what a survey found and what a person answered.

Add a key here when a survey can know it, or when a figure that every user looks for needs it. Keep out what the file
may state at all: that is `pipelines.fleet`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any

import yaml

from pipelines.discovery.doubts import Doubt, canonical_types
from pipelines.discovery.survey import Survey

# What is booked at first: long enough for a week's pattern, short enough to wait for.
FIRST_DAYS = 14
UNKNOWN_ZONE = "unknown"
SCHEMA = "wattledger.schema.json"


@dataclass(frozen=True)
class Answers:
    """What only a person knows; None where it was not answered."""

    zone: str | None = None
    pue: float | None = None
    usd_per_kwh: float | None = None
    usd_per_gpu_hour: Mapping[str, float] = field(default_factory=dict)


def fleet_text(
    name: str,
    place: Mapping[str, Any],
    found: Survey,
    doubtful: Sequence[Doubt],
    answers: Answers,
    *,
    placing: Sequence[str] = (),
) -> str:
    """The file: `place` states the kind of its source and how that is reached. What was found is stated as keys; what
    is doubtful or unknown is in comments to complete, as are lines that place wall meters (`placing`)."""
    return (
        "\n".join(
            [
                f"# yaml-language-server: $schema={SCHEMA}",
                f"# Written by `wattledger discover` on {found.at:%Y-%m-%d}. Every key: wattledger help fleet_file.",
                f"fleet: {name}",
                "",
                *_period(found),
                "",
                *_source(place, found, doubtful),
                "",
                *sites(answers),
                "",
                *_rates(found, answers),
                "",
                *_doubtful(doubtful, placing),
            ]
        ).rstrip()
        + "\n"
    )


def first_day(found: Survey) -> date:
    """The first date to book: the first one whole that the server has, at least yesterday."""
    days = min(FIRST_DAYS, found.oldest_days or 0)
    return found.looked_at.date() - timedelta(days=days if _has_ended(found) else max(1, days))


def _has_ended(found: Survey) -> bool:
    return found.looked_at.date() + timedelta(days=1) < found.at.date()


def interval_seconds(found: Survey) -> float:
    """The longest interval among the exporters: with a shorter one, their samples would look like gaps."""
    return max(found.intervals.values(), default=60.0)


def _period(found: Survey) -> Iterator[str]:
    oldest = found.oldest_days
    if oldest is not None and oldest > FIRST_DAYS:
        yield f"# The server has samples of the last {oldest:,} days: an earlier start books them, too."
    start, last = first_day(found), found.looked_at
    if _has_ended(found):
        # A date that has no sample in its last hour is no whole one; the only one is booked all the same.
        is_whole = (last + timedelta(hours=1)).date() > last.date()
        after = last.date() + timedelta(days=1) if is_whole or start == last.date() else last.date()
        yield f"# Its samples ended on {last:%Y-%m-%d at %H:%M}: take the end away when they go on."
        yield f"period: {{start: {start}, end: {after}}}   # UTC dates [start, end)"
    else:
        yield f"period: {{start: {start}}}   # UTC dates; without an end up to yesterday"


def _source(place: Mapping[str, Any], found: Survey, doubtful: Sequence[Doubt]) -> Iterator[str]:
    source = {"name": "cluster", **place, "interval_seconds": round(interval_seconds(found), 1)}
    for doubt in doubtful:
        for key in ("replica_labels", "metric_prefix"):
            if doubt.entry and key in doubt.entry:
                source[key] = doubt.entry[key]
    seconds = set(found.intervals.values())
    if len(seconds) > 1:
        shown = ", ".join(f"{metric} {value:g} s" for metric, value in sorted(found.intervals.items()))
        yield f"# Intervals differ; the longest counts: {shown}."
    if labels := found.tenant_labels():
        shown = ", ".join(_scalar(label) for label in labels)
        yield "# Gateways' counters have labels that may name who asked: to book tokens, energy and cost by tenant, add"
        yield f"# those that do to the source: tenant_labels: [{shown}]"
        yield "# The first that a counter has counts; docs/sources/tenant_counters.md."
    yield "sources:"
    yield from _item(source)


def sites(answers: Answers = Answers()) -> Iterator[str]:
    """The lines of the file's one site, with what was answered."""
    yield "# Where the boards are. The zone decides gCO2e per kWh, PUE what cooling and conversion add to every joule,"
    yield "# the tariff what a kWh costs. Several places: one site each, and nodes: [{name: …, site: …}]."
    site: dict[str, Any] = {"name": "main", "zone": answers.zone or UNKNOWN_ZONE}
    lines = ["name: main", f"zone: {_scalar(site['zone'])}"]
    if answers.zone is None:
        lines[-1] += "        # such as DE or US-CAL-CISO: CO2 is empty until it is stated"
    lines.append(f"pue: {1.0 if answers.pue is None else answers.pue:g}")
    if answers.pue is None:
        lines[-1] += "              # assumed: no cooling. A hall with air cooling has 1.3 to 1.6"
    yield "sites:"
    yield f"  - {lines[0]}"
    yield from (f"    {line}" for line in lines[1:])
    if answers.usd_per_kwh is None:
        yield "    # tariff: [{usd_per_kwh: 0.12}]   # without it electricity has no price"
    else:
        yield f"    tariff: [{{usd_per_kwh: {answers.usd_per_kwh:g}}}]"


def _rates(found: Survey, answers: Answers) -> Iterator[str]:
    reported = {board.device_type for board in found.boards().values() if board.device_type}
    types = sorted({known for known in canonical_types(reported).values() if known})
    yield "# What a GPU-hour costs: the rent, or the purchase written off. Without an entry a public reference price"
    yield "# counts, where there is one; cost_basis names which."
    given = {kind: usd for kind, usd in answers.usd_per_gpu_hour.items() if kind in types}
    if given:
        yield "cost_rates:"
        for kind, usd in given.items():
            yield f"  - {{device_type: {_scalar(kind)}, usd_per_gpu_hour: {usd:g}, source: stated at discovery}}"
    missing = [kind for kind in types if kind not in given]
    if missing and not given:
        yield "# cost_rates:"
    for kind in missing:
        yield f"#   - {{device_type: {_scalar(kind)}, usd_per_gpu_hour: 2.0, source: contract}}"


def _doubtful(doubtful: Sequence[Doubt], placing: Sequence[str]) -> Iterator[str]:
    entries: dict[str, list[Any]] = {}
    for doubt in doubtful:
        for key, value in (doubt.entry or {}).items():
            if key not in ("replica_labels", "metric_prefix") and isinstance(value, list):
                entries.setdefault(key, []).extend(value)
    if entries or placing:
        yield "# Proposed for what is doubtful: take the # away where it is right."
    for key, values in entries.items():
        yield f"# {key}:"
        for value in values:
            for line in _item({k: v for k, v in value.items() if v is not None}):
                yield f"# {line}"
    yield from (f"# {line}" for line in placing)


def _item(values: Mapping[str, Any]) -> Iterator[str]:
    dumped = yaml.safe_dump(dict(values), sort_keys=False, default_flow_style=None, allow_unicode=True, width=110)
    for n, line in enumerate(dumped.rstrip().split("\n")):
        yield f"  - {line}" if n == 0 else f"    {line}"


def _scalar(text: str) -> str:
    dumped: str = yaml.safe_dump(text, allow_unicode=True)
    return dumped.partition("\n")[0]
