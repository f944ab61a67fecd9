"""The command `dashboards`: write the dashboards for a BI server into a folder, ready to import.

Keep out what the files have (`bi/charts`, by `pipelines.publishing.dashboards`).
"""

from __future__ import annotations

import os
from argparse import Namespace

from pipelines.fleet.fleet_file import Fleet
from pipelines.publishing.dashboards import files as written
from pipelines.warehouse.refusals import QuestionError, nothing_published


def dashboards(fleet: Fleet, options: Namespace) -> int:
    """Write them and print what to do with them; returns the exit status. QuestionError where they cannot be."""
    prefix = fleet.publication.postgresql.schema_prefix if fleet.publication.postgresql else ""
    if options.tool == "grafana":
        contents = written.grafana(prefix)
    else:
        database = _database(fleet, options.database_env)
        try:
            contents = written.superset(database, prefix if "://" in database else "")
        except ValueError as wrong:
            raise QuestionError(f"--database-env: {wrong}") from None
    for path in written.write(options.folder, contents):
        print(path)
    if options.tool == "grafana":
        print("Dashboards > New > Import: finance, operator and sustainability ask PostgreSQL, today asks Prometheus;")
        print("rules.yml is for its rule_files (and rules_without_alarms.yml, where the fleet file has no `alarms`)")
    else:
        print(f"superset import-dashboards -p {options.folder / written.ZIPPED} -u admin")
    return 0


def _database(fleet: Fleet, variable: str | None) -> str:
    if variable is not None:
        if not os.environ.get(variable):
            raise QuestionError(f"--database-env: the environment has no {variable}")
        return os.environ[variable]
    if not fleet.snapshot.exists():
        raise nothing_published(fleet.fleet, fleet.path)
    return str(fleet.snapshot)
