"""Every chart of the Superset bundle and every panel for Grafana, on a real snapshot and a real PostgreSQL.

One fleet of three days is booked, published to both, and read by one Superset. Its models have hostile names. Its site
is seven hours behind UTC, so the first hours are of the month before: there are two months.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml
from adbc_driver_postgresql import dbapi

from pipelines.booking.project import prepared_project
from pipelines.fleet.places import DEFAULT_FLEET
from pipelines.fleet.targets.publication_targets import PostgresqlTarget
from pipelines.named_figures import choices, dictionary, explanation
from pipelines.publishing import publication
from pipelines.publishing.dashboards import files as bi
from pipelines.publishing.dashboards import grafana
from pipelines.publishing.postgresql import loading as postgresql
from pipelines.warehouse import contracts
from tests import browser
from tests.bi import dashboards, superset_server
from tests.bi.answers import ANSWERS, BOARDS, OF_ALL_MONTHS, headed
from tests.bi.chart_rows import is_pivoted, is_same, rows_of, sorted_rows
from tests.books import Book, demo_fleet, on
from tests.servers import Postgresql

NEEDED_BY = {"published": ("postgresql", "superset")}

FIRST, END = on("10-01"), on("10-04")
NEWEST, BEFORE = "2026-10", "2026-09"
EVERY = "true"
SCRIPT = "<script>alert(1)</script>"
HOSTILE = {
    "gpt-oss-120b": SCRIPT,
    "gemma-4-31B": "\N{FIRE} " + "n" * 296 + ' "',
    "Qwen3.5-397B": "\N{HEBREW LETTER ALEF}\N{HEBREW LETTER BET} '; drop table marts.model_daily; --",
    "Kimi-K2.5": '=HYPERLINK("http://evil.example")',
}
# What three quiet days do not have: doubts, an unusual cost, a date that is held back, a forecast, a figure that was
# restated, whole months to compare. Written into the warehouse before it is published.
PLANTED = """
insert into marts.held_back_dates (date, invariant, table_name, row_number, found, unit, expected, remedy, broken_rows)
values ('2026-09-30', 'energy_balances', 'energy_ledger', 1, 12.5, 'joules', 'at most 0.001', 'book the date again', 1);
insert into marts.doubts (
    date, reason, figure, direction, entity_kind, entity, doubted_joules, doubted_tokens, unbooked_tokens, evidence,
    remedy
) values
('2026-10-02', 'meters_disagree', 'energy', 'either', 'board', 'GPU-1', 7200000, null, null, 'ipmi has 108 W', 'a'),
('2026-10-02', 'hidden_processes', 'tokens', 'either', 'engine', 'pod:1', null, 5000.5, null, '2 lines', 'b'),
('2026-10-03', 'unseen_tokens', 'tokens', 'below', 'engine', 'pod:2', null, null, 300, '1 restarts', 'c');
insert into marts.cost_anomalies_daily (
    as_of_date, date, scope, site, model, part, cost_usd, usual_usd, difference_usd, is_anomaly, method_version
) values ('2026-10-03', '2026-10-03', 'fleet', '__all__', '__all__', '__all__', 900, 700, 200, true, 'test');
update marts.model_daily set doubt_reasons = 'hidden_processes' where date = '2026-10-02' and model like '<%';
update marts.model_monthly set doubted_joules = energy_joules, doubt_reasons = 'hidden_processes'
where month = '2026-10-01' and model like '<%';
update marts.tenant_daily set doubted_joules = energy_joules, doubt_reasons = 'hidden_processes'
where date = '2026-10-02' and model like '<%' and tenant = (select min(tenant) from marts.tenant_daily);
update marts.cost_forecast set forecast_usd = 9876.5, forecast_low_usd = 9000, forecast_high_usd = 10000
where billing_month = '2026-10-01';
update published.right_sizing set
    kind = 'try_it', reason_code = 'data_sheet_only', trial_replicas = 1, trial_gpus_per_replica = 4, trial_days = 7,
    is_preferred = true
where recommendation_id = (select min(recommendation_id) from published.right_sizing);
insert into published.restated_figures (
    publication_id, restated_at, month, date, site, model, figure, part, unit, before, after, change, reason
)
select
    'earlier', '2026-10-04 01:00:00+00', '2026-10-01', '2026-10-02', 'west', model, 'cost', 'energy', 'USD', 10, 12, 2,
    'late data'
