"""The alarms that a publication shows: dates held back, budgets, unusual costs, advice that is worth much.

Each is a query (sql/<name>.sql) over the newest publication, which readers open and no run locks; its columns are the
fields of an alarm. Add a query here for what a row of a mart makes an alarm. Keep out what only a run shows
(`run_alarms`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

import duckdb

from pipelines.alarming.alarm import Alarm, since_date
from pipelines.fleet.fleet_file import Fleet
from pipelines.fleet.targets.alarm_rules import Kind
from pipelines.warehouse import database, statements

# Kind of alarm -> its query, and the tables without which an older publication has none of them.
QUERIES: dict[Kind, tuple[str, tuple[str, ...]]] = {
    "held_back": ("held_back", ("marts.held_back_dates", "marts.cost_daily", "marts.site_footprint_daily")),
    "budget": ("budgets", ("marts.budget_monthly",)),
    "cost": ("costs", ("marts.cost_anomalies_daily",)),
    "advice": ("advice", ("finance.savings",)),
}
# The check whose remedy an alarm has where its query has none.
_REMEDY_OF = {"cost": "costs_are_usual"}


@dataclass(frozen=True)
class Published:
    """The alarms of a publication, the invariants that hold a date back, its newest date, and what that is about: in
    USD and J, None where it is not known."""

    alarms: tuple[Alarm, ...] = ()
    held_back: frozenset[str] = frozenset()
    newest_date: date | None = None
    usual_usd: float | None = None
    usual_joules: float | None = None


def published_alarms(fleet: Fleet, remedies: Mapping[str, str]) -> Published:
    """What the newest publication shows; nothing where there is none."""
    if not fleet.snapshot.exists():
        return Published()
    with database.connect(fleet.snapshot, read_only=True) as connection:
        there = {f"{schema}.{name}" for schema in ("finance", "marts") for name in database.tables(connection, schema)}
        alarms = [
            alarm
            for kind, (query, needed) in QUERIES.items()
            if there.issuperset(needed)
            for alarm in _alarms(connection, fleet, kind, query, remedies)
        ]
        held_back, usual = frozenset[str](), [(None, None, None)]
        if "marts.held_back_dates" in there:
            rows = connection.execute("select distinct invariant from marts.held_back_dates").fetchall()
            held_back = frozenset(row[0] for row in rows)
        if there >= {"marts.fleet_daily", "marts.cost_daily", "marts.site_footprint_daily"}:
            usual = connection.execute(statements.read(__file__, "usual_date")).fetchall() or usual
    return Published(tuple(alarms), held_back, *usual[0])


def _alarms(
    connection: duckdb.DuckDBPyConnection, fleet: Fleet, kind: Kind, query: str, remedies: Mapping[str, str]
) -> list[Alarm]:
    limits: dict[str, Any] = {}
    if kind == "advice":
        if fleet.alarms.advice_usd_per_month is None:
            return []
        limits = {"usd_per_month": fleet.alarms.advice_usd_per_month}
    found = connection.execute(statements.read(__file__, query), limits or None)
    names = [column[0] for column in found.description]
    made = list[Alarm]()
    for row in found.fetchall():
        fields: dict[str, Any] = dict(zip(names, row, strict=True))
        fields["since"] = since_date(fields["since"]) if fields["since"] is not None else ""
        fields["remedy"] = fields["remedy"] or remedies.get(_REMEDY_OF.get(kind, ""), "")
        made.append(Alarm(kind, **{**fields, "which": fields["which"] or ""}))
    return made
