"""The dashboards name tables and columns that there are; the bundle has the right address.

Quick, without a Superset: what they return is tested by `make test-bi`.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from contextlib import closing
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml

from pipelines.command_line.main import main
from pipelines.named_figures.dictionary import HeadlineFigure, figures
from pipelines.publishing.dashboards import files as dashboards
from pipelines.publishing.dashboards import grafana, superset
from tests.bi.answers import FINANCE, OF_ALL_MONTHS, headed
from tests.report import publications
from tests.report.publications import advice

BUNDLE = superset.bundle("duckdb:////srv/published/wattledger.duckdb")
DATASETS = {one["table_name"]: one for name, one in BUNDLE.items() if name.startswith("datasets/")}
CHARTS = [one for name, one in BUNDLE.items() if name.startswith("charts/")]


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A publication without rows, with every table and column of the contracts."""
    return publications.write(tmp_path_factory.mktemp("empty"))


def test_each_metric_runs_on_the_published_tables(empty: Path) -> None:
    with closing(duckdb.connect(str(empty), read_only=True)) as connection:
        connection.execute("set TimeZone = 'UTC'")
        for name, dataset in DATASETS.items():
            computed = [one["expression"] for one in dataset["columns"] if one.get("expression")]
            plain = [f'"{one["column_name"]}"' for one in dataset["columns"] if not one.get("expression")]
            table, sums = f"{dataset['schema']}.{name}", [one["expression"] for one in dataset["metrics"]]
            held = {row[0]: row[1] for row in connection.execute(f"describe {table}").fetchall()}
            stated = {one["column_name"]: one["type"] for one in dataset["columns"] if not one.get("expression")}
            assert stated == {column: held[column] for column in stated}, name
            rows = connection.execute(f"select {', '.join(plain + computed)} from {table}")
            assert len(rows.description or ()) == len(dataset["columns"]) > 0, name
            assert rows.fetchall() == [], name
            # Of no rows a sum is unknown and a count 0; no metric fails, and none makes a number of nothing.
            (totals,) = connection.execute(f"select {', '.join(sums)} from {table}").fetchall()
            assert len(totals) == len(sums) > 0, name
            assert {value for value in totals if value is not None} <= {0}, name


def test_each_metric_divides_sums() -> None:
    metrics = {
        (name, one["metric_name"]): one["expression"] for name, all_ in DATASETS.items() for one in all_["metrics"]
    }
    # One grid factor per hour and site: the average of it is it.
    averages = {key for key, expression in metrics.items() if re.search(r"\bavg\(|_ratio\)|_per_\w+\)", expression)}
    assert averages == {("site_carbon_hourly", "grid_gco2e_per_kwh")}
    divided = [expression for expression in metrics.values() if re.search(r"/ (?!3\.6e6|1e\d)", expression)]
    assert len(divided) > 20
    assert [one for one in divided if "sum(" not in one or "/ nullif(sum(" not in one] == []


def test_each_chart_names_what_its_dataset_has() -> None:
    by_uuid = {dataset["uuid"]: dataset for dataset in DATASETS.values()}
    for chart in CHARTS:
        dataset = by_uuid[chart["dataset_uuid"]]
        (query,) = json.loads(chart["query_context"])["queries"]
        columns = [one["sqlExpression"] if isinstance(one, dict) else one for one in query["columns"]]
        filtered = [one["col"] for one in query["filters"]]
        assert {*columns, *filtered} <= {one["column_name"] for one in dataset["columns"]}, chart["slice_name"]
        assert {*(query.get("metrics") or [])} <= {one["metric_name"] for one in dataset["metrics"]}, chart[
            "slice_name"
        ]


