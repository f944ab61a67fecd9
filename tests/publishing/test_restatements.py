"""Restatements: a published figure that changes is a row with what it was, what it is and why.

One site in UTC, one model `gpt`. On 31 October 2026 it costs 90 USD of capacity, 10 USD of energy and 20 USD of the
month's demand charge, and draws 50 kWh, which are 15 kg of CO2e; on 1 November 40 USD of capacity and 8 USD of demand.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import closing
from datetime import UTC, date, datetime

import duckdb
import pytest

from pipelines.fleet.fleet_file import Fleet
from pipelines.publishing import publication
from pipelines.warehouse import database, settings
from tests.publishing.test_closings import DECEMBER, FIRST, LAST, NOVEMBER, OCTOBER, cost, hours, read
from tests.publishing.test_closings import fleet as fleet  # noqa: PLC0414 (a fixture)


@pytest.fixture
def book(fleet: Fleet) -> Fleet:
    with closing(database.connect(fleet.warehouse)) as connection:
        cost(connection, LAST, "demand_charge", 20)
        cost(connection, FIRST, "demand_charge", 8)
        energy(connection, LAST, 50, 15_000)
        for setting in ("tariffs", "grid", "bills", "nodes", "method_version"):
            set_to(connection, setting, "a")
    publish(fleet)
    return fleet


def energy(connection: duckdb.DuckDBPyConnection, on: date, kwh: float, gco2e: float) -> None:
    """State the energy and CO2 of a date."""
    connection.execute("delete from marts.model_hourly where date = ?", [on])
    connection.execute(
        "insert into marts.model_hourly by name select ?::date as date, date_trunc('month', ?::date) as billing_month,"
        " 'west' as site, 'llm/gpt' as deployment, 'gpt' as model, ? as facility_energy_kwh, ? as location_gco2e,"
        " '5' as method_version",
        [on, on, kwh, gco2e],
    )
    connection.execute("delete from marts.model_monthly where month = date_trunc('month', ?::date)", [on])


def set_to(connection: duckdb.DuckDBPyConnection, setting: str, value: str) -> None:
    """What both dates were booked with."""
    connection.execute("delete from raw.booked_with where setting = ?", [setting])
    connection.executemany(
        "insert into raw.booked_with values (?, ?, ?)", [[on, setting, value] for on in (LAST, FIRST)]
    )


def landed(connection: duckdb.DuckDBPyConnection, on: date, outcome: str = "landed") -> None:
    """Note that telemetry of a date was fetched again."""
    midnight = datetime(on.year, on.month, on.day, tzinfo=UTC)
    connection.execute(
        "insert into raw.landings by name select now() as landed_at, 'raw/telemetry' as asset, 'agents' as source,"
        " ?::timestamptz as window_start_at, ?::timestamptz + interval 1 day as window_end_at, ? as outcome",
        [midnight, midnight, outcome],
    )


def publish(fleet: Fleet, ahead: Collection[date] = ()) -> None:
    """As a run: publish, then note what the dates were booked with."""
    made = publication.publish(fleet, OCTOBER, DECEMBER, ahead=ahead, force=True)
    assert made is not None
    with closing(database.connect(fleet.warehouse)) as connection:
        settings.published(connection, made.held_back)


def restated(fleet: Fleet) -> list[tuple]:
    rows = read(
        fleet,
        "select strftime(month, '%m'), strftime(date, '%d'), model, figure, part, before::double, after::double,"
        " change::double, unit, reason from finance.restatements order by restated_at, date, figure, part",
    )
    return [tuple(row) for row in rows]


def test_what_did_not_change_is_not_restated(book: Fleet) -> None:
    publish(book)
    assert restated(book) == []


def test_late_data_restates_energy_co2_and_cost(book: Fleet) -> None:
    with closing(database.connect(book.warehouse)) as connection:
        landed(connection, LAST)
        energy(connection, LAST, 60, 18_000)
        cost(connection, LAST, "energy", 12)
    publish(book)
    expected = [
        ("10", "31", "gpt", "CO2e", None, 15, 18, 3, "kg", "late data"),
        ("10", "31", "gpt", "cost", "energy", 10, 12, 2, "USD", "late data"),
        ("10", "31", "gpt", "electricity", None, 50, 60, 10, "kWh", "late data"),
    ]
    assert restated(book) == expected
    publish(book)
    assert restated(book) == expected  # once, and carried on


@pytest.mark.parametrize(
    ("setting", "reason"), [("tariffs", "price"), ("nodes", "fleet file"), ("method_version", "method")]
)
def test_a_changed_setting_is_the_reason_of_what_it_changed(book: Fleet, setting: str, reason: str) -> None:
    with closing(database.connect(book.warehouse)) as connection:
        set_to(connection, setting, "b")
        cost(connection, LAST, "energy", 11)
    publish(book)
    assert restated(book) == [("10", "31", "gpt", "cost", "energy", 10, 11, 1, "USD", reason)]


def test_a_factor_changes_co2_and_no_cost(book: Fleet) -> None:
    with closing(database.connect(book.warehouse)) as connection:
        set_to(connection, "grid", "b")
        energy(connection, LAST, 50, 20_000)
        cost(connection, LAST, "energy", 11)
    publish(book)
    assert restated(book) == [
        ("10", "31", "gpt", "CO2e", None, 15, 20, 5, "kg", "factor"),
        ("10", "31", "gpt", "cost", "energy", 10, 11, 1, "USD", "not known"),
    ]


def test_several_reasons_are_named_together(book: Fleet) -> None:
    with closing(database.connect(book.warehouse)) as connection:
        set_to(connection, "tariffs", "b")
        landed(connection, LAST)
        cost(connection, LAST, "energy", 13)
    publish(book)
    assert [row[-1] for row in restated(book)] == ["late data, price"]


def test_a_peak_of_a_month_that_is_over_restates_its_dates_and_one_in_progress_does_not(book: Fleet) -> None:
    with closing(database.connect(book.warehouse)) as connection:
        cost(connection, LAST, "demand_charge", 22)
        cost(connection, FIRST, "demand_charge", 9)
    publish(book)
    assert restated(book) == [("10", "31", "gpt", "cost", "demand_charge", 20, 22, 2, "USD", "peak of the month")]


def test_a_month_that_ends_restates_no_demand_charge(book: Fleet) -> None:
    """The last hour of November is booked, and its peak is known: before that the charge was of a month in progress."""
    with closing(database.connect(book.warehouse)) as connection:
        connection.execute("delete from marts.site_power_hourly where billing_month = ?", [NOVEMBER])
        hours(connection, NOVEMBER, 720)
        cost(connection, FIRST, "demand_charge", 12)
    publish(book)
    assert restated(book) == []


def test_a_difference_in_the_last_digits_is_no_restatement(book: Fleet) -> None:
    with closing(database.connect(book.warehouse)) as connection:
        cost(connection, LAST, "capacity", 90.0000000001)
    publish(book)
    assert restated(book) == []


def test_a_date_that_landed_unchanged_or_is_new_or_held_back_is_no_restatement(book: Fleet) -> None:
    with closing(database.connect(book.warehouse)) as connection:
        landed(connection, LAST, "unchanged")
        cost(connection, date(2026, 11, 2), "capacity", 40)
        cost(connection, FIRST, "capacity", 41)
        connection.execute(
            "insert into marts.held_back_dates by name select ?::date as date, 'x' as invariant", [FIRST]
        )
    publish(book)
    assert restated(book) == []
    assert read(book, "select count(*) from marts.cost_daily where date = '2026-11-02'") == [(2,)]


def test_a_date_that_was_published_ahead_of_its_history_is_not_restated_by_it(book: Fleet) -> None:
    """The last of October was published alone, minutes ago; the first of November was published before that."""
    with closing(database.connect(book.warehouse)) as connection:
        landed(connection, LAST)
        landed(connection, FIRST)
        cost(connection, LAST, "capacity", 91)
        cost(connection, FIRST, "capacity", 41)
    publish(book, ahead=[LAST])
    assert restated(book) == [("11", "01", "gpt", "cost", "capacity", 40, 41, 1, "USD", "late data")]
    assert read(
        book, "select distinct cost_usd::double from marts.cost_daily where date = '2026-10-31' and part = 'capacity'"
    ) == [(91,)]
    with closing(database.connect(book.warehouse)) as connection:
        cost(connection, LAST, "capacity", 92)
    publish(book)  # its history is published by now
    assert restated(book)[-1] == ("10", "31", "gpt", "cost", "capacity", 91, 92, 1, "USD", "not known")


def test_a_bill_restates_the_cost_at_its_price_only_where_one_was_known(book: Fleet) -> None:
    with closing(database.connect(book.warehouse)) as connection:
        connection.execute("update marts.cost_daily set billed_cost_usd = cost_usd * 1.1 where part = 'capacity'")
        set_to(connection, "bills", "b")
    publish(book)
    assert restated(book) == []
    with closing(database.connect(book.warehouse)) as connection:
        connection.execute("update marts.cost_daily set billed_cost_usd = cost_usd * 1.2 where part = 'capacity'")
        set_to(connection, "bills", "c")
    publish(book)
    assert restated(book) == [
        ("10", "31", "gpt", "cost at the bill's price", "capacity", 99, 108, 9, "USD", "bill"),
        ("11", "01", "gpt", "cost at the bill's price", "capacity", 44, 48, 4, "USD", "bill"),
    ]


def test_a_model_that_is_named_otherwise_later_goes_from_one_name_to_the_other(book: Fleet) -> None:
    with closing(database.connect(book.warehouse)) as connection:
        connection.execute(
            "update marts.cost_daily set model = '__unknown__' where date = ? and part = 'energy'", [LAST]
        )
        set_to(connection, "nodes", "b")
    publish(book)
    assert restated(book) == [
        ("10", "31", "Unknown model", "cost", "energy", None, 10, 10, "USD", "fleet file"),
        ("10", "31", "gpt", "cost", "energy", 10, None, -10, "USD", "fleet file"),
    ]
