"""Closed months: what they are closed with stays, and what changes later is an adjustment of an open month.

One site in UTC, one model `gpt` of team `platform`. On 31 October 2026 it costs 90 USD of capacity and 10 USD of energy
for 50 kWh; on 1 November 40 USD of capacity.
"""

from __future__ import annotations

import shutil
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import dagster as dg
import duckdb
import pytest

from pipelines.fleet.fleet_file import Fleet, load_fleet
from pipelines.publishing import month_closing, publication
from pipelines.warehouse import closings, database, sealed_dates
from pipelines.warehouse.refusals import QuestionError
from tests.books import empty_warehouse

OCTOBER, NOVEMBER, DECEMBER = (date(2026, month, 1) for month in (10, 11, 12))
LAST, FIRST = date(2026, 10, 31), date(2026, 11, 1)
FLEET = """
fleet: tiny
period: {start: 2026-10-01}
sites: [{name: west, zone: unknown, pue: 1.2}]
sources: [{name: agents, kind: spool}]
"""


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    path = tmp_path / "tiny.yaml"
    path.write_text(FLEET)
    made = load_fleet(path, {"WATTLEDGER_DATA": str(tmp_path / "data")})
    made.root.mkdir(parents=True)
    shutil.copyfile(empty_warehouse(), made.warehouse)
    with closing(database.connect(made.warehouse)) as connection:
        hours(connection, OCTOBER, 744)
        hours(connection, NOVEMBER, 24)
        energy(connection, OCTOBER, 50)
        energy(connection, NOVEMBER, 20)
        for on, part, usd in ((LAST, "capacity", 90), (LAST, "energy", 10), (FIRST, "capacity", 40)):
            cost(connection, on, part, usd)
    return made


def hours(connection: duckdb.DuckDBPyConnection, month: date, count: int) -> None:
    """Book the first hours of a month."""
    connection.execute(
        """
        insert into marts.site_power_hourly by name
        select cast(hour_start_at as date) as date, hour_start_at, cast(hour_start_at as date) as local_date,
            cast($month as date) as billing_month, 'west' as site, 3600 as hour_seconds,
            day(last_day(cast($month as date))) * 24 as month_hours
        from (select $first::timestamptz + to_hours(n::integer) as hour_start_at from range($count) as hours(n))
        """,
        {"month": month, "first": datetime(month.year, month.month, 1, tzinfo=UTC), "count": count},
    )


def energy(connection: duckdb.DuckDBPyConnection, month: date, kwh: float) -> None:
    """State the energy of a month."""
    connection.execute("delete from marts.model_monthly where month = ?", [month])
    connection.execute(
        "insert into marts.model_monthly by name select ?::date as month, 'west' as site, 'llm/gpt' as deployment,"
        " 'gpt' as model, ? as facility_energy_kwh, 3600 as claimed_gpu_seconds, '5' as method_version,"
        " true as is_booked_whole",
        [month, kwh],
    )


def cost(
    connection: duckdb.DuckDBPyConnection, on: date, part: str, usd: float, *, deployment: str = "llm/gpt"
) -> None:
    """State what a date cost of a part, on every basis and for the tenant, whatever it was before."""
    of_row = "date = ? and deployment = ?"
    connection.execute(f"delete from marts.cost_daily where {of_row} and part = ?", [on, deployment, part])
    connection.execute(
        "insert into marts.cost_daily by name select ?::date as date, date_trunc('month', ?::date) as billing_month,"
        " 'west' as site, ? as deployment, 'platform' as team, 'gpt' as model, basis, ? as part, ? as cost_usd,"
        " 0 as idle_cost_usd, true as is_cash, true as is_cost_complete"
        " from (values ('allocation'), ('fully_loaded')) as bases(basis)",
        [on, on, deployment, part, usd],
    )
    _focus(connection, on)
    connection.execute(f"delete from marts.tenant_daily where {of_row}", [on, deployment])
    connection.execute(
        "insert into marts.tenant_daily by name select date, billing_month, site, deployment, team, model,"
        " '__no_requests__' as tenant, sum(cost_usd) as fully_loaded_cost_usd, true as is_cost_complete"
        f" from marts.cost_daily where {of_row} and basis = 'fully_loaded' group by all",
        [on, deployment],
    )


