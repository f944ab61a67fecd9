"""Every chart of the Superset bundle and every panel for Grafana, on a real snapshot and a real PostgreSQL.

One fleet of three days is booked, published to both, and read by one Superset. Its models have hostile names.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from math import isclose
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml
from adbc_driver_postgresql import dbapi

from bi.superset import bundle
from pipelines.booking.project import prepared_project
from pipelines.fleet.fleet_file import DEFAULT_FLEET, PROJECT
from pipelines.fleet.publication_targets import PostgresqlTarget
from pipelines.publishing import publication
from pipelines.publishing.postgresql import loading as postgresql
from pipelines.warehouse import contracts
from tests import browser
from tests.bi import dashboards, superset_server
from tests.bi.answers import ANSWERS, BOARDS
from tests.books import Book, demo_fleet, on
from tests.servers import Postgresql

NEEDED_BY = {"published": ("postgresql", "superset")}

FIRST, END = on("10-14"), on("10-17")
ALL_DATES = "true"
SCRIPT = "<script>alert(1)</script>"
HOSTILE = {
    "gpt-oss-120b": SCRIPT,
    "gemma-4-31B": "\N{FIRE} " + "n" * 296 + ' "',
    "Qwen3.5-397B": "\N{HEBREW LETTER ALEF}\N{HEBREW LETTER BET} '; drop table marts.model_daily; --",
    "Kimi-K2.5": '=HYPERLINK("http://evil.example")',
}
# What three quiet days do not have: an unusual cost, two sources that differ, a date that is held back. Written into
# the warehouse before it is published.
PLANTED = """
insert into marts.held_back_dates (date, invariant, table_name, row_number, found, unit, expected, remedy, broken_rows)
values ('2026-10-13', 'energy_balances', 'energy_ledger', 1, 12.5, 'joules', 'at most 0.001', 'book the date again', 1);
update marts.reconciliation_daily set
    cross_check_source = 'ipmi', cross_check_joules = 1.08 * metered_joules, cross_check_ratio = 0.08
where (date, meter) = (select (min(date), min(meter)) from marts.reconciliation_daily);
insert into marts.cost_anomalies_daily (
    as_of_date, date, scope, site, model, part, cost_usd, usual_usd, difference_usd, is_anomaly, method_version
) values ('2026-10-16', '2026-10-16', 'fleet', '__all__', '__all__', '__all__', 900, 700, 200, true, 'test');
"""
READER = "bi"
# A right value may differ in its last digits: one database adds and divides decimals, the other doubles.
DIGITS = 9


@dataclass(frozen=True)
class Published:
    """One publication, as a snapshot and in PostgreSQL."""

    snapshot: Path
    uri: str

    def answer(self, title: str, dates: str = ALL_DATES) -> list[tuple]:
        """What the chart or panel with this title should return."""
        with closing(duckdb.connect(str(self.snapshot), read_only=True)) as connection:
            connection.execute("set TimeZone = 'UTC'")
            return connection.execute(ANSWERS[title].replace("{dates}", dates)).fetchall()


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Published]:
    """Three days of the demo with hostile names, published to a file and to a server whose role `bi` may only read."""
    folder = tmp_path_factory.mktemp("published")
    given = yaml.safe_load(DEFAULT_FLEET.read_text(encoding="utf-8"))
    models = [
        {**one, "name": HOSTILE[one["name"]], "aliases": [*one["aliases"], one["name"]]}
        if one["name"] in HOSTILE
        else one
        for one in given["models"]
    ]
    budgets = [one for one in given["budgets"] if "model" not in one]
    fleet = demo_fleet(folder, FIRST, END, models=models, budgets=budgets, bills=given["bills"])
    book = Book.of(fleet, folder / "data")
    book.run()
    with book.connection() as connection:
        connection.execute(PLANTED)
    with Postgresql.installed() as server:
        server.start()
        run(server.uri, f"create role {READER} login password 'r3ad'")
        os.environ["WATTLEDGER_TEST_POSTGRESQL"] = server.uri
        target = PostgresqlTarget.model_construct(dsn_env="WATTLEDGER_TEST_POSTGRESQL", schema_prefix="", reader=READER)
        assert publication.publish(book.fleet, FIRST, END) is not None
        project = prepared_project()
        marts = contracts.contracts_of(project.manifest_path, project.project_dir).marts
        assert postgresql.publish(book.fleet, target, marts) is not None
        yield Published(book.fleet.snapshot, server.uri.replace("wattledger:s3cret", f"{READER}:r3ad"))


@pytest.fixture(scope="module")
def server(published: Published, tmp_path_factory: pytest.TempPathFactory) -> Iterator[superset_server.Superset]:
    """A Superset with the bundle, which reads the snapshot."""
    folder = tmp_path_factory.mktemp("superset")
    bundle.write(folder / "superset.zip", str(published.snapshot))
    with superset_server.started(folder, folder / "superset.zip") as found:
        yield found


def run(uri: str, sql: str) -> list[tuple]:
    """Rows of PostgreSQL. The driver gives `numeric` as text: here it is a number."""
    with dbapi.connect(uri, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(sql)
        if not cursor.description:
            return []
        found = cursor.fetch_arrow_table()
    is_numeric = [(field.metadata or {}).get(b"ADBC:postgresql:typname") == b"numeric" for field in found.schema]
    columns = [
        [None if value is None else Decimal(value) for value in column.to_pylist()] if number else column.to_pylist()
        for column, number in zip(found.columns, is_numeric, strict=True)
    ]
    return list(zip(*columns, strict=True))


# --- one form for all answers -----------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """A value as all three programs can give it: dates and times as ISO in UTC, numbers as floats."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).astimezone(UTC).isoformat()
    if isinstance(value, date):
        return datetime.combine(value, time(), UTC).isoformat()
    return float(value) if isinstance(value, int | float | Decimal) else value


