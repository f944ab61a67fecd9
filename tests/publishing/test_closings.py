"""Closed months: what they are closed with stays, and what changes later is an adjustment of an open month.

The fleet and its states are those of `closed_months`.
"""

from __future__ import annotations

import shutil
from contextlib import closing
from datetime import date
from decimal import Decimal
from pathlib import Path

import dagster as dg
import pytest

from pipelines.alarming import alarm_memory
from pipelines.alarming.alarm import Alarm
from pipelines.command_line.close_command import close, lasting
from pipelines.fleet.fleet_file import Fleet
from pipelines.publishing import month_closing, publication
from pipelines.warehouse import closings, database, sealed_dates
from pipelines.warehouse.refusals import QuestionError
from tests.publishing.closed_months import (
    DECEMBER,
    FIRST,
    LAST,
    NOVEMBER,
    OCTOBER,
    adjusted,
    adjustments,
    booked,
    change,
    charges,
    closed,
    cost,
    energy,
    fleet_in,
    focus_file,
    hours,
    months,
    publish,
    published,
    read,
)

__all__ = ["adjusted", "booked", "closed", "published"]  # the fixtures
MAY, JUNE, JULY, AUGUST, SEPTEMBER = (date(2026, month, 1) for month in (5, 6, 7, 8, 9))
LATE = [("10", "11", "capacity", 3, "late data"), ("10", "11", "energy", 7.2, "late data")]
ADJUSTED = {"2026-10": ("adjusted", 100, 0, 110.2), "2026-11": ("open", 50.2, 10.2, 40)}