def test_the_operator_sees_what_may_be_tried_with_its_size_and_days(tmp_path: Path) -> None:
    """One experiment on 4 GPUs for 7 days, one of 320 W for 12. Innocent twins: a change that saves, and an experiment
    that another row of its deployment comes before."""
    size = {"current_replicas": 1, "current_gpus_per_replica": 8, "trial_replicas": 1, "trial_gpus_per_replica": 4}
    limit = {"current_power_limit_watts": 400, "trial_power_limit_watts": 320, "reason_code": "one_power_limit"}
    rows = [
        advice("large", "try_it", **size, trial_days=7, reason_code="data_sheet_only", is_preferred=True),
        advice("hot", "try_it", **limit, trial_days=12, current_replicas=None, is_preferred=True),
        advice("less", "fewer_gpus", **size, is_preferred=True),
        advice("behind", "try_it", **size, trial_days=7, is_preferred=False),
    ]
    expected = [
        ("llm/hot", None, None, None, 320, 12, "one_power_limit"),
        ("llm/large", 8, 1, 4, None, 7, "data_sheet_only"),
    ]
    title = "What may be tried: size or limit, and for how many days (no saving is counted yet)"
    panel = panel_of("operator", title)
    (query,) = json.loads(chart_of(panel)["query_context"])["queries"]
    (kind,) = query["filters"]
    with read(publications.write(tmp_path, published_right_sizing=rows)) as connection:
        where = f"{kind['col']} = '{kind['val']}' and {query['extras']['where']}"
        shown = connection.execute(
            f"select {', '.join(query['columns'])} from published.right_sizing where {where} order by deployment"
        ).fetchall()
        assert connection.execute(asked(panel)).fetchall() == shown
    columns = ("deployment", "current_gpus_per_replica", "trial_replicas", "trial_gpus_per_replica")
    named = [query["columns"].index(one) for one in (*columns, "trial_power_limit_watts", "trial_days", "reason_code")]
    assert [tuple(row[at] for at in named) for row in shown] == expected


@pytest.mark.parametrize(
    ("board", "title", "table", "key"),
    [
        ("operator", "Models: ", "marts.model_daily", "model"),
        ("sustainability", "Models: ", "marts.model_daily", "model"),
        ("finance", "Who pays: ", "finance.chargeback", "payer"),
        ("finance", "Kinds of tokens: ", "finance.unit_cost", "model"),
    ],
)
def test_a_table_of_sums_names_the_reasons_of_doubt(
    board: str, title: str, table: str, key: str, tmp_path: Path
) -> None:
    """Innocent twins: a row that is clean, and one of which nothing was assessed."""
    of_month = {"site": "west", "month": date(2026, 10, 1)}
    of_date = {**publications.KEYS, "date": date(2026, 10, 1)}
    reasons = [
        ("doubted", "hidden_processes"),
        ("doubted", "above_limit,no_counter"),
        ("doubted", ""),
        ("clean", ""),
        ("clean", None),
        ("dark", None),
    ]
    given = of_month if board == "finance" else of_date
    rows = [{**given, key: name, "doubt_reasons": words} for name, words in reasons]
    panel = panel_of(board, title)
    (metric,) = [one for one in DATASETS[table.split(".")[1]]["metrics"] if one["metric_name"] == "in_doubt"]
    expected = {"doubted": "above_limit, no_counter; hidden_processes", "clean": "none", "dark": None}
    with read(publications.write(tmp_path, **{table.replace(".", "_"): rows})) as book:
        assert {row[0]: row[-1] for row in book.execute(asked(panel)).fetchall()} == expected
        of_keys = f"select {key}, {metric['expression']} from {table} group by {key}"
        assert dict(book.execute(of_keys).fetchall()) == expected
    assert chart_of(panel)["params"]["metrics"][-1] == "in_doubt"


def test_each_month_names_the_reasons_of_doubt(tmp_path: Path) -> None:
    """One of each site. Innocent twins as above."""
    reasons = {"doubted": "above_limit,no_counter", "clean": "", "dark": None}
    expected = {"doubted": "above_limit, no_counter", "clean": "none", "dark": None}
    panel = panel_of("finance", "Months: ")
    rows = [{"month": date(2026, 10, 1), "site": site, "doubt_reasons": words} for site, words in reasons.items()]
    (column,) = [one for one in DATASETS["months"]["columns"] if one["column_name"] == "in_doubt"]
    with read(publications.write(tmp_path, finance_months=rows)) as book:
        asked_of_all = asked(panel, sites="'doubted', 'clean', 'dark'")
        assert {row[1]: row[-1] for row in book.execute(asked_of_all).fetchall()} == expected
        assert dict(book.execute(f"select site, {column['expression']} from finance.months").fetchall()) == expected
    assert chart_of(panel)["params"]["all_columns"][-1] == "in_doubt"