def sorted_rows(rows: list[tuple]) -> list[tuple[str, list[float]]]:
    """Each row as its words and its numbers, in an order that all programs share."""
    split = []
    for row in rows:
        values = [plain(value) for value in row]
        words = [None if isinstance(value, float) else value for value in values]
        split.append((repr(words), [value for value in values if isinstance(value, float)]))
    return sorted(split)


def is_same(found: list[tuple], expected: list[tuple]) -> bool:
    """Whether two answers have the same rows in any order, numbers to DIGITS digits."""
    ours, theirs = sorted_rows(found), sorted_rows(expected)
    return len(ours) == len(theirs) and all(
        words == other_words
        and len(numbers) == len(other_numbers)
        and all(isclose(one, other, rel_tol=10**-DIGITS) for one, other in zip(numbers, other_numbers, strict=True))
        for (words, numbers), (other_words, other_numbers) in zip(ours, theirs, strict=True)
    )


def labels_of(query: dict[str, Any]) -> list[str]:
    return [one["label"] if isinstance(one, dict) else one for one in query["columns"]]


def is_pivoted(query: dict[str, Any]) -> bool:
    """Whether the second name of each row has become a column."""
    return len(query["columns"]) == 2 and any(one["operation"] == "pivot" for one in query.get("post_processing") or [])


def rows_of(query: dict[str, Any], result: dict[str, Any]) -> list[tuple]:
    """The rows of a chart's answer: its columns, then its metrics. A pivot is undone; its empty cells are no rows."""
    columns, metrics = labels_of(query), query.get("metrics") or []
    timed = {name for name, kind in zip(result["colnames"], result["coltypes"], strict=True) if kind == 2}
    found = [
        {name: instant(value) if name in timed and value is not None else value for name, value in row.items()}
        for row in result["data"]
    ]
    if not is_pivoted(query):
        return [tuple(row[name] for name in [*columns, *metrics]) for row in found]
    (x, _) = columns
    return [(row[x], name, value) for row in found for name, value in row.items() if name != x and value is not None]


def instant(value: Any) -> datetime:
    """Superset gives milliseconds since 1970."""
    return (
        datetime.fromtimestamp(value / 1000, UTC) if isinstance(value, int | float) else datetime.fromisoformat(value)
    )


# --- the charts -------------------------------------------------------------------------------------------------------


def differences(server: superset_server.Superset, published: Published) -> list[str]:
    """What is wrong with the answers of Superset's charts, a line each."""
    wrong = []
    for title, number in server.charts().items():
        (query,) = server.query_context(number)["queries"]
        found, expected = rows_of(query, server.data(number)), published.answer(title)
        if is_pivoted(query):
            expected = [row for row in expected if row[-1] is not None]
        if not is_same(found, expected):
            wrong.append(f"{title}: found {sorted_rows(found)}, expected {sorted_rows(expected)}")
    return wrong


def test_every_chart_returns_the_numbers_of_the_snapshot(
    server: superset_server.Superset, published: Published
) -> None:
    assert sorted(server.charts()) == sorted(ANSWERS)
    assert differences(server, published) == []
    # What was planted is in them, so an empty table is not taken for a right one.
    assert published.answer("Held-back dates, count") == [(1,)]
    assert published.answer("Unusual costs by date, USD (full cost)")[0][4:] == (900, 700, 200)
    assert all(published.answer(title) for title in ANSWERS)


def test_a_date_filter_reaches_a_chart(server: superset_server.Superset, published: Published) -> None:
    number = server.charts()["Full cost by date and part, USD"]
    asked = server.query_context(number)
    (query,) = asked["queries"]
    (dates,) = [one for one in query["filters"] if one["op"] == "TEMPORAL_RANGE"]
    dates["val"] = "2026-10-15 : 2026-10-16"
    found = rows_of(query, server.ask("chart/data", asked)["result"][0])
    assert {row[0].date() for row in found} == {on("10-15")}
    assert is_same(found, published.answer("Full cost by date and part, USD", "date = '2026-10-15'"))


