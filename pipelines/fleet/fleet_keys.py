"""The keys of a fleet file: what a user may state, and what each part must hold by itself.

Add a key here for a fact that telemetry does not have. Keep out what a source reports itself, and
reference values that are the same for everybody: those are dbt seeds. The kinds of sources are in `sources`.
"""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AwareDatetime, Field, model_validator

from collectors.collector import Collector
from pipelines.fleet.fleet_limits import FleetLimits
from pipelines.fleet.grid_sources import GridIntensity
from pipelines.fleet.landing_targets import LandingTarget, Relanding
from pipelines.fleet.money.bills import Bills
from pipelines.fleet.money.budgets import Budget, ReportingCurrency
from pipelines.fleet.money.commitments import CommitmentOffer
from pipelines.fleet.money.cost_rates import Commitment, CostRate, CostRateFile, SpotRate
from pipelines.fleet.money.energy_contracts import EnergyContract
from pipelines.fleet.money.focus_exports import FocusExport
from pipelines.fleet.money.price_files import Prices
from pipelines.fleet.money.site_charges import Share
from pipelines.fleet.money.token_prices import ContractPrices, ListPrice
from pipelines.fleet.node_gpus import NodeGpus
from pipelines.fleet.request_sources import AnyRequestSource, Benchmark
from pipelines.fleet.run_windows import RunWindows
from pipelines.fleet.running.machine import Machine
from pipelines.fleet.running.receipt_rules import Receipts
from pipelines.fleet.running.retention_rules import Retention
from pipelines.fleet.sites import Site
from pipelines.fleet.sources import AnySource, reader
from pipelines.fleet.targets.alarm_rules import Alarms
from pipelines.fleet.targets.publication_targets import PublicationTargets
from pipelines.fleet.values import GivenName, Name, NonNegative, Part, Positive

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
    most_waiting_ratio: Share = 0.01
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
    relanding: Relanding = Relanding()
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
    alarms: Alarms = Alarms()
    retention: Retention = Retention()
    receipts: Receipts = Receipts()
    machine: Machine = Machine()
    accepted: tuple[Name, ...] = ()
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
        return [reader(source) for source in self.sources]
