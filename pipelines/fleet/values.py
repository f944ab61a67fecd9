"""The values of the fleet file: names, paths, variables, URLs, numbers, and the part that all others are made of.

Add here a kind of value that several keys have, with the message for one that is none. Secrets are never values in the
file, only names of environment variables or of a file; paths are confined (see `confined_path`). Keep out the keys.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Self
from urllib.parse import parse_qsl, urlsplit, urlunsplit
from zoneinfo import available_timezones

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, model_validator

from collectors.personal_labels import LABELS_OF_PERSONS
from collectors.samples import printable, shown_variable, url_without_secrets
from collectors.text_files import before_glob

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


def _variable_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ValueError("must be the name of an environment variable, never the secret itself")
    return name


def _set_variable(name: str, info: ValidationInfo) -> str:
    if name not in context_of(info)["environ"]:
        raise ValueError(f"environment variable {shown_variable(name)} is not set")
    return name


def _plain_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be an http:// or https:// URL")
    if parts.username is not None or parts.password is not None:
        raise ValueError("must carry no user or password; name the environment variables that hold them")
    return url


def _known_zone(name: str) -> str:
    if name not in available_timezones():
        raise ValueError("must be an IANA time zone such as America/Los_Angeles")
    return name


def _tenant_label(name: str) -> str:
    if name.casefold() in LABELS_OF_PERSONS:
        raise ValueError(
            f"{name} holds an e-mail or network address, which no book keeps; name a label with an alias or an id"
        )
    return name


def root_of_an_api(url: str) -> str:
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
        f"expected the URL of the server alone, to which requests add /api/v1 and more: write {root}{fields}"
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
# Of what no figure depends on: the variable may be set later.
VariableName = Annotated[str, AfterValidator(_variable_name)]
Variable = Annotated[VariableName, AfterValidator(_set_variable)]
TimeZone = Annotated[str, AfterValidator(_known_zone)]
Url = Annotated[str, AfterValidator(_plain_url)]
ServerUrl = Annotated[str, AfterValidator(_plain_url), AfterValidator(root_of_an_api)]
Number = Annotated[float, Field(strict=True)]
# A label by which tenants are named.
TenantLabel = Annotated[str, Field(pattern=r"^[a-zA-Z_][a-zA-Z0-9_.]*$"), AfterValidator(_tenant_label)]
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