def test_what_is_in_doubt_is_listed_with_its_amount_in_its_unit(tmp_path: Path) -> None:
    """Of a meter its joules, of an engine its tokens, or those that are not booked, of which none may be known."""
    day = {"date": date(2026, 10, 2), "evidence": "a", "remedy": "b"}
    rows = [
        {**day, "entity": "board", "figure": "energy", "direction": "above", "doubted_joules": 7200},
        {**day, "entity": "falls", "figure": "tokens", "direction": "either", "doubted_tokens": 50},
        {**day, "entity": "tail", "figure": "tokens", "direction": "below", "unbooked_tokens": 3},
        {**day, "entity": "delta", "figure": "tokens", "direction": "below"},
    ]
    expected = {"board": (7200, "J"), "falls": (50, "tokens"), "tail": (3, "tokens, not booked"), "delta": (None, None)}
    panel = panel_of("operator", "What is in doubt")
    columns = {one["column_name"]: one.get("expression", one["column_name"]) for one in DATASETS["doubts"]["columns"]}
    shown = [columns[one] for one in chart_of(panel)["params"]["all_columns"]]
    with read(publications.write(tmp_path, marts_doubts=rows)) as book:
        listed = sorted(book.execute(asked(panel)).fetchall())
        assert sorted(book.execute(f"select {', '.join(shown)} from marts.doubts").fetchall()) == listed
    assert {row[2]: row[5:7] for row in listed} == expected


def panel_of(board: str, title: str) -> dict[str, Any]:
    """Grafana's panel whose title begins so."""
    (panel,) = [one for one in grafana.boards()[board]["panels"] if one.get("title", "").startswith(title)]
    return panel


def chart_of(panel: dict[str, Any]) -> dict[str, Any]:
    """Superset's chart of the same title."""
    (chart,) = [one for one in CHARTS if one["slice_name"] == panel["title"].replace("${meter_scope}", "board")]
    return chart


def asked(panel: dict[str, Any], sites: str = "'west'") -> str:
    """A panel's SQL for DuckDB, of all dates or of October."""
    put_in = {
        "${schema_prefix:raw}": "",
        "$__timeFilter(date)": "true",
        "${site:sqlstring}": sites,
        "${meter_scope:sqlstring}": "'board'",
        "${month:sqlstring}": "'2026-10'",
        "to_char(month, 'YYYY-MM')": "strftime(month, '%Y-%m')",
    }
    sql: str = panel["targets"][0]["rawSql"]
    for name, value in put_in.items():
        sql = sql.replace(name, value)
    return sql


def read(snapshot: Path) -> closing[duckdb.DuckDBPyConnection]:
    return closing(duckdb.connect(str(snapshot), read_only=True))


def test_a_metric_with_the_name_of_a_headline_figure_is_that_figure() -> None:
    """In finance the titles are those of docs/figures.md; nothing else has such a title."""
    of_finance = {one.name: one for one in figures().values() if one.table.startswith("finance.")}
    found = {}
    for name, dataset in DATASETS.items():
        by_title = {one["verbose_name"]: one for one in dataset["metrics"]}
        for figure in of_finance.values():
            metric = by_title.get(headed(figure))
            if metric is None:
                continue
            assert metric["metric_name"] == figure.name, (name, metric)
            if f"{dataset['schema']}.{name}" == figure.table:
                assert metric["expression"] == expression(figure), name
                found[figure.name] = name
    # carbon is no table of these dashboards, and what served no token is in the report's price of a token alone.
    shown = {key for key, one in of_finance.items() if one.table != "finance.carbon"}
    assert found.keys() == shown - {"fleet_cost_usd_per_output_mtok"}
    titles = {headed(one): one for one in figures().values()}
    for name, dataset in DATASETS.items():
        for column in dataset["columns"]:
            if figure := titles.get(column.get("verbose_name")):
                assert figure.name.endswith(column["column_name"]), (name, column)


