"""A mart of platforms is made again if one part of what it is made from changed, and keeps its rows otherwise.

Each test changes one part of a copy of a book. A change that is seen makes the rows that a build of all of them makes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from pipelines.booking import project as dbt_project
from pipelines.booking.dbt_results import unchanged_digests
from pipelines.booking.dbt_run import run_dbt
from pipelines.booking.ledger import ledger_assets, on_duckdb
from pipelines.booking.project import prepared_project
from pipelines.spark.committed_marts import bring_back
from pipelines.warehouse.asset_keys import asset_key
from tests.books import Book, broken_project, create_read
from tests.ledger.benchmarks.test_book_load_test import DAY, load_test_book

pytestmark = pytest.mark.sampled

TOPIC = "path:models/platforms"
OF_RESULTS = {"platform_results", "platform_comparison", "platform_crossover", "platform_partial_load"}
MARTS = {*OF_RESULTS, "configuration_history", "scenario_results"}
PUBLISHED = """
    insert into raw.benchmark_results by name
    select
        'inferencex' as source, 'inferencex' as benchmark, platform as result_id, platform as accelerator,
        8 as accelerators, 'DeepSeek-R1' as model, 'fp8' as precision, 'sglang' as framework, 'none' as speculation,
        false as is_disaggregated, 1024 as input_length_tokens, 1024 as output_length_tokens, 64 as concurrency,
        tokens_per_second as total_tokens_per_second_per_gpu, tokens_per_second * 4 as output_tokens_per_second,
        60 as output_tokens_per_second_per_user, date '2026-06-01' as measured_on, date '2026-06-11' as as_of
    from (values ('h100', 1000.0), ('h200', 2000.0)) as stated (platform, tokens_per_second)
"""


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Book:
    """A load test of the fleet's own, and a published result of two platforms."""
    made = load_test_book(tmp_path_factory.mktemp("platforms"))
    change(made, PUBLISHED)
    made.dbt("run", "--select", "int_benchmark_results", TOPIC)
    assert all(made.query(f"select count(*) > 0 from marts.{mart}") == [(True,)] for mart in {*OF_RESULTS})
    return made


@pytest.fixture
def copy(book: Book, tmp_path: Path) -> Book:
    return book.copy(tmp_path / "data")


def change(book: Book, *statements: str) -> None:
    with book.connection() as connection:
        for statement in statements:
            connection.execute(statement).fetchall()


def results(book: Book, *selected: str, keeps_unchanged: bool = True) -> list[Any]:
    """dbt's results of the topic, as a run of Wattledger builds it."""
    variables = {**dbt_project.variables_of(book.fleet, DAY, DAY), "keeps_unchanged": keeps_unchanged}
    environment = dbt_project.environment_of(book.fleet)
    words = ["run", "--select", TOPIC, *selected]
    return run_dbt(words, variables, environment, book.fleet.root / "dbt", project=book.project)


def made(book: Book, *selected: str) -> set[str]:
    """The marts of the topic that a run made; it kept the rows of the others."""
    done = results(book, *selected)
    assert {one.status for one in done} == {"success"}, [one.message for one in done]
    kept = unchanged_digests(done)
    return {one.node.name for one in done if one.node.unique_id not in kept} & MARTS


def hashes(book: Book) -> dict[str, tuple]:
    return {mart: rows for mart, rows in book.hashes().items() if mart in MARTS}


ROWS = {
    "a load test": (
        "update marts.load_test_phases set output_tokens = 2 * output_tokens where window_id = 'load/concurrency64'",
        {"platform_results"},
    ),
    "a load test that is there twice": (
        "insert into marts.load_test_phases select * from marts.load_test_phases",
        {"platform_results"},
    ),
    "a footprint": ("update marts.model_footprints set precision = 'fp8'", {"platform_results"}),
    "a published result": (
        "update intermediate.int_benchmark_results set total_tokens_per_second_per_gpu = 1500 where result_id = 'h100'",
        OF_RESULTS,
    ),
    "a rate": (
        "update intermediate.int_cost_rates set usd_per_gpu_hour = 2 * usd_per_gpu_hour",
        {"platform_partial_load"},
    ),
    "a device type": (
        "update staging.stg_device_types set power_limit_watts = power_limit_watts / 2",
        {"platform_partial_load"},
    ),
    "a seed's row": ("update reference.platform_prices set usd_per_gpu_hour = 1.01 * usd_per_gpu_hour", OF_RESULTS),
    "a scenario": ("update reference.scenarios set years = 2 * years", {"scenario_results"}),
    "a setting": ("insert into fleet.model_aliases values ('DeepSeek-R1', 'house-model')", OF_RESULTS),
}


@pytest.mark.parametrize("part", ROWS)
def test_a_changed_row_makes_what_is_made_from_it(copy: Book, part: str) -> None:
    statement, expected = ROWS[part]
    before = hashes(copy)
    change(copy, statement)
    assert made(copy) >= expected
    kept = hashes(copy)
    assert {mart for mart in MARTS if kept[mart] != before[mart]} >= expected
    assert {one.message for one in results(copy, keeps_unchanged=False)} == {"OK"}
    assert hashes(copy) == kept


