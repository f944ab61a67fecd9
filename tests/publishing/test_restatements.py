"""Restatements: what a publication changes of what was published before, with the reason.

Each case is a date of one small fleet, which is published, changed, published, changed and published again, with all
cases at once. Until October a date costs 90 USD of capacity, 10 USD of energy and 20 USD of the month's peak, and emits
15 kg for 50 kWh; later 40 USD of capacity and 8 USD of the peak. October is over, November is not. A case without a
reason needs a month of its own, 31 days from any landing: that would be its reason.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import closing
from datetime import UTC, date, datetime
from pathlib import Path

import duckdb
import pytest

from pipelines.fleet.fleet_file import Fleet
from pipelines.publishing import publication
from pipelines.warehouse import database, settings
from tests.publishing.closed_months import copied, cost, fleet_in, hours, read

BEGIN, END = date(2026, 8, 1), date(2027, 1, 1)
FACTOR = date(2026, 8, 10)  # in a month of its own: no setting of another date is the reason of its cost
PRICE, METHOD, NODES, LATE_AND_PRICE, PEAK, LAST_DIGITS, LANDED_UNCHANGED, RENAMED, AHEAD, BILL, UNTOUCHED, LATE = (
    date(2026, 10, day) for day in range(20, 32)
)
PEAK_OF_NOVEMBER, ADDED, HELD_BACK, BEHIND, BILL_OF_NOVEMBER = (date(2026, 11, day) for day in range(1, 6))
MONTH_THAT_ENDS = date(2026, 12, 1)
SETTINGS = ("tariffs", "grid", "bills", "nodes", "method_version")


def energy(connection: duckdb.DuckDBPyConnection, day: date, kwh: float, gco2e: float) -> None:
    """State the energy and CO2 of a date."""
    connection.execute("delete from marts.model_hourly where date = ?", [day])
    connection.execute(
        "insert into marts.model_hourly by name select ?::date as date, date_trunc('month', ?::date) as billing_month,"
        " 'west' as site, 'llm/gpt' as deployment, 'gpt' as model, ? as facility_energy_kwh, ? as location_gco2e,"
        " '5' as method_version",
        [day, day, kwh, gco2e],
    )


def set_to(connection: duckdb.DuckDBPyConnection, day: date, setting: str, value: str) -> None:
    """What a date was booked with."""
    connection.execute("delete from raw.booked_with where date = ? and setting = ?", [day, setting])
    connection.execute("insert into raw.booked_with values (?, ?, ?)", [day, setting, value])


def landed(connection: duckdb.DuckDBPyConnection, day: date, outcome: str = "landed") -> None:
    """Note that telemetry of a date was fetched again."""
    midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
    connection.execute(
        "insert into raw.landings by name select now() as landed_at, 'raw/telemetry' as asset, 'agents' as source,"
        " ?::timestamptz as window_start_at, ?::timestamptz + interval 1 day as window_end_at, ? as outcome",
        [midnight, midnight, outcome],
    )


def bill(connection: duckdb.DuckDBPyConnection, ratio: float) -> None:
    """State what capacity costs at the bill's price, as a share of its cost."""
    connection.execute(
        "update marts.cost_daily set billed_cost_usd = cost_usd * ? where part = 'capacity' and list_contains(?, date)",
        [ratio, [BILL, BILL_OF_NOVEMBER]],
    )


def publish(fleet: Fleet, ahead: Collection[date] = ()) -> None:
    """As a run: publish, then note what the dates were booked with."""
    made = publication.publish(fleet, BEGIN, END, ahead=ahead, force=True)
    assert made is not None
    with closing(database.connect(fleet.warehouse)) as connection:
        settings.published(connection, made.held_back)


