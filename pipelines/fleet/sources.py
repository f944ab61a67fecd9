"""The sources a fleet file may name: what each kind needs, and the collector that each becomes.

Add a kind of source here together with its collector, whose module is imported only when it is built. Secrets are never
values in the file, only names of environment variables or of a file; paths are confined (see `confined_path`). Keep out
everything about sites, tariffs and people: that is `fleet_keys`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self
from urllib.parse import parse_qsl, urlsplit, urlunsplit
from zoneinfo import available_timezones

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from collectors.limits import DEFAULTS, Limits
from collectors.rows import BAD_ROWS_RATIO
from collectors.samples import printable, shown_variable, url_without_secrets
from collectors.text_files import before_glob
from pipelines.fleet.catalog import by_metric, known_metrics

if TYPE_CHECKING:
    from collectors.collector import Collector
    from collectors.protocols.prometheus import PrometheusCollector

# What a browser shows behind a server's own URL: a path of its API, or Prometheus' page of graphs.
_BELOW_THE_ROOT = re.compile(r"/(api/v1(/.*)?|graph)/?$")
_ASKED = re.compile(r"(query|time|start|end|step|timeout|match\[\]|g\d+\..*)$")
_VARIABLE = re.compile(r"^\$\{([A-Za-z_][A-Za-z0-9_]*)\}(?=/|$)")


class Part(BaseModel):
    """A part of the fleet file: unknown keys are mistakes, values keep their YAML types."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def confined_path(
    text: str, roots: Mapping[str, Path], environ: Mapping[str, str], base: str, *, keeps_links: bool = False
) -> str:
    """The absolute path behind `text`, or ValueError.

    `roots` maps a word ("fleet", "data") to a folder; relative paths start at `roots[base]`. A leading `${VAR}` names
    another root. Symbolic links are followed before the path is checked; with `keeps_links` for the check alone. Of a
    glob, the part before the first wildcard is checked here, and the files that it finds when they are read
    (`paths_of`).
    """
    folders = list(roots.values())
    named = _VARIABLE.match(text)
    if named:
        value = environ.get(named[1])
        if not value:
            name = shown_variable(named[1])
            raise ValueError(f"environment variable {name} is not set; it must name the folder to read from")
        folders = [Path(value).resolve()]
        path = folders[0] / text[named.end() :].lstrip("/")
    else:
        path = roots[base] / text
    if "$" in str(path.relative_to(folders[0]) if named else text):
        raise ValueError("a variable may only be at the start, as ${VAR}/…")
    fixed = before_glob(path)
    rest = path.parts[len(fixed.parts) :]
    if ".." in rest:
        raise ValueError("no '..' behind a glob")
    resolved = fixed.resolve()
    if not any(resolved.is_relative_to(folder.resolve()) for folder in folders):
        raise ValueError(
            f"must stay inside {' or '.join(str(folder) for folder in folders)};"
            " start it with ${VAR} to read from a folder that an environment variable names"
        )
    return str(Path(fixed.absolute() if keeps_links else resolved, *rest))


def context_of(info: ValidationInfo) -> dict[str, Any]:
    """What `load_fleet` hands to every validator: the environment, the folders and the list of notices."""
    context: dict[str, Any] = info.context if info.context is not None else {}
    return context


def _fleet_path(text: str, info: ValidationInfo) -> str:
    context = context_of(info)
    return confined_path(text, context["roots"], context["environ"], base="fleet")


def _secret_file(text: str, info: ValidationInfo) -> str:
    context = context_of(info)
    # Kubernetes puts each new token behind the same link.
    return confined_path(text, context["roots"], context["environ"], base="fleet", keeps_links=True)


def _spool_path(text: str, info: ValidationInfo) -> str:
    scheme = urlsplit(text).scheme
    if scheme and scheme != "file":
        return text
    context = context_of(info)
    return confined_path(text.removeprefix("file://"), context["roots"], context["environ"], base="data")


def _set_variable(name: str, info: ValidationInfo) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ValueError("must be the name of an environment variable, never the secret itself")
    if name not in context_of(info)["environ"]:
        raise ValueError(f"environment variable {shown_variable(name)} is not set")
    return name


def _plain_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be an http:// or https:// URL")
    if parts.username is not None or parts.password is not None:
        raise ValueError("must carry no user or password; name environment variables under `auth` instead")
    return url


def _known_zone(name: str) -> str:
    if name not in available_timezones():
        raise ValueError("must be an IANA time zone such as America/Los_Angeles")
    return name


def _root_of_an_api(url: str) -> str:
    """The URL below which /api/v1/query is asked for; ValueError, with the URL to write, for one of a page or query."""
    parts = urlsplit(url)
    below = _BELOW_THE_ROOT.search(parts.path)
    if below is None:
        return url
    # What a page or a query adds; fields such as extra_filters[] or a tenant go with every request. Names alone: a
    # value may be a secret.
    kept = [key for key, _ in parse_qsl(parts.query, keep_blank_values=True) if not _ASKED.match(key)]
    fields = f", with its {' and '.join(map(printable, kept))}" if kept else ""
    root = url_without_secrets(urlunsplit(parts._replace(path=parts.path[: below.start()])))
    raise ValueError(
        f"expected the URL of the server without {printable(below[0])}, which is added for each request: write"
        f" {root}{fields}"
    )


