"""What is doubtful in a survey: what the book would flag, or could not know, with what to write into the fleet file.

Add a doubt here with its innocent twin in the tests. Keep out what a fleet file states wrongly: that is `check`.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import NamedTuple

from collectors.unknown_families import is_drawn_power
from pipelines.discovery.survey import Engine, Survey
from pipelines.fleet.catalog import SEEDS

CLOCK_SECONDS = 5.0
OLD = timedelta(minutes=5)
SHOWN = 5
_AGES = (("days", 24 * 60), ("hours", 60), ("minutes", 1))
# Labels by which redundant servers are distinguished; elsewhere they could be places.
REPLICA_LABELS = ("replica", "prometheus_replica", "__replica__", "prometheus", "receive", "monitor")
ROLES = ("prefill", "decode")


class Doubt(NamedTuple):
    """Something doubtful: a line, and what to write into the fleet file, where that would help."""

    line: str
    entry: Mapping[str, object] | None = None


def doubts(found: Survey) -> list[Doubt]:
    """Everything doubtful, the most costly first."""
    return [
        *_times(found),
        *_copies(found),
        *_types(found),
        *_containers(found),
        *_power_and_engines(found),
        *_roles(found),
        *_unread(found),
    ]


def canonical_types(reported: set[str]) -> dict[str, str | None]:
    """Name that an exporter gives a device type -> its name in the seeds, None where they do not know it."""
    names: dict[str, str] = {}
    for seed, key in (("device_types", "device_type"), ("device_type_aliases", "alias")):
        for row in _rows(seed):
            names[row[key].casefold()] = row["device_type"]
    return {name: names.get(name.casefold()) for name in sorted(reported)}


def rated_types() -> set[str]:
    """Device types that the seeds have a rate of."""
    return {row["device_type"] for row in _rows("cost_rates")}


def _times(found: Survey) -> Iterator[Doubt]:
    if found.clock_seconds is not None and abs(found.clock_seconds) > CLOCK_SECONDS:
        way = "ahead of" if found.clock_seconds > 0 else "behind"
        yield Doubt(
            f"The server's clock is {abs(found.clock_seconds):,.0f} s {way} this machine's: samples would be booked at"
            " the server's time. Set both by NTP."
        )
    if found.newest_at is not None and found.at - found.newest_at > OLD:
        minutes = round((found.at - found.newest_at).total_seconds() / 60)
        age = next(f"{minutes // length:,} {unit}" for unit, length in _AGES if minutes >= 2 * length or length == 1)
        of_then = " What is shown here is of then." if found.looked_at == found.newest_at else ""
        yield Doubt(f"The newest sample is {age} old: has the server stopped scraping?{of_then}")
    for metric, count in found.too_many.items():
        yield Doubt(f"{metric} has {count:,} series, too many to look at one by one: narrow the source with matchers.")
    if found.prefixes:
        prefix, count = max(found.prefixes.items(), key=lambda one: one[1])
        yield Doubt(
            f"{count} metrics are known without their prefix {prefix!r}: a source reads them with metric_prefix.",
            {"metric_prefix": prefix},
        )


def _copies(found: Survey) -> Iterator[Doubt]:
    """Redundant servers: series that differ in one label alone."""
    for label in REPLICA_LABELS:
        groups = Counter(
            (one.metric.metric, tuple(sorted((k, v) for k, v in one.labels.items() if k != label)))
            for one in found.series
            if label in one.labels
        )
        if copies := sum(count > 1 for count in groups.values()):
            yield Doubt(
                f"{copies:,} series are there more than once and differ in the label {label} alone: redundant servers"
                " saw the same. They are read once.",
                {"replica_labels": [label]},
            )
    kinds: dict[str, set[str]] = {}
    for one in found.of("energy", "power"):
        if one.metric.meter_scope == "board" and (uuid := one.meant.get("device_uuid")):
            kinds.setdefault(uuid, set()).add(one.metric.source_kind)
    for exporters, count in Counter(tuple(sorted(seen)) for seen in kinds.values() if len(seen) > 1).items():
        yield Doubt(f"{_boards(count)} metered by {' and '.join(exporters)}: each joule is booked once.")


def _types(found: Survey) -> Iterator[Doubt]:
    boards = found.boards().values()
    types = Counter(board.device_type or "" for board in boards)
    if nameless := types.pop("", 0):
        yield Doubt(
            f"{_boards(nameless)} without a type: they have no idle reference and no rate. Name them under devices."
        )
    for name, known in canonical_types(set(types)).items():
        if known is None:
            yield Doubt(
                f"The device type {name!r} ({_boards(types[name]).removesuffix(' are').removesuffix(' is')}) is not"
                " among the known ones: it has no idle reference and no rate.",
                {"device_types": [{"name": _plain(name), "aliases": [name], "power_limit_watts": None}]},
            )


def _containers(found: Survey) -> Iterator[Doubt]:
    """Nodes with a container's number, where no label `node` has the host's name."""
    boards = [one for one in found.of("energy", "power") if one.metric.meter_scope == "board"]
    named = {one.meant.get("node", "") for one in boards if not one.labels.get("node")}
    if numbers := sorted(name for name in named if re.fullmatch("[0-9a-f]{12}", name)):
        yield Doubt(
            f"{len(numbers)} nodes of boards are called as a container is: {_named(numbers)}. Did the exporter take its"
            " container's number for the host's name? Then write the host:"
            f" nodes: [{{name: HOST, aliases: [{numbers[0]}]}}], or its wall meter is booked beside its boards."
        )


def _power_and_engines(found: Survey) -> Iterator[Doubt]:
    boards, engines = found.boards(), found.engines()
    served = {engine.pod for engine in engines.values() if engine.pod}
    pods = _pods_of_boards(found, served)
    nodes = {_short(board.node) for board in boards.values() if board.node}
    if boards and engines:
        dark = sorted(one.name for one in engines.values() if not _has_power(one, pods, nodes))
        if dark:
            yield Doubt(
                f"{len(dark)} of {len(engines)} engines have no metered board: {_named(dark)}."
                " Their tokens have no joules. Is the exporter missing on their hosts, or is the host named otherwise?"
            )
    elif boards:
        yield Doubt("No engine is known here: the energy of all boards will be free or unknown, and J/token is empty.")
    elif engines:
        yield Doubt("No power meter is known here: tokens will have no joules. docs/agent.md shows how to add one.")
    # A group's workers are named after the pod that leads it (big-0, big-0-1): the book knows them.
    idle = sorted(pod for pod in pods if pod and pod not in served and pod.rpartition("-")[0] not in served)
    if engines and idle:
        yield Doubt(
            f"{len(idle)} pods hold boards and give no tokens: {_named(idle)}. If they work for another engine, state"
            " it under engines[].pods; if they serve no LLM, under engines[].work."
        )


def _roles(found: Survey) -> Iterator[Doubt]:
    engines = found.engines().values()
    seen = {role: [e.name for e in engines if role in e.name.casefold()] for role in ROLES}
    if all(seen.values()):
        yield Doubt(
            f"{_named(seen['prefill'])} look by their names like a pool for prefill, {_named(seen['decode'])} like one"
            " for decode: if they serve the same requests, give both roles and one deployment.",
            {"engines": [{"engine": _pattern(seen[role]), "role": role, "deployment": "pool"} for role in ROLES]},
        )


def _unread(found: Survey) -> Iterator[Doubt]:
    drawn = [name for name in found.unread if is_drawn_power(name)]
    if drawn:
        yield Doubt(
            f"{len(drawn)} metrics look like power or energy and are not read: {_named(drawn)}. A row in two seeds"
            " adds an exporter (CONTRIBUTING.md)."
        )


def _has_power(engine: Engine, pods: set[str], nodes: set[str]) -> bool:
    return (engine.pod is not None and engine.pod in pods) or (engine.node is not None and _short(engine.node) in nodes)


def _pods_of_boards(found: Survey, served: set[str]) -> set[str]:
    """The pods that boards' labels name, without those of exporters: what is seen beside `exported_pod`, or runs a
    container that the seed has, and is no engine's."""
    containers = {(row["source_kind"], row["container"]) for row in _rows("exporter_containers")}
    boards = [one for one in found.of("energy", "power") if one.metric.meter_scope == "board"]
    workloads = {_pod(one.meant) for one in boards if "workload_pod" in one.meant}
    beside = {_bare_pod(one.meant) for one in boards if "workload_pod" in one.meant} - workloads
    own = {_daemon_set(pod) for pod in beside if pod}
    bare = [one for one in boards if "workload_pod" not in one.meant]
    of_exporters = {
        pod
        for one in bare
        if (pod := _pod(one.meant)) is not None
        and (_daemon_set(pod) in own or (one.metric.source_kind, one.meant.get("container")) in containers)
    }
    named = {pod for one in boards if (pod := _pod(one.meant)) is not None}
    return named - (of_exporters - workloads - served)


