"""An invariant that fails on a date holds back that date alone: what readers had of it stays, the rest goes on.

Each test books copies of a sound book by SQL that is broken in one place, as a defect of ours would be.
"""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path

import pytest

from collectors.synthetic.demo_fleet import BOARDS
from pipelines.booking import invariants
from pipelines.command_line.headline import headline
from pipelines.publishing import publication
from pipelines.warehouse import due_dates
from tests.books import Book, broken_project, on

BOARD = {(board.node, board.gpu): board.device_uuid for board in BOARDS}
NOON = "timestamptz '2026-10-07 12:00:00+00'"
FIRST, BAD, LAST, END = on("10-06"), on("10-07"), on("10-08"), on("10-09")
BALANCE, SHARES = "every_metered_joule_is_booked_once", "shares_add_up_to_the_meter"
WHOLE = "matched_intervals_are_whole"  # the board's engine has seven others


def dropped_interval(folder: Path) -> Path:
    """A project that loses one board's interval of Oct 7, 12:00."""
    return broken_project(folder, mutant="attribution-lost-interval")


def published(book: Book, start: date = FIRST, end: date = END) -> publication.Publication | None:
    with book.connection() as connection:
        own = due_dates.due(connection, due_dates.PUBLISHED)
    made = publication.publish(book.fleet, start, end, own=own)
    with book.connection() as connection:
        due_dates.published(connection, start, end)
    return made


@pytest.fixture(scope="module")
def sound(three_days: Book, tmp_path_factory: pytest.TempPathFactory) -> Book:
    """Three days, booked and published, with a window in the night from Oct 7 to Oct 8."""
    book = three_days.copy(tmp_path_factory.mktemp("published"))
    published(book)
    return book


@pytest.fixture(scope="module")
def broken(sound: Book, tmp_path_factory: pytest.TempPathFactory) -> Book:
    """The same raw data and publication, booked again by the broken project."""
    folder = tmp_path_factory.mktemp("broken")
    book = sound.copy(folder / "data", dropped_interval(folder))
    book.write(FIRST, END)
    return book


def joules(book: Book, table: str = "marts.energy_ledger") -> dict[date, float]:
    return dict(book.query(f"select date, sum(energy_joules)::double from {table} group by date order by date"))


@pytest.mark.long
def test_only_the_date_that_fails_is_held_back_and_its_rows_can_be_read(sound: Book, broken: Book) -> None:
    rows = broken.broken()
    assert {law: [(row.date, row.table, row.rows) for row in found] for law, found in rows.items()} == {
        BALANCE: [("2026-10-07", "reconciliation_daily", 1)],
        SHARES: [("2026-10-07", "energy_ledger", 1)],
        WHOLE: [("2026-10-07", "energy_ledger", 1)],
    }
    assert f"meter {BOARD['a100-01', 3]}" in rows[BALANCE][0].row_key
    ((lost,),) = sound.query(
        f"select energy_joules::double from marts.energy_ledger where interval_start_at = {NOON} and device_uuid = ?",
        [BOARD["a100-01", 3]],
    )
    assert lost > 0
    assert joules(broken) == joules(sound)
    assert joules(broken, "held_back.energy_ledger") == {BAD: pytest.approx(joules(sound)[BAD] - lost, abs=0.001)}


@pytest.mark.rest
def test_what_readers_had_stays_in_every_mart_and_in_what_adds_dates_up(sound: Book, broken: Book) -> None:
    flagged = ("held_back_dates", "is_complete", "is_booked_whole")
    for mart, (rows, *_) in sound.hashes().items():
        if mart == "held_back_dates":
            continue
        columns = {name for (name, *_) in broken.query(f"describe marts.{mart}")}
        excluded = ", ".join(name for name in flagged if name in columns)
        query = f"select {f'* exclude ({excluded})' if excluded else '*'} from marts.{mart}"
        # What is computed from the lookback leaves the date out as evidence; the rest is as it was.
        if mart in (
            "cost_anomalies_daily",
            "cost_change_daily",
            "deployment_usage",
            "free_boards",
            "partial_load_cost",
            "rack_economics_daily",
        ):
            continue
        assert sorted(map(repr, broken.query(query))) == sorted(map(repr, sound.query(query))), mart
        assert rows == len(broken.query(query))


