"""Where a publication goes beside the fleet's own folder: what each target needs.

Add a target here together with the module of `pipelines.publishing` that writes it. Secrets are never values in the
file, only names of environment variables. Keep out what a publication holds.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from pipelines.fleet.sources import Name, Part, Variable

# With the longest schema behind it, a name keeps within PostgreSQL's 63 bytes.
SchemaPrefix = Annotated[str, Field(pattern=r"^([a-z_][a-z0-9_]{0,39})?$")]


class PostgresqlTarget(Part):
    """A PostgreSQL database. `dsn_env` names the environment variable that holds its connection URI.

    The schemas are `marts`, `published` and `wattledger`, each behind `schema_prefix`: a second fleet in one database
    needs one. `reader` is the role that may read them.
    """

    dsn_env: Variable
    schema_prefix: SchemaPrefix = ""
    reader: Name | None = None


class PublicationTargets(Part):
    """The key `publication` of the fleet file. Without it a publication is the fleet's folder alone."""

    postgresql: PostgresqlTarget | None = None
