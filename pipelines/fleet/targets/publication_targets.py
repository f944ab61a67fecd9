"""Where a publication goes beside the fleet's own folder: what each target needs.

Add a target here together with the module of `pipelines.publishing` that writes it. Secrets are never values in the
file, only names of environment variables. Keep out what a publication holds.
"""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from pipelines.fleet.values import Name, Part, SpoolPath, Variable

# With the longest schema behind it, a name keeps within PostgreSQL's 63 bytes.
SchemaPrefix = Annotated[str, Field(pattern=r"^([a-z_][a-z0-9_]{0,39})?$")]


class StepLimits(Part):
    """How long one run's publication to a target may take. A run waits for it: its step fails at the deadline."""

    step_seconds: Annotated[float, Field(strict=True, gt=0, le=604_800)] = 3600.0


class PostgresqlTarget(Part):
    """A PostgreSQL database. `dsn_env` names the environment variable that holds its connection URI.

    The schemas are `finance`, `marts`, `published` and `wattledger`, each behind `schema_prefix`: a second fleet in one
    database needs one. `reader` is the role that may read all tables; `operations_reader` reads those without finance
    and tenants; of `team_readers` each role reads what its team pays.
    """

    dsn_env: Variable
    schema_prefix: SchemaPrefix = ""
    reader: Name | None = None
    operations_reader: Name | None = None
    team_readers: dict[Name, Name] = Field(default_factory=dict, description="team -> role")
    limits: StepLimits = StepLimits()

    @model_validator(mode="after")
    def _one_role_each(self) -> PostgresqlTarget:
        roles = [role for role in (self.reader, self.operations_reader, *self.team_readers.values()) if role]
        twice = sorted({role for role in roles if roles.count(role) > 1})
        if twice:
            raise ValueError(f"the role {twice[0]!r} is named twice. Give each reader a role of its own")
        return self


# Where the package `deltalake` can write; '' and one letter (of a Windows drive) are folders.
DELTA_SCHEMES = frozenset({"", "file", "s3", "s3a", "gs", "az", "adl", "azure", "abfs", "abfss"})


class ObjectStoreTarget(Part):
    """A folder or a prefix in an object store: Parquet files with a manifest, and a Delta log per table unless `tables`
    is `parquet`.

    `url` is any URL that fsspec or pyarrow know, or a folder; credentials come from the store's own environment
    variables. An old publication stays readable for `keep_days` after the next one took its place.
    """

    url: SpoolPath
    tables: Literal["delta", "parquet"] = "delta"
    keep_days: Annotated[float, Field(strict=True, ge=0, le=3650)] = 30
    limits: StepLimits = StepLimits()

    @model_validator(mode="after")
    def _delta_reaches_the_store(self) -> ObjectStoreTarget:
        parts = urlsplit(self.url)
        if parts.password is not None:
            raise ValueError("the URL holds a password. Take it out: the store's own environment variables have it")
        if self.tables == "delta" and "%" in self.url:
            raise ValueError("tables: delta finds no URL with a % in it. Choose another prefix, or tables: parquet")
        scheme = parts.scheme
        if self.tables == "delta" and len(scheme) != 1 and scheme not in DELTA_SCHEMES:
            known = ", ".join(sorted(DELTA_SCHEMES - {""}))
            raise ValueError(f"tables: delta reaches {known} and folders, got {scheme}://. Set tables: parquet")
        return self


class PublicationTargets(Part):
    """The key `publication` of the fleet file. Without it a publication is the fleet's folder alone."""

    postgresql: PostgresqlTarget | None = None
    object_store: ObjectStoreTarget | None = None
