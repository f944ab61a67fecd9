"""The command `sql`: it answers on what is published, changes nothing, and refuses in one line."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import duckdb
import pytest

from pipelines.command_line.main import main

TINY = """
fleet: tiny
synthetic: true
period: {start: 2026-10-01, end: 2026-10-02}
sources: [{name: synthetic, kind: synthetic, scenario: demo, interval_seconds: 60}]
"""
MARTS = """
create schema marts;
create schema published;
create table marts.model_daily (date date, model varchar, joules_per_output_token double, cost_usd decimal(28, 12));
insert into marts.model_daily values
    ('2026-10-01', '=1+1', null, 1.5), ('2026-10-02', 'gemma-4-31B', 7.25, 0.000000000001);
create table marts.model_hourly (hour_start_at timestamptz);
create table marts.model_monthly (month date);
create table marts.energy_ledger as select range as n from range(100);
create table published.right_sizing (deployment varchar);
"""


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fleet file whose snapshot has a few rows that were written by hand."""
    path = tmp_path / "fleet.yaml"
    path.write_text(TINY, encoding="utf-8")
    snapshot = tmp_path / "data" / "tiny" / "published" / "wattledger.duckdb"
    snapshot.parent.mkdir(parents=True)
    with duckdb.connect(str(snapshot)) as connection:
        connection.execute(MARTS)
    snapshot.chmod(0o444)
    monkeypatch.setenv("WATTLEDGER_DATA", str(tmp_path / "data"))
    return path


def refused(tiny: Path, capsys: pytest.CaptureFixture[str], query: str, status: int = 2) -> str:
    assert main(["sql", query, "--fleet", str(tiny)]) == status
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1, printed.err
    assert "Traceback" not in printed.err
    return printed.err


QUERY = "select * from marts.model_daily order by date"


