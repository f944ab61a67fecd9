"""What was billed beside what is computed, at two sites in Los Angeles from 15 October to 2 December 2026, UTC.

Each site has one A100 that draws 360 W all the time, 432 W at the facility's meter. November has 721 hours there, as
the clocks go back. It costs 1,000 USD for operations, 200 for hosting, 1,442 for the board, 31.1472 for its energy
(0.432 kW × 721 h × 0.10 USD) and 4.32 as a demand charge.
"""

from __future__ import annotations

import csv
from datetime import date
from pathlib import Path

import duckdb
import pytest
import yaml

from collectors.samples import SourceError
from pipelines.fleet.catalog import SEEDS
from pipelines.fleet.fleet_file import FleetError
from pipelines.fleet.places import DBT_PROJECT
from pipelines.landing import bill_landing
from tests.books import Book
from tests.planted import ENERGY, HOURS, board, moment, plant, pod

SITES = ("west", "east")
OCTOBER, NOVEMBER, DECEMBER = (date(2026, month, 1) for month in (10, 11, 12))
MONTH = {"start_at": "2026-11-01T00:00:00-07:00", "end_at": "2026-12-01T00:00:00-08:00"}
HALVES = (
    {"start_at": "2026-11-01T00:00:00-07:00", "end_at": "2026-11-15T00:00:00-08:00"},  # 337 hours
    {"start_at": "2026-11-15T00:00:00-08:00", "end_at": "2026-12-01T00:00:00-08:00"},  # 384 hours
)
BILLS = [
    {"site": "west", "kind": "operations", **MONTH, "usd": 1030, "invoice": "o-11"},
    {"site": "west", "kind": "hosting", **HALVES[0], "usd": 100},
    {"site": "west", "kind": "hosting", **HALVES[1], "usd": 101},
    {"site": "west", "kind": "electricity", **MONTH, "usd": 40},
    {"site": "west", "kind": "electricity", **MONTH, "usd": -4, "invoice": "credit 7"},
    # 745 hours for 1 USD each, of which 337 are in November; 720 for 3 USD each, of which 384 are.
    {
        "site": "west",
        "kind": "rental",
        "start_at": "2026-10-15T00:00:00-07:00",
        "end_at": "2026-11-15T00:00:00-08:00",
        "usd": 745,
    },
    {
        "site": "west",
        "kind": "rental",
        "start_at": "2026-11-15T00:00:00-08:00",
        "end_at": "2026-12-15T00:00:00-08:00",
        "usd": 2160,
    },
    {"site": "east", "kind": "operations", **HALVES[0], "usd": 500},
    {"site": "east", "kind": "hosting", **MONTH, "usd": -1},
]
CSV = """Standort,Art,von,bis,Betrag,Währung
east,electricity,2026-11-01T00:00:00-07:00,2026-12-01T00:00:00-08:00,30,EUR
east,electricity,2026-10-01T07:00:00Z,2026-11-01T07:00:00Z,10,USD
"""
COLUMNS = {
    "site": "Standort",
    "kind": "Art",
    "start_at": "von",
    "end_at": "bis",
    "amount": "Betrag",
    "currency": "Währung",
}


def prices(site: str) -> dict[str, object]:
    """A site's entry in the fleet file."""
    return {
        "name": site,
        "zone": "unknown",
        "time_zone": "America/Los_Angeles",
        "pue": 1.2,
        "tariff": [{"usd_per_kwh": 0.1}],
        "operations": [{"usd_per_month": 1_000.0}],
        "hosting": [{"usd_per_kw_month": 10.0, "provisioned_kw": 20.0}],
        "demand_charges": [{"usd_per_kw_month": 10.0}],
    }


def planted(folder: Path, **fleet: object) -> Book:
    days = 48
    readings = [(moment(hour * HOURS), 1e9 + 360_000 * hour * HOURS) for hour in range(days * 24 + 1)]
    return plant(
        folder,
        [(ENERGY, board(f"GPU-{site}", f"n-{site}", **pod(f"a-{site}")), readings) for site in SITES],
        days=days,
        sites=[prices(site) for site in SITES],
        nodes=[{"name": f"n-{site}", "site": site, "host_watts": 0} for site in SITES],
        cost_rates=[{"device_type": "a100-sxm4-80gb", "usd_per_gpu_hour": 2.0, "source": "contract"}],
        **fleet,
        marts=("cost_reconciliation_daily", "cost_reconciliation_monthly", "doubts", "tenant_daily"),
    )


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Book:
    folder = tmp_path_factory.mktemp("bills")
    (folder / "invoices.csv").write_text(CSV, encoding="utf-8")
    files = [{"path": "invoices*.csv", "columns": COLUMNS, "usd_per_unit": 1.2}]
    made = planted(folder, bills={"inline": BILLS, "files": files})
    made.run()
    return made