def _focus(connection: duckdb.DuckDBPyConnection, on: date) -> None:
    """The rows of FOCUS of a date: half of what capacity costs is bought, so no invoice shows it."""
    connection.execute("delete from marts.focus_cost_and_usage where date = ?", [on])
    connection.execute(
        "insert into marts.focus_cost_and_usage by name select date, billing_month, site as BillingAccountId,"
        " cost_usd * if(part = 'capacity', 0.5, 1) as BilledCost, cost_usd as EffectiveCost,"
        " billing_month::timestamptz as BillingPeriodStart, date::timestamptz as ChargePeriodStart,"
        " deployment as x_Deployment, part as x_Part, part || '/1' as SkuPriceId"
        " from marts.cost_daily where date = ? and basis = 'allocation' and cost_usd is not null",
        [on],
    )


def change(
    fleet: Fleet, on: date, part: str, usd: float, *, kwh: float | None = None, deployment: str = "llm/gpt"
) -> None:
    """Another cost of a date, and with it another energy of its month."""
    with closing(database.connect(fleet.warehouse)) as connection:
        cost(connection, on, part, usd, deployment=deployment)
        if kwh is not None:
            energy(connection, on.replace(day=1), kwh)


def publish(fleet: Fleet) -> None:
    assert publication.publish(fleet, OCTOBER, DECEMBER, force=True) is not None


def months(fleet: Fleet) -> dict[str, tuple]:
    """Month -> status, and what it is closed with, adjusted in it and known of it."""
    rows = read(
        fleet,
        "select strftime(month, '%Y-%m'), status, closed_cost_usd, adjustment_usd, known_cost_usd from finance.months",
    )
    return {month: (status, *map(_usd, amounts)) for month, status, *amounts in rows}


def adjustments(fleet: Fleet, table: str = "adjustments") -> list[tuple]:
    """Month, the month that got it, part or tenant, USD and reason of each adjustment, in order."""
    named = "part" if table == "adjustments" else "tenant"
    rows = read(
        fleet,
        f"select strftime(month, '%m'), strftime(booked_month, '%m'), {named}, adjustment_usd, reason"
        f" from published.{table} order by adjusted_at, {named}",
    )
    return [(of, booked, name, _usd(usd), reason) for of, booked, name, usd, reason in rows]


def read(fleet: Fleet, query: str) -> list[tuple]:
    with closing(duckdb.connect(str(fleet.snapshot), read_only=True)) as connection:
        return connection.execute(query).fetchall()


def _usd(amount: Decimal | None) -> float | None:
    return None if amount is None else float(amount)


def test_an_open_month_is_what_is_booked_so_far(fleet: Fleet) -> None:
    publish(fleet)
    assert months(fleet) == {"2026-10": ("open", 100, 0, 100), "2026-11": ("open", 40, 0, 40)}


def test_late_data_of_a_closed_month_is_one_adjustment_of_the_open_one(fleet: Fleet) -> None:
    publish(fleet)
    assert month_closing.close(fleet, OCTOBER) == "2026-10 is closed: 100.00 USD, fully loaded"
    publish(fleet)
    assert months(fleet) == {"2026-10": ("closed", 100, 0, 100), "2026-11": ("open", 40, 0, 40)}
    change(fleet, LAST, "energy", 17.2, kwh=86)
    publish(fleet)
    late = ("10", "11", "energy", 7.2, "late data")
    assert months(fleet) == {"2026-10": ("adjusted", 100, 0, 107.2), "2026-11": ("open", 47.2, 7.2, 40)}
    assert adjustments(fleet) == [late]
    assert adjustments(fleet, "chargeback_adjustments") == [("10", "11", "No request log", 7.2, "late data")]
    # Once, however often it is published.
    publish(fleet)
    assert adjustments(fleet) == [late]
    # The same energy at another price.
    change(fleet, LAST, "energy", 16)
    publish(fleet)
    assert adjustments(fleet) == [late, ("10", "11", "energy", -1.2, "price")]
    assert months(fleet) == {"2026-10": ("adjusted", 100, 0, 106), "2026-11": ("open", 46, 6, 40)}
    closed, known = read(fleet, "select sum(closed_cost_usd), sum(known_cost_usd) from finance.cost")[0]
    assert (_usd(closed), _usd(known)) == (146, 146)
    assert read(fleet, "select sum(closed_cost_usd) from finance.chargeback") == [(Decimal(146),)]


@pytest.mark.rest
def test_a_cost_that_moves_to_another_deployment_is_taken_back_and_charged(fleet: Fleet) -> None:
    publish(fleet)
    month_closing.close(fleet, OCTOBER)
    publish(fleet)
    change(fleet, LAST, "energy", 0)
    change(fleet, LAST, "energy", 10, deployment="llm/other")
    publish(fleet)
    assert sorted(adjustments(fleet)) == [
        ("10", "11", "energy", -10, "price"),
        ("10", "11", "energy", 10, "price"),
    ]
    rows = "select deployment, closed_cost_usd, adjustment_usd, known_cost_usd from finance.cost where part = 'energy'"
    assert sorted(read(fleet, f"{rows} and month = '2026-11-01'")) == [
        ("llm/gpt", -10, -10, 0),
        ("llm/other", 10, 10, 0),
    ]
    assert sorted(read(fleet, f"{rows} and month = '2026-10-01'")) == [("llm/gpt", 10, 0, 0), ("llm/other", 0, 0, 10)]


