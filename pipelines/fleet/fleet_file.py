"""The fleet file: one YAML that a user edits, read whole and validated before anything runs.

Add a key here for a fact that telemetry does not have. Keep out what a source reports itself, and
reference values that are the same for everybody: those are dbt seeds. The kinds of sources are in `sources`.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import date, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AwareDatetime, Field, ValidationError, model_validator

from collectors.collector import Collector
from pipelines.fleet import fleet_yaml, grid_zones
from pipelines.fleet.fleet_errors import FleetError, problems
from pipelines.fleet.fleet_limits import FleetLimits
from pipelines.fleet.grid_sources import GridIntensity
from pipelines.fleet.landing_targets import LandingTarget, unbookable_landings
from pipelines.fleet.money.bills import Bills, bills_of_unknown_sites
from pipelines.fleet.money.budgets import Budget, ReportingCurrency, double_budgets, unknown_scopes
from pipelines.fleet.money.commitments import CommitmentOffer, doubtful_commitments, offers_of_unknown_sites
from pipelines.fleet.money.cost_rates import (
    Commitment,
    CostRate,
    CostRateFile,
    SpotRate,
    double_rates,
    stated_rates,
    wrong_capacity_prices,
)
from pipelines.fleet.money.energy_contracts import (
    EnergyContract,
    double_residual_mixes,
    wrong_contracts,
)
from pipelines.fleet.money.focus_exports import FocusExport, wrong_exports
from pipelines.fleet.money.price_files import Prices
from pipelines.fleet.money.site_charges import double_charges
from pipelines.fleet.money.tariffs import double_tariffs
from pipelines.fleet.money.token_prices import ContractPrices, ListPrice
from pipelines.fleet.node_gpus import NodeGpus, miscounted_gpus
from pipelines.fleet.places import data_folder
from pipelines.fleet.publication_targets import PublicationTargets
from pipelines.fleet.request_sources import AnyRequestSource, Benchmark
from pipelines.fleet.run_windows import RunWindows
from pipelines.fleet.sites import Site
from pipelines.fleet.sources import AnySource, GivenName, Name, NonNegative, Part, Positive

logger = logging.getLogger(__name__)

__all__ = ["Fleet", "FleetError", "load_fleet"]

Role = Literal["unified", "prefill", "decode"]
Work = Literal["training", "embeddings", "batch", "other"]


class Period(Part):
    """UTC dates [start, end); without an end the period runs up to yesterday."""

    start: date
    end: date | None = None

    @model_validator(mode="after")
    def _forward(self) -> Period:
        if self.end is not None and self.end <= self.start:
            raise ValueError(f"expected an end after the start {self.start}; the end itself is not part of the period")
        return self


class Node(Part):
    """A host; `host_watts` is what it draws beside its accelerators, where known. `aliases` are the other names that
    sources give it: an address, a BMC. `gpus` are the accelerators in it: what no meter shows of them is unmetered."""

    name: Name
    aliases: tuple[Name, ...] = ()
    site: Name | None = None
    rack: Name | None = None
    device_type: GivenName | None = None
    host_watts: NonNegative | None = None
    gpus: tuple[NodeGpus, ...] = ()


class Device(Part):
    """A device that no label places, or places wrongly, or that is kept free on purpose (`spare`)."""

    device_uuid: Name
    node: Name | None = None
    device_type: GivenName | None = None
    spare: bool = False


class DeviceType(Part):
    """A device type that the seed `device_types` lacks, or describes wrongly: what this entry leaves out is the seed's.

    `aliases` are the names that exporters give it. Watts and memory are those of one device, a board, or of a whole
    node where only its wall meter is read (`gpus` is the number of accelerators in it).
    """

    name: GivenName
    aliases: tuple[Name, ...] = ()
    gpus: Annotated[int, Field(strict=True, gt=0)] | None = None
    memory_gib: Positive | None = None
    memory_bandwidth_gb_per_second: Positive | None = None
    power_limit_watts: Positive | None = None
    idle_watts_bare: NonNegative | None = None
    idle_watts_loaded: NonNegative | None = None
    embodied_kgco2e: NonNegative | None = None
    embodied_life_years: Positive | None = None


class Slo(Part):
    """What a good request keeps to: its time to first token, its mean time per output token after it, and the share of
    requests that has to be good for a load to count as served."""

    ttft_seconds: Positive | None = None
    tpot_seconds: Positive | None = None
    attainment_ratio: Annotated[float, Field(gt=0, le=1)] = 0.95

    @model_validator(mode="after")
    def _of_something(self) -> Slo:
        if self.ttft_seconds is None and self.tpot_seconds is None:
            raise ValueError("expected at least one of ttft_seconds and tpot_seconds")
        return self


class Model(Part):
    """A model's canonical name, the names it is served under, what its operator promises and what its sizing needs.

    Weights and KV cache that are left out come from the seed `models`. Models of one `keep_apart` share no node.
    """

    name: GivenName
    aliases: tuple[Name, ...] = ()
    slo: Slo | None = None
    min_replicas: Annotated[int, Field(strict=True, ge=0)] = 1
    cold_start_seconds: Positive | None = None
    keep_apart: Name | None = None
    list_price: ListPrice | None = None
    contract_prices: ContractPrices = ()
    weights_gib: Positive | None = None
    kv_bytes_per_token: Positive | None = None
    context_tokens: Annotated[int, Field(strict=True, gt=0)] | None = None


class Engine(Part):
    """What telemetry lacks about an engine. `engine` is its name in the ledger (namespace/pod, a pod, host:port).

    `pods` (namespace/pod, or a Slurm job) work for it beside its own: the other nodes of a tensor-parallel engine, the
    workers behind a frontend. Both may end with `*`; the first entry that fits an engine counts. `targets` are the
    addresses (label `instance`) under which its page is scraped, where nothing else shows that it is one process.
    `accelerators` is false for one that runs on a CPU. `work` is for pods that hold accelerators and serve no LLM: they
    have no tokens, and `model` is the name of what they do.
    """

    engine: GivenName
    model: GivenName | None = None
    deployment: GivenName | None = None
    team: GivenName | None = None
    role: Role | None = None
    node: Name | None = None
    pods: tuple[GivenName, ...] = ()
    targets: tuple[Name, ...] = ()
    accelerators: bool = True
    work: Work | None = None

    @model_validator(mode="after")
    def _work_has_a_board(self) -> Engine:
        if self.work is not None and not self.accelerators:
            raise ValueError(f"got work {self.work!r} without accelerators, expected one of the two")
        return self

    @model_validator(mode="after")
    def _pods_work_for_one(self) -> Engine:
        for name in (self.engine, *self.pods):
            if "*" in name[:-1]:
                raise ValueError(f"got {name!r}, expected '*' at the end only")
        for key in ("pods", "targets"):
            if getattr(self, key) and self.engine.endswith("*"):
                raise ValueError(f"engine: got {self.engine!r}, expected one engine's whole name because it has {key}")
        return self


class Assignment(Part):
    """Who uses a device or node in [start_at, end_at), where labels do not show it."""

    device_uuid: Name | None = None
    node: Name | None = None
    engine: GivenName | None = None
    model: GivenName | None = None
    deployment: GivenName | None = None
    namespace: GivenName | None = None
    team: GivenName | None = None
    role: Role | None = None
    start_at: AwareDatetime
    end_at: AwareDatetime | None = None

    @model_validator(mode="after")
    def _one_place(self) -> Assignment:
        if (self.device_uuid is None) == (self.node is None):
            raise ValueError("expected exactly one of device_uuid and node")
        if self.end_at is not None and self.end_at <= self.start_at:
            raise ValueError(f"end_at: got {self.end_at}, expected a time after start_at {self.start_at}")
        return self


class Fleet(Part):
    """A whole fleet file. `path` is where it was read, `root` where its data goes."""

    fleet: Annotated[str, Field(pattern=r"^[a-z0-9_-]+$")]
    synthetic: bool = False
    description: str = ""
    grid_seconds: Annotated[int, Field(strict=True, gt=0)] = 300
    max_spread_days: Positive = 3
    limits: FleetLimits = FleetLimits()
    period: Period
    sources: list[AnySource] = Field(default_factory=list)
    landing: LandingTarget = LandingTarget()
    grid_intensity: GridIntensity = GridIntensity()
    prices: Prices = Prices()
    run_windows: RunWindows = RunWindows()
    requests: tuple[AnyRequestSource, ...] = ()
    benchmarks: tuple[Benchmark, ...] = ()
    sites: tuple[Site, ...] = ()
    nodes: tuple[Node, ...] = ()
    devices: tuple[Device, ...] = ()
    device_types: tuple[DeviceType, ...] = ()
    models: tuple[Model, ...] = ()
    engines: tuple[Engine, ...] = ()
    teams: dict[GivenName, GivenName] = Field(default_factory=dict)
    cost_rates: tuple[CostRate, ...] = ()
    cost_rate_files: tuple[CostRateFile, ...] = ()
    commitments: tuple[Commitment, ...] = ()
    commitment_offers: tuple[CommitmentOffer, ...] = ()
    energy_contracts: tuple[EnergyContract, ...] = ()
    spot_rates: tuple[SpotRate, ...] = ()
    bills: Bills = Bills()
    focus_exports: tuple[FocusExport, ...] = ()
    budgets: tuple[Budget, ...] = ()
    reporting_currency: ReportingCurrency | None = None
    assignments: tuple[Assignment, ...] = ()
    publication: PublicationTargets = PublicationTargets()
    path: Path = Field(default=Path(), exclude=True)
    root: Path = Field(default=Path(), exclude=True)

    @property
    def telemetry(self) -> str:
        """What its figures are made of, in the words of a picture's title."""
        return "synthetic telemetry" if self.synthetic else "metered"

    @property
    def warehouse(self) -> Path:
        """The DuckDB file that the pipeline writes."""
        return self.root / "warehouse.duckdb"

    @property
    def published(self) -> Path:
        """The folder that readers see."""
        return self.root / "published"

    @property
    def snapshot(self) -> Path:
        """The DuckDB file that readers open; missing before the first publication."""
        return self.published / "wattledger.duckdb"

    @property
    def latest_publication(self) -> Path | None:
        """The folder of the publication that readers see; None before the first one."""
        latest = self.published / "latest"
        return latest.resolve() if latest.is_symlink() and latest.is_dir() else None

    def days(self, today: date) -> list[date]:
        """The UTC dates of the period that are over on `today`, in order."""
        end = min(self.period.end or today, today)
        return [self.period.start + timedelta(days=n) for n in range((end - self.period.start).days)]

    def zones(self) -> dict[str, str]:
        """Site -> its grid zone."""
        return {site.name: site.zone for site in self.sites}

    def collectors(self) -> list[Collector]:
        """One collector per source, in the file's order."""
        return [source.collector() for source in self.sources]