def months(book: Book, site: str, month: date) -> dict[str, tuple]:
    """Kind -> billed, computed, difference, its ratio, hours billed and booked, whether prorated and complete."""
    found = book.query(
        "select kind, round(billed_usd::double, 6), round(computed_cost_usd::double, 6),"
        " round(difference_usd::double, 6), round(difference_ratio, 6), billed_hours, booked_hours, is_prorated,"
        " is_booked_whole from marts.cost_reconciliation_monthly where site = ? and billing_month = ?",
        [site, month],
    )
    return {row[0]: row[1:] for row in found}


def test_a_month_has_its_bills_beside_what_is_computed(book: Book) -> None:
    assert months(book, "west", NOVEMBER) == {
        "operations": (1030.0, 1000.0, 30.0, 0.03, 721.0, 721.0, False, True),
        "hosting": (201.0, 200.0, 1.0, 0.005, 721.0, 721.0, False, True),  # two bills
        "electricity": (36.0, 35.4672, 0.5328, 0.015022, 721.0, 721.0, False, True),  # less a credit
        # 337 × 1 USD + 384 × 3 USD, of bills that are also of October and December.
        "rental": (1489.0, 1442.0, 47.0, 0.032594, 721.0, 721.0, True, True),
    }
    assert book.query("select distinct month_hours from marts.cost_reconciliation_monthly order by 1") == [
        (721.0,),
        (744.0,),
    ]


def test_what_is_not_billed_or_booked_whole_has_no_difference(book: Book) -> None:
    assert months(book, "east", NOVEMBER) == {
        "operations": (500.0, 1000.0, None, None, 337.0, 721.0, False, True),
        "hosting": (-1.0, 200.0, None, None, 0.0, 721.0, False, True),  # a credit alone is no bill
        "electricity": (36.0, 35.4672, 0.5328, 0.015022, 721.0, 721.0, False, True),  # 30 EUR at 1.20 USD
        "rental": (None, 1442.0, None, None, None, 721.0, None, True),
    }
    # 15 October 00:00 UTC is the 14th, 17:00, in Los Angeles: 415 hours to the end of the month, 408 of them billed.
    october = months(book, "west", OCTOBER)["rental"]
    assert (october[0], *october[2:]) == (408.0, None, None, 408.0, 415.0, True, False)
    assert months(book, "east", OCTOBER)["electricity"][3:] == (None, 744.0, 415.0, False, False)


def test_a_bill_is_spread_over_dates_by_hours(book: Book) -> None:
    found = book.query(
        "select date, billing_month, billed_usd::double, billed_hours, booked_hours, round(computed_cost_usd::double,"
        " 6), round(difference_usd::double, 6) from marts.cost_reconciliation_daily where site = 'west' and"
        " kind = 'rental' and date in ('2026-10-15', '2026-11-01', '2026-11-15') order by 1, 2"
    )
    assert found == [
        (date(2026, 10, 15), OCTOBER, 17.0, 17.0, 24.0, 48.0, None),
        # The local November begins at 07:00 UTC.
        (date(2026, 11, 1), OCTOBER, 7.0, 7.0, 7.0, 14.0, -7.0),
        (date(2026, 11, 1), NOVEMBER, 17.0, 17.0, 17.0, 34.0, -17.0),
        (date(2026, 11, 15), NOVEMBER, 56.0, 24.0, 24.0, 48.0, 8.0),  # 8 h × 1 USD + 16 h × 3 USD
    ]
    assert (
        book.query(
            """
        select kind, sum(days.billed_usd), max(months.billed_usd) from marts.cost_reconciliation_daily as days
        join marts.cost_reconciliation_monthly as months using (billing_month, site, kind)
        where months.is_booked_whole group by billing_month, site, kind
        having sum(days.billed_usd) is distinct from max(months.billed_usd)
            or sum(days.computed_cost_usd) is distinct from max(months.computed_cost_usd)
        """
        )
        == []
    )


