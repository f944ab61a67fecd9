"""The command `mcp`, asked by the SDK's own client over standard input and output: what it answers, and what no tool of
it does.

The snapshot is that of `test_sql_command`, with a doubt beside it.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest
from mcp import Client, StdioServerParameters

from pipelines.command_line.main import main
from pipelines.command_line.service_commands import mcp_command
from pipelines.fleet.fleet_file import load_fleet
from pipelines.fleet.places import PROJECT
from tests.books import environment
from tests.command_line.test_sql_command import tiny as tiny  # noqa: PLC0414 (a fixture)

DOUBTS = """
create table marts.doubts (date date, reason varchar, figure varchar, direction varchar, entity_kind varchar,
    entity varchar, since_at timestamptz, until_at timestamptz, meaning varchar, evidence varchar, remedy varchar);
insert into marts.doubts select date '2026-10-01' + n::integer, 'hidden_processes', 'tokens', 'either', 'engine',
    'llm/chat', '2026-10-01 00:00:00+00', '2026-10-01 00:00:00+00'::timestamptz + to_days(n::integer), 'two answer',
    'seen ' || n, 'scrape each' from range(40) as days (n);
comment on column marts.model_daily.cost_usd is 'USD. NULL: no price is known.';
"""
REFUSED = {
    "update marts.model_daily set model = 'x'": "UPDATE is refused: the publication is read-only",
    "copy marts.model_daily to 'x.csv'": "COPY is refused",
    "attach 'other.duckdb'": "ATTACH is refused",
    "set enable_external_access = true": "SET is refused",
    "install httpfs": "LOAD is refused",
    "from read_csv('/etc/passwd')": 'Cannot access file "/etc/passwd"',
    "select 1; drop table marts.model_daily": "expected one statement, got 2",
    "from marts.model_dayly": "no published table is named model_dayly. The nearest names: marts.model_daily, ",
}


@pytest.fixture
def asked(tiny: Path) -> Path:
    snapshot = tiny.parent / "data" / "tiny" / "published" / "wattledger.duckdb"
    with duckdb.connect(snapshot) as connection:
        connection.execute(DOUBTS)
    return tiny


def answers(fleet: Path, questions: Sequence[tuple[str, dict[str, Any]]]) -> tuple[set[str], list[tuple[bool, str]]]:
    """The names of the tools, and of each question whether it was refused, and the answer."""
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "pipelines", "mcp", "--fleet", str(fleet)],
        env=environment(fleet.parent / "data"),
        cwd=PROJECT,
    )

    async def talk() -> tuple[set[str], list[tuple[bool, str]]]:
        async with Client(server) as client:
            tools = {tool.name for tool in (await client.list_tools()).tools}
            found = [await client.call_tool(name, values) for name, values in questions]
            return tools, [(bool(one.is_error), one.content[0].text) for one in found]

    return asyncio.run(talk())


def test_a_client_asks_for_figures_tables_columns_doubts_and_rows(asked: Path) -> None:
    tools, found = answers(
        asked,
        [
            ("figures", {}),
            ("sql", {"query": "select model, cost_usd from marts.model_daily order by date"}),
            ("columns", {"table": "marts.model_daily"}),
            ("tables", {}),
            ("doubts", {"month": "2026-10"}),
            ("doubts", {}),
            ("sql", {"query": "from range(1000)"}),
        ],
    )
    assert tools == {"figures", "explain", "doubts", "tables", "columns", "sql"}
    assert [refused for refused, _ in found] == [False] * 7
    figures, rows, columns, tables, of_october, of_all, many = (json.loads(text) for _, text in found)
    assert {figure["name"]: figure["unit"] for figure in figures}["joules_per_output_token"] == "J per token"
    assert rows == [{"model": "=1+1", "cost_usd": 1.5}, {"model": "gemma-4-31B", "cost_usd": 1e-12}]
    assert {column["column_name"]: column["comment"] for column in columns}["cost_usd"] == (
        "USD. NULL: no price is known."
    )
    assert "marts.model_hourly" in {table["table_name"] for table in tables}
    assert [(one["reason"], one["entity"], one["dates"], one["evidence"]) for one in of_october] == [
        ("hidden_processes", "llm/chat", 31, "seen 30")
    ]
    assert [one["dates"] for one in of_all] == [40]
    assert len(many) == mcp_command.MOST_ROWS


def test_what_sql_refuses_no_tool_does(asked: Path) -> None:
    """A name with a quote ends no text, either: what follows it is a part of the name."""
    snapshot = asked.parent / "data" / "tiny" / "published" / "wattledger.duckdb"
    before = snapshot.read_bytes()
    broken_out = "x' or true; drop table marts.model_daily; --"
    _, found = answers(
        asked,
        [
            *(("sql", {"query": query}) for query in REFUSED),
            ("explain", {"figure": "joules"}),
            ("explain", {"figure": "known_cost_usd", "month": "october"}),
            ("columns", {"table": broken_out}),
            ("doubts", {"month": broken_out}),
        ],
    )
    for (refused, text), words in zip(found, REFUSED.values(), strict=False):
        assert refused
        assert words in text
    assert [refused for refused, _ in found[len(REFUSED) :]] == [True, True, False, True]
    assert "no headline figure is named 'joules'. The nearest names: " in found[len(REFUSED)][1]
    assert "got 'october', expected a month such as 2026-10" in found[len(REFUSED) + 1][1]
    assert json.loads(found[-2][1]) == []
    assert snapshot.read_bytes() == before
    assert {path.name for path in asked.parent.rglob("*")} & {"x.csv", "other.duckdb"} == set()


def test_a_query_that_does_not_end_is_ended(asked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_command, "MOST_SECONDS", 0.5)
    (sql,) = [tool for tool in mcp_command.tools(load_fleet(asked)) if tool.__name__ == "sql"]
    with pytest.raises(mcp_command.QuestionError, match=r"the query cannot be answered: .*Interrupted"):
        sql("select count(*) from range(10000000) a, range(10000000) b where hash(a.range + b.range) = 1")


def test_without_the_package_it_names_the_extra(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mcp_command, "find_spec", lambda _: None)
    assert main(["mcp", "--fleet", str(tiny)]) == 2
    assert capsys.readouterr().err == "the package mcp is not installed: pip install 'wattledger[mcp]'\n"