def load_fleet(path: Path | str, environ: Mapping[str, str] = os.environ) -> Fleet:
    """The fleet file at `path`, or FleetError with everything that is wrong in it, at once."""
    path = Path(path).absolute()
    raw = fleet_yaml.read(path)
    if not isinstance(raw, dict):
        raise FleetError(path, ["expected a mapping with the keys fleet, period, sources, …"])
    reserved = sorted({"path", "root"} & raw.keys())
    name = raw["fleet"] if isinstance(raw.get("fleet"), str) else "unnamed"
    data, moved = data_folder(path, name, environ)
    root = data / name
    notices = [moved] if moved else []
    context = {"environ": environ, "roots": {"fleet": path.parent, "data": root}, "notices": notices}
    try:
        fleet = Fleet.model_validate({**raw, "path": path, "root": root}, context=context)
    except ValidationError as wrong:
        raise FleetError(path, [*(f"{key}: unknown key" for key in reserved), *problems(wrong, raw, Fleet)]) from None
    found = [*(f"{key}: unknown key" for key in reserved), *_disagreements(fleet)]
    if found:
        raise FleetError(path, found)
    for notice in (*notices, *_doubts(fleet)):
        # Without a handler Python prints a warning to stderr: so does every command that reads a fleet file.
        logger.warning("%s: %s", path.name, notice)
    return fleet