def test_the_rows_are_printed_in_three_formats(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["sql", QUERY, "--fleet", str(tiny)]
    assert main(asked) == 0
    assert capsys.readouterr().out == (
        "date        model        joules_per_output_token        cost_usd\n"
        "----------  -----------  -----------------------  --------------\n"
        "2026-10-01  =1+1                               –             1.5\n"
        "2026-10-02  gemma-4-31B                     7.25  0.000000000001\n"
    )
    assert main([*asked, "--format", "csv"]) == 0
    assert capsys.readouterr().out == (
        "date,model,joules_per_output_token,cost_usd\n"
        "2026-10-01,'=1+1,,1.500000000000\n"
        "2026-10-02,gemma-4-31B,7.25,0.000000000001\n"
    )
    assert main([*asked, "--format", "csv", "--raw"]) == 0
    assert "2026-10-01,=1+1,,1.500000000000\n" in capsys.readouterr().out
    assert main([*asked, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)[0] == {
        "date": "2026-10-01",
        "model": "=1+1",
        "joules_per_output_token": None,
        "cost_usd": 1.5,
    }


def test_a_query_may_come_from_standard_input(
    tiny: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("-- all rows\nselect sum(n) as n\nfrom marts.energy_ledger;\n"))
    assert main(["sql", "-", "--fleet", str(tiny), "--format", "csv"]) == 0
    assert capsys.readouterr().out == "n\n4950\n"


def test_a_table_has_forty_rows_unless_more_are_asked_for(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["sql", "from marts.energy_ledger order by n", "--fleet", str(tiny)]
    assert main(asked) == 0
    lines = capsys.readouterr().out.splitlines()
    assert (len(lines), lines[-2], lines[-1][:20]) == (43, "39", "… and 60 more rows (")
    assert main([*asked, "--limit", "0"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 102
    assert main([*asked, "--format", "csv"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 101


def test_tables_are_listed_by_rank_and_topic(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    snapshot = tiny.parent / "data" / "tiny" / "published" / "wattledger.duckdb"
    with duckdb.connect(snapshot) as connection:
        for table, comment in (
            ("marts.energy_ledger", "One row per meter. All joules. [evidence: attribution]\n"),
            ("marts.model_hourly", "One row per hour, of 3.5 kW. Each of them. [topic: usage]"),
            ("marts.model_daily", "One row per date. The headline. [start here: usage]\n"),
            ("published.right_sizing", "One row per change [draft]: of size. [start here: advice]"),
        ):
            connection.execute(f"comment on table {table} is '{comment}'")
    assert main(["sql", "--tables", "--format", "csv", "--fleet", str(tiny)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "rank,topic,table_name,one_row",
        "start here,advice,published.right_sizing,One row per change [draft]: of size.",
        "start here,usage,marts.model_daily,One row per date.",
        'topic,usage,marts.model_hourly,"One row per hour, of 3.5 kW."',
        "evidence,attribution,marts.energy_ledger,One row per meter.",
        "evidence,publication,marts.model_monthly,",
    ]


def test_a_query_or_the_tables_are_asked_for(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--tables", "from marts.model_daily"], []):
        assert main(["sql", *words, "--fleet", str(tiny)]) == 2
        assert "expected a query or --tables" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        ("insert into marts.model_daily select * from marts.model_daily", "INSERT"),
        ("update marts.model_daily set model = 'x'", "UPDATE"),
        ("delete from marts.model_daily", "DELETE"),
        ("drop table marts.model_daily", "DROP"),
        ("create table x as select 1", "CREATE"),
        ("copy marts.model_daily to 'x.csv'", "COPY"),
        ("attach 'other.duckdb'", "ATTACH"),
        ("set threads = 1", "SET"),
        ("install httpfs", "LOAD"),
    ],
)
def test_a_statement_that_is_no_query_is_refused_with_the_reason(
    tiny: Path, capsys: pytest.CaptureFixture[str], query: str, kind: str
) -> None:
    assert refused(tiny, capsys, query).startswith(
        f"{kind} is refused: the publication is read-only, and the command `sql` only answers queries"
    )


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("from marts.model_dayly", "no published table is named model_dayly. The nearest names: marts.model_daily, "),
        ("from rightsizing", "no published table is named rightsizing. The nearest names: published.right_sizing."),
        ("from marts.zzz", "named zzz. All of them: wattledger sql --tables (docs/tables.md)"),
        ("select modl from marts.model_daily", 'Referenced column "modl" not found in FROM clause! Candidate'),
        (
            "select allocation_cost_usd from marts.model_daily",
            "allocation_cost_usd of model_hourly, model_daily, model_monthly, fleet_daily, tenant_usage_daily,"
            " load_test_phases is called compute_cost_usd now (docs/versions.md)\n",
        ),
        (
            "select m.fully_loaded_cost_usd from marts.model_daily as m",
            ". fully_loaded_cost_usd of model_hourly, model_daily, model_monthly, fleet_daily is gone: see cost_daily,"
            " basis 'fully_loaded' (docs/versions.md). fully_loaded_cost_usd of tenant_usage_daily is gone: see"
            " tenant_daily (docs/versions.md)\n",
        ),
        ("selec 1", 'the query cannot be answered: Parser Error: syntax error at or near "selec" LINE 1: selec 1\n'),
        ("select cast(model as int) from marts.model_daily", "Could not convert string '=1+1'"),
        ("", "expected one statement, got 0"),
        ("select 1; select 2", "expected one statement, got 2"),
        ("from read_csv('/etc/passwd')", 'Cannot access file "/etc/passwd"'),
        ('from "\x1b[2J"', "no published table is named \\x1b[2J."),
    ],
)
def test_a_query_that_cannot_be_answered(
    tiny: Path, capsys: pytest.CaptureFixture[str], query: str, words: str
) -> None:
    assert words in refused(tiny, capsys, query)


def test_before_the_first_publication(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tiny.parent / "data" / "tiny" / "published" / "wattledger.duckdb").unlink()
    expected = f"nothing is published for fleet tiny yet: run `wattledger run --fleet {tiny}` first\n"
    assert refused(tiny, capsys, QUERY) == expected


def test_a_snapshot_that_is_damaged_or_may_not_be_read(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    snapshot = tiny.parent / "data" / "tiny" / "published" / "wattledger.duckdb"
    snapshot.chmod(0o000)
    if not os.access(snapshot, os.R_OK):  # root reads everything
        assert f"{snapshot} cannot be written or read by this user" in refused(tiny, capsys, QUERY, 1)
    snapshot.chmod(0o644)
    snapshot.write_text("this is not a database, " * 100)
    assert f"{snapshot} is damaged, or is no DuckDB file" in refused(tiny, capsys, QUERY, 1)


def test_wrong_options(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for options, words in (
        (["--limit", "few"], "--limit: got 'few', expected a number of rows such as 40, or 0 for all"),
        (["--format", "xml"], "choose from"),
    ):
        with pytest.raises(SystemExit, match="2"):
            main(["sql", QUERY, "--fleet", str(tiny), *options])
        assert words in capsys.readouterr().err