def expression(figure: HeadlineFigure) -> str:
    """The metric of a figure in the SQL that both databases have."""

    def summed(column: str) -> str:
        return f"sum(case when {figure.only_with} > 0 then {column} end)" if figure.only_with else f"sum({column})"

    if figure.denominator is None:
        return summed(figure.numerator)
    factor = {1: "", 1e6: "1e6 * "}[figure.factor]
    return f"{factor}{summed(figure.numerator)} / nullif({summed(figure.denominator)}, 0)"


def test_the_month_of_finance_is_the_newest_until_another_is_chosen() -> None:
    board = BUNDLE["dashboards/finance.yaml"]
    (month,) = [one for one in board["metadata"]["native_filter_configuration"] if one["name"] == "Month"]
    chosen = {"multiSelect": False, "defaultToFirstItem": True, "sortAscending": False}
    assert chosen.items() <= month["controlValues"].items()
    # Charts wait for it, so that none is asked for all months first.
    assert (month["requiredFirst"], month["defaultDataMask"]["filterState"]) == (True, {})
    charts = [one["meta"] for name, one in board["position"].items() if name.startswith("CHART-")]
    placed = {one["chartId"]: one["sliceName"] for one in charts}
    assert {placed[number] for number in month["scope"]["excluded"]} == OF_ALL_MONTHS
    assert set(placed.values()) == set(FINANCE)
    # Each chart that it reaches has the column: without it Superset would show all months, unnoticed.
    by_uuid = {dataset["uuid"]: dataset for dataset in DATASETS.values()}
    for chart in CHARTS:
        if chart["slice_name"] in set(FINANCE) - OF_ALL_MONTHS:
            columns = {one["column_name"] for one in by_uuid[chart["dataset_uuid"]]["columns"]}
            assert month["targets"][0]["column"]["name"] in columns, chart["slice_name"]


def test_finance_reads_schema_finance_but_where_a_date_is_the_question() -> None:
    by_uuid = {dataset["uuid"]: f"{dataset['schema']}.{name}" for name, dataset in DATASETS.items()}
    read = {by_uuid[one["dataset_uuid"]] for one in CHARTS if one["slice_name"] in FINANCE}
    assert {table for table in read if not table.startswith("finance.")} == {
        "marts.cost_anomalies_daily",
        "marts.cost_daily",
    }
    panels = grafana.boards()["finance"]["panels"]
    asked = "".join(target["rawSql"] for panel in panels for target in panel.get("targets", []))
    assert set(re.findall(r"\b(?:finance|marts)\.\w+", asked)) == read


@pytest.mark.parametrize(
    ("given", "address"),
    [
        (
            "/srv/published/wattledger.duckdb",
            "duckdb:////srv/published/wattledger.duckdb?access_mode=READ_ONLY&timezone=UTC",
        ),
        ("duckdb:////srv/x.duckdb?timezone=UTC", "duckdb:////srv/x.duckdb?timezone=UTC&access_mode=READ_ONLY"),
        ("postgres://bi:x@db/l", "postgresql://bi:x@db/l?options=-c%20timezone%3DUTC"),
        (
            "postgresql+psycopg2://bi:x@db/l?sslmode=require",
            "postgresql+psycopg2://bi:x@db/l?sslmode=require&options=-c%20timezone%3DUTC",
        ),
    ],
)
def test_an_address_is_read_only_and_in_utc(given: str, address: str) -> None:
    assert dashboards.address(given) == address


def test_the_bundle_takes_an_address_and_a_schema_prefix() -> None:
    password = "a'b\"c\\1: #%40"
    (packed,) = dashboards.superset(f"postgresql://bi:{password}@db/ledger", "mine_").values()
    bundle = zipfile.ZipFile(io.BytesIO(packed))
    assert len(bundle.namelist()) == len(CHARTS) + len(DATASETS) + 5
    database = yaml.safe_load(bundle.read("wattledger/databases/Wattledger.yaml"))
    assert database["sqlalchemy_uri"] == f"postgresql://bi:{password}@db/ledger?options=-c%20timezone%3DUTC"
    assert yaml.safe_load(bundle.read("wattledger/datasets/Wattledger/model_daily.yaml"))["schema"] == "mine_marts"


