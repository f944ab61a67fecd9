"""One small fleet, written by hand, whose months are closed; and what readers see of them.

One site in UTC, one model `gpt` of team `platform`. On 31 October 2026 it costs 90 USD of capacity and 10 USD of energy
for 50 kWh; on 1 November 40 USD of capacity. Each of its STATES is made once per test run, from the one before, and a
test gets a copy: a publication takes two seconds of processor. Add here what several files of tests write or read, and
a state that they begin with. Keep out what one of them asserts.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import duckdb
import pytest

from pipelines.fleet.fleet_file import Fleet, load_fleet
from pipelines.publishing import month_closing, publication
from pipelines.warehouse import database
from tests.books import empty_warehouse
from tests.conftest import made_once

OCTOBER, NOVEMBER, DECEMBER = (date(2026, month, 1) for month in (10, 11, 12))
LAST, FIRST = date(2026, 10, 31), date(2026, 11, 1)
FLEET = """
fleet: tiny
period: {start: 2026-10-01}
sites: [{name: west, zone: unknown, pue: 1.2}]
sources: [{name: agents, kind: spool}]
"""


def fleet_in(folder: Path) -> Fleet:
    """The fleet with its data in a folder, which may have some."""
    path = folder / "tiny.yaml"
    path.write_text(FLEET)
    fleet = load_fleet(path, {"WATTLEDGER_DATA": str(folder / "data")})
    if not fleet.warehouse.exists():
        fleet.root.mkdir(parents=True)
        shutil.copyfile(empty_warehouse(), fleet.warehouse)
    return fleet


def copied(folder: Path, to: Path) -> Fleet:
    """What is booked and published in a folder, in another one, to be changed."""
    shutil.copytree(folder, to, symlinks=True)
    return fleet_in(to)


# --- what is booked ---------------------------------------------------------------------------------------------------


def hours(connection: duckdb.DuckDBPyConnection, month: date, count: int) -> None:
    """Book the first hours of a month, and no others of it."""
    connection.execute("delete from marts.site_power_hourly where billing_month = ?", [month])
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
    connection: duckdb.DuckDBPyConnection, day: date, part: str, usd: float, *, deployment: str = "llm/gpt"
) -> None:
    """State what a date cost of a part, on every basis and for the tenant, whatever it was before."""
    of_row = "date = ? and deployment = ?"
    connection.execute(f"delete from marts.cost_daily where {of_row} and part = ?", [day, deployment, part])
    connection.execute(
        "insert into marts.cost_daily by name select ?::date as date, date_trunc('month', ?::date) as billing_month,"
        " 'west' as site, ? as deployment, 'platform' as team, 'gpt' as model, basis, ? as part, ? as cost_usd,"
        " 0 as idle_cost_usd, true as is_cash, true as is_cost_complete"
        " from (values ('allocation'), ('fully_loaded')) as bases(basis)",
        [day, day, deployment, part, usd],
    )
    _focus(connection, day)
    connection.execute(f"delete from marts.tenant_daily where {of_row}", [day, deployment])
    connection.execute(
        "insert into marts.tenant_daily by name select date, billing_month, site, deployment, team, model,"
        " '__no_requests__' as tenant, sum(cost_usd) as fully_loaded_cost_usd, true as is_cost_complete"
        f" from marts.cost_daily where {of_row} and basis = 'fully_loaded' group by all",
        [day, deployment],
    )


def _focus(connection: duckdb.DuckDBPyConnection, day: date) -> None:
    """The rows of FOCUS of a date: half of what capacity costs is bought, so no invoice shows it."""
    connection.execute("delete from marts.focus_cost_and_usage where date = ?", [day])
    connection.execute(
        "insert into marts.focus_cost_and_usage by name select date, billing_month, site as BillingAccountId,"
        " cost_usd * if(part = 'capacity', 0.5, 1) as BilledCost, cost_usd as EffectiveCost,"
        " billing_month::timestamptz as BillingPeriodStart, date::timestamptz as ChargePeriodStart,"
        " deployment as x_Deployment, part as x_Part, part || '/1' as SkuPriceId"
        " from marts.cost_daily where date = ? and basis = 'allocation' and cost_usd is not null",
        [day],
    )


def change(
    fleet: Fleet, day: date, part: str, usd: float, *, kwh: float | None = None, deployment: str = "llm/gpt"
) -> None:
    """Another cost of a date, and with it another energy of its month."""
    with closing(database.connect(fleet.warehouse)) as connection:
        cost(connection, day, part, usd, deployment=deployment)
        if kwh is not None:
            energy(connection, day.replace(day=1), kwh)


def publish(fleet: Fleet) -> None:
    assert publication.publish(fleet, OCTOBER, DECEMBER, force=True) is not None


# --- the states -------------------------------------------------------------------------------------------------------


def book(fleet: Fleet) -> None:
    with closing(database.connect(fleet.warehouse)) as connection:
        hours(connection, OCTOBER, 744)
        hours(connection, NOVEMBER, 24)
        energy(connection, OCTOBER, 50)
        energy(connection, NOVEMBER, 20)
        for day, part, usd in ((LAST, "capacity", 90), (LAST, "energy", 10), (FIRST, "capacity", 40)):
            cost(connection, day, part, usd)


def close_october(fleet: Fleet) -> None:
    month_closing.close(fleet, OCTOBER)
    publish(fleet)


def book_late_data(fleet: Fleet) -> None:
    """After October was closed: 36 kWh more for 7.20 USD, and 3 USD of capacity, of which invoices show half. It is
    published twice."""
    change(fleet, LAST, "energy", 17.2, kwh=86)
    change(fleet, LAST, "capacity", 93)
    publish(fleet)
    publish(fleet)


# Each is made of the one before.
STATES: dict[str, Callable[[Fleet], None]] = {
    "booked": book,
    "published": publish,
    "closed": close_october,
    "adjusted": book_late_data,
}


def in_state(state: str, factory: pytest.TempPathFactory, folder: Path) -> Fleet:
    """A copy of the fleet in one of STATES, in a new folder of this one."""
    with made_once(factory, "closed_months") as shared:
        before = None
        for name, make in STATES.items():
            if not (shared / name).exists():
                began = shared / f"{name}.began"
                shutil.rmtree(began, ignore_errors=True)
                if before is None:
                    began.mkdir()
                make(fleet_in(began) if before is None else copied(before, began))
                began.rename(shared / name)
            before = shared / name
            if name == state:
                break
    return copied(shared / state, folder / state)


@pytest.fixture
def booked(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> Fleet:
    return in_state("booked", tmp_path_factory, tmp_path)


@pytest.fixture
def published(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> Fleet:
    return in_state("published", tmp_path_factory, tmp_path)


@pytest.fixture
def closed(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> Fleet:
    """October is closed, and that is published."""
    return in_state("closed", tmp_path_factory, tmp_path)


@pytest.fixture
def adjusted(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> Fleet:
    """What was booked late of the closed October is published."""
    return in_state("adjusted", tmp_path_factory, tmp_path)


# --- what readers see -------------------------------------------------------------------------------------------------


def read(fleet: Fleet, query: str) -> list[tuple]:
    with closing(duckdb.connect(str(fleet.snapshot), read_only=True)) as connection:
        return connection.execute(query).fetchall()


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
    return [(of, booked_month, name, _usd(usd), reason) for of, booked_month, name, usd, reason in rows]


def _usd(amount: Decimal | None) -> float | None:
    return None if amount is None else float(amount)


def focus_file(fleet: Fleet, month: str) -> Path:
    return fleet.published / f"latest/focus/cost_and_usage_{month}.csv"


def charges(fleet: Fleet, month: str, where: str = "ChargeClass = 'Correction'") -> list[tuple]:
    """Billing and charge period, part, billed and effective USD of rows of a month's FOCUS file, in its order."""
    with closing(duckdb.connect()) as connection:
        rows = connection.execute(
            "select BillingPeriodStart, BillingPeriodEnd, ChargePeriodStart, ChargePeriodEnd, x_Part,"
            f" BilledCost::double, EffectiveCost::double from read_csv(?, all_varchar = true) where {where}",
            [str(focus_file(fleet, month))],
        ).fetchall()
    return [tuple(str(value).removesuffix("-01T00:00:00Z") for value in row[:4]) + row[4:] for row in rows]
