"""Entries of the fleet file that no landed telemetry matches: a mistyped node, engine, model, device, rate or alias.

An entry counts within its own dates alone: a node that was retired is right where its assignment ends before the
first booked date. Add here what the fleet file calls by a name that telemetry has, too. Keep out names of people and
contracts, and what the file alone shows: that is `pipelines.fleet.plausibility`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple

import duckdb

from pipelines.fleet.fleet_keys import Assignment, Fleet
from pipelines.fleet.plausibility import OF_TELEMETRY, Finding, labelled, near, unused_acceptance
from pipelines.warehouse import database, statements

_WORDS = {
    "device": "a device_uuid",
    "device_type": "a device type",
    "engine": "an engine, pod, job or address",
    "model": "a model",
    "namespace": "a namespace",
    "node": "a node",
    "site": "a site with a node or source",
    "target": "a scraped address",
}
# Similar names are looked for among so many, for so many entries: comparing two names takes tens of microseconds.
MOST_COMPARED = 5_000
MOST_NEAREST = 50
# How similar the names of two hosts are that are probably one with a typing error (1 is equal).
SAME_HOST = 0.8

Dates = tuple[date, date]
ALWAYS: tuple[Dates, ...] = ((date.min, date.max),)


class Entry(NamedTuple):
    """A name at a key, of a kind, within dates [first, until). One that ends with `*` is the beginning of names.

    `names` are all that would do: an entry with aliases matches by any of them.
    """

    key: str
    kind: str
    names: tuple[str, ...]
    dates: tuple[Dates, ...] = ALWAYS


def unmatched(fleet: Fleet, connection: duckdb.DuckDBPyConnection) -> list[Finding] | None:
    """A finding for each entry that matches nothing, without what `accepted` silences; None before the first booking.
    An entry of `accepted` that silences none of these is a finding as well."""
    held = database.tables(connection, "marts"), database.tables(connection, "reference")
    if "token_ledger" not in held[0] or "label_catalog" not in held[1]:
        return None
    booked = connection.execute("select min(date), max(date) from raw.booked_names").fetchall()[0]
    if booked[0] is None:
        return None
    known: dict[str, dict[str, Dates]] = {}
    for kind, name, first, last in connection.execute(statements.read(__file__, "telemetry_names")).fetchall():
        known.setdefault(kind, {})[name] = (first, last)
    missing = [
        entry
        for entry in entries(fleet)
        if _is_checked(entry, booked) and not _is_matched(entry, known.get(entry.kind, {}))
    ]
    found = [
        _finding(entry, [*known.get(entry.kind, {})] if n < MOST_NEAREST else [], booked)
        for n, entry in enumerate(missing)
    ]
    found += _hosts_of_two_names(fleet, {*known.get("board_host", ())}, {*known.get("metered_host", ())})
    keys = {one.key for one in found}
    unused = [
        unused_acceptance(n, key)
        for n, key in enumerate(fleet.accepted)
        if OF_TELEMETRY.search(key) and key not in keys
    ]
    return [*(one for one in found if one.key not in fleet.accepted), *unused]


def entries(fleet: Fleet) -> Iterator[Entry]:
    """Every name of the fleet file that telemetry should have."""
    spans = _dates_of_places(fleet.assignments)
    for key, site in labelled("sites", fleet.sites):
        yield Entry(f"{key}.name", "site", (site.name,))
    for key, node in labelled("nodes", fleet.nodes):
        gpus = tuple((part.valid_from, part.valid_to or date.max) for part in node.gpus)
        if not gpus:  # what is stated to be in a node needs no meter
            own = [span for name in (node.name, *node.aliases) for span in spans.get(("node", name), [])]
            yield Entry(f"{key}.name", "node", (node.name, *node.aliases), tuple(own) or ALWAYS)
            for alias in node.aliases:
                yield Entry(f"{key}.aliases[{alias}]", "node", (alias,), tuple(own) or ALWAYS)
    for key, device in labelled("devices", fleet.devices):
        own = spans.get(("device", device.device_uuid), [])
        yield Entry(f"{key}.device_uuid", "device", (device.device_uuid,), tuple(own) or ALWAYS)
    for key, kind in labelled("device_types", fleet.device_types):
        yield Entry(f"{key}.name", "device_type", (kind.name, *kind.aliases))
    for key, model in labelled("models", fleet.models):
        yield Entry(f"{key}.name", "model", (model.name, *model.aliases))
        if not (fleet.prices.files or fleet.benchmarks):  # their names are aliases, too
            for alias in model.aliases:
                yield Entry(f"{key}.aliases[{alias}]", "model", (alias,))
    yield from _of_engines(fleet)
    for namespace in fleet.teams:
        yield Entry(f"teams[{namespace}]", "namespace", (namespace,))
    yield from _of_prices(fleet)
    yield from _of_assignments(fleet)


def _of_engines(fleet: Fleet) -> Iterator[Entry]:
    for key, engine in labelled("engines", fleet.engines):
        yield Entry(f"{key}.engine", "engine", (engine.engine, *engine.pods, *engine.targets))
        for pod in engine.pods:
            yield Entry(f"{key}.pods[{pod}]", "engine", (pod,))
        if engine.node is not None:
            yield Entry(f"{key}.node", "node", _names_of_node(fleet, engine.node))
        for target in engine.targets:
            yield Entry(f"{key}.targets[{target}]", "target", (target,))


def _of_prices(fleet: Fleet) -> Iterator[Entry]:
    """Rates and commitments: of a device type that is in a meter's labels, or stated to be in a node."""
    stated = {part.device_type for node in fleet.nodes for part in node.gpus}
    for name in ("cost_rates", "commitments"):
        for key, price in labelled(name, getattr(fleet, name)):
            if price.device_type not in stated:
                dates = ((price.valid_from, price.valid_to or date.max),)
                yield Entry(f"{key}.device_type", "device_type", (price.device_type,), dates)
    for key, spot in labelled("spot_rates", fleet.spot_rates):
        if spot.device_type not in stated:
            yield Entry(f"{key}.device_type", "device_type", (spot.device_type,), (_dates(spot.start_at, spot.end_at),))


