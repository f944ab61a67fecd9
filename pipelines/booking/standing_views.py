"""The views that hold nothing of a run: those that advice and the schema finance read. They are made once, and again
when they are not what today's project makes of them.

Each view costs a run as much of dbt's Python as a table does (docs/bench.md). Of each, the warehouse remembers a digest
of what it was made from (the project, the fleet's variables) and of its SQL as DuckDB has it, so a view that was made
by hand since is made again, too. Add here what else decides about them. Keep out views that name the run's dates, and
tables.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import duckdb

from pipelines.warehouse import database

# The same as dbt selects them, and by what they are. A table of these tags is of the run's dates.
SELECTED = ("tag:advice,config.materialized:view", "tag:finance,config.materialized:view")
TAGS = ("advice", "finance")
# These are of a run, and no standing view has them: tests/booking/test_standing_views.py.
OF_A_RUN = ("start_date", "end_date", "unasked_dates", "closed_until_us", "keeps_unchanged")

# DuckDB keeps these names as a set, and writes them in another order each time that it writes the catalog.
_EXCLUDED = re.compile(r"(?<=EXCLUDE \()[^()]*(?=\))")
# A view without its SQL is one that is gone.
_HELD = """
select made.view_name, made.digest, views.sql from raw.views_made as made
left join duckdb_views() as views
    on views.database_name = current_database() and made.view_name = views.schema_name || '.' || views.view_name
"""


class MadeFrom(NamedTuple):
    """What dbt makes a run's models from: a digest of the project, and the variables."""

    project: str
    variables: Mapping[str, Any]

    def digest(self, sql: str) -> str:
        """A digest of that, as far as standing views have it, and of a view's SQL."""
        of_fleet = {name: value for name, value in self.variables.items() if name not in OF_A_RUN}
        ordered = _EXCLUDED.sub(lambda names: ", ".join(sorted(names[0].split(", "))), sql)
        text = json.dumps([self.project, of_fleet, ordered], sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def are_todays(connection: duckdb.DuckDBPyConnection, made_from: MadeFrom) -> bool:
    """Whether the warehouse holds each standing view as it would be made from this."""
    held = connection.execute(_HELD).fetchall()
    return bool(held) and all(sql and digest == made_from.digest(sql) for _, digest, sql in held)


def remember(connection: duckdb.DuckDBPyConnection, made_from: MadeFrom, results: Sequence[Any]) -> None:
    """Note the standing views among dbt's results: all of them, made from this."""
    names = sorted(
        f"{one.node.schema}.{one.node.name}"
        for one in results
        if one.node.resource_type == "model"
        and one.node.config.materialized == "view"
        and not set(TAGS).isdisjoint(one.node.tags)
    )
    with database.transaction(connection):
        connection.execute("delete from raw.views_made")
        connection.execute("insert into raw.views_made select unnest($1), null", [names])
        for name, _, sql in connection.execute(_HELD).fetchall():
            connection.execute(
                "update raw.views_made set digest = ? where view_name = ?", [made_from.digest(sql or ""), name]
            )
