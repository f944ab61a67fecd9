"""The proof that a change moved no figure sees what moved."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import duckdb
import pytest
import yaml

from pipelines.publishing.published_tables import SCHEMAS
from tests import books
from tests.books import Book
from tests.paired_tables import Tables
from tests.same_rows import (
    COLUMNS_OF_THE_RUN,
    ROWS_OF_THE_RUN,
    TABLES_OF_THE_RUN,
    main,
    step_schemas,
    tables_of,
)

# Only a publication has it.
PUBLICATION = "published.publication"

# A table and a view of each kind of schema, and of each kind of value.
BOOK = """
create schema raw; create schema reference; create schema intermediate; create schema marts; create schema published;
create schema finance;
create table raw.power_samples as select 7::bigint as series_id, 250.5::double as value;
create table raw.landings as select 'r1' as run_id, timestamptz '2026-10-01 00:00Z' as landed_at, 'ok' as outcome;
create table raw.booked_with (date date, setting varchar, value varchar);
insert into raw.booked_with values ('2026-10-01', 'formulas', '68bc'), ('2026-10-01', 'pue', '1.2');
create table raw.disk_use as select 4096::bigint as bytes;
create table reference.rates as select 'a100' as device_type, 1.89::decimal(9, 2) as usd_per_gpu_hour;
create table intermediate.int_pieces as select 3::decimal(28, 6) as joules;
create table marts.model_daily (
    date date, model varchar, energy_joules decimal(28, 6), idle_ratio double, facts json, hours integer[]
);
insert into marts.model_daily values
    ('2026-10-01', 'llama', 1000.000001, 0.25, '{"a": 1}', [1, 2]),
    ('2026-10-01', 'qwen', 500, 'nan', null, null),
    ('2026-10-02', 'llama', 2000, null, '{}', []);
create table published.closed_costs as select date '2026-10-01' as month, 12.5::decimal(28, 12) as closed_cost_usd;
create table published.publication as select 'p1' as publication_id;
create view finance.cost as
    select date, model, energy_joules / 1000 as known_cost_usd, idle_ratio * 2 as twice from marts.model_daily;
