"""The invariants as asset checks: the rows of a date or table that break one.

The invariants are queries (dbt_project/models/balance/invariants). dbt holds back the dates that break one before it
computes sums over dates (dbt_project/macros/held_back.sql), except where a balance fails for single meters or engines
(int_failed_entities). So a check here stops nothing: it marks the run as failed and gives the reason. Add an invariant
there, with its mart in `meta`. Keep out conditions of one board, window or price: those are dbt tests.
"""

import ast
from collections.abc import Iterator
from typing import Any, NamedTuple

import dagster as dg
import duckdb
import yaml

from pipelines.fleet.fleet_file import Fleet
from pipelines.fleet.places import DBT_PROJECT
from pipelines.warehouse import database, findings
from pipelines.warehouse.asset_keys import asset_key

_BALANCE = DBT_PROJECT / "models" / "balance"
GATHERING = ("held_back_dates", "held_back_tables", "int_failed_entities")
ROWS_SHOWN = 50


class Invariant(NamedTuple):
    """One invariant: its name, what must hold, its mart, and what to do where it does not hold."""

    name: str
    description: str
    mart: str
    remedy: str


class Broken(NamedTuple):
    """A row that breaks an invariant, and the number of such rows; `date` is None where the row has no single
    date. Where single meters or engines do not balance, `expected` has all that is known, and there is no unit."""

    date: str | None
    table: str
    row_key: str
    found: float | None
    unit: str
    expected: str
    remedy: str
    rows: int

    def __str__(self) -> str:
        found = "nothing" if self.found is None else f"{self.found:,.6g}"
        when = f"{self.date} " if self.date else ""
        what = f"{found} {self.unit}, expected {self.expected}" if self.unit else self.expected
        return f"{when}marts.{self.table}, {self.row_key}: {what}"


def invariants() -> list[Invariant]:
    """The invariants of the dbt project, by name, as its files have them."""
    stated = yaml.safe_load((_BALANCE / "invariants" / "invariants.yml").read_text(encoding="utf-8"))
    remedies = {name: remedy for model in GATHERING for name, remedy in _remedies(model).items()}
    return sorted(
        Invariant(law["name"], law["description"], law["config"]["meta"]["asset"], remedies[law["name"]])
        for law in stated["models"]
    )


def _remedies(model: str) -> dict[str, str]:
    """Invariant -> what to do, as the model that gathers their rows hands it to `broken_rows`."""
    (path,) = _BALANCE.rglob(f"{model}.sql")
    argument = path.read_text(encoding="utf-8").partition("broken_rows(")[2].partition(") }}")[0]
    return dict(ast.literal_eval(argument))


def invariant_checks(fleet: Fleet) -> dg.AssetChecksDefinition:
    """All invariants in one step, each a check of its mart. None blocks: the dates that break one are held back."""
    rules = {dg.AssetCheckKey(asset_key(fleet, "marts", law.mart), law.name): law for law in invariants()}

    @dg.multi_asset_check(
        name="invariants",
        specs=[
            dg.AssetCheckSpec(
                key.name, asset=key.asset_key, description=law.description, metadata={"remedy": law.remedy}
            )
            for key, law in rules.items()
        ],
        pool="warehouse",
        can_subset=True,
    )
    def checks(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        with (
            database.writing(fleet.warehouse, "invariants"),
            database.connect(fleet.warehouse, read_only=True) as connection,
        ):
            found = broken(connection, context.run.run_id)
        for key in sorted(context.selected_asset_check_keys):
            rows = found.get(key.name, [])
            yield dg.AssetCheckResult(
                passed=not rows,
                asset_key=key.asset_key,
                check_name=key.name,
                severity=dg.AssetCheckSeverity.ERROR,
                description=report(rows) or None,
                metadata=_metadata(rows),
            )

    return checks


def broken(connection: duckdb.DuckDBPyConnection, run_id: str) -> dict[str, list[Broken]]:
    """The rows that break an invariant, by its name: in the dates that the run booked, held back or not, and in tables
    without a date."""
    rows = connection.execute(
        """
        select invariant, cast(date as varchar), table_name, row_key, found, unit, expected, remedy, broken_rows
        from (
            select invariant, date, table_name, row_key, found, unit, expected, remedy, broken_rows
            from marts.held_back_dates
            union all
            select case reason when 'unbalanced_joules' then 'every_metered_joule_is_booked_once'
                    when 'unbalanced_tokens' then 'tokens_are_booked_once' end as invariant,
                date, 'doubts_daily', entity_kind || ' ' || entity, null, '', evidence, remedy,
                count(*) over (partition by date, reason)
            from marts.doubts_daily
            where reason in ('unbalanced_joules', 'unbalanced_tokens')
                and date not in (select date from marts.held_back_dates)
        )
        where (select count(*) from raw.bookings where run_id = $run_id) = 0
            or date >= (select min(start_date) from raw.bookings where run_id = $run_id)
            and date < (select max(end_date) from raw.bookings where run_id = $run_id)
        union all
        select invariant, null, table_name, row_key, found, unit, expected, remedy, broken_rows
        from marts.held_back_tables
        order by all
        """,
        {"run_id": run_id},
    ).fetchall()
    found: dict[str, list[Broken]] = {}
    for invariant, *row in rows:
        found.setdefault(invariant, []).append(Broken(*row))
    return found


def report(rows: list[Broken]) -> str:
    """The first rows, how many there are in all, and what to do; empty without rows."""
    if not rows:
        return ""
    total = sum(row.rows for row in _first_of_each(rows))
    return findings.report([str(row) for row in rows], total, "", rows[0].remedy)


def _metadata(rows: list[Broken]) -> dict[str, Any]:
    """How many rows break an invariant; and of the first ones what each has and should have."""
    found: dict[str, Any] = {"broken_rows": sum(row.rows for row in _first_of_each(rows))}
    if rows:
        shown = (
            (row.date or "", row.table, row.row_key, "" if row.found is None else row.found, row.unit, row.expected)
            for row in rows[:ROWS_SHOWN]
        )
        names = ["date", "table", "row_key", "found", "unit", "expected"]
        found["rows"] = dg.MarkdownMetadataValue(findings.markdown(names, shown))
    return found


def _first_of_each(rows: list[Broken]) -> list[Broken]:
    """The first row of each date and table: its `rows` counts all rows of that date and table."""
    return list({(row.date, row.table): row for row in rows}.values())