def _of_assignments(fleet: Fleet) -> Iterator[Entry]:
    named = {engine.engine for engine in fleet.engines if engine.work is not None}
    for key, one in labelled("assignments", fleet.assignments):
        dates = (_dates(one.start_at, one.end_at),)
        if one.device_uuid is not None:
            yield Entry(f"{key}.device_uuid", "device", (one.device_uuid,), dates)
        if one.node is not None:
            yield Entry(f"{key}.node", "node", _names_of_node(fleet, one.node), dates)
        # One with a model needs no telemetry of its engine: the file names what it does.
        if one.engine is not None and one.model is None and one.engine not in named:
            yield Entry(f"{key}.engine", "engine", (one.engine,), dates)


def _hosts_of_two_names(fleet: Fleet, of_boards: set[str], metered: set[str]) -> Iterator[Finding]:
    """Nodes of the file that have a wall meter and no board, beside a host of almost that name that has boards and no
    wall meter: its joules would be booked twice."""
    canonical = {alias: node.name for node in fleet.nodes for alias in node.aliases}
    with_boards, with_meter = ({canonical.get(name, name) for name in names} for names in (of_boards, metered))
    bare = {name.casefold(): name for name in with_boards - with_meter - {node.name for node in fleet.nodes}}
    for key, node in labelled("nodes", fleet.nodes):
        alike = difflib.get_close_matches(node.name.casefold(), bare, n=1, cutoff=SAME_HOST)
        if node.name in with_meter - with_boards and alike:
            beside = f"beside {bare[alike[0]]!r}, which has boards and no wall meter"
            got = f"{node.name!r}, which has a wall meter and no board, {beside}"
            yield Finding(f"{key}.name", got, "one name for all meters of a host")


def _names_of_node(fleet: Fleet, named: str) -> tuple[str, ...]:
    """A node's name and aliases, the one that the entry has first."""
    names = next(({node.name, *node.aliases} for node in fleet.nodes if named in (node.name, *node.aliases)), {named})
    return (named, *sorted(names - {named}))


def _dates_of_places(assignments: Iterable[Assignment]) -> dict[tuple[str, str], list[Dates]]:
    """When the file assigns each device and node."""
    found: dict[tuple[str, str], list[Dates]] = {}
    for one in assignments:
        place = ("node", one.node or "") if one.device_uuid is None else ("device", one.device_uuid)
        found.setdefault(place, []).append(_dates(one.start_at, one.end_at))
    return found


def _dates(start_at: datetime, end_at: datetime | None) -> Dates:
    """UTC dates [first, until) that the span touches."""
    if end_at is None:
        return start_at.astimezone(UTC).date(), date.max
    last_us = end_at.astimezone(UTC) - timedelta(microseconds=1)
    return start_at.astimezone(UTC).date(), last_us.date() + timedelta(days=1)


def _is_checked(entry: Entry, booked: Sequence[date]) -> bool:
    return any(first <= booked[1] and until > booked[0] for first, until in entry.dates)


def _is_matched(entry: Entry, known: Mapping[str, Dates]) -> bool:
    """Whether telemetry has one of the entry's names from a first to a last date that touch the entry's own."""
    beginnings = tuple(name[:-1] for name in entry.names if name.endswith("*"))
    held = [known[name] for name in entry.names if name in known]
    held += [dates for name, dates in known.items() if name.startswith(beginnings)] if beginnings else []
    return any(first <= dates[1] and until > dates[0] for dates in held for first, until in entry.dates)


def _finding(entry: Entry, known: Sequence[str], booked: Sequence[date]) -> Finding:
    got = repr(entry.names[0]) + (f" (or {', '.join(entry.names[1:])})" if len(entry.names) > 1 else "")
    first = max(booked[0], min(first for first, _ in entry.dates))
    last = min(booked[1], max(until for _, until in entry.dates) - timedelta(days=1))
    compared = [name for name in known[:MOST_COMPARED] if name not in entry.names]
    expected = f"{_WORDS[entry.kind]} that telemetry has, {first} to {last}"
    nearest = next(filter(None, (near(name.removesuffix("*"), compared) for name in entry.names)), "")
    return Finding(entry.key, got, f"{expected}{nearest}")