@pytest.mark.rest
def test_rows_that_touch_the_date_are_marked(sound: Book, broken: Book) -> None:
    flags = "select distinct held_back_dates, is_complete from marts."
    for mart in (
        "efficiency_curve",
        "recoverable_energy",
        "slo_capacity",
        "deployment_usage",
        "free_boards",
        "partial_load_cost",
    ):
        assert sound.query(f"{flags}{mart}") == [(None, True)], mart
        assert broken.query(f"{flags}{mart}") == [("2026-10-07", False)], mart
    # October has 31 dates, of which three are booked.
    months = "select distinct held_back_dates, is_booked_whole from marts.model_monthly"
    assert sound.query(months) == [(None, False)]
    assert broken.query(months) == [("2026-10-07", False)]
    windows = "select window_id, held_back_dates, is_complete from marts.run_windows order by 1"
    assert broken.query(windows) == [("morning", None, True), ("night", "2026-10-07", False)]
    for table in ("marts.efficiency_fit", "published.right_sizing", "published.consolidation"):
        assert broken.query(f"select distinct held_back_dates, is_complete from {table}") == [("2026-10-07", False)]


@pytest.mark.rest
def test_advice_takes_the_date_for_one_without_telemetry(sound: Book, broken: Book) -> None:
    """Of three dates two are left: coverage is two thirds of what it was, and a day's 288 intervals are gone."""
    query = "select model, days, coverage_ratio, intervals from marts.deployment_usage order by 1"
    before, after = sound.query(query), broken.query(query)
    assert [(model, days - 1) for model, days, *_ in before] == [(model, days) for model, days, *_ in after]
    for (_, _, full, intervals), (_, _, part, fewer) in zip(before, after, strict=True):
        assert part == pytest.approx(full * 2 / 3, abs=0.01)
        assert fewer == intervals - 288


@pytest.mark.rest
def test_the_publication_names_the_date_and_the_reason(broken: Book, tmp_path: Path) -> None:
    book = broken.copy(tmp_path)
    made = published(book)
    assert made is not None
    assert made.held_back == {BAD: f"{BALANCE}, {WHOLE}, {SHARES}"}
    assert made.forced == ()
    line = f"held back: 2026-10-07 ({BALANCE}, {WHOLE}, {SHARES}); its earlier rows stay published"
    assert line in headline(book.fleet).splitlines()
    # The run that held it back fails; a later one, which books another date, names it in that line and does not.
    with book.connection() as connection:
        connection.execute(
            "insert into raw.bookings values ('this', ?, ?), ('later', ?, ?)",
            [FIRST, END, END, END + timedelta(days=1)],
        )
        assert set(invariants.broken(connection, "this")) == {BALANCE, WHOLE, SHARES}
        assert invariants.broken(connection, "later") == {}


@pytest.mark.rest
def test_a_date_that_was_never_published_is_absent_and_months_leave_it_out(sound: Book, tmp_path: Path) -> None:
    book = sound.copy(tmp_path / "data", dropped_interval(tmp_path), is_published=False)
    book.write(FIRST, END)
    whole = joules(sound)
    assert joules(book) == {FIRST: whole[FIRST], LAST: whole[LAST]}
    ((month,),) = book.query("select sum(energy_joules)::double from marts.model_monthly")
    assert month == pytest.approx(whole[FIRST] + whole[LAST], abs=0.001)
    published(book)
    assert book.query(
        "select distinct booked_days, held_back_dates from marts.model_monthly where model = 'Kimi-K2.5'"
    ) == [(2, "2026-10-07")]


@pytest.mark.long
def test_a_date_of_another_method_is_left_out_of_months_and_stays_as_published(sound: Book, tmp_path: Path) -> None:
    project = dropped_interval(tmp_path)
    settings = project / "dbt_project.yml"
    text = settings.read_text()
    method = next(line for line in text.splitlines() if "method_version:" in line)
    settings.write_text(text.replace(method, '  method_version: "next"'))
    book = sound.copy(tmp_path / "data", project)
    book.write(FIRST, END)
    whole = joules(sound)
    assert joules(book) == {FIRST: whole[FIRST], LAST: whole[LAST]}
    made = published(book)
    assert made is not None
    import duckdb  # noqa: PLC0415

    with duckdb.connect(str(book.fleet.published / "wattledger.duckdb"), read_only=True) as reader:
        days = reader.execute(
            "select date, method_version, sum(energy_joules)::double from marts.model_daily group by all order by 1"
        ).fetchall()
        ((month,),) = reader.execute("select sum(energy_joules)::double from marts.model_monthly").fetchall()
    old = method.partition('"')[2].rstrip('"')
    assert days == [(FIRST, "next", whole[FIRST]), (BAD, old, whole[BAD]), (LAST, "next", whole[LAST])]
    assert month == pytest.approx(whole[FIRST] + whole[LAST], abs=0.001)