@pytest.mark.needs("chromium")
def test_the_dashboards_are_drawn_and_hostile_names_do_nothing(
    server: superset_server.Superset, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    shots = Path(os.environ.get("WATTLEDGER_BI_SHOTS", tmp_path))
    with browser.browsing(tmp_path / "profile", reaches="127.0.0.1") as page:
        texts = {
            board: dashboards.photograph(page, server.url, board, len(charts), shots / f"{board}.png")
            for board, charts in BOARDS.items()
        }
        sent = dashboards.asked(page)
    assert [one for one in page.messages if one.startswith("dialog")] == []
    assert {url for url in page.requests if not url.startswith((server.url, "data:", "blob:", "about:"))} == set()
    for board, charts in BOARDS.items():
        missing = [title for title in charts if title not in texts[board]]
        assert missing == [], board
        assert "Unexpected error" not in texts[board]
        assert "Wattledger: " + board in texts[board]
    # Names are text on the page, as they are in the tables.
    assert SCRIPT in texts["operator"]
    assert HOSTILE["Kimi-K2.5"] in texts["finance"]
    # What the page asks for is what is saved with each chart, which the tests above run.
    saved = {number: server.query_context(number)["queries"] for number in server.charts().values()}
    asked = {one["form_data"]["slice_id"]: one["queries"] for one in sent if one["form_data"].get("slice_id")}
    assert asked.keys() == saved.keys()
    essential = ("columns", "metrics", "filters", "orderby", "row_limit", "post_processing")
    for number, queries in asked.items():
        assert [[one.get(key) for key in essential] for one in queries] == [
            [one.get(key) for key in essential] for one in saved[number]
        ], number


def test_every_chart_returns_the_same_numbers_from_postgresql(
    server: superset_server.Superset, published: Published
) -> None:
    server.read_from(bundle.address(published.uri))
    try:
        chart = server.data(server.charts()["Full cost, USD (all parts)"])
        assert differences(server, published) == []
        test_a_date_filter_reaches_a_chart(server, published)
    finally:
        server.read_from(bundle.address(str(published.snapshot)))
    assert "marts.cost_daily" in chart["query"]


# --- Grafana ----------------------------------------------------------------------------------------------------------

GRAFANA = PROJECT / "bi" / "grafana"
VARIABLES = {"schema_prefix:raw": "", "site:sqlstring": "'west'", "meter_scope:sqlstring": "'board'"}


def expanded(sql: str) -> str:
    """A panel's SQL as Grafana sends it: variables, and the macro for the time range of the three days."""
    sql = re.sub(r"\$__timeFilter\((\w+)\)", r"\1 BETWEEN '2026-10-13T00:00:00Z' AND '2026-10-16T23:59:59Z'", sql)
    return re.sub(r"\$\{(.+?)\}", lambda found: VARIABLES[found[1]], sql)


def panels(board: str) -> list[dict[str, Any]]:
    return json.loads((GRAFANA / f"{board}.json").read_text(encoding="utf-8"))["panels"]


@pytest.mark.parametrize("board", BOARDS)
def test_every_panel_for_grafana_returns_the_numbers_of_its_chart(board: str, published: Published) -> None:
    asking = {one["title"].replace("${meter_scope}", "board"): one for one in panels(board) if one["type"] != "text"}
    assert list(asking) == list(BOARDS[board])
    for title, panel in asking.items():
        (target,) = panel["targets"]
        found = run(published.uri, expanded(target["rawSql"]))
        assert is_same(found, published.answer(title)), f"{title}: {sorted_rows(found)}"


@pytest.mark.parametrize("board", BOARDS)
def test_a_dashboard_for_grafana_has_what_its_documentation_asks_for(board: str, published: Published) -> None:
    found = json.loads((GRAFANA / f"{board}.json").read_text(encoding="utf-8"))
    assert (found["uid"], found["timezone"]) == (f"wattledger-{board}", "utc")
    assert {"title", "schemaVersion", "time", "templating", "annotations", "panels"} <= found.keys()
    assert len({one["id"] for one in found["panels"]}) == len(found["panels"])
    source = {"type": "grafana-postgresql-datasource", "uid": "${datasource}"}
    for panel in found["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for target in panel.get("targets", []):
            assert (target["datasource"], panel["datasource"]) == (source, source)
            assert target["format"] in ("table", "time_series")
    for variable in found["templating"]["list"]:
        if variable["type"] == "query":
            assert run(published.uri, expanded(variable["query"])) != []
    # Panels do not overlap.
    cells = Counter(
        (x, y)
        for one in found["panels"]
        for x in range(one["gridPos"]["x"], one["gridPos"]["x"] + one["gridPos"]["w"])
        for y in range(one["gridPos"]["y"], one["gridPos"]["y"] + one["gridPos"]["h"])
    )
    assert set(cells.values()) == {1}