@pytest.fixture(scope="module")
def open_months(tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    """The fleet's first month, of which 20 May is the first date; June; July, whose seventh date is held back; August,
    whose price is not known; September, whose last hour is not booked. The tests leave them open."""
    fleet = fleet_in(tmp_path_factory.mktemp("open_months"))
    with closing(database.connect(fleet.warehouse)) as connection:
        for month in (MAY, JUNE, JULY, AUGUST):
            hours(connection, month, 744 if month != JUNE else 720)
            energy(connection, month, 50)
            cost(connection, month.replace(day=30), "capacity", 90)
        hours(connection, SEPTEMBER, 719)
        connection.execute("delete from marts.site_power_hourly where date < '2026-05-20'")
        connection.execute("update marts.model_monthly set held_back_dates = '2026-07-07' where month = ?", [JULY])
        connection.execute("update marts.cost_daily set cost_usd = null where billing_month = ?", [AUGUST])
    publish(fleet)
    return fleet


def test_an_open_month_is_what_is_booked_so_far(published: Fleet) -> None:
    assert months(published) == {"2026-10": ("open", 100, 0, 100), "2026-11": ("open", 40, 0, 40)}


def test_a_closed_month_is_what_it_was(closed: Fleet) -> None:
    assert months(closed) == {"2026-10": ("closed", 100, 0, 100), "2026-11": ("open", 40, 0, 40)}
    assert adjustments(closed) == []


def test_late_data_of_a_closed_month_is_one_adjustment_of_the_open_one(adjusted: Fleet) -> None:
    # Once, although it was published twice.
    assert (months(adjusted), adjustments(adjusted)) == (ADJUSTED, LATE)
    assert adjustments(adjusted, "chargeback_adjustments") == [("10", "11", "No request log", 10.2, "late data")]
    # The same energy at another price.
    change(adjusted, LAST, "energy", 16)
    publish(adjusted)
    assert adjustments(adjusted) == [*LATE, ("10", "11", "energy", -1.2, "price")]
    assert months(adjusted) == {"2026-10": ("adjusted", 100, 0, 109), "2026-11": ("open", 49, 9, 40)}
    assert read(adjusted, "select sum(closed_cost_usd), sum(known_cost_usd) from finance.cost") == [
        (Decimal(149), Decimal(149))
    ]
    assert read(adjusted, "select sum(closed_cost_usd) from finance.chargeback") == [(Decimal(149),)]


def test_an_adjustment_has_the_reason_of_what_was_restated(adjusted: Fleet) -> None:
    """A PUE that changes makes 60 kWh of 56 and 12 USD of 17.20: by the kWh alone that would be late data."""
    with closing(database.connect(adjusted.warehouse)) as connection:
        for table, value in (("published_with", "pue 1.2"), ("booked_with", "pue 1.3")):
            connection.execute(f"insert into raw.{table} values (?, 'sites', ?)", [LAST, value])
    change(adjusted, LAST, "energy", 12, kwh=60)
    publish(adjusted)
    assert adjustments(adjusted) == [*LATE, ("10", "11", "energy", -5.2, "fleet file")]
    assert adjustments(adjusted, "chargeback_adjustments")[-1] == ("10", "11", "No request log", -5.2, "fleet file")


@pytest.mark.rest
def test_a_cost_that_moves_to_another_deployment_is_taken_back_and_charged(closed: Fleet) -> None:
    change(closed, LAST, "energy", 0)
    change(closed, LAST, "energy", 10, deployment="llm/other")
    publish(closed)
    assert sorted(adjustments(closed)) == [
        ("10", "11", "energy", -10, "price"),
        ("10", "11", "energy", 10, "price"),
    ]
    rows = "select deployment, closed_cost_usd, adjustment_usd, known_cost_usd from finance.cost where part = 'energy'"
    assert sorted(read(closed, f"{rows} and month = '2026-11-01'")) == [
        ("llm/gpt", -10, -10, 0),
        ("llm/other", 10, 10, 0),
    ]
    assert sorted(read(closed, f"{rows} and month = '2026-10-01'")) == [("llm/gpt", 10, 0, 0), ("llm/other", 0, 0, 10)]


@pytest.mark.rest
def test_a_later_month_is_closed_with_its_adjustments_and_the_next_gets_what_changes_then(closed: Fleet) -> None:
    change(closed, LAST, "capacity", 95)
    publish(closed)
    with closing(database.connect(closed.warehouse)) as connection:
        hours(connection, NOVEMBER, 720)
    publish(closed)
    assert month_closing.close(closed, NOVEMBER) == "2026-11 is closed: 45.00 USD, fully loaded"
    change(closed, LAST, "capacity", 96)
    change(closed, FIRST, "capacity", 38)
    publish(closed)
    assert adjustments(closed) == [
        ("10", "11", "capacity", 5, "price"),
        ("10", "12", "capacity", 1, "price"),
        ("11", "12", "capacity", -2, "price"),
    ]
    assert months(closed) == {
        "2026-10": ("adjusted", 100, 0, 106),
        "2026-11": ("adjusted", 45, 5, 38),
        "2026-12": ("open", -1, -1, None),
    }


def test_a_month_is_closed_whole_and_once(booked: Fleet, published: Fleet) -> None:
    with pytest.raises(QuestionError, match=r"^nothing is published for fleet tiny yet"):
        month_closing.close(booked, OCTOBER)
    with pytest.raises(QuestionError, match=r"^2026-11 cannot be closed: 24 of 720 hours of site west are booked"):
        month_closing.close(published, NOVEMBER)
    with pytest.raises(QuestionError, match=r"^2026-12 cannot be closed: no hour of it is booked"):
        month_closing.close(published, DECEMBER)
    with pytest.raises(QuestionError, match=r"^2026-10 is not closed, so there is nothing to undo"):
        month_closing.undo(published, OCTOBER)
    assert month_closing.close(published, OCTOBER) == "2026-10 is closed: 100.00 USD, fully loaded"
    publish(published)
    with pytest.raises(QuestionError, match=r"^2026-10 is closed already: `close --undo 2026-10` opens it"):
        month_closing.close(published, OCTOBER)


def test_a_closing_that_was_killed_before_readers_saw_it_is_published_by_the_same_command(published: Fleet) -> None:
    """Until then it was only in the warehouse, and the command refused: closed already. So did an undoing."""
    assert month_closing.close(published, OCTOBER) == "2026-10 is closed: 100.00 USD, fully loaded"
    assert months(published)["2026-10"][0] == "open"
    assert month_closing.close(published, OCTOBER) == "2026-10 is closed: 100.00 USD, fully loaded"
    publish(published)
    assert months(published)["2026-10"][0] == "closed"
    assert month_closing.undo(published, OCTOBER) == "2026-10 is open again"
    assert month_closing.undo(published, OCTOBER) == "2026-10 is open again"
    publish(published)
    assert months(published)["2026-10"][0] == "open"
    with pytest.raises(QuestionError, match=r"^2026-10 is not closed, so there is nothing to undo"):
        month_closing.undo(published, OCTOBER)
    with closing(database.connect(published.warehouse, read_only=True)) as connection:
        events = connection.execute("select action from published.closings order by event").fetchall()
    assert events == [("closed",), ("undone",)]


@pytest.mark.parametrize(
    ("month", "reason"),
    [
        (JULY, "2026-07-07 is held back"),
        (AUGUST, "it has no cost, because no price is known"),
        (SEPTEMBER, "719 of 720 hours of site west are booked"),
    ],
    ids=["a date is held back", "no price", "an hour is missing"],
)
def test_what_is_not_known_keeps_a_month_open(open_months: Fleet, month: date, reason: str) -> None:
    with pytest.raises(QuestionError, match=f"^{month:%Y-%m} cannot be closed: {reason}"):
        month_closing.close(open_months, month)


def test_a_figure_that_cannot_be_made_is_status_1_although_the_month_is_closed(
    published: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(database.connect(published.warehouse)) as connection:
        connection.execute("alter table marts.idle_power alter idle_facility_kwh type varchar")
    assert close(published, OCTOBER, is_undone=False) == 1
    printed = capsys.readouterr().out
    assert "2026-10 is closed: 100.00 USD, fully loaded\n" in printed
    assert "checks: 1 passed, 1 failed, 0 warned\n  FAILED published/fleet_report every_part_is_made" in printed


def test_closing_names_what_the_runs_warned_of(tmp_path: Path) -> None:
    """The check ran when the dates were booked, and closing does not run it again."""
    fleet = fleet_in(tmp_path)
    assert list(lasting(fleet)) == []
    what = "the check compute_cost_is_one_amount of marts/cost_daily warned"
    known = alarm_memory.Known(Alarm("check", "compute_cost_is_one_amount", "warning", what))
    alarm_memory.AlarmMemory([known]).write(fleet.root / alarm_memory.FILE)
    assert list(lasting(fleet)) == ["1 alarm of the newest run (`wattledger alarms`):", f"  warning: {what}"]


def test_a_month_is_not_opened_before_a_later_one(open_months: Fleet) -> None:
    # Of the fleet's first month the hours before it are not missing.
    assert month_closing.close(open_months, MAY) == "2026-05 is closed: 90.00 USD, fully loaded"
    month_closing.close(open_months, JUNE)
    with pytest.raises(QuestionError, match=r"^2026-05 cannot be opened: 2026-06 was closed after it. Undo that first"):
        month_closing.undo(open_months, MAY)
    month_closing.undo(open_months, JUNE)
    month_closing.undo(open_months, MAY)


def test_a_publication_of_an_older_version_closes_no_month(published: Fleet) -> None:
    with closing(database.connect(published.warehouse)) as connection:
        for (view,) in connection.execute(
            "select view_name from duckdb_views() where schema_name = 'finance'"
        ).fetchall():
            connection.execute(f'drop view finance."{view}"')
    publish(published)
    with pytest.raises(QuestionError, match=r"^2026-10 cannot be closed: the publication is of an older version"):
        month_closing.close(published, OCTOBER)


def test_a_closing_is_undone_until_something_refers_to_it(published: Fleet) -> None:
    month_closing.close(published, OCTOBER)
    assert month_closing.undo(published, OCTOBER) == "2026-10 is open again"
    change(published, LAST, "energy", 12)
    publish(published)
    assert (months(published)["2026-10"], adjustments(published)) == (("open", 102, 0, 102), [])
    # So has its FOCUS file what is known, until it is closed again.
    assert [row[-1] for row in charges(published, "2026-10", "true")] == [90.0, 12.0]
    month_closing.close(published, OCTOBER)
    change(published, LAST, "energy", 13)
    publish(published)
    assert [row[-1] for row in charges(published, "2026-10", "true")] == [90.0, 12.0]
    assert [row[-1] for row in charges(published, "2026-11")] == [1.0]
    with pytest.raises(QuestionError, match=r"^2026-10 cannot be opened: 1 rows of it were adjusted in a later month"):
        month_closing.undo(published, OCTOBER)


def test_a_warehouse_of_other_descriptions_gets_todays(booked: Fleet) -> None:
    asked = "select comment from duckdb_columns() where table_name = 'closings' and column_name = 'closed_at'"
    with closing(database.connect(booked.warehouse)) as connection:
        connection.execute("comment on column published.closings.closed_at is 'of an older version'")
        closings.create(connection)
        assert connection.execute(asked).fetchall() == [("When the command was given.",)]


def test_a_month_without_its_raw_is_not_opened(closed: Fleet) -> None:
    with closing(database.connect(closed.warehouse)) as connection:
        sealed_dates.seal(connection, [date(2026, 9, 30)], OCTOBER)
    # September's last date alone: October can be booked anew whole.
    assert month_closing.undo(closed, OCTOBER) == "2026-10 is open again"
    month_closing.close(closed, OCTOBER)
    with closing(database.connect(closed.warehouse)) as connection:
        sealed_dates.seal(connection, [OCTOBER], date(2026, 10, 2))
    with pytest.raises(QuestionError, match=r"^2026-10 cannot be opened: 2026-10-01 is sealed: its samples"):
        month_closing.undo(closed, OCTOBER)


def test_closings_and_adjustments_outlive_the_warehouse_and_the_publication(adjusted: Fleet) -> None:
    closed_with = focus_file(adjusted, "2026-10").read_bytes()
    # A warehouse that was lost, and booked again from its sources.
    with closing(database.connect(adjusted.warehouse)) as connection:
        for table in closings.TABLES:
            connection.execute(f"drop table published.{table}")
        month_closing.take_back(adjusted, connection)
    publish(adjusted)
    assert (months(adjusted), adjustments(adjusted)) == (ADJUSTED, LATE)
    # Publications that were lost: the warehouse has what they had.
    with closing(database.connect(adjusted.warehouse)) as connection:
        month_closing.take_back(adjusted, connection)
    shutil.rmtree(adjusted.published)
    publish(adjusted)
    assert (months(adjusted), adjustments(adjusted)) == (ADJUSTED, LATE)
    assert focus_file(adjusted, "2026-10").read_bytes() == closed_with


def test_a_closing_with_another_amount_or_a_lost_row_fails_its_step_in_one_line(published: Fleet) -> None:
    month_closing.close(published, OCTOBER)
    refusal = r"^2026-10 was closed with other figures than closing 1 has now: rows of it"
    for statement in (
        "update published.closed_costs set closed_cost_usd = closed_cost_usd + 0.01 where part = 'energy'",
        "delete from published.closed_costs where part = 'energy'",
    ):
        with closing(database.connect(published.warehouse)) as connection:
            connection.execute(statement)
        with pytest.raises(closings.ClosingsLost, match=refusal):
            publish(published)
    with pytest.raises(dg.Failure, match=refusal):
        publication._published(published, publication.PublicationConfig(), lambda _: None)
    with closing(database.connect(published.warehouse)) as connection:
        connection.execute("update published.closings set event = 2")
    with pytest.raises(
        closings.ClosingsLost, match=r"^closing 1 is missing: neither the warehouse nor the publication"
    ):
        publish(published)