def test_another_kind_of_database_is_refused() -> None:
    with pytest.raises(ValueError, match=r"database mysql: expected the path of wattledger\.duckdb"):
        dashboards.address("mysql://bi@db/ledger")


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fleet file with a prefix of its schemas, and something published."""
    monkeypatch.setenv("WATTLEDGER_DATA", str(tmp_path / "data"))
    path = tmp_path / "fleet.yaml"
    path.write_text(
        "fleet: tiny\nsynthetic: true\nperiod: {start: 2026-10-01}\n"
        "sources: [{name: synthetic, kind: synthetic, scenario: demo, interval_seconds: 60}]\n"
        "publication: {postgresql: {dsn_env: HOME, schema_prefix: mine_}}\n"
    )
    snapshot = tmp_path / "data" / "tiny" / "published" / "wattledger.duckdb"
    snapshot.parent.mkdir(parents=True)
    snapshot.touch()
    return path


def test_the_dashboards_are_written_for_this_fleet(fleet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = fleet.parent / "bi"
    monkeypatch.setenv("READER", "postgresql://bi:x@db/ledger")
    for words in (
        ["grafana", folder],
        ["superset", folder],
        ["superset", folder / "of_db", "--database-env", "READER"],
    ):
        assert main(["dashboards", *map(str, words), "--fleet", str(fleet)]) == 0
    assert sorted(path.name for path in folder.iterdir()) == [
        *("finance.json", "of_db", "operator.json", "rules.yml", "rules_without_alarms.yml"),
        *("sustainability.json", "today.json", "wattledger.zip"),
    ]
    (prefix,) = [
        one
        for one in json.loads((folder / "finance.json").read_text())["templating"]["list"]
        if one["name"] == "schema_prefix"
    ]
    chosen = {"selected": True, "text": "mine_", "value": "mine_"}
    assert (prefix["query"], prefix["current"], prefix["options"]) == ("mine_", chosen, [chosen])
    written = json.loads((folder / "finance.json").read_text())
    assert {**written, "templating": 0} == {**grafana.boards()["finance"], "templating": 0}

    def read(zipped: Path, name: str) -> dict[str, Any]:
        assert zipped.stat().st_mode & 0o077 == 0
        return yaml.safe_load(zipfile.ZipFile(zipped).read(f"wattledger/{name}"))

    of_file, of_db = folder / "wattledger.zip", folder / "of_db" / "wattledger.zip"
    assert (
        "/tiny/published/wattledger.duckdb?access_mode=READ_ONLY"
        in (read(of_file, "databases/Wattledger.yaml")["sqlalchemy_uri"])
    )
    assert read(of_file, "datasets/Wattledger/model_daily.yaml")["schema"] == "marts"
    assert read(of_db, "datasets/Wattledger/model_daily.yaml")["schema"] == "mine_marts"


@pytest.mark.parametrize(
    ("tool", "name", "content"),
    [
        ("grafana", "today.json", '{"uid": "ours"}'),
        ("grafana", "operator.json", "[1]"),
        ("grafana", "finance.json", "no JSON"),
        ("grafana", "rules.yml", "groups: [{name: mine}]"),
        ("superset", "wattledger.zip", "no zip"),
    ],
)
def test_a_file_of_others_stays(
    fleet: Path, capsys: pytest.CaptureFixture[str], tool: str, name: str, content: str
) -> None:
    folder = fleet.parent / "bi"
    folder.mkdir()
    (folder / name).write_text(content)
    assert main(["dashboards", tool, str(folder), "--fleet", str(fleet)]) == 2
    assert capsys.readouterr().err == (
        f"{folder / name} is there, and is none of Wattledger's: name another folder, or move it\n"
    )
    assert [(path.name, path.read_text()) for path in folder.iterdir()] == [(name, content)]


def test_what_is_wrong_with_the_database_is_one_line(
    fleet: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("READER", "mysql://bi@db/ledger")
    asked = ["dashboards", "superset", str(fleet.parent / "bi"), "--fleet", str(fleet), "--database-env"]
    assert main([*asked, "READER"]) == 2
    assert "--database-env: database mysql: expected the path of" in capsys.readouterr().err
    assert main([*asked, "NOT_SET"]) == 2
    assert capsys.readouterr().err == "--database-env: the environment has no NOT_SET\n"