create view finance.chargeback as select model, sum(known_cost_usd) as usd from finance.cost group by model;
"""


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "old.duckdb"
    with closing(duckdb.connect(str(path))) as connection:
        connection.execute(BOOK)
    return path


def changed(old: Path, sql: str) -> Path:
    """A copy of the book after a change."""
    new = old.with_name("new.duckdb")
    shutil.copyfile(old, new)
    with closing(duckdb.connect(str(new))) as connection:
        connection.execute(sql)
    return new


def compared(capsys: pytest.CaptureFixture[str], old: Path, sql: str, *words: str) -> tuple[int, list[str]]:
    """The exit status and the lines printed about a book and its copy after a change."""
    status = main([str(old), str(changed(old, sql)), *words])
    return status, capsys.readouterr().out.splitlines()


def one_row(table: str, column: str) -> str:
    """What is printed of a row that differs in a column."""
    return f'{table}: 1 rows only in the old file, 1 only in the new one; these columns differ: "{column}"'


# What is done to the copy -> what is printed of it.
DIFFERENT = {
    "update raw.power_samples set value = value * 2": [one_row("raw.power_samples", "value")],
    "update reference.rates set usd_per_gpu_hour = usd_per_gpu_hour * 2": [
        one_row("reference.rates", "usd_per_gpu_hour")
    ],
    # The views read it, so they differ too.
    "update marts.model_daily set energy_joules = energy_joules * 2 where model = 'qwen'": [
        one_row("finance.chargeback", "usd"),
        one_row("finance.cost", "known_cost_usd"),
        one_row("marts.model_daily", "energy_joules"),
    ],
    "update published.closed_costs set closed_cost_usd = closed_cost_usd * 2": [
        one_row("published.closed_costs", "closed_cost_usd")
    ],
    "create or replace view finance.chargeback as select model, 2 * sum(known_cost_usd) as usd from finance.cost"
    " group by model": [
        'finance.chargeback: 2 rows only in the old file, 2 only in the new one; these columns differ: "usd"'
    ],
    "drop view finance.chargeback": ["finance.chargeback: only in the old file"],
    "drop table reference.rates": ["reference.rates: only in the old file"],
    "create table marts.spare as select 1 as a": ["marts.spare: only in the new file"],
    "create schema later; create table later.figures as select 1 as a": ["later.figures: only in the new file"],
    "alter table marts.model_daily rename to daily": [
        "finance.cost: cannot be read: Catalog Error: Table with name model_daily does not exist!",
        "finance.chargeback: cannot be read: Catalog Error: Table with name model_daily does not exist!",
        "marts.model_daily: only in the old file",
        "marts.daily: only in the new file",
    ],
    # The columns that both have are compared all the same.
    "alter table reference.rates add column source varchar; update reference.rates set usd_per_gpu_hour = 2": [
        "reference.rates.source: only in the new file",
        one_row("reference.rates", "usd_per_gpu_hour"),
    ],
    "alter table reference.rates drop column device_type": ["reference.rates.device_type: only in the old file"],
    # 1.89 is 1.89 of either type.
    "alter table reference.rates alter usd_per_gpu_hour type double": [
        "reference.rates.usd_per_gpu_hour: DECIMAL(9,2) in the old file, DOUBLE in the new one"
    ],
    "create or replace table reference.rates as select usd_per_gpu_hour, device_type from reference.rates": [
        "reference.rates: the columns are in another order"
    ],
    "insert into reference.rates from reference.rates": [
        "reference.rates: 0 rows only in the old file, 1 only in the new one"
    ],
    # Its last digit, 1e-9 of it: a decimal is exact.
    "update marts.model_daily set energy_joules = energy_joules + 0.000001 where model = 'qwen'": [
        one_row("finance.cost", "known_cost_usd"),
        one_row("finance.chargeback", "usd"),
        one_row("marts.model_daily", "energy_joules"),
    ],
    "update marts.model_daily set facts = '{\"a\": 2}' where facts = '{\"a\": 1}'": [
        one_row("marts.model_daily", "facts")
    ],
    "update marts.model_daily set hours = [2, 1] where hours = [1, 2]": [one_row("marts.model_daily", "hours")],
    "update raw.power_samples set value = 'inf'": [one_row("raw.power_samples", "value")],
    "update raw.power_samples set value = 'nan'": [one_row("raw.power_samples", "value")],
    "update raw.power_samples set value = null": [one_row("raw.power_samples", "value")],
    # 2e-12 of it.
    "update raw.power_samples set value = 250.5000000005": [one_row("raw.power_samples", "value")],
    "update raw.booked_with set value = '1.3' where setting = 'pue'": [one_row("raw.booked_with", "value")],
    # When it landed is the run's, but that it landed is not.
    "update raw.landings set landed_at = null": [one_row("raw.landings", "landed_at")],
    "update raw.landings set outcome = 'failed'": [one_row("raw.landings", "outcome")],
}


@pytest.mark.parametrize("sql", DIFFERENT)
def test_what_differs_is_named(capsys: pytest.CaptureFixture[str], old: Path, sql: str) -> None:
    status, lines = compared(capsys, old, sql)
    different = [line.removeprefix("different: ") for line in lines if line.startswith("different: ")]
    assert sorted(different) == sorted(DIFFERENT[sql])
    assert (status, lines[-1]) == (1, f"{len(different)} differences")


@pytest.mark.parametrize(
    "sql",
    [
        "select 1",
        "create or replace table marts.model_daily as from marts.model_daily order by energy_joules desc",
        "update raw.booked_with set value = 'd4c5' where setting = 'formulas'",
        "update raw.landings set run_id = 'r2', landed_at = '2026-10-02 00:00Z'",
        "update raw.disk_use set bytes = 8192",
        "update published.publication set publication_id = 'p2'",
        # A view of the same rows.
        "create or replace view finance.chargeback as"
        " select model, sum(known_cost_usd) as usd from finance.cost group by 1",
        # Of the steps only with --steps.
        "update intermediate.int_pieces set joules = 6",
    ],
)
def test_what_is_the_same_is_green(capsys: pytest.CaptureFixture[str], old: Path, sql: str) -> None:
    """8 tables and views, and 1 + 1 + 1 + 1 + 3 + 1 + 3 + 2 rows."""
    assert compared(capsys, old, sql) == (
        0,
        ["compared 8 tables and views, 13 rows of the old file", "the same rows in every table"],
    )


def test_doubles_that_differ_past_the_12th_digit_are_counted_and_are_the_same(
    capsys: pytest.CaptureFixture[str], old: Path
) -> None:
    """250.5 and 0.25, each 2e-13 of it more. With another series it is another row."""
    status, lines = compared(
        capsys,
        old,
        "update raw.power_samples set value = value + 5e-11;"
        "update marts.model_daily set idle_ratio = idle_ratio + 5e-14 where idle_ratio = 0.25",
    )
    assert (status, lines) == (
        0,
        [
            'past the 12th digit: finance.cost: 1 rows: "twice" 1 times',
            'past the 12th digit: marts.model_daily: 1 rows: "idle_ratio" 1 times',
            'past the 12th digit: raw.power_samples: 1 rows: "value" 1 times',
            "compared 8 tables and views, 13 rows of the old file",
            "the same rows in every table",
        ],
    )
    status, lines = compared(capsys, old, "update raw.power_samples set value = value + 5e-11, series_id = 8")
    assert (status, lines[0]) == (
        1,
        "different: raw.power_samples: 1 rows only in the old file, 1 only in the new one;"
        ' these columns differ: "series_id", "value"',
    )


def test_steps_are_compared_on_request(capsys: pytest.CaptureFixture[str], old: Path) -> None:
    status, lines = compared(capsys, old, "update intermediate.int_pieces set joules = 6", "--steps")
    assert (status, lines) == (
        1,
        [
            "different: intermediate.int_pieces: 1 rows only in the old file, 1 only in the new one;"
            ' these columns differ: "joules"',
            "compared 9 tables and views, 14 rows of the old file",
            "1 differences",
        ],
    )


def test_files_without_a_schema_of_a_publication_are_not_the_same(
    capsys: pytest.CaptureFixture[str], old: Path
) -> None:
    """Two empty files have the same rows in every table."""
    for path in (old, old.with_name("new.duckdb")):
        path.unlink(missing_ok=True)
        duckdb.connect(str(path)).close()
    assert main([str(old), str(old.with_name("new.duckdb"))]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "different: marts: neither file has a table of this schema",
        "different: published: neither file has a table of this schema",
        "different: finance: neither file has a table of this schema",
        "compared 0 tables and views, 0 rows of the old file",
        "3 differences",
    ]


# Done to the copy, what is expected of it -> the differences that are left.
ON_PURPOSE = {
    "renamed": (
        "drop view finance.chargeback; drop view finance.cost; alter table marts.model_daily rename to daily;"
        " alter table marts.daily rename column energy_joules to joules",
        [
            {"old": "marts.model_daily", "new": "marts.daily"},
            {"old": "marts.model_daily.energy_joules", "new": "marts.daily.joules"},
            {"old": "finance.chargeback"},
            {"old": "finance.cost"},
        ],
        [],
    ),
    "renamed, and an amount differs": (
        "alter table reference.rates rename to prices; update reference.prices set usd_per_gpu_hour = 2",
        [{"old": "reference.rates", "new": "reference.prices"}],
        [
            "reference.rates, now reference.prices: 1 rows only in the old file, 1 only in the new one;"
            ' these columns differ: "usd_per_gpu_hour"'
        ],
    ),
    # Their columns cannot have both orders. Rows may be added to them, and columns removed and added.
    "joined": (
        "create table raw.all as select 'power' as kind, value, series_id from raw.power_samples"
        " union all by name select 'rate' as kind, usd_per_gpu_hour as usd from reference.rates"
        " union all by name select 'new' as kind; drop table raw.power_samples; drop table reference.rates",
        [
            {"old": "raw.power_samples", "new": "raw.all", "rows": "kind = 'power'"},
            {"old": "reference.rates", "new": "raw.all", "rows": "kind = 'rate'"},
            {"old": "reference.rates.usd_per_gpu_hour", "new": "raw.all.usd"},
            {"old": "reference.rates.device_type"},
            {"new": "raw.all", "rows": "kind = 'new'"},
            {"new": "raw.all.kind"},
        ],
        [],
    ),
    "joined, and a row is of no table": (
        "create table raw.all as select 'power' as kind, * from raw.power_samples union all select 'other', 1, 2;"
        " drop table raw.power_samples",
        [{"old": "raw.power_samples", "new": "raw.all", "rows": "kind = 'power'"}, {"new": "raw.all.kind"}],
        ["raw.all: 1 rows of the new file are in none of these: kind = 'power'"],
    ),
    "rows removed and added": (
        "delete from reference.rates; insert into published.closed_costs values ('2026-11-01', 1)",
        [
            {"old": "reference.rates", "rows": "device_type = 'a100'"},
            {"new": "published.closed_costs", "rows": "month = date '2026-11-01'"},
        ],
        [],
    ),
    "other rows removed": (
        "delete from marts.model_daily where model = 'qwen'; drop view finance.chargeback; drop view finance.cost",
        [
            {"old": "marts.model_daily", "rows": "date = date '2026-10-02'"},
            {"old": "finance.chargeback"},
            {"old": "finance.cost"},
        ],
        ["marts.model_daily: 1 rows only in the old file, 1 only in the new one;"],
    ),
    "matching nothing": (
        "select 1",
        [
            {"old": "marts.model_daily"},
            {"old": "marts.gone"},
            {"new": "marts.come"},
            {"old": "marts.model_daily", "new": "marts.other"},
            {"old": "marts.model_daily.model"},
            {"old": "marts.model_daily.model", "new": "marts.model_daily.name"},
            {"old": "reference.rates", "rows": "device_type = 'h100'"},
        ],
        [
            "reference.rates: an entry expects rows of the old file, which has none: device_type = 'h100'",
            "{old: marts.model_daily}: this entry matches nothing",
            "{old: marts.gone}: this entry matches nothing",
            "{new: marts.come}: this entry matches nothing",
            "{old: marts.model_daily, new: marts.other}: this entry matches nothing",
            "{old: marts.model_daily.model}: this entry matches nothing",
            "{old: marts.model_daily.model, new: marts.model_daily.name}: this entry matches nothing",
        ],
    ),
}


@pytest.mark.parametrize("case", ON_PURPOSE)
def test_what_is_expected_is_no_difference_and_nothing_else(
    capsys: pytest.CaptureFixture[str], old: Path, case: str
) -> None:
    sql, entries, differences = ON_PURPOSE[case]
    expected = old.with_name("expected.yaml")
    expected.write_text(yaml.safe_dump([{**entry, "reason": "planted"} for entry in entries]), encoding="utf-8")
    status, lines = compared(capsys, old, sql, "--expected", str(expected))
    different = [line.removeprefix("different: ") for line in lines if line.startswith("different: ")]
    assert len(different) == len(differences) and all(
        line.startswith(start) for line, start in zip(different, differences, strict=True)
    ), different
    assert status == bool(differences)


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("{old: marts.a}", "expected a list of entries"),
        ("- {old: marts.a}", "entry 1 has no reason"),
        ("- {old: marts.a, reason: ''}", "entry 1 has a value that is not text"),
        ("- {reason: cleaner}", "entry 1 names neither tables nor columns"),
        ("- {old: marts.a.b, new: marts.a, reason: cleaner}", "entry 1 names neither tables nor columns"),
        ("- {old: marts.a, because: cleaner}", "entry 1 has other keys"),
        ("- {old: marts.a.b, rows: b > 1, reason: cleaner}", "entry 1 has rows of a column"),
        ("- {old: reference.rates, rows: price > 1, reason: cleaner}", "rows of reference.rates: Binder Error"),
    ],
)
def test_a_file_that_states_nothing_clear_is_refused(
    capsys: pytest.CaptureFixture[str], old: Path, text: str, mistake: str
) -> None:
    expected = old.with_name("expected.yaml")
    expected.write_text(text, encoding="utf-8")
    with pytest.raises(SystemExit, match="2"):
        main([str(old), str(old), "--expected", str(expected)])
    assert mistake in capsys.readouterr().err


def compared_and_left_out(path: Path) -> tuple[Tables, set[str]]:
    """The tables and views of a file that are compared, and the names of the others."""
    with closing(duckdb.connect()) as connection:
        connection.execute(f"attach '{path}' as old (read_only)")
        every = {
            f"{schema}.{name}"
            for schema, name in connection.execute(
                "select schema_name, table_name from duckdb_tables() where database_name = 'old' and not internal"
                " union all"
                " select schema_name, view_name from duckdb_views() where database_name = 'old' and not internal"
            ).fetchall()
        }
        compared = tables_of(connection, "old", step_schemas())
        return compared, every - compared.keys()


def schemas_of(tables: set[str]) -> set[str]:
    return {table.partition(".")[0] for table in tables}


def test_of_a_warehouse_all_is_compared_but_steps_and_what_names_the_run() -> None:
    compared, left_out = compared_and_left_out(books.empty_warehouse())
    assert schemas_of({*compared}) >= {*SCHEMAS, "raw", "reference"}
    assert {column for columns in compared.values() for column in columns} >= COLUMNS_OF_THE_RUN
    assert ROWS_OF_THE_RUN.keys() <= compared.keys()
    assert {table for table in left_out if table.partition(".")[0] not in step_schemas()} == (
        TABLES_OF_THE_RUN.keys() - {PUBLICATION}
    )


def test_of_a_publication_all_is_compared_but_its_own_row(four_weeks: tuple[Book, str]) -> None:
    compared, left_out = compared_and_left_out(four_weeks[0].fleet.snapshot)
    assert (schemas_of({*compared}), left_out) == ({*SCHEMAS}, {PUBLICATION, "finance.ledger_cost"})
