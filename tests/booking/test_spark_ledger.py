"""The asset `ledger` of a fleet that is booked on Spark: its dates, and what Dagster hears. Needs no Spark.

What Spark does with real telemetry is in `tests/spark`.
"""

from __future__ import annotations

from contextlib import closing
from datetime import date, timedelta
from pathlib import Path

import dagster as dg
import duckdb
import pytest
import yaml

from pipelines.booking import dbt_run, upgrades
from pipelines.booking.alarms import ALARMS
from pipelines.booking.invariants import invariants
from pipelines.code_location import JOB, definitions_of
from pipelines.fleet.fleet_file import Fleet, load_fleet
from pipelines.fleet.places import DBT_PROJECT
from pipelines.spark import changed_marts, driver, ledger_on_spark, spark_ledger
from pipelines.spark.committed_marts import LOOKBACK_DAYS, OF_LOOKBACK, Committed
from pipelines.warehouse import database
from pipelines.warehouse.contracts import Contracts, Mart
from pipelines.warehouse.raw_tables import create_tables
from tests.given import nothing_is_held_back
from tests.models import marts

ASSET = dg.AssetKey(["marts", "energy_ledger"])
MODEL = "model.wattledger.energy_ledger"


def dates(*numbers: int) -> list[date]:
    return [date(2026, 10, 1) + timedelta(days=n) for n in numbers]


def spark_fleet(folder: Path) -> Fleet:
    (folder / "data" / "mine" / "lake" / "marts").mkdir(parents=True)
    path = folder / "fleet.yaml"
    path.write_text(
        "fleet: mine\nperiod: {start: 2026-10-01}\nlanding: {target: lake, path: lake/, engine: spark}\n"
        "sources: [{name: agents, kind: spool}]\n"
    )
    return load_fleet(path, {"WATTLEDGER_DATA": str(folder / "data")})


# --- which dates ------------------------------------------------------------------------------------------------------