def book(connection: duckdb.DuckDBPyConnection) -> None:
    hours(connection, date(2026, 10, 1), 744)
    hours(connection, date(2026, 11, 1), 24)
    hours(connection, date(2026, 12, 1), 24)
    of_october = [date(2026, 10, day) for day in range(20, 32)]
    for day in (FACTOR, *of_october):
        energy(connection, day, 50, 15_000)
        for part, usd in (("capacity", 90), ("energy", 10), ("demand_charge", 20)):
            cost(connection, day, part, usd)
    of_november = [PEAK_OF_NOVEMBER, HELD_BACK, BEHIND, BILL_OF_NOVEMBER]
    for day in (*of_november, MONTH_THAT_ENDS):
        cost(connection, day, "capacity", 40)
        cost(connection, day, "demand_charge", 8)
    for day in (FACTOR, *of_october, *of_november, MONTH_THAT_ENDS):
        for setting in SETTINGS:
            set_to(connection, day, setting, "a")


def change(connection: duckdb.DuckDBPyConnection) -> None:
    set_to(connection, FACTOR, "grid", "b")
    energy(connection, FACTOR, 50, 20_000)
    cost(connection, FACTOR, "energy", 11)
    for day, setting in ((PRICE, "tariffs"), (METHOD, "method_version"), (NODES, "nodes")):
        set_to(connection, day, setting, "b")
        cost(connection, day, "energy", 11)
    set_to(connection, LATE_AND_PRICE, "tariffs", "b")
    landed(connection, LATE_AND_PRICE)
    cost(connection, LATE_AND_PRICE, "energy", 13)
    cost(connection, PEAK, "demand_charge", 22)
    cost(connection, PEAK_OF_NOVEMBER, "demand_charge", 9)
    cost(connection, LAST_DIGITS, "capacity", 90.0000000001)
    landed(connection, LANDED_UNCHANGED, "unchanged")
    connection.execute(
        "update marts.cost_daily set model = '__unknown__' where date = ? and part = 'energy'", [RENAMED]
    )
    set_to(connection, RENAMED, "nodes", "b")
    for day, usd in ((AHEAD, 91), (BEHIND, 41)):
        landed(connection, day)
        cost(connection, day, "capacity", usd)
    bill(connection, 1.1)
    for day in (BILL, BILL_OF_NOVEMBER):
        set_to(connection, day, "bills", "b")
    landed(connection, LATE)
    energy(connection, LATE, 60, 18_000)
    cost(connection, LATE, "energy", 12)
    cost(connection, ADDED, "capacity", 40)
    cost(connection, HELD_BACK, "capacity", 41)
    connection.execute(
        "insert into marts.held_back_dates by name select ?::date as date, 'x' as invariant", [HELD_BACK]
    )
    hours(connection, date(2026, 12, 1), 744)
    cost(connection, MONTH_THAT_ENDS, "demand_charge", 12)


def change_again(connection: duckdb.DuckDBPyConnection) -> None:
    cost(connection, AHEAD, "capacity", 92)
    bill(connection, 1.2)
    for day in (BILL, BILL_OF_NOVEMBER):
        set_to(connection, day, "bills", "c")


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    """Published, changed and published. One date was published alone minutes before, ahead of its history."""
    fleet = fleet_in(tmp_path_factory.mktemp("changed"))
    with closing(database.connect(fleet.warehouse)) as connection:
        book(connection)
    publish(fleet)
    with closing(database.connect(fleet.warehouse)) as connection:
        change(connection)
    publish(fleet, ahead=[AHEAD])
    return fleet


