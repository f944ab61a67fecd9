"""The survey of a server: its exporters, boards, engines, meters and gateways, by the labels of known metrics.

Add here a further thing that labels show. Keep out doubts about what was found (`doubts`) and the text of a fleet file
(`fleet_text`). What a label means is a row of the catalogues; what the book makes of it is shown by first numbers.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import NamedTuple, Protocol

from collectors.catalogue import SPELLINGS, spelled
from collectors.personal_labels import LABELS_OF_PERSONS, NO_NAME, is_personal, page_labels, read_labels
from collectors.probes.unknown_server import SPAN, Product
from collectors.protocols.http_errors import OverLimitError
from collectors.unknown_families import is_drawn_power, is_listed
from pipelines.fleet.catalog import SEEDS

# Of what the labels are read. Of all others (buckets, limits, caches) the names are enough.
READ_QUANTITIES = frozenset({"energy", "power", "tokens", "device_info", "cooling_energy", "cooling_power"})
# A prefix that was put before an exporter's names counts when it is before this many of them.
PREFIXED = 2
KUBERNETES_NODES = "kube_node_info"
_ADDRESS = re.compile(r"\d{1,3}(\.\d{1,3}){3}(:\d+)?")
# What gateways themselves call whoever asked, the most exact first; an operator may add labels of his own.
LABELS_OF_TENANTS = ("tenant_id", "api_key_alias", "fairness_id", "user_id")


class Place(Protocol):
    """A server, a spool or a metrics page. Each method raises SourceError where it does not answer."""

    @property
    def url(self) -> str:
        """The place as it may be shown."""

    @property
    def at(self) -> datetime:
        """The moment that is asked about."""

    def names(self) -> list[str]:
        """The names of all metrics."""

    def series(self, metric: str) -> list[dict[str, str]]:
        """The labels of the series of one metric. OverLimitError where these are too many."""

    def count(self, metric: str) -> int:
        """The number of series of one metric."""

    def interval_seconds(self, metric: str) -> float | None:
        """The seconds between two samples of a metric."""

    def newest_at(self, metric: str) -> datetime | None:
        """The time of the newest sample of a metric."""

    def product(self) -> Product:
        """What the place is."""

    def clock_seconds(self) -> float | None:
        """How far its clock is ahead."""

    def oldest_days(self, metric: str) -> int | None:
        """Since how many whole days a metric has samples."""


class Metric(NamedTuple):
    """A row of the catalogue, as far as a survey reads it."""

    source_kind: str
    metric: str
    stream: str
    quantity: str
    level: str
    meter_scope: str


class Series(NamedTuple):
    """One series: its metric, its labels, and what these mean by the catalogue."""

    metric: Metric
    labels: Mapping[str, str]
    meant: Mapping[str, str]


class Board(NamedTuple):
    """An accelerator, and where the exporter sees it."""

    device_uuid: str
    device_type: str | None
    node: str | None


class Engine(NamedTuple):
    """What serves a model, by the most exact name that its labels have."""

    name: str
    kind: str
    model: str | None
    node: str | None
    pod: str | None


@dataclass(frozen=True)
class Survey:
    """What a server holds. `too_many` are metrics with more series than one answer may have, with their number;
    `unread` names that look like power, energy or tokens and that no row of the catalogue knows."""

    url: str
    at: datetime
    product: Product
    clock_seconds: float | None
    newest_at: datetime | None
    oldest_days: int | None
    intervals: Mapping[str, float]
    metrics: Sequence[Metric]
    series: Sequence[Series]
    unread: Sequence[str]
    prefixes: Mapping[str, int]
    provider_ids: Sequence[str]
    too_many: Mapping[str, int] = field(default_factory=dict)

    @property
    def looked_at(self) -> datetime:
        """The moment that was looked at: `at`, or where the samples ended earlier the newest of them."""
        return self.at if self.newest_at is None or self.at - self.newest_at < SPAN else self.newest_at

    def of(self, *quantities: str) -> Iterator[Series]:
        """The series of these quantities."""
        return (one for one in self.series if one.metric.quantity in quantities)

    def boards(self) -> dict[str, Board]:
        """Device -> board, of all exporters together; what one leaves out another may have."""
        found: dict[str, Board] = {}
        for one in self.of("energy", "power", "device_info"):
            if one.metric.meter_scope in ("board", "module") or one.metric.quantity == "device_info":
                name = _device(one.meant)
                if name is None:
                    continue
                before = found.get(name, Board(name, None, None))
                found[name] = Board(
                    name, before.device_type or one.meant.get("device_type"), before.node or one.meant.get("node")
                )
        return found

    def meters(self) -> dict[str, Counter[str]]:
        """Scope of a meter beyond boards (node, rack, facility) -> how many of each exporter."""
        names: dict[str, set[tuple[str, str]]] = {}
        for one in self.of("energy", "power", "cooling_energy", "cooling_power"):
            if one.metric.meter_scope not in ("board", "module", ""):
                place = (
                    one.meant.get("node") or one.meant.get("rack") or one.meant.get("pdu") or one.meant.get("facility")
                )
                names.setdefault(one.metric.meter_scope, set()).add((one.metric.source_kind, place or ""))
        return {scope: Counter(kind for kind, _ in found) for scope, found in names.items()}

    def engines(self, level: str = "engine") -> dict[str, Engine]:
        """Engine -> what serves, of this level: engine, frontend or gateway."""
        found: dict[str, Engine] = {}
        hosts = self._hosts()
        for one in self.of("tokens"):
            if one.metric.level == level:
                made = _engine(one)
                made = made._replace(node=hosts.get(made.node or "", made.node))
                before = found.get(made.name)
                found[made.name] = made if before is None or before.model is None else before
        return found

    def tenant_labels(self) -> list[str]:
        """Labels of gateways' token counters that may name who asked: what gateways call so, then those with several
        values that neither the gateway's makers nor a scraper write. No label whose values are all addresses or
        mails."""
        values: dict[str, set[str]] = {}
        for one in self.of("tokens"):
            if one.metric.level == "gateway":
                kind = one.metric.source_kind
                for label, value in one.labels.items():
                    is_name = value not in ("", NO_NAME.get(kind)) and not is_personal(value)
                    if is_name and label not in _written_labels(kind):
                        values.setdefault(label, set()).add(value)
        own = sorted(label for label, found in values.items() if label not in LABELS_OF_TENANTS and len(found) > 1)
        return [label for label in LABELS_OF_TENANTS if label in values] + own

    def nodes(self) -> set[str]:
        """The nodes that boards and meters are in, and those that engines name. Where boards name hosts, a wall meter's
        address is a BMC's or a host's own; the address of a pod is never a node's."""
        boards = {board.node for board in self.boards().values()} - {None}
        meters = {one.meant.get("node") for one in self.of("energy", "power") if one.metric.meter_scope == "node"}
        if any(not is_address(name) for name in boards if name):
            meters = {name for name in meters if name and not is_address(name)}
        named = boards | meters | {engine.node for engine in self.engines().values()}
        return {name for name in named if name}

    def _hosts(self) -> dict[str, str]:
        """Address -> the one host that series of power which are scraped there name, as `stg_host_names` has it."""
        named: dict[str, set[str]] = {}
        for one in self.of("energy", "power"):
            address, node = _host(one.labels.get("instance")), one.meant.get("node")
            if address and is_address(address) and node and not is_address(node):
                named.setdefault(address, set()).add(node)
        return {address: nodes.pop() for address, nodes in named.items() if len(nodes) == 1}

    def exporters(self) -> dict[str, list[Metric]]:
        """Source kind -> its metrics that are there."""
        found: dict[str, list[Metric]] = {}
        for metric in self.metrics:
            found.setdefault(metric.source_kind, []).append(metric)
        return found