@pytest.mark.parametrize("basis", ["variable", "usage", "allocation", "fully_loaded"])
def test_billed_cost_adds_up_to_the_bill_of_a_month_that_is_booked_and_billed_whole(book: Book, basis: str) -> None:
    found = book.query(
        """
        select site, kind, round(sum(billed_cost_usd), 2)::double from marts.cost_daily
        join reference.bill_kinds using (part) where basis = ? group by billing_month, site, kind
        having sum(billed_cost_usd) is not null order by all
        """,
        [basis],
    )
    assert found == [
        ("east", "electricity", 36.0),
        ("west", "electricity", 36.0),
        ("west", "hosting", 201.0),
        ("west", "operations", 1030.0),
        ("west", "rental", 1489.0),
    ]


def test_a_bill_scales_each_of_its_parts(book: Book) -> None:
    found = book.query(
        "select part, round(sum(billed_cost_usd)::double, 6) from marts.cost_daily where site = 'west' and"
        " basis = 'allocation' and billing_month = '2026-11-01' and part in ('energy', 'overhead', 'demand_charge')"
        " group by part"
    )
    # 25.956, 5.1912 and 4.32 of 35.4672, each × 36 / 35.4672.
    assert dict(found) == {"energy": 26.34592, "overhead": 5.269184, "demand_charge": 4.384896}


def test_only_complete_months_of_whole_bills_are_reported(book: Book) -> None:
    (result,) = book.dbt("test", "--select", "complete_months_agree_with_their_bills")
    rows = book.query(
        f"select date, entity, round(doubted_usd::double, 6), evidence from ({result.node.compiled_code})"
    )
    evidence = "operations: 1030.0 USD billed, 1000.0 computed"
    assert (result.status, rows) == ("warn", [(date(2026, 11, 30), "west", 30.0, evidence)])


def test_a_month_that_its_bill_contradicts_is_marked_for_all_who_pay(book: Book) -> None:
    """30 of west's 2,677 USD. Its bills for electricity and hosting differ by less than 2 %; of east only a part of the
    month is billed."""
    for table in ("months", "chargeback"):
        rows = book.query(f"select distinct month, site from finance.{table} where doubt_reasons <> ''")
        assert rows == [(NOVEMBER, "west")]
    assert book.query(
        f"select distinct doubt_reasons from finance.months where site = 'west' and month = '{NOVEMBER}'"
    ) == [("bill_differs",)]


def test_a_run_of_one_date_leaves_the_months_as_they_are(book: Book, tmp_path: Path) -> None:
    copy = book.copy(tmp_path)
    tables = ("cost_daily", "cost_reconciliation_daily", "cost_reconciliation_monthly")
    before = {table: copy.query(f"select * from marts.{table} order by all") for table in tables}
    copy.run(date(2026, 11, 20), date(2026, 11, 21))
    assert {table: copy.query(f"select * from marts.{table} order by all") for table in tables} == before


def test_a_late_bill_counts_when_a_date_of_its_month_is_booked_again(book: Book, tmp_path: Path) -> None:
    copy = book.copy(tmp_path)
    with copy.connection() as connection:
        connection.execute(
            "insert into raw.bills (site, kind, start_at, end_at, usd) values"
            " ('east', 'rental', '2026-11-01 00:00-07', '2026-12-01 00:00-08', 1450)"
        )
    copy.write(date(2026, 11, 3), date(2026, 11, 4))
    assert months(copy, "east", NOVEMBER)["rental"][:4] == (1450.0, 1442.0, 8.0, 0.005548)
    found = copy.query(
        "select round(sum(billed_cost_usd), 2)::double, count(distinct date) from marts.cost_daily where site = 'east'"
        " and part = 'capacity' and basis = 'usage' and billing_month = '2026-11-01'"
    )
    assert found == [(1450.0, 31)]  # UTC dates of the local month


def test_a_part_is_paid_for_by_one_kind_of_bill() -> None:
    with (SEEDS / "bill_kinds.csv").open(encoding="utf-8") as lines:
        parts = [row["part"] for row in csv.DictReader(lines)]
    (mart,) = yaml.safe_load((DBT_PROJECT / "models/cost/cost_daily.yml").read_text(encoding="utf-8"))["models"]
    (column,) = (column for column in mart["columns"] if column["name"] == "part")
    no_invoice = {"cost_of_capital", "carbon_price"}
    assert sorted(parts) == sorted({*column["config"]["meta"]["words"]} - no_invoice)


# --- bad input --------------------------------------------------------------------------------------------------------