def test_a_build_on_spark_that_dies_leaves_its_dates_due(held: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    fleet = spark_fleet(tmp_path)
    assert spark_ledger.dates_to_book(held, fleet, *dates(4, 6)) == tuple(dates(4, 6))
    assert spark_ledger.dates_to_book(held, fleet, *dates(7, 8)) == tuple(dates(4, 8))


def test_the_first_build_on_spark_books_what_duckdb_has_booked(held: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    fleet = spark_fleet(tmp_path)
    held.execute("create schema marts")
    held.execute(
        "create table marts.fleet_daily as select date '2026-10-02' as date union all select date '2026-10-04'"
    )
    Committed("a build").put(tmp_path / "data" / "mine" / "lake")
    assert spark_ledger.dates_to_book(held, fleet, *dates(4, 6)) == tuple(dates(4, 6))
    (tmp_path / "data" / "mine" / "lake" / "marts" / "_committed.json").unlink()
    assert spark_ledger.dates_to_book(held, fleet, *dates(4, 6)) == tuple(dates(1, 6))


# --- marts of other columns ------------------------------------------------------------------------------------------

CONTRACTS = Contracts(
    {
        "fleet_daily": Mart(
            (("date", "date"), ("at", "timestamptz"), ("models", "integer"), ("method_version", "string"))
        ),
        "curve": Mart((("load", "decimal(28,6)"),), "all"),
    },
    formulas="f",
    seeds=frozenset(),
    method_version="2",
)
COLUMNS = {
    "fleet_daily": [("date", "date"), ("at", "timestamp"), ("models", "int"), ("method_version", "string")],
    "curve": [("load", "decimal(28,6)")],
}


def committed(**columns: list[tuple[str, str]]) -> Committed:
    """What Spark built of 1 to 3 October."""
    of_dates = {str(on): f"marts/x/fleet_daily/date={on}" for on in dates(0, 1, 2)}
    return Committed("x", {**COLUMNS, **columns}, {"fleet_daily": of_dates, "curve": {"": "marts/x/curve"}})


def test_marts_that_match_their_contracts_are_kept(held: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    fleet = spark_fleet(tmp_path)
    for run in (dates(3, 4), dates(0, 3)):
        assert changed_marts.to_forget(held, fleet, CONTRACTS, committed(), (run[0], run[1])) == frozenset()


def test_a_build_of_all_dates_forgets_marts_of_other_columns(held: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    fleet = spark_fleet(tmp_path)
    older = committed(fleet_daily=COLUMNS["fleet_daily"][:3], dropped=[("one", "int")])
    # A committed folder keeps its columns: there even an added one needs all dates, 1 to 3 October.
    with pytest.raises(upgrades.NeedsRebuild, match="mart fleet_daily has other columns"):
        changed_marts.to_forget(held, fleet, CONTRACTS, older, (date(2026, 10, 2), date(2026, 10, 5)))
    whole = (date(2026, 10, 1), date(2026, 10, 4))
    assert changed_marts.to_forget(held, fleet, CONTRACTS, older, whole) == {"fleet_daily", "dropped"}


def test_what_every_build_makes_anew_is_forgotten_for_any_dates(
    held: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    older = committed(curve=[("load", "double")])
    run = (date(2026, 10, 3), date(2026, 10, 5))
    assert changed_marts.to_forget(held, spark_fleet(tmp_path), CONTRACTS, older, run) == {"curve"}


# --- what Dagster hears -----------------------------------------------------------------------------------------------


def materialize(fleet: Fleet, *assets: dg.AssetKey) -> dg.ExecuteInProcessResult:
    """These assets of the job, by default one mart, and their checks."""
    job = definitions_of(fleet).resolve_job_def(JOB)
    selected = assets or [ASSET]
    return job.execute_in_process(asset_selection=selected, partition_key="2026-10-05", raise_on_error=False)


def checks(result: dg.ExecuteInProcessResult) -> list[tuple[str, bool, str]]:
    """The results of the dbt tests; the alarms do not run here."""
    ours = {alarm.name for alarm in ALARMS} | {law.name for law in invariants()}
    found = [one for one in result.get_asset_check_evaluations() if one.check_name not in ours]
    return [(one.check_name, one.passed, one.severity.value) for one in found]


def data_tests(fleet: Fleet) -> dict[str, str]:
    """The asset's dbt tests: unique id by name."""
    books = [one for one in definitions_of(fleet).assets if isinstance(one, dg.AssetsDefinition)]
    found = [one for book in books for one in book.check_specs if one.asset_key == ASSET]
    return {spec.name: spec.metadata["dagster_dbt/unique_id"] for spec in found}


def test_a_build_is_materializations_and_check_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = spark_fleet(tmp_path)
    (warns, unique_id), *others = data_tests(fleet).items()
    assert others
    of_tests = {MODEL: "success", unique_id: "warn", **dict.fromkeys((name for _, name in others), "pass")}
    asked = []

    def build(*arguments: object, forget: object) -> driver.Build:
        asked.append((*arguments, forget))
        with closing(database.connect(fleet.warehouse)) as connection:
            nothing_is_held_back(connection)
        statuses = {"model.wattledger.fleet_daily": "success", **of_tests}
        return driver.Build("a build", statuses, Committed(), {unique_id: "1 row"})

    monkeypatch.setattr(spark_ledger, "build", build)
    result = materialize(fleet)
    assert result.success
    period = {"start_date": "2026-10-05", "end_date": "2026-10-06"}
    lengths = {
        "grid_seconds": 300,
        "max_spread_seconds": 259200,
        "most_tokens_per_second": 2_000_000,
        "has_todays_columns": True,
    }
    assert asked == [(fleet, *dates(4, 5), {**period, **lengths}, frozenset())]
    assert [event.asset_key for event in result.get_asset_materialization_events()] == [ASSET]
    assert sorted(checks(result)) == sorted([(warns, False, "WARN"), *((name, True, "ERROR") for name, _ in others)])
    descriptions = {one.check_name: one.description for one in result.get_asset_check_evaluations()}
    assert descriptions[warns] == "1 row"


def test_what_advice_reads_is_made_in_the_warehouse_of_the_marts_that_came_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed = Committed("a build", {"fleet_daily": COLUMNS["fleet_daily"]}, {})
    built = driver.Build("a build", {MODEL: "success"}, committed, {})
    done = []
    monkeypatch.setattr(spark_ledger, "build", lambda *_, forget: built)
    monkeypatch.setattr(ledger_on_spark, "_create_marts", lambda *_: None)
    monkeypatch.setattr(spark_ledger, "take", lambda *_: done.append("take"))
    monkeypatch.setattr(dbt_run, "run_dbt", lambda words, *_, **__: done.extend(words) or [])
    fleet = spark_fleet(tmp_path)
    result = materialize(fleet)
    assert [event.asset_key for event in result.get_asset_materialization_events()] == [ASSET]
    assert done == ["take", "run", "--select", "tag:advice", "tag:finance"]


def test_a_failed_build_is_one_line_and_the_tests_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = spark_fleet(tmp_path)
    (fails, unique_id), (_, passes), *_ = data_tests(fleet).items()

    def build(*_: object, forget: object) -> driver.Build:
        raise driver.SparkError("what is wrong\nat java.lang", {MODEL: "success", unique_id: "fail", passes: "pass"})

    monkeypatch.setattr(spark_ledger, "build", build)
    result = materialize(fleet)
    (failure,) = result.get_step_failure_events()
    message = (
        f"dagster._core.definitions.events.Failure: what is wrong (Spark's own output: {fleet.root / 'spark.log'})"
    )
    assert failure.step_failure_data.error.message.strip() == message
    assert checks(result) == [(fails, False, "ERROR")]
    assert result.get_asset_materialization_events() == []


def test_a_series_whose_value_spark_cannot_take_is_refused_and_spark_builds_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = spark_fleet(tmp_path)
    with closing(database.connect(fleet.warehouse)) as connection:
        create_tables(connection)
        connection.execute(
            "create schema reference; create table reference.label_catalog as select 'sglang' as source_kind,"
            " 'tp_rank' as label, 'tensor_rank' as attribute"
        )
        connection.execute(
            "insert into raw.series (series_id, source_kind, labels) values (1, 'sglang', '{\"tp_rank\":\"tp0\"}')"
        )
    asked = []

    def build(*_: object, forget: object) -> driver.Build:
        with closing(database.connect(fleet.warehouse, read_only=True)) as connection:
            asked.append(connection.execute("select series_id, model, value from raw.refused_series").fetchall())
        raise driver.SparkError(
            "model.wattledger.int_claims: skipped; model.wattledger.stg_series: [CAST_INVALID_INPUT] The value 'tp0' of"
            ' the type "STRING" cannot be cast to "INT" because it is malformed.'
        )

    monkeypatch.setattr(spark_ledger, "build", build)
    result = materialize(fleet)
    assert asked == [[], [(1, "stg_series", "tp0")]]
    (failure,) = result.get_step_failure_events()
    assert "The value 'tp0' of the type" in failure.step_failure_data.error.message


def test_a_build_whose_process_dies_is_an_error_like_others(tmp_path: Path) -> None:
    with pytest.raises(driver.SparkError, match="the process of the build died, exit status 1"):
        spark_ledger.in_a_process(tmp_path / "spark.log", (), {})
    assert "TypeError" in (tmp_path / "spark.log").read_text(encoding="utf-8")


def test_a_failed_model_reports_its_reason() -> None:
    message = (
        "Runtime Error in model int_metered_handovers (models/balance/steps/int_metered_handovers.sql)\n"
        "  An error occurred while calling o48.sql.\n  : java.lang.OutOfMemoryError: Java heap space\n"
    )
    assert driver.reason(message) == "java.lang.OutOfMemoryError: Java heap space"
    assert driver.reason("Got 2 results, configured to fail if != 0") == "Got 2 results, configured to fail if != 0"
    assert driver.reason("Runtime Error in model a (a.sql)\n") == "Runtime Error in model a (a.sql)"


def test_the_lookback_is_the_dbt_projects() -> None:
    """Months that a booked date's lookback reaches are committed again: of as many days as the models read, and of the
    models with that setting."""
    stated = yaml.safe_load((DBT_PROJECT / "dbt_project.yml").read_text(encoding="utf-8"))
    assert stated["vars"]["curve_lookback_days"] == LOOKBACK_DAYS
    assert {
        mart.stem for mart in marts() if "'billing_months_of_lookback'" in mart.read_text(encoding="utf-8")
    } == OF_LOOKBACK