from (values ('a'), ('b')) as models (model);
create or replace view finance.bridge as
select
    month, month - interval 1 month as compared_month, true as is_of_whole_months, 3 as days, 'west' as site,
    'a' as model, part, 100::decimal(28, 12) as before_usd, 3::decimal(28, 12) as calendar_usd,
    -1::decimal(28, 12) as coverage_usd, 20::decimal(28, 12) as price_usd, -5::decimal(28, 12) as volume_usd,
    -2::decimal(28, 12) as efficiency_usd, 4::decimal(28, 12) as idle_usd, 7::decimal(28, 12) as new_usd,
    -6::decimal(28, 12) as gone_usd, 1::decimal(28, 12) as adjustments_usd, 121::decimal(28, 12) as after_usd,
    true as is_cost_complete
from (values ('2026-10-01'::date, 'energy'), ('2026-10-01'::date, 'capacity')) as parts (month, part);
"""
# 24 are more than there are.
COMMITMENT = {
    "commitment": "c-2026",
    "site": "west",
    "device_type": "a100-sxm4-80gb",
    "gpus": 24,
    "usd_per_gpu_hour": 1.0,
    "valid_from": on("01-01"),
}
READER = "bi"
IN_DOUBT = ("Months: ", "Who pays: ", "Kinds of tokens: ", "Models: ")


@dataclass(frozen=True)
class Published:
    """One publication, as a snapshot and in PostgreSQL."""

    snapshot: Path
    uri: str

    def answer(self, title: str, dates: str = EVERY, month: str = "") -> list[tuple]:
        """What the chart or panel with this title should return, of all months or of one (`2026-10`)."""
        months = f"month = '{month}-01'" if month else EVERY
        return self.run(ANSWERS[title].replace("{dates}", dates).replace("{months}", months))

    def run(self, query: str) -> list[tuple]:
        """Rows of the snapshot."""
        with closing(duckdb.connect(str(self.snapshot), read_only=True)) as connection:
            connection.execute("set TimeZone = 'UTC'")
            return connection.execute(query).fetchall()


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
    fleet = demo_fleet(
        folder, FIRST, END, models=models, budgets=budgets, bills=given["bills"], commitments=[COMMITMENT]
    )
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
    (bundle,) = bi.write(folder, bi.superset(str(published.snapshot)))
    with superset_server.started(folder, bundle) as found:
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
    unusual = "Unusual costs by date, USD (without a share of free accelerators)"
    assert published.answer(unusual, month=NEWEST)[0][4:] == (900, 700, 200)
    assert all(published.answer(title) for title in ANSWERS)
    for title in (one for one in ANSWERS if one.startswith(IN_DOUBT)):
        words = {word for row in published.answer(title) if row[-1] for word in row[-1].split(", ")}
        assert words >= {"hidden_processes", "none"}, title


def test_a_date_filter_reaches_a_chart(server: superset_server.Superset, published: Published) -> None:
    number = server.charts()["Cost by date and part, as known now, USD"]
    asked = server.query_context(number)
    (query,) = asked["queries"]
    (dates,) = [one for one in query["filters"] if one["op"] == "TEMPORAL_RANGE"]
    dates["val"] = "2026-10-02 : 2026-10-03"
    found = rows_of(query, server.ask("chart/data", asked)["result"][0])
    assert {row[0].date() for row in found} == {on("10-02")}
    assert is_same(found, published.answer("Cost by date and part, as known now, USD", "date = '2026-10-02'"))


@pytest.mark.parametrize("month", [NEWEST, BEFORE])
def test_the_month_filter_reaches_each_chart_of_finance_but_those_of_all_months(
    month: str, server: superset_server.Superset, published: Published
) -> None:
    wrong = []
    for title, number in server.charts().items():
        if title in OF_ALL_MONTHS or title not in BOARDS["finance"]:
            continue
        asked = server.query_context(number)
        (query,) = asked["queries"]
        query["filters"].append(of_month(month))
        found = rows_of(query, server.ask("chart/data", asked)["result"][0])
        if not is_same(found, published.answer(title, month=month)):
            wrong.append(f"{title}: found {found}, expected {published.answer(title, month=month)}")
    assert wrong == []


def test_the_site_filter_reaches_each_chart_of_finance_but_budgets(
    server: superset_server.Superset, published: Published
) -> None:
    wrong = []
    for title in BOARDS["finance"]:
        asked = server.query_context(server.charts()[title])
        (query,) = asked["queries"]
        query["filters"].append({"col": "site", "op": "IN", "val": ["nowhere"]})
        found = rows_of(query, server.ask("chart/data", asked)["result"][0])
        expected = published.answer(title) if title == "Budgets of the month, USD" else []
        if not is_same([row for row in found if row != (None,)], expected):
            wrong.append(f"{title}: found {found}")
    assert wrong == []


def of_month(month: str) -> dict[str, Any]:
    """The filter that a dashboard adds to the queries of its charts."""
    return {"col": "year_month", "op": "IN", "val": [month]}


def test_a_number_of_a_month_is_the_dictionarys_figure(published: Published) -> None:
    """The answers above are these figures, and the charts give the answers."""
    compared = {headed(figure): figure for figure in dictionary.figures().values() if headed(figure) in ANSWERS}
    assert len(compared) == 6
    for title, figure in compared.items():
        for month in (NEWEST, BEFORE):
            query = explanation.query_of(figure, choices.Choice(date.fromisoformat(f"{month}-01")))
            assert is_same(published.answer(title, month=month), published.run(query)), (title, month)
        assert published.answer(title, month=NEWEST) != published.answer(title, month=BEFORE)


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
    # The month is set when the page opens.
    assert f"Month\n{NEWEST}" in texts["finance"]
    # Names are text on the page, as they are in the tables.
    assert SCRIPT in texts["operator"]
    assert HOSTILE["Kimi-K2.5"] in texts["finance"]
    # What the page asks for is what is saved with each chart, which the tests above run.
    saved = {number: server.query_context(number)["queries"] for number in server.charts().values()}
    asked = [(one["form_data"]["slice_id"], one["queries"]) for one in sent if one["form_data"].get("slice_id")]
    assert {number for number, _ in asked} == saved.keys()
    essential = ("columns", "metrics", "filters", "orderby", "row_limit", "post_processing")
    titles = {number: title for title, number in server.charts().items()}
    for number, (query,) in saved.items():
        if titles[number] in BOARDS["finance"] and titles[number] not in OF_ALL_MONTHS:
            query["filters"].insert(0, of_month(NEWEST))
    for number, queries in asked:
        assert [[one.get(key) for key in essential] for one in queries] == [
            [one.get(key) for key in essential] for one in saved[number]
        ], number


def test_every_chart_returns_the_same_numbers_from_postgresql(
    server: superset_server.Superset, published: Published
) -> None:
    server.read_from(bi.address(published.uri))
    try:
        chart = server.data(server.charts()["Cost, as charged, USD"])
        assert differences(server, published) == []
        test_a_date_filter_reaches_a_chart(server, published)
        test_the_month_filter_reaches_each_chart_of_finance_but_those_of_all_months(NEWEST, server, published)
    finally:
        server.read_from(bi.address(str(published.snapshot)))
    assert "finance.cost" in chart["query"]


# --- Grafana ----------------------------------------------------------------------------------------------------------

GRAFANA = grafana.boards()
VARIABLES = {
    "schema_prefix:raw": "",
    "site:sqlstring": "'west'",
    "meter_scope:sqlstring": "'board'",
    "month:sqlstring": f"'{NEWEST}'",
}


def expanded(sql: str) -> str:
    """A panel's SQL as Grafana sends it: variables, and the macro for the time range of the three days."""
    sql = re.sub(r"\$__timeFilter\((\w+)\)", r"\1 BETWEEN '2026-09-30T00:00:00Z' AND '2026-10-03T23:59:59Z'", sql)
    return re.sub(r"\$\{(.+?)\}", lambda found: VARIABLES[found[1]], sql)