@pytest.fixture(scope="module")
def changed_again(changed: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    fleet = copied(Path(changed.path).parent, tmp_path_factory.mktemp("again") / "changed")
    with closing(database.connect(fleet.warehouse)) as connection:
        change_again(connection)
    publish(fleet)
    return fleet


def restated(fleet: Fleet) -> list[tuple]:
    """Date, model, figure, part, amount before, after and in between, unit and reason; in order of publications and
    dates. The month is the date's."""
    rows = read(
        fleet,
        "select date, model, figure, part, before::double, after::double, change::double, unit, reason,"
        " month = date_trunc('month', date) from finance.restatements order by restated_at, date, figure, part, model",
    )
    assert all(is_of_its_month for *_, is_of_its_month in rows)
    return [row[:-1] for row in rows]


@pytest.mark.parametrize(
    ("day", "expected"),
    [
        pytest.param(
            LATE,
            [
                ("gpt", "CO2e", None, 15, 18, 3, "kg", "late data"),
                ("gpt", "cost", "energy", 10, 12, 2, "USD", "late data"),
                ("gpt", "electricity", None, 50, 60, 10, "kWh", "late data"),
            ],
            id="late data",
        ),
        pytest.param(PRICE, [("gpt", "cost", "energy", 10, 11, 1, "USD", "price")], id="another tariff"),
        pytest.param(NODES, [("gpt", "cost", "energy", 10, 11, 1, "USD", "fleet file")], id="other nodes"),
        pytest.param(METHOD, [("gpt", "cost", "energy", 10, 11, 1, "USD", "method")], id="another method"),
        pytest.param(
            FACTOR,
            [
                ("gpt", "CO2e", None, 15, 20, 5, "kg", "factor"),
                ("gpt", "cost", "energy", 10, 11, 1, "USD", "not known"),
            ],
            id="a factor changes CO2 and no cost",
        ),
        pytest.param(
            LATE_AND_PRICE,
            [("gpt", "cost", "energy", 10, 13, 3, "USD", "late data, price")],
            id="several reasons are named together",
        ),
        pytest.param(
            PEAK,
            [("gpt", "cost", "demand_charge", 20, 22, 2, "USD", "peak of the month")],
            id="a peak of a month that is over",
        ),
        pytest.param(
            RENAMED,
            [
                ("Unknown model", "cost", "energy", None, 10, 10, "USD", "fleet file"),
                ("gpt", "cost", "energy", 10, None, -10, "USD", "fleet file"),
            ],
            id="a model that is named otherwise goes from one name to the other",
        ),
        pytest.param(
            BEHIND,
            [("gpt", "cost", "capacity", 40, 41, 1, "USD", "late data")],
            id="a date that was not published ahead of its history",
        ),
    ],
)
def test_a_change_of_a_published_date_is_restated_with_its_reason(
    changed: Fleet, day: date, expected: list[tuple]
) -> None:
    assert [row[1:] for row in restated(changed) if row[0] == day] == expected


@pytest.mark.parametrize(
    "day",
    [
        pytest.param(UNTOUCHED, id="what did not change"),
        pytest.param(PEAK_OF_NOVEMBER, id="a peak of a month in progress"),
        pytest.param(MONTH_THAT_ENDS, id="the peak of a month whose last hour is booked now"),
        pytest.param(LAST_DIGITS, id="a difference in the last digits"),
        pytest.param(LANDED_UNCHANGED, id="a date that landed unchanged"),
        pytest.param(ADDED, id="a new date"),
        pytest.param(HELD_BACK, id="a date that is held back"),
        pytest.param(AHEAD, id="a date that was published ahead of its history"),
        pytest.param(BILL, id="a bill's price that is known for the first time"),
        pytest.param(BILL_OF_NOVEMBER, id="the same of a month in progress"),
    ],
)
def test_that_is_no_restatement(changed: Fleet, day: date) -> None:
    assert day not in {row[0] for row in restated(changed)}


def test_what_is_not_restated_is_published_unless_it_is_held_back(changed: Fleet) -> None:
    def capacity(day: date) -> list[tuple]:
        """On both bases."""
        query = "select cost_usd::double from marts.cost_daily where part = 'capacity'"
        return read(changed, f"{query} and date = '{day.isoformat()}'")

    assert (capacity(ADDED), capacity(AHEAD), capacity(HELD_BACK)) == ([(40,)] * 2, [(91,)] * 2, [(40,)] * 2)


def test_a_restatement_is_carried_on_once_and_the_next_one_follows(changed: Fleet, changed_again: Fleet) -> None:
    assert restated(changed_again) == [
        *restated(changed),
        # Its history is published by now.
        (AHEAD, "gpt", "cost", "capacity", 91, 92, 1, "USD", "not known"),
        # 1.1 and 1.2 times what capacity costs.
        (BILL, "gpt", "cost at the bill's price", "capacity", 99, 108, 9, "USD", "bill"),
        (BILL_OF_NOVEMBER, "gpt", "cost at the bill's price", "capacity", 44, 48, 4, "USD", "bill"),
    ]