def _not_of_the_book(name: str) -> str:
    if name.startswith("__"):
        raise ValueError(
            "expected a name that does not begin with '__': the ledger's own rows do, such as __unallocated__ and"
            " __unknown__. A name that a source reports is written with double quotes in the ledger and here:"
            f" '\"{name}\"'; the name as it is reported may be in aliases"
        )
    return name


Name = Annotated[str, Field(min_length=1)]
# A name that the fleet file gives: the ledger has it as it is.
GivenName = Annotated[Name, AfterValidator(_not_of_the_book)]
SourceName = Annotated[str, Field(pattern=r"^[a-z0-9_]+$")]
FleetPath = Annotated[str, AfterValidator(_fleet_path)]
SpoolPath = Annotated[str, AfterValidator(_spool_path)]
SecretFile = Annotated[str, AfterValidator(_secret_file)]
Variable = Annotated[str, AfterValidator(_set_variable)]
TimeZone = Annotated[str, AfterValidator(_known_zone)]
Url = Annotated[str, AfterValidator(_plain_url)]
ServerUrl = Annotated[str, AfterValidator(_plain_url), AfterValidator(_root_of_an_api)]
Number = Annotated[float, Field(strict=True)]
MetricPrefix = Annotated[str, Field(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$")]
Positive = Annotated[float, Field(strict=True, gt=0)]
NonNegative = Annotated[float, Field(strict=True, ge=0)]
Count = Annotated[int, Field(strict=True, gt=0)]


class Dated(Part):
    """A price on local dates [valid_from, valid_to)."""

    valid_from: date = date(1970, 1, 1)
    valid_to: date | None = None

    @model_validator(mode="after")
    def _forward(self) -> Self:
        if self.valid_to is not None and self.valid_to <= self.valid_from:
            raise ValueError(f"valid_to: got {self.valid_to}, expected a date after valid_from {self.valid_from}")
        return self


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


class SeriesLimit(Part):
    """What a window of any source may cost: distinct series."""

    series: Count = DEFAULTS.series


class RowLimits(Part):
    """Which part of the rows of a source's files may be unreadable before the source fails."""

    bad_rows_ratio: Annotated[float, Field(ge=0, le=1)] = BAD_ROWS_RATIO


class FileLimits(SeriesLimit, RowLimits):
    """What a window of files may cost, and how much of it may be unreadable."""


class StoreLimits(SeriesLimit):
    """What a spool may cost: series, and where a server holds it, seconds for the answer to one request."""

    answer_seconds: Annotated[float, Field(strict=True, gt=0, le=604_800)] = DEFAULTS.answer_seconds


class ServerLimits(SeriesLimit):
    """What a server's answers may cost: bytes after decompression, and seconds (see collectors.limits)."""

    answer_bytes: Count = DEFAULTS.answer_bytes
    answer_seconds: Positive = DEFAULTS.answer_seconds
    window_bytes: Count = DEFAULTS.window_bytes
    window_seconds: Positive = DEFAULTS.window_seconds

    @model_validator(mode="after")
    def _answer_within_window(self) -> ServerLimits:
        for unit in ("bytes", "seconds"):
            answer, window = getattr(self, f"answer_{unit}"), getattr(self, f"window_{unit}")
            if answer > window:
                raise ValueError(f"answer_{unit}: got {answer:g}, expected at most window_{unit}, which is {window:g}")
        return self


class Source(Part):
    """The keys of every kind of source. `site` is the default site of what it meters; `metric_prefix` is put before the
    names of its metrics, as by the `MetricsFieldPrefix` of AMD's exporter."""

    name: SourceName
    interval_seconds: Positive | None = None
    tokens_complete: bool = False
    site: Name | None = None
    replica_labels: tuple[str, ...] = ()
    metric_prefix: MetricPrefix | None = None
    limits: SeriesLimit = SeriesLimit()


class PrometheusSource(Source):
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

    def collector(self) -> PrometheusCollector:
        """The collector that reads this source."""
        from collectors.protocols.prometheus import PrometheusCollector  # noqa: PLC0415

        secrets = {**(self.auth.model_dump() if self.auth else {}), **(self.tls.model_dump() if self.tls else {})}
        return PrometheusCollector(
            self.name,
            self.url,
            matchers=self.matchers,
            headers=self.headers,
            limits=Limits(**self.limits.model_dump()),
            **{key: stated for key, stated in secrets.items() if stated is not None},
        )


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


class FilesSource(Source):
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


class SyntheticSource(Source):
    """Generated telemetry; only a fleet with `synthetic: true` may have one."""

    kind: Literal["synthetic"]
    scenario: Name
    interval_seconds: Positive

    def collector(self) -> Collector:
        """The collector that reads this source."""
        from collectors.synthetic.generator import SyntheticCollector  # noqa: PLC0415

        return SyntheticCollector(self.name, scenario=self.scenario, interval_seconds=self.interval_seconds)


AnySource = Annotated[PrometheusSource | FilesSource | SpoolSource | SyntheticSource, Field(discriminator="kind")]