def _disagreements(fleet: Fleet) -> Iterator[str]:
    """What is wrong between parts that are each right."""
    if not (fleet.sources or fleet.requests or fleet.benchmarks):
        yield "sources: got none, expected at least one of sources, requests and benchmarks"
    if 3600 % fleet.grid_seconds:
        yield f"grid_seconds: got {fleet.grid_seconds}, expected a divisor of 3600"
    if not fleet.synthetic and any(source.kind == "synthetic" for source in fleet.sources):
        yield "synthetic: got false, expected true because a source is of kind synthetic: readers must see it"
    for key, names in (
        ("sources", [source.name for source in (*fleet.sources, *fleet.grid_intensity.sources)]),
        ("requests", [source.name for source in fleet.requests]),
        ("benchmarks", [benchmark.name for benchmark in fleet.benchmarks]),
        ("sites", [site.name for site in fleet.sites]),
        ("nodes", [name for node in fleet.nodes for name in (node.name, *node.aliases)]),
        ("devices", [device.device_uuid for device in fleet.devices]),
        ("engines[].targets", [target for engine in fleet.engines for target in engine.targets]),
        ("device_types", [name for kind in fleet.device_types for name in {kind.name, *kind.aliases}]),
        ("models", [name for model in fleet.models for name in (model.name, *model.aliases)]),
        ("commitments", [commitment.commitment for commitment in fleet.commitments]),
        ("prices.files", [f"{file.source} from {file.valid_from}" for file in fleet.prices.files]),
        ("run_windows.inline", [window.window_id for window in fleet.run_windows.inline]),
    ):
        for name in sorted(name for name, count in Counter(names).items() if count > 1):
            yield f"{key}: {name!r} is there more than once, expected unique names"
    yield from unbookable_landings(fleet.landing)
    sites = {site.name for site in fleet.sites}
    for key, part in [("sources", s) for s in fleet.sources] + [("nodes", n) for n in fleet.nodes]:
        if part.site is not None and part.site not in sites:
            yield f"{key}[{part.name}].site: got {part.site!r}, expected one of the sites {sorted(sites)}"
    yield from miscounted_gpus([(node.name, node.site, node.gpus) for node in fleet.nodes], sites)
    yield from wrong_capacity_prices(fleet.commitments, fleet.spot_rates, sites)
    yield from offers_of_unknown_sites(fleet.commitment_offers, sites)
    lists = {file.source for file in fleet.prices.files}
    for model in fleet.models:
        if model.list_price is not None and model.list_price.source not in lists:
            yield (
                f"models[{model.name}].list_price.source: got {model.list_price.source!r}, expected one of the sources"
                f" under prices.files {sorted(lists)}"
            )
    yield from bills_of_unknown_sites(fleet.bills, sites)
    yield from wrong_exports(fleet.focus_exports, sites, stated_rates(fleet.cost_rates, fleet.cost_rate_files))
    yield from wrong_contracts(fleet.energy_contracts, sites)
    yield from double_budgets(fleet.budgets)
    yield from grid_zones.unserved_sites(fleet.zones(), fleet.grid_intensity)
    for site in fleet.sites:
        yield from double_tariffs(site.name, site.tariff)
        yield from double_charges(site.name, site.charges)
        yield from double_residual_mixes(site.name, site.residual_mixes)
    yield from double_rates(fleet.cost_rates, fleet.cost_rate_files)
    yield from _double_assignments(fleet)