def survey(server: Place, report: Callable[[str], None] = lambda _: None) -> Survey:
    """Ask a place; SourceError where it does not answer. `report` is called with what is being asked, in a line."""
    report("names of metrics")
    names = server.names()
    known = _catalogue()
    metrics = [metric for name in names if name in known for metric in known[name]]
    read = sorted({metric.metric for metric in metrics if metric.quantity in READ_QUANTITIES})
    labels: dict[str, list[dict[str, str]]] = {}
    too_many: dict[str, int] = {}
    for metric in read:
        report(f"series of {metric}")
        try:
            labels[metric] = server.series(metric)
        except OverLimitError:
            too_many[metric] = server.count(metric)
    series = [
        Series(metric, one, meaning(metric.source_kind, one))
        for metric in metrics
        for one in labels.get(metric.metric, ())
    ]
    report("intervals, clock and retention")
    present = [metric for metric in metrics if labels.get(metric.metric)]
    intervals = {name: seconds for name in _one_per_kind(present) if (seconds := server.interval_seconds(name))}
    newest = [at for name in intervals if (at := server.newest_at(name)) is not None]
    first = next(iter(intervals), None)
    return Survey(
        url=server.url,
        at=server.at,
        product=server.product(),
        clock_seconds=server.clock_seconds(),
        newest_at=max(newest, default=None),
        oldest_days=server.oldest_days(first) if first else None,
        intervals=intervals,
        metrics=metrics,
        series=series,
        unread=sorted((n for n in names if n not in known and is_listed(n)), key=lambda n: (not is_drawn_power(n), n)),
        prefixes=_prefixes(names, known),
        provider_ids=sorted({one.get("provider_id", "") for one in _maybe(server, names, KUBERNETES_NODES)} - {""}),
        too_many=too_many,
    )