def _daemon_set(pod: str) -> str:
    return re.sub(r"-[a-z0-9]{5}$", "", pod)


def _bare_pod(meant: Mapping[str, str]) -> str | None:
    """The pod of the label `pod`, which beside `exported_pod` is the exporter's own."""
    pod, namespace = meant.get("pod"), meant.get("namespace")
    return f"{namespace}/{pod}" if pod and namespace else pod


def _pod(meant: Mapping[str, str]) -> str | None:
    pod, namespace = (
        meant.get("workload_pod") or meant.get("pod"),
        meant.get("workload_namespace") or meant.get("namespace"),
    )
    return f"{namespace}/{pod}" if pod and namespace else pod


def _short(name: str) -> str:
    host = name.partition(":")[0]
    return host if host.replace(".", "").isdigit() else host.partition(".")[0].casefold()


def _pattern(names: list[str]) -> str:
    first, last = min(names), max(names)
    common = next((n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return names[0] if len(names) == 1 else f"{first[:common]}*"


def _plain(name: str) -> str:
    return "-".join("".join(one if one.isalnum() else " " for one in name.casefold()).split())


def _boards(count: int) -> str:
    return "1 board is" if count == 1 else f"{count:,} boards are"


def _named(listed: list[str]) -> str:
    more = f" and {len(listed) - SHOWN:,} more" if len(listed) > SHOWN else ""
    return ", ".join(listed[:SHOWN]) + more


def _rows(seed: str) -> list[dict[str, str]]:
    with (SEEDS / f"{seed}.csv").open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))