@pytest.mark.rest
def test_a_later_month_is_closed_with_its_adjustments_and_the_next_gets_what_changes_then(fleet: Fleet) -> None:
    publish(fleet)
    month_closing.close(fleet, OCTOBER)
    change(fleet, LAST, "capacity", 95)
    publish(fleet)
    with closing(database.connect(fleet.warehouse)) as connection:
        connection.execute("delete from marts.site_power_hourly where billing_month = '2026-11-01'")
        hours(connection, NOVEMBER, 720)
    publish(fleet)
    assert month_closing.close(fleet, NOVEMBER) == "2026-11 is closed: 45.00 USD, fully loaded"
    change(fleet, LAST, "capacity", 96)
    change(fleet, FIRST, "capacity", 38)
    publish(fleet)
    assert adjustments(fleet) == [
        ("10", "11", "capacity", 5, "price"),
        ("10", "12", "capacity", 1, "price"),
        ("11", "12", "capacity", -2, "price"),
    ]
    assert months(fleet) == {
        "2026-10": ("adjusted", 100, 0, 106),
        "2026-11": ("adjusted", 45, 5, 38),
        "2026-12": ("open", -1, -1, None),
    }


def test_a_month_is_closed_whole_and_once(fleet: Fleet) -> None:
    with pytest.raises(QuestionError, match=r"^nothing is published for fleet tiny yet"):
        month_closing.close(fleet, OCTOBER)
    publish(fleet)
    with pytest.raises(QuestionError, match=r"^2026-11 cannot be closed: 24 of 720 hours of site west are booked"):
        month_closing.close(fleet, NOVEMBER)
    with pytest.raises(QuestionError, match=r"^2026-12 cannot be closed: no hour of it is booked"):
        month_closing.close(fleet, DECEMBER)
    with pytest.raises(QuestionError, match=r"^2026-10 is not closed, so there is nothing to undo"):
        month_closing.undo(fleet, OCTOBER)
    month_closing.close(fleet, OCTOBER)
    with pytest.raises(QuestionError, match=r"^2026-10 is closed already: `close --undo 2026-10` opens it"):
        month_closing.close(fleet, OCTOBER)


def test_of_the_fleets_first_month_the_hours_before_it_are_not_missing(fleet: Fleet) -> None:
    with closing(database.connect(fleet.warehouse)) as connection:
        connection.execute("delete from marts.site_power_hourly where date < '2026-10-20'")
    publish(fleet)
    assert month_closing.close(fleet, OCTOBER) == "2026-10 is closed: 100.00 USD, fully loaded"


def test_a_date_that_is_held_back_keeps_its_month_open(fleet: Fleet) -> None:
    with closing(database.connect(fleet.warehouse)) as connection:
        connection.execute("update marts.model_monthly set held_back_dates = '2026-10-07' where month = '2026-10-01'")
    publish(fleet)
    with pytest.raises(QuestionError, match=r"^2026-10 cannot be closed: 2026-10-07 is held back"):
        month_closing.close(fleet, OCTOBER)


def test_a_closing_is_undone_until_something_refers_to_it(fleet: Fleet) -> None:
    publish(fleet)
    month_closing.close(fleet, OCTOBER)
    assert month_closing.undo(fleet, OCTOBER) == "2026-10 is open again"
    change(fleet, LAST, "capacity", 95)
    publish(fleet)
    assert (months(fleet)["2026-10"], adjustments(fleet)) == (("open", 105, 0, 105), [])
    month_closing.close(fleet, OCTOBER)
    change(fleet, LAST, "capacity", 99)
    publish(fleet)
    with pytest.raises(QuestionError, match=r"^2026-10 cannot be opened: 1 rows of it were adjusted in a later month"):
        month_closing.undo(fleet, OCTOBER)


def test_a_month_is_not_opened_before_a_later_one(fleet: Fleet) -> None:
    with closing(database.connect(fleet.warehouse)) as connection:
        connection.execute("delete from marts.site_power_hourly where billing_month = '2026-11-01'")
        hours(connection, NOVEMBER, 720)
    publish(fleet)
    month_closing.close(fleet, OCTOBER)
    month_closing.close(fleet, NOVEMBER)
    with pytest.raises(QuestionError, match=r"^2026-10 cannot be opened: 2026-11 was closed after it. Undo that first"):
        month_closing.undo(fleet, OCTOBER)
    month_closing.undo(fleet, NOVEMBER)
    month_closing.undo(fleet, OCTOBER)