def meaning(source_kind: str, labels: Mapping[str, str]) -> dict[str, str]:
    """Attribute -> value, by the label of the lowest rank that has one."""
    found: dict[str, tuple[int, str]] = {}
    for label, attribute, rank in _labels().get(source_kind, ()):
        value = labels.get(label)
        if value and (attribute not in found or rank < found[attribute][0]):
            found[attribute] = (rank, value)
    return {attribute: value for attribute, (_, value) in found.items()}


def _device(meant: Mapping[str, str]) -> str | None:
    if uuid := meant.get("device_uuid"):
        return uuid
    index, node = meant.get("device_index"), meant.get("node")
    return f"{node}/{index}" if index is not None and node else None


def _engine(one: Series) -> Engine:
    meant = one.meant
    namespace, pod, instance, model = (meant.get(key) for key in ("namespace", "pod", "instance", "model"))
    pod_name = f"{namespace}/{pod}" if namespace and pod else pod
    name = pod_name or instance or (f"{one.metric.level}:{model}" if model else one.metric.source_kind)
    # In Kubernetes a pod is scraped at its own address.
    host = None if pod_name else _host(instance)
    return Engine(name, one.metric.source_kind, model, meant.get("node") or host, pod_name)


def _host(instance: str | None) -> str | None:
    return instance.rpartition(":")[0] or instance if instance else None


def is_address(name: str) -> bool:
    """Whether it is an IP address, with a port or without."""
    host = name.partition("]")[0].strip("[") if name.startswith("[") else name
    return bool(_ADDRESS.fullmatch(host)) or host.count(":") > 1


def _one_per_kind(metrics: Sequence[Metric]) -> list[str]:
    """One metric of each exporter whose interval is asked for: power and energy first."""
    chosen: dict[str, str] = {}
    order = ("power", "energy", "tokens")
    for metric in sorted(metrics, key=lambda m: (order.index(m.quantity) if m.quantity in order else 9, m.metric)):
        if metric.quantity in order:
            chosen.setdefault(metric.source_kind, metric.metric)
    return list(chosen.values())


def _prefixes(names: Sequence[str], known: Mapping[str, object]) -> dict[str, int]:
    """Prefix -> how many known metrics it is put before."""
    counted: Counter[str] = Counter()
    for name in names:
        if name in known:
            continue
        for cut in (match.end() for match in re.finditer("_", name)):
            if name[cut:] in known and len(name[cut:]) > 12:
                counted[name[:cut]] += 1
                break
    return {prefix: count for prefix, count in counted.items() if count >= PREFIXED}


def _maybe(server: Place, names: Sequence[str], metric: str) -> list[dict[str, str]]:
    return server.series(metric) if metric in names else []


@cache
def _written_labels(source_kind: str) -> frozenset[str]:
    """Labels of a gateway's counters that it, or a scraper, writes for something else than who asked."""
    written = {*page_labels().get(source_kind, ()), *read_labels(source_kind), *LABELS_OF_PERSONS}
    return frozenset(written.difference(LABELS_OF_TENANTS))


@cache
def _catalogue() -> Mapping[str, list[Metric]]:
    found: dict[str, list[Metric]] = {}
    with (SEEDS / "metric_catalog.csv").open(newline="", encoding="utf-8") as lines:
        for row in spelled(list(csv.DictReader(lines)), SEEDS / SPELLINGS):
            metric = Metric(*(row[key] for key in Metric._fields))
            if metric not in found.setdefault(metric.metric, []):
                found[metric.metric].append(metric)
    return found


@cache
def _labels() -> Mapping[str, list[tuple[str, str, int]]]:
    found: dict[str, list[tuple[str, str, int]]] = {}
    with (SEEDS / "label_catalog.csv").open(newline="", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            found.setdefault(row["source_kind"], []).append((row["label"], row["attribute"], int(row["rank"])))
    return found
