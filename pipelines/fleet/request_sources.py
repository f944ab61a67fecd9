"""The request logs and published benchmarks that a fleet file may name: what each kind needs, and how it is read.

Add a kind here together with its reader in `collectors`, whose module is imported only when it is built. Keep out
sources of telemetry: those are in `sources`.
"""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationInfo, model_validator

from collectors.limits import RECORD_LIMITS, Limits
from collectors.records.access_logs import Column
from pipelines.fleet.source_limits import RowLimits
from pipelines.fleet.values import (
    FleetPath,
    GivenName,
    Name,
    Part,
    Positive,
    SourceName,
    TenantLabel,
    TimeZone,
    Variable,
    context_of,
)

if TYPE_CHECKING:
    from collectors.records.askers import Askers
    from collectors.records.benchmark_files import BenchmarkFile
    from collectors.records.request_records import RequestCollector


def _is_long(name: str, info: ValidationInfo) -> str:
    characters = len(context_of(info)["environ"][name])
    if characters < LEAST_KEY_CHARACTERS:
        raise ValueError(
            f"environment variable {name} has {characters} characters, expected {LEAST_KEY_CHARACTERS} or more that"
            " cannot be guessed, such as those of `openssl rand -hex 32`"
        )
    return name


LEAST_KEY_CHARACTERS = 32
UserKey = Annotated[Variable, AfterValidator(_is_long)]


class RequestSource(Part):
    """The keys of every kind of request log. `engine`, `model`, `team` and `tenant` replace the log's own values in
    every request of the source. The ids of users are dropped, unless `user_key_env` names the environment variable with
    the key of their digests (HMAC-SHA256); one is the tenant of a request that names none."""

    name: SourceName
    engine: GivenName | None = None
    model: GivenName | None = None
    team: GivenName | None = None
    tenant: Name | None = None
    user_key_env: UserKey | None = None
    limits: RowLimits = RowLimits()

    @property
    def askers(self) -> Askers:
        """What is kept of who asked."""
        from collectors.records.askers import Askers  # noqa: PLC0415

        return Askers(self.user_key_env)

    @property
    def constants(self) -> dict[str, Any]:
        """The columns that the fleet file fills in."""
        return self.model_dump(include={"engine", "model", "team", "tenant"}, exclude_none=True)


class SpendLogLimits(RowLimits):
    """Also how long a landing waits for a database, for all days of a run."""

    window_seconds: Annotated[float, Field(strict=True, gt=0, le=604_800)] = RECORD_LIMITS.window_seconds


class LiteLLMLog(RequestSource):
    """LiteLLM's spend log: JSON Lines at `path`, or the proxy's PostgreSQL table, by the name of the environment
    variable that holds its connection URI."""

    kind: Literal["litellm"]
    path: FleetPath | None = None
    dsn_env: Variable | None = None
    limits: SpendLogLimits = SpendLogLimits()

    @model_validator(mode="after")
    def _one_place(self) -> LiteLLMLog:
        if (self.path is None) == (self.dsn_env is None):
            raise ValueError("expected either path (JSON Lines) or dsn_env (PostgreSQL)")
        return self

    def collector(self) -> RequestCollector:
        """The collector that reads these requests."""
        from collectors.records.litellm import LiteLLMFileCollector, LiteLLMPostgresCollector  # noqa: PLC0415

        if self.dsn_env is not None:
            limits = Limits(window_seconds=self.limits.window_seconds)
            return LiteLLMPostgresCollector(self.name, self.dsn_env, self.constants, limits, self.askers)
        return LiteLLMFileCollector(self.name, str(self.path), self.constants, self.askers)


class AccessLogSource(RequestSource):
    """JSON Lines of any gateway: `columns` maps a field of a request to a dotted path in a line."""

    kind: Literal["access_log"]
    path: FleetPath
    columns: dict[Column, Name] = Field(default_factory=dict)
    time_unit: Literal["s", "ms", "us", "ns"] = "s"
    time_zone: TimeZone = "UTC"

    def collector(self) -> RequestCollector:
        """The collector that reads these requests."""
        from collectors.records.access_logs import AccessLogCollector  # noqa: PLC0415

        return AccessLogCollector(
            self.name,
            self.path,
            self.constants,
            self.columns,
            time_unit=self.time_unit,
            time_zone=self.time_zone,
            askers=self.askers,
        )


class LoadTest(RequestSource):
    """A folder of AIPerf's or GenAI-Perf's results. Each run in it is a run window, of `node`, else of `engine`, else
    of `model`, else of the model that the run names."""

    kind: Literal["aiperf", "genai_perf"]
    path: FleetPath
    node: Name | None = None

    def collector(self) -> RequestCollector:
        """The collector that reads these requests."""
        from collectors.records.load_tests import AIPerfCollector, GenAIPerfCollector  # noqa: PLC0415

        kind = AIPerfCollector if self.kind == "aiperf" else GenAIPerfCollector
        return kind(self.name, self.path, self.constants)


class AzureTrace(RequestSource):
    """CSV files of the Azure LLM inference traces."""

    kind: Literal["azure_trace"]
    path: FleetPath

    def collector(self) -> RequestCollector:
        """The collector that reads these requests."""
        from collectors.records.azure_trace import AzureTraceCollector  # noqa: PLC0415

        return AzureTraceCollector(self.name, self.path, self.constants)


class OtlpSpans(RequestSource):
    """OpenTelemetry's spans of model calls: JSON Lines of OTLP, as the Collector's file exporter and the agent's
    receiver write them. The lists are attributes of a span or its resource; of those that name who asked the first
    counts."""

    kind: Literal["otlp"]
    path: FleetPath
    tenant_attributes: tuple[TenantLabel, ...] = ()
    team_attributes: tuple[TenantLabel, ...] = ()
    services: tuple[Name, ...] = ()

    def collector(self) -> RequestCollector:
        """The collector that reads these requests."""
        from collectors.records.otlp_spans import OtlpSpanCollector  # noqa: PLC0415

        return OtlpSpanCollector(
            self.name,
            self.path,
            self.constants,
            tenant=self.tenant_attributes,
            team=self.team_attributes,
            services=self.services,
            askers=self.askers,
        )


AnyRequestSource = Annotated[
    LiteLLMLog | AccessLogSource | LoadTest | AzureTrace | OtlpSpans, Field(discriminator="kind")
]


class Benchmark(Part):
    """Published results of other people's benchmarks. What the files lack (`accelerator`, `model`, …) may be set here;
    `as_of` is the date at which they were published."""

    name: SourceName
    kind: Literal["mlperf", "inferencex", "artificial_analysis", "ml_energy", "vllm_bench", "sglang_bench", "guidellm"]
    path: FleetPath
    as_of: date
    system: Name | None = None
    accelerator: Name | None = None
    accelerators: Positive | None = None
    model: Name | None = None
    precision: Name | None = None
    limits: RowLimits = RowLimits()

    def files(self) -> BenchmarkFile:
        """The files of this publisher."""
        from collectors.records.benchmark_files import BenchmarkFile  # noqa: PLC0415

        columns = {"system", "accelerator", "accelerators", "model", "precision"}
        return BenchmarkFile(self.kind, self.path, self.model_dump(include=columns, exclude_none=True))