SQL = {
    "a macro": ({"mutant": "platforms-loads-begin-elsewhere"}, {"platform_partial_load"}),
    "a macro of all topics": (
        {"file": "macros/exact.sql", "right": "nullif(cast(", "wrong": "nullif(1.0 * cast("},
        OF_RESULTS,
    ),
    "a model": ({"mutant": "platforms-results-lost"}, {"scenario_results"}),
}


@pytest.mark.parametrize("part", SQL)
def test_changed_sql_makes_its_marts(copy: Book, tmp_path: Path, part: str) -> None:
    change_of_sql, expected = SQL[part]
    changed = copy.copy(tmp_path / "changed", broken_project(tmp_path, **change_of_sql))
    assert made(changed) >= expected
    assert made(changed) == set()


def test_another_date_or_another_order_of_the_rows_makes_none(copy: Book) -> None:
    change(
        copy,
        "create table raw.turned as select * from intermediate.int_benchmark_results order by result_id desc",
        "delete from intermediate.int_benchmark_results",
        "insert into intermediate.int_benchmark_results select * from raw.turned",
    )
    before = hashes(copy)
    assert made(copy) == set()
    assert hashes(copy) == before


def test_a_lost_table_is_made(copy: Book) -> None:
    before = hashes(copy)
    change(copy, "drop table marts.scenario_results")
    assert made(copy) == {"scenario_results"}
    assert hashes(copy) == before


@pytest.mark.rest
def test_a_build_that_fails_remembers_what_the_rows_are_made_from(copy: Book, tmp_path: Path) -> None:
    """Its rows are those of before, so they are made once the build succeeds."""
    before = hashes(copy)
    change(copy, "update marts.load_test_phases set output_tokens = 2 * output_tokens")
    broken = broken_project(
        tmp_path,
        "models/platforms/platform_results.sql",
        "select * from final",
        "select * from final where error('full') is null",
    )
    failed = copy.copy(tmp_path / "failed", broken)
    assert "success" not in {one.status for one in results(failed) if one.node.name in OF_RESULTS}
    assert hashes(failed) == before
    mended = failed.copy(tmp_path / "mended", copy.project)
    assert made(mended) >= {"platform_results"}
    assert hashes(mended) != before


@pytest.mark.rest
def test_a_mart_that_is_held_back_is_made_again(copy: Book, tmp_path: Path) -> None:
    """Also those that are computed from it: their tables hold what was published last."""
    before = hashes(copy)
    held = copy.copy(tmp_path / "held", broken_project(tmp_path, mutant="platforms-results-twice"))
    made(held, "held_back_tables")
    assert held.query("select distinct table_name from marts.held_back_tables where table_name like 'platform_%'") != []
    assert held.query("select count(*) from marts.platform_results") == [(0,)]
    mended = held.copy(tmp_path / "mended", copy.project)
    assert made(mended, "held_back_tables") == MARTS - {"scenario_results"}
    assert hashes(mended) == before


@pytest.mark.rest
def test_rows_that_spark_made_are_made_again_by_duckdb(copy: Book, tmp_path: Path) -> None:
    assert made(copy) == set()
    with copy.connection() as connection:
        assert bring_back(connection, tmp_path / "lake", DAY, DAY) == {}
    assert made(copy) == MARTS


@pytest.fixture
def booked(copy: Book) -> Callable[..., dict[str, dict[str, Any]]]:
    """Books the day as Dagster does; returns the metadata of each mart of the topic."""

    def book_day(**config: bool) -> dict[str, dict[str, Any]]:
        assets = ledger_assets(copy.fleet, prepared_project(), on_duckdb, lambda _, held: create_read(held))
        (ledger,) = [one for one in assets if one.node_def.name == "ledger"]
        done = dg.materialize(
            [ledger], partition_key=DAY.isoformat(), run_config={"ops": {"ledger": {"config": config}}}
        )
        assert done.success
        keys = {asset_key(copy.fleet, "marts", mart): mart for mart in MARTS}
        events = [event.materialization for event in done.get_asset_materialization_events()]
        return {keys[event.asset_key]: dict(event.metadata) for event in events if event.asset_key in keys}

    return book_day


@pytest.mark.long
def test_dagster_shows_which_marts_kept_their_rows(
    copy: Book, booked: Callable[..., dict[str, dict[str, Any]]]
) -> None:
    change(copy, "update marts.scenario_results set note = 'kept'")
    shown = booked()
    remembered = dict(copy.query("select mart, digest from raw.made_from"))
    assert {mart: metadata["unchanged_digest"].value for mart, metadata in shown.items()} == remembered
    assert copy.query("select distinct note from marts.scenario_results") == [("kept",)]
    made = booked(anew=True)
    assert {mart: set(metadata) for mart, metadata in made.items()} == {
        mart: {"dagster/row_count", "seconds"} for mart in MARTS
    }
    assert copy.query("select count(*) from marts.scenario_results where note = 'kept'") == [(0,)]