def test_a_warehouse_of_other_descriptions_gets_todays(fleet: Fleet) -> None:
    asked = "select comment from duckdb_columns() where table_name = 'closings' and column_name = 'closed_at'"
    with closing(database.connect(fleet.warehouse)) as connection:
        connection.execute("comment on column published.closings.closed_at is 'of an older version'")
        closings.create(connection)
        assert connection.execute(asked).fetchall() == [("When the command was given.",)]


def test_a_month_without_its_raw_is_not_opened(fleet: Fleet) -> None:
    publish(fleet)
    month_closing.close(fleet, OCTOBER)
    with closing(database.connect(fleet.warehouse)) as connection:
        sealed_dates.seal(connection, [date(2026, 9, 30)], OCTOBER)
    # September's last date alone: October can be booked anew whole.
    assert month_closing.undo(fleet, OCTOBER) == "2026-10 is open again"
    month_closing.close(fleet, OCTOBER)
    with closing(database.connect(fleet.warehouse)) as connection:
        sealed_dates.seal(connection, [OCTOBER], date(2026, 10, 2))
    with pytest.raises(QuestionError, match=r"^2026-10 cannot be opened: 2026-10-01 is sealed: its samples"):
        month_closing.undo(fleet, OCTOBER)


def test_closings_and_adjustments_outlive_the_warehouse_and_the_publication(fleet: Fleet, tmp_path: Path) -> None:
    publish(fleet)
    month_closing.close(fleet, OCTOBER)
    change(fleet, LAST, "energy", 17.2, kwh=86)
    publish(fleet)
    # A warehouse that was lost, and booked again from its sources.
    with closing(database.connect(fleet.warehouse)) as connection:
        for table in closings.TABLES:
            connection.execute(f"drop table published.{table}")
        month_closing.take_back(fleet, connection)
    publish(fleet)
    after = {"2026-10": ("adjusted", 100, 0, 107.2), "2026-11": ("open", 47.2, 7.2, 40)}
    assert (months(fleet), len(adjustments(fleet))) == (after, 1)
    # Publications that were lost: the warehouse has what they had.
    with closing(database.connect(fleet.warehouse)) as connection:
        month_closing.take_back(fleet, connection)
    shutil.rmtree(fleet.published)
    publish(fleet)
    assert (months(fleet), len(adjustments(fleet))) == (after, 1)


def test_a_closing_with_a_missing_row_is_an_error(fleet: Fleet) -> None:
    publish(fleet)
    month_closing.close(fleet, OCTOBER)
    with closing(database.connect(fleet.warehouse)) as connection:
        connection.execute("delete from published.closed_costs where part = 'energy'")
    with pytest.raises(closings.ClosingsLost, match=r"^2026-10 was closed with other figures than closing 1 has now"):
        publish(fleet)
    with closing(database.connect(fleet.warehouse)) as connection:
        connection.execute("update published.closings set event = 2")
    with pytest.raises(
        closings.ClosingsLost, match=r"^closing 1 is missing: neither the warehouse nor the publication"
    ):
        publish(fleet)


def test_a_closing_that_is_lost_fails_its_step_in_one_line(fleet: Fleet) -> None:
    publish(fleet)
    month_closing.close(fleet, OCTOBER)
    with closing(database.connect(fleet.warehouse)) as connection:
        connection.execute("delete from published.closed_costs where part = 'energy'")
    with pytest.raises(dg.Failure, match=r"^2026-10 was closed with other figures than closing 1 has now: rows of it"):
        publication._published(fleet, publication.PublicationConfig(), lambda _: None)


def test_what_cannot_be_closed_is_one_line(fleet: Fleet) -> None:
    """A month without a price, and a publication that an older version made."""
    with closing(database.connect(fleet.warehouse)) as connection:
        connection.execute("update marts.cost_daily set cost_usd = null where date = ?", [LAST])
    publish(fleet)
    with pytest.raises(QuestionError, match=r"^2026-10 cannot be closed: it has no cost, because no price is known"):
        month_closing.close(fleet, OCTOBER)
    with closing(database.connect(fleet.warehouse)) as connection:
        for (view,) in connection.execute(
            "select view_name from duckdb_views() where schema_name = 'finance'"
        ).fetchall():
            connection.execute(f'drop view finance."{view}"')
    publish(fleet)
    with pytest.raises(QuestionError, match=r"^2026-10 cannot be closed: the publication is of an older version"):
        month_closing.close(fleet, OCTOBER)
