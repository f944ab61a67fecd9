"""What `discover` asks a person: what only they know, and what each answer would change.

Add a question here where a figure that every user looks for needs its answer. Keep out where an answer is written:
that is `pipelines.discovery.fleet_text`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from pipelines.discovery.doubts import canonical_types, rated_types
from pipelines.discovery.fleet_text import Answers
from pipelines.discovery.survey import Survey
from pipelines.fleet.grid_zones import known_zones, nearest
from pipelines.fleet.plausibility import Plausible, range_of, usual_rate


def unknown(found: Survey) -> list[str]:
    """What only a person knows: what is written without it, and what it would change."""
    clouds = sorted({text.partition("://")[0] for text in found.provider_ids if "://" in text})
    hint = f" (the nodes are {' and '.join(clouds)}'s)" if clouds else ""
    return [
        f"the grid zone of the site{hint}: without it CO2 is empty",
        "its PUE: 1 is assumed, and 1.3 would raise every kWh by 30 %",
        *_unmetered_hosts(found),
        "USD per kWh: without it electricity has no price",
        *(f"USD per GPU-hour of {kind}: without it {_without_a_rate(kind)}" for kind in _types(found)),
    ]


def _types(found: Survey) -> list[str]:
    """The known device types of the boards."""
    reported = {board.device_type for board in found.boards().values() if board.device_type}
    return sorted({known for known in canonical_types(reported).values() if known})


def _without_a_rate(kind: str) -> str:
    return (
        "a public reference price counts" if kind in rated_types() else "its hours have no cost, as no seed has a price"
    )


def _unmetered_hosts(found: Survey) -> Iterator[str]:
    hosts = len({board.node for board in found.boards().values()})
    meters = max(found.meters().get("node", {}).values(), default=0)
    if meters < hosts or not hosts:
        which = f"{hosts - meters} of {hosts} hosts" if meters else "the hosts"
        yield f"watts of {which} beside their boards (nodes[].host_watts): without them they are assumed"


def asked(found: Survey) -> Answers:
    """What only a person knows; an empty answer leaves it out."""
    print("\nWhat only you know (Enter leaves it out)")
    answers = Answers(
        zone=_zone(known_zones()),
        pue=_number(
            "PUE of the site, what cooling and conversion add to every joule", range_of("sites[].pue"), least=1
        ),
        usd_per_kwh=_number("USD per kWh, what electricity costs", range_of("sites[].tariff[].usd_per_kwh")),
    )
    rates = {}
    for kind in _types(found):
        usd = _number(f"USD per GPU-hour of {kind}; without it {_without_a_rate(kind)}", usual_rate(kind), least=0)
        if usd is not None:
            rates[kind] = usd
    return replace(answers, usd_per_gpu_hour=rates)


def _zone(zones: Sequence[str]) -> str | None:
    by_folded = {zone.casefold(): zone for zone in zones}
    while True:
        text = _line("  grid zone, by which a kWh has its gCO2e (such as DE, US-CAL-CISO): ")
        if not text or text.casefold() in by_folded:
            return by_folded.get(text.casefold())
        print(f"    no such zone; {nearest(text, zones)}")


def _number(question: str, usual: Plausible, least: float = -math.inf) -> float | None:
    """What a person answers. What is unusual has to be given twice."""
    doubted: float | None = None
    while True:
        text = _line(f"  {question}: ")
        if not text:
            return None
        try:
            value = float(text.replace(",", "."))
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and value >= least):
            print(f"    got {text!r}, expected a number" + (f" from {least:g} on" if least > -math.inf else ""))
        elif value == doubted or value <= 0 or usual.low <= value <= usual.high:
            return value
        else:
            doubted = value
            unit = f" {usual.unit}" if usual.unit else ""
            print(
                f"    usual is {usual.low:.4g} to {usual.high:.4g}{unit} ({usual.hint}). If it is right, give it again"
            )


def _line(question: str) -> str:
    try:
        return input(question).strip()
    except EOFError:
        print()
        return ""
