"""What is made beside the tables is made part by part: one that fails is named, and all else is there."""

from __future__ import annotations

import logging
from contextlib import closing
from datetime import date
from pathlib import Path

import dagster as dg
import duckdb
import pytest

from pipelines.command_line.headline import headline
from pipelines.fleet.fleet_file import load_fleet
from pipelines.publishing.focus import cost_and_usage
from pipelines.publishing.parts import Parts
from tests.report import every_branch

ASSET = dg.AssetKey(["published", "report"])


def broken() -> str:
    raise ValueError("a number was wrong\nin line 7")


def test_a_part_that_fails_is_a_line_and_the_check_fails(caplog: pytest.LogCaptureFixture) -> None:
    parts = Parts()
    with caplog.at_level(logging.WARNING):
        shown = parts.attempt("figure Alarms", broken, lambda line: f"<p>{line}</p>")
    line = "figure Alarms could not be made: ValueError: a number was wrong"
    assert shown == f"<p>{line}</p>"
    assert parts.failed == [line]
    assert [(record.levelname, record.message) for record in caplog.records] == [("WARNING", line)]
    result = parts.result(ASSET)
    assert (result.passed, result.severity) == (False, dg.AssetCheckSeverity.ERROR)
    assert result.description.splitlines()[:2] == ["1 row", f"  {line}"]


def test_parts_that_are_made_pass_the_check() -> None:
    parts = Parts()
    assert parts.attempt("figure Alarms", lambda: "fine", str) == "fine"
    assert parts.result(ASSET).passed
    assert parts.result(ASSET).description is None


@pytest.mark.parametrize("error", [OSError(28, "No space left"), MemoryError(), duckdb.IOException("damaged")])
def test_a_full_disk_stops_everything(error: Exception) -> None:
    def full() -> str:
        raise error

    parts = Parts()
    with pytest.raises(type(error)):
        parts.attempt("file focus/cost_and_usage_2026-10.csv", full, str)
    # A picture is drawn after its table is published: nothing of it may stop what follows.
    assert parts.picture("energy", full).startswith("picture energy could not be made: ")


def test_a_month_that_focus_cannot_state_has_no_file_and_the_others_have(tmp_path: Path) -> None:
    parts = Parts()
    with closing(duckdb.connect()) as connection:
        connection.execute("attach ':memory:' as target; create schema target.marts")
        connection.execute(
            """
            create view target.marts.focus_cost_and_usage as
            select month as date, month as billing_month, 'USD' as "BillingAccountId",
                case when month = date '2026-10-01' then error('no such price') else 5 end as "BilledCost"
            from (values (date '2026-09-01'), (date '2026-10-01')) as months (month)
            """
        )
        dates = (date(2026, 9, 1), date(2026, 11, 1))
        cost_and_usage.write(connection, tmp_path, None, dates, set(), parts=parts)
    assert [path.name for path in (tmp_path / "focus").iterdir()] == ["cost_and_usage_2026-09.csv"]
    assert (tmp_path / "focus" / "cost_and_usage_2026-09.csv").read_text() == "BillingAccountId,BilledCost\nUSD,5\n"
    assert parts.failed == [
        "file focus/cost_and_usage_2026-10.csv could not be made: InvalidInputException: Invalid Input Error:"
        " no such price"
    ]


def test_a_printed_table_that_fails_is_a_line_between_the_others(tmp_path: Path) -> None:
    path = tmp_path / "tiny.yaml"
    path.write_text(
        "fleet: tiny\nsynthetic: true\nperiod: {start: 2026-10-01}\n"
        "sources: [{name: synthetic, kind: synthetic, scenario: demo, interval_seconds: 60}]\n",
        encoding="utf-8",
    )
    fleet = load_fleet(path, {"WATTLEDGER_DATA": str(tmp_path / "data")})
    published = every_branch.write(fleet.published)
    whole, parts = headline(fleet).split("\n\n"), Parts()
    with closing(duckdb.connect(str(published))) as connection:
        connection.execute("alter table published.right_sizing drop column kind")
    shown = headline(fleet, parts).split("\n\n")
    in_opening, line = parts.failed
    assert in_opening.startswith("line 'change first' could not be made: ")
    assert line.startswith("table of advice could not be made: ")
    (_, table) = [new for new, old in zip(shown, whole, strict=True) if new != old]
    assert table == f"The {line}"
