"""The sources a fleet file may name: what each kind needs, and the collector that each becomes.

Add a kind of source here together with its collector, whose module is imported only when it is built. Secrets are never
values in the file, only names of environment variables or of a file (`values`). Keep out
everything about sites, tariffs and people: that is `fleet_keys`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    AwareDatetime,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from collectors.limits import Limits
from pipelines.fleet.catalog import by_metric, known_metrics
from pipelines.fleet.source_limits import FileLimits, SeriesLimit, ServerLimits, StoreLimits
from pipelines.fleet.values import (
    FleetPath,
    MetricPrefix,
    Name,
    Part,
    Positive,
    SecretFile,
    ServerUrl,
    SourceName,
    SpoolPath,
    TenantLabel,
    TimeZone,
    Variable,
)

if TYPE_CHECKING:
    from collectors.collector import Collector
    from collectors.protocols.prometheus import PrometheusCollector


class Auth(Part):
    """How to log in: a bearer token, or a user with a password; by the names of environment variables, or of a file
    that has the token of the moment."""

    bearer_env: Variable | None = None
    bearer_file: SecretFile | None = None
    username_env: Variable | None = None
    password_env: Variable | None = None

    @model_validator(mode="after")
    def _one_way(self) -> Auth:
        given = {name for name in type(self).model_fields if getattr(self, name) is not None}
        if given in ({"bearer_env"}, {"bearer_file"}, {"username_env", "password_env"}):
            return self
        raise ValueError("expected one of bearer_env, bearer_file, or username_env with password_env")


class Tls(Part):
    """Certificate files, by the names of environment variables that hold their paths."""

    ca_file_env: Variable | None = None
    cert_file_env: Variable | None = None
    key_file_env: Variable | None = None


class Source(Part):
    """The keys of every kind of source. `site` is the default site of what it meters; `metric_prefix` is put before the
    names of its metrics, as by the `MetricsFieldPrefix` of AMD's exporter. `tenant_labels` and `team_labels` name who
    asked in the token counters of a gateway or frontend."""

    name: SourceName
    interval_seconds: Positive | None = None
    tokens_complete: bool = False
    temporality: Literal["cumulative", "delta"] = "cumulative"
    site: Name | None = None
    replica_labels: tuple[str, ...] = ()
    metric_prefix: MetricPrefix | None = None
    tenant_labels: tuple[TenantLabel, ...] = ()
    team_labels: tuple[TenantLabel, ...] = ()
    limits: SeriesLimit = SeriesLimit()

    @property
    def named_labels(self) -> tuple[str, ...]:
        """The labels that name who asked."""
        return (*self.tenant_labels, *self.team_labels)


class ReadSource(Source):
    """A source that is read by one clock, which may be wrong; a spool has those of many hosts."""

    clock_offset_seconds: Annotated[float, Field(ge=-3600, le=3600)] = 0


class PrometheusSource(ReadSource):
    """Any Prometheus-compatible API. `headers` go with each request, such as the tenant of Mimir, X-Scope-OrgID."""

    kind: Literal["prometheus"]
    url: ServerUrl
    interval_seconds: Positive
    matchers: tuple[str, ...] = ()
    auth: Auth | None = None
    headers: dict[str, str] = Field(default_factory=dict)
    tls: Tls | None = None
    limits: ServerLimits = ServerLimits()

    @field_validator("headers")
    @classmethod
    def _without_secrets(cls, headers: dict[str, str]) -> dict[str, str]:
        for name in headers:
            if name.casefold() in ("authorization", "proxy-authorization", "cookie"):
                raise ValueError(f"got {name}, which holds a secret; name its environment variable under `auth`")
        return headers

    @property
    def access(self) -> dict[str, Any]:
        """How requests log in, by the keywords of a client."""
        secrets = {**(self.auth.model_dump() if self.auth else {}), **(self.tls.model_dump() if self.tls else {})}
        return {"headers": self.headers, **{key: stated for key, stated in secrets.items() if stated is not None}}

    def collector(self) -> PrometheusCollector:
        """The collector that reads this source."""
        from collectors.protocols.prometheus import PrometheusCollector  # noqa: PLC0415

        limits = Limits(**self.limits.model_dump())
        return PrometheusCollector(self.name, self.url, matchers=self.matchers, limits=limits, **self.access)


_OF_A_MAPPING = frozenset({"time", "time_unit", "labels", "values", "metric", "labels_json", "value", "rows_are"})


class SampleFile(Part):
    """One file, or a glob of files, of samples: of a `format`, or which column is the time, which are labels, which are
    values.

    Wide (`values`: metric to column, as `labels` are label to column) or long (`metric` and `value` name columns).
    """

    path: FleetPath
    format: Literal["nvidia_smi", "nvidia_smi_dmon", "dcgmi_dmon", "amd_smi"] | None = None
    time: Name | None = None
    time_unit: Literal["s", "ms", "us", "ns"] | None = None
    time_zone: TimeZone = "UTC"
    starts_at: AwareDatetime | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    constant_labels: dict[str, str] = Field(default_factory=dict)
    values: dict[str, str] = Field(default_factory=dict)
    metric: Name | None = None
    labels_json: Name | None = None
    value: Name | None = None
    rows_are: Literal["boards"] | None = None

    @field_validator("values")
    @classmethod
    def _by_metric(cls, values: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        return by_metric(values, known_metrics(), info)

    @model_validator(mode="after")
    def _wide_or_long(self) -> SampleFile:
        if self.format is not None:
            mapped = sorted(self.model_fields_set & _OF_A_MAPPING)
            if mapped:
                raise ValueError(
                    f"{mapped[0]}: the format {self.format} states its columns; remove {mapped[0]} or format"
                )
            return self
        if self.time is None:
            raise ValueError("expected time, the column of the time, or a format")
        if self.starts_at is not None and self.time_unit is None:
            raise ValueError("starts_at: expected time_unit, too: the unit in which the file counts from there")
        if bool(self.values) == bool(self.metric) or bool(self.metric) != bool(self.value):
            raise ValueError("expected either values, or metric with value")
        if self.rows_are and "index" in {*self.labels, *self.constant_labels}:
            raise ValueError(
                "rows_are: boards numbers the rows of a time under the label index; remove index from labels"
            )
        return self


class FilesSource(ReadSource):
    """CSV (also .gz) and Parquet files."""

    kind: Literal["files"]
    interval_seconds: Positive
    files: list[SampleFile] = Field(min_length=1)
    limits: FileLimits = FileLimits()

    def collector(self) -> Collector:
        """The collector that reads this source."""
        from collectors.formats.named_formats import NamedFiles  # noqa: PLC0415
        from collectors.protocols.mapped_files import FileMapping  # noqa: PLC0415
        from collectors.protocols.sample_files import FilesCollector  # noqa: PLC0415

        mappings: list[FileMapping | NamedFiles] = []
        for file in self.files:
            stated = file.model_dump(exclude=None if file.format is None else set(_OF_A_MAPPING))
            name = stated.pop("format")
            if name is None:
                mappings.append(FileMapping(**stated))
            else:
                mappings.append(NamedFiles(format=name, step_seconds=self.interval_seconds, **stated))
        return FilesCollector(self.name, mappings, self.limits.bad_rows_ratio)


class SpoolSource(Source):
    """What agents on other hosts have written; landing removes it once it is safe."""

    kind: Literal["spool"]
    path: SpoolPath = Field(default="spool/", validate_default=True)
    limits: StoreLimits = StoreLimits()

    def collector(self) -> Collector:
        """The collector that reads this source."""
        from collectors.devices.spool_collector import SpoolCollector  # noqa: PLC0415

        return SpoolCollector(self.name, self.path, self.limits.answer_seconds)


class OtlpSource(ReadSource):
    """Metrics in files of the OpenTelemetry Collector's file exporter: JSON Lines of OTLP."""

    kind: Literal["otlp"]
    path: FleetPath
    interval_seconds: Positive
    limits: FileLimits = FileLimits()

    def collector(self) -> Collector:
        """The collector that reads this source."""
        from collectors.protocols.otlp_files import OtlpFilesCollector  # noqa: PLC0415

        return OtlpFilesCollector(self.name, self.path, self.named_labels, self.limits.bad_rows_ratio)


class SyntheticSource(Source):
    """Generated telemetry; only a fleet with `synthetic: true` may have one."""

    kind: Literal["synthetic"]
    scenario: Name
    interval_seconds: Positive

    def collector(self) -> Collector:
        """The collector that reads this source."""
        from collectors.synthetic.generator import SyntheticCollector  # noqa: PLC0415

        return SyntheticCollector(self.name, scenario=self.scenario, interval_seconds=self.interval_seconds)


AnySource = Annotated[
    PrometheusSource | FilesSource | SpoolSource | OtlpSource | SyntheticSource, Field(discriminator="kind")
]


def reader(source: AnySource) -> Collector:
    """The collector that lands a source by true time."""
    if not isinstance(source, ReadSource) or not source.clock_offset_seconds:
        return source.collector()
    from collectors.corrected_clock import CorrectedClock  # noqa: PLC0415

    return CorrectedClock(source.collector(), source.clock_offset_seconds)