def _doubts(fleet: Fleet) -> Iterator[str]:
    """What is perhaps wrong: it is taken as it is, with a warning."""
    yield from grid_zones.unused_sources(fleet.zones(), fleet.grid_intensity)
    only = fleet.sites[0].name if len(fleet.sites) == 1 else None
    yield from doubtful_commitments(fleet.commitments, [(node.site or only, node.gpus) for node in fleet.nodes])
    yield from _doubtful_budgets(fleet)


def _doubtful_budgets(fleet: Fleet) -> Iterator[str]:
    placed: list[Engine | Assignment] = [*fleet.engines, *fleet.assignments]
    known = {
        "team": {*fleet.teams.values(), *(part.team for part in placed if part.team)},
        "model": {*(model.name for model in fleet.models), *(part.model for part in placed if part.model)},
        "site": {site.name for site in fleet.sites},
    }
    canonical = {alias: model.name for model in fleet.models for alias in model.aliases}
    yield from unknown_scopes(fleet.budgets, known, canonical)


def _double_assignments(fleet: Fleet) -> Iterator[str]:
    by_place: dict[tuple[str | None, str | None], list[Assignment]] = {}
    for assignment in fleet.assignments:
        by_place.setdefault((assignment.device_uuid, assignment.node), []).append(assignment)
    for (device_uuid, node), held in by_place.items():
        if device_uuid is None:
            continue  # several models may share a node; a device has one user at a time
        held.sort(key=lambda assignment: assignment.start_at)
        for earlier, later in pairwise(held):
            if earlier.end_at is None or later.start_at < earlier.end_at:
                yield f"assignments: {device_uuid or node} is assigned twice from {later.start_at.isoformat()}"