@pytest.mark.rest
def test_booked_again_by_right_sql_it_is_as_if_nothing_had_been(sound: Book, broken: Book, tmp_path: Path) -> None:
    book = Book(broken.copy(tmp_path).fleet, sound.project)
    with book.connection() as connection:
        assert due_dates.due(connection, due_dates.HELD_BACK) == [BAD]
        # It waits by itself: the next day is booked alone.
        assert due_dates.dates_to_book(connection, END, END + timedelta(days=1)) == (END, END + timedelta(days=1))
    book.write(BAD, LAST)
    assert book.hashes() == sound.hashes()
    assert joules(book, "held_back.energy_ledger") == {}
    with book.connection() as connection:
        assert due_dates.due(connection, due_dates.HELD_BACK) == []


@pytest.mark.rest
def test_a_doubled_row_of_one_date_holds_back_that_date(sound: Book, tmp_path: Path) -> None:
    book = sound.copy(tmp_path / "data", broken_project(tmp_path, mutant="usage-idle-power-doubled"))
    book.write(FIRST, END)
    found = {law: {row.date for row in rows} for law, rows in book.broken().items()}
    assert found == {
        "dates_have_one_row_per_key": {"2026-10-07"},
        "idle_power_adds_up_to_the_ledger": {"2026-10-07"},
    }
    assert joules(book) == joules(sound)


def with_doubled_balance(folder: Path, where: str) -> Path:
    """A project whose balance, and not its book, has twice what some meters measured on Oct 7."""
    right = "        totals.metered_joules,\n        cross_checks.source as"
    wrong = right.replace(
        "totals.metered_joules,",
        f"totals.metered_joules * case when chosen.date = date '2026-10-07' and {where} then 2 else 1 end"
        " as metered_joules,",
    )
    return broken_project(folder, "models/balance/steps/int_metered_days.sql", right, wrong)


@pytest.mark.rest
def test_a_balance_that_fails_for_one_meter_is_an_error_and_its_date_is_published(sound: Book, tmp_path: Path) -> None:
    board = BOARD["a100-01", 3]
    book = sound.copy(tmp_path / "data", with_doubled_balance(tmp_path, f"chosen.meter = '{board}'"))
    book.write(FIRST, END)
    assert {law: [(row.date, row.row_key) for row in rows] for law, rows in book.broken().items()} == {
        BALANCE: [("2026-10-07", f"board {board}")]
    }
    unbalanced = "select date, reason, entity from marts.doubts where reason like 'unbalanced%'"
    assert book.query(unbalanced) == [(BAD, "unbalanced_joules", board)]
    assert joules(book) == joules(sound)
    made = published(book)
    assert made is not None
    assert made.held_back == {}


@pytest.mark.rest
def test_a_balance_that_fails_for_many_meters_holds_the_date_back(sound: Book, tmp_path: Path) -> None:
    book = sound.copy(tmp_path / "data", with_doubled_balance(tmp_path, "chosen.meter_scope = 'board'"))
    book.write(FIRST, END)
    assert {law: {row.date for row in rows} for law, rows in book.broken().items()} == {BALANCE: {"2026-10-07"}}
    with book.connection() as connection:
        assert due_dates.due(connection, due_dates.HELD_BACK) == [BAD]


@pytest.mark.rest
def test_a_table_over_several_dates_keeps_what_was_published(sound: Book, tmp_path: Path) -> None:
    """The month doubles its joules: its intervals are held back with it; curves, which read neither, are made anew."""
    book = sound.copy(tmp_path / "data", broken_project(tmp_path, mutant="usage-month-doubled"))
    book.write(FIRST, END)
    broken = {law: {row.table for row in rows} for law, rows in book.broken().items()}
    assert broken == {"days_add_up_to_months": {"model_monthly"}, "is_computed_from_another": {"figure_intervals"}}
    before, after = sound.hashes(), book.hashes()
    assert {mart for mart in before if before[mart] != after[mart]} == {"held_back_tables"}
    doubled, month = (
        book.query(f"select sum(energy_joules)::double from {schema}.model_monthly")[0][0]
        for schema in ("held_back", "marts")
    )
    assert doubled == pytest.approx(2 * month)
    with book.connection() as connection:
        assert due_dates.held_back(connection) == []