def panels(board: str) -> list[dict[str, Any]]:
    return GRAFANA[board]["panels"]


@pytest.mark.parametrize("board", BOARDS)
def test_every_panel_for_grafana_returns_the_numbers_of_its_chart(board: str, published: Published) -> None:
    asking = {one["title"].replace("${meter_scope}", "board"): one for one in panels(board) if one["type"] != "text"}
    assert list(asking) == list(BOARDS[board])
    for title, panel in asking.items():
        (target,) = panel["targets"]
        found = run(published.uri, expanded(target["rawSql"]))
        assert is_same(found, published.answer(title, month=NEWEST)), f"{title}: {sorted_rows(found)}"


def test_the_month_of_grafana_is_the_newest_and_each_panel_asks_for_it(published: Published) -> None:
    found = GRAFANA["finance"]
    (month,) = [one for one in found["templating"]["list"] if one["name"] == "month"]
    # No month is saved, so Grafana takes the first one; it asks again each time the page is loaded.
    assert (month.get("current"), month["refresh"], month["sort"], month["includeAll"]) == (None, 1, 0, False)
    assert run(published.uri, expanded(month["query"])) == [(NEWEST,), (BEFORE,)]
    queries = {one["title"]: one["targets"][0]["rawSql"] for one in panels("finance") if one["type"] != "text"}
    assert {title for title, query in queries.items() if "${month:sqlstring}" not in query} == OF_ALL_MONTHS


@pytest.mark.parametrize("board", BOARDS)
def test_a_dashboard_for_grafana_has_what_its_documentation_asks_for(board: str, published: Published) -> None:
    found = GRAFANA[board]
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