GOOD = {"site": "west", "kind": "rental", **MONTH, "usd": 1}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"site": "north"}, "bills.inline[0].site: got 'north', expected one of the sites ['east', 'west']"),
        (
            {"kind": "water"},
            "bills.inline[0].kind: got 'water', expected one of electricity, hosting, licences, operations, rental",
        ),
        ({"end_at": "2026-11-01T00:00:00-07:00"}, "expected a time after start_at"),
        ({"start_at": "2026-11-01T00:00:00"}, "expected a time with its zone"),
        ({"currency": "EUR"}, "got 'EUR' of usd, expected the sum as amount, with usd_per_unit"),
        ({"usd": None, "amount": 1, "currency": "EUR"}, "got 'EUR' without a rate, expected USD, or usd_per_unit"),
        ({"amount": 1}, "expected either usd, or amount with its currency"),
        ({"usd": None, "amount": 1, "usd_per_unit": 1.2}, "got 1.2 of USD"),
        ({"dollars": 1}, "unknown key"),
    ],
)
def test_a_wrong_bill_is_named_when_the_file_is_checked(tmp_path: Path, changes: dict, message: str) -> None:
    with pytest.raises(FleetError) as wrong:
        planted(tmp_path, bills={"inline": [GOOD | changes]})
    assert len(wrong.value.problems) == 1
    assert message in wrong.value.problems[0]


HEAD = "site,kind,start_at,end_at,usd,currency"
PERIOD = "2026-11-01T00:00:00Z,2026-12-01T00:00:00Z"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("site,kind,start_at,usd\n", "a.csv: no column end_at; there are site, kind, start_at, usd"),
        ("site,kind,start_at,end_at\n", "a.csv: no column usd or amount; there are site, kind, start_at, end_at"),
        (f"{HEAD}\nnorth,rental,{PERIOD},1,\n", "a.csv:2: site: got 'north', expected one of the sites"),
        (f"{HEAD}\nwest,water,{PERIOD},1,\n", "a.csv:2: kind: got 'water', expected one of electricity"),
        (f"{HEAD}\nwest,rental,{PERIOD},1,EUR\n", "a.csv:2: currency: got 'EUR' of usd"),
        (f"{HEAD}\nwest,rental,{PERIOD},one,\n", "a.csv:2: usd: got 'one', expected a number"),
        (f"{HEAD}\nwest,rental,{PERIOD},,\n", "a.csv:2: expected either usd, or amount"),
        (f"{HEAD}\nwest,rental,2026-11-01,2026-11-02,1,\n", "a.csv:2: start_at: got '2026-11-01', expected a"),
        (f"{HEAD}\n,rental,{PERIOD},1,\n", "a.csv:2: site: missing, expected a value"),
    ],
)
def test_a_wrong_file_is_named_when_it_lands_and_what_was_held_stays(
    held: duckdb.DuckDBPyConnection, tmp_path: Path, text: str, message: str
) -> None:
    book = planted(tmp_path, bills={"inline": [GOOD], "files": []})
    assert bill_landing.write_bills(held, book.fleet) == (1, None)
    (tmp_path / "a.csv").write_text(text, encoding="utf-8")
    broken = planted(tmp_path, bills={"files": [{"path": "a.csv"}]})
    with pytest.raises(SourceError) as wrong:
        bill_landing.write_bills(held, broken.fleet)
    assert message in str(wrong.value)
    assert held.execute("select count(*) from raw.bills").fetchall() == [(1,)]


def test_a_bill_that_is_none_costs_its_row_and_is_named(held: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """An amount with an unquoted comma would be a bill of 1 USD; a credit is negative, and a bill."""
    rows = [f"west,rental,{PERIOD},{usd}" for usd in ("250", "-20", "nan", "1,250.00")]
    (tmp_path / "a.csv").write_text("\n".join(["site,kind,start_at,end_at,usd", *rows]), encoding="utf-8")
    book = planted(tmp_path, bills={"files": [{"path": "a.csv"}]})
    count, rejected = bill_landing.write_bills(held, book.fleet)
    assert held.execute("select cast(usd as double) from raw.bills order by 1").fetchall() == [(-20.0,), (250.0,)]
    file = f"{tmp_path}/a.csv"
    assert (count, rejected) == (
        2,
        f"2 of 4 rows rejected: {file}:4: usd: got 'nan', expected a number;"
        f" {file}:5: has 6 cells, the header 5: is a comma in a cell not quoted?",
    )
