"""The same dbt models on Apache Spark: raw read from a lake, marts built in a run of their own, then committed at once.

One build is one Spark session with a catalogue in memory, so a mart cannot be read while it is built:

    <lake>/marts/_committed.json                     which folders are the marts; one put of it switches all of them
    <lake>/marts/<run_id>/<mart>/date=<date>/        what one run wrote; a committed folder is never written again
    <lake>/runs/<run_id>/                            seeds, staging and intermediate tables; gone after the run

A run's marts begin as the committed folders of all dates that the run does not book (metadata only, nothing is copied);
dbt appends the run's own dates in new folders. A build that fails or dies leaves the committed file as it was: readers
have the old marts or the new ones, never some of each. Add here what Spark needs. Keep out what a model computes.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from pipelines.fleet.places import DBT_PROJECT
from pipelines.landing.lake import RAW_CONTROL_TABLES, SAMPLE_TABLES
from pipelines.spark.cluster import SparkError, check, master
from pipelines.spark.committed_marts import (
    COPIED,
    LOOKBACK_DAYS,
    MONTHLY,
    OF_LOOKBACK,
    REMADE,
    Committed,
    partition_column,
)
from pipelines.warehouse import findings
from pipelines.warehouse.raw_tables import FLEET_TABLES, RAW_TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The models' integer arithmetic and DuckDB's types, in Spark's words.
SPARK_TYPES = {"varchar": "string", "timestamptz": "timestamp", "bigint": "bigint", "integer": "int"}


@dataclass(frozen=True)
class Run:
    """What a build books: the dates [start, end), into folders of its own."""

    run_id: str
    lake: Path
    start: date
    end: date

    @property
    def marts(self) -> Path:
        """The folder of this run's marts. No other run ever writes there."""
        return self.lake / "marts" / self.run_id

    @property
    def work(self) -> Path:
        """The folder of everything that is removed at the end of the run."""
        return self.lake / "runs" / self.run_id

    def books(self, mart: str, column: str, value: date) -> bool:
        """Whether the run replaces this date or month of a mart; the macro owned_by_run does the same."""
        if column in MONTHLY.values():
            last = self.end + timedelta(days=LOOKBACK_DAYS if mart in OF_LOOKBACK else 0)
            return (self.start - timedelta(days=1)).replace(day=1) <= value <= last.replace(day=1)
        return self.start <= value < self.end


@dataclass(frozen=True)
class Build:
    """What one build did: dbt's results and what its failed tests found, by unique id, and the marts it committed."""

    run_id: str
    statuses: dict[str, str]
    committed: Committed
    rows: dict[str, str] = field(default_factory=dict)


def build(
    lake: Path,
    sample_files: Mapping[str, list[str]],
    control: Path,
    start: date,
    end: date,
    *,
    dbt_vars: Mapping[str, Any],
    project: Path = DBT_PROJECT,
    forget: Collection[str] = (),
) -> Build:
    """Book the dates [start, end) on Spark and commit the marts. The marts to `forget` start without committed rows. A
    date that breaks an invariant keeps its rows of the last commit.

    `sample_files` are the live Parquet files of raw.power_samples and raw.token_samples, `control` the folder that
    holds every other raw and fleet table as `<schema>.<table>.parquet`. One build of a lake at a time. SparkError when
    anything is missing, fails, or another build holds the lake.
    """
    run = Run(uuid.uuid4().hex, lake.resolve(), start, end)
    check(run.lake)
    from pyspark.errors import PySparkException  # noqa: PLC0415 (an optional group)

    with one_at_a_time(run.lake):
        before = Committed.of(run.lake)
        _forget_uncommitted(run.lake, before)
        before = replace(before, columns={m: c for m, c in before.columns.items() if m not in forget})
        run.work.mkdir(parents=True)
        try:
            with session(run.work) as spark:
                register(spark, sample_files, control)
                prepare_marts(spark, run, before)
                statuses, rows = run_dbt(["build", "--exclude-resource-type", "unit_test"], run, dbt_vars, project)
                made = _made(spark, run, before)
            made.put(run.lake)
        except PySparkException as failure:
            raise SparkError(f"Spark failed: {failure}") from failure
        finally:
            shutil.rmtree(run.work, ignore_errors=True)
    return Build(run.run_id, statuses, made, rows)


@contextmanager
def one_at_a_time(lake: Path) -> Iterator[None]:
    """Hold the lake for one build; SparkError when another one has it."""
    lock = FileLock(lake / "runs" / "build.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout as held:
        raise SparkError(f"another build holds the lake {lake}") from held
    try:
        yield
    finally:
        lock.release()


# --- the session and its tables ---------------------------------------------------------------------------------------


@contextmanager
def session(work: Path) -> Iterator[SparkSession]:
    """A Spark session on `master()`, with its catalogue in memory and its own tables in `work`.

    Anything else (memory, credentials of an object store) comes from Spark's own SPARK_CONF_DIR/spark-defaults.conf.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415 (an optional group)

    settings = {
        "spark.app.name": f"wattledger {work.name}",
        "spark.sql.catalogImplementation": "in-memory",
        # Samples are a list of live files, which only a view can be; so schema raw is where Spark keeps global views.
        "spark.sql.globalTempDatabase": "raw",
        "spark.sql.warehouse.dir": _uri(work),
        "spark.sql.session.timeZone": "UTC",
        # As instants in microseconds, which DuckDB reads as TIMESTAMPTZ; Spark's own default is INT96.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        # A difference keeps its terms' digits, as in DuckDB. By default Spark cuts a decimal that may need more than 38
        # digits: a sum of dollars less one of its terms lost the twelfth decimal place.
        "spark.sql.decimalOperations.allowPrecisionLoss": "false",
        # It follows every alias and case, for joins to infer filters from: a third of the planning of large models.
        "spark.sql.constraintPropagation.enabled": "false",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": os.environ.get("WATTLEDGER_SPARK_SHUFFLE_PARTITIONS", "4"),
    }
    builder = SparkSession.builder.master(master())
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        spark = builder.getOrCreate()
    except Exception as refusal:
        raise SparkError(f"no Spark session on {master()}: {refusal}") from refusal
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


def register(spark: SparkSession, sample_files: Mapping[str, list[str]], control: Path) -> None:
    """Make raw.* and fleet.* readable in this session."""
    for table in SAMPLE_TABLES:
        frame = _parquet(spark, RAW_TABLES[table], sample_files[table])
        frame.createOrReplaceGlobalTempView(table)
    for table in RAW_CONTROL_TABLES:
        _parquet(spark, RAW_TABLES[table], [control / f"raw.{table}.parquet"]).createOrReplaceGlobalTempView(table)
    spark.sql("create database if not exists fleet")
    for table, columns in FLEET_TABLES.items():
        location = _uri((control / f"fleet.{table}.parquet").resolve())
        spark.sql(f"create table fleet.{table} ({_spark_columns(columns)}) using parquet options (path '{location}')")


def _parquet(spark: SparkSession, columns: str, paths: list[Any]) -> DataFrame:
    schema = _spark_columns(columns)
    return spark.read.schema(schema).parquet(*map(str, paths)) if paths else spark.createDataFrame([], schema)


def _spark_columns(columns: str) -> str:
    pairs = (column.split() for column in columns.split(","))
    return ", ".join(f"{name} {SPARK_TYPES.get(kind, kind)}" for name, kind in pairs)


def prepare_marts(spark: SparkSession, run: Run, before: Committed) -> None:
    """Tables marts.* of this run: the committed folders of everything that the run does not book."""
    spark.sql("create database if not exists marts")
    spark.sql("create database if not exists last_committed")
    for mart, columns in before.columns.items():
        column = partition_column(mart)
        listed = ", ".join(f"`{name}` {kind}" for name, kind in columns)
        cut = f"partitioned by ({column})" if column else ""
        spark.sql(f"create table marts.{mart} ({listed}) using parquet {cut} location '{_uri(run.marts / mart)}'")
        if mart in REMADE:
            continue
        if column is None:
            names = ", ".join(f"`{name}`" for name, _ in columns)
            start, end = (f"timestamp '{at} 00:00:00+00:00'" for at in (run.start, run.end))
            held = _uri(run.lake / before.folders[mart][""])
            spark.sql(
                f"insert into marts.{mart} select {names} from parquet.`{held}`"
                f" where not (start_at < {end} and end_at > {start})"
            )
            continue
        kept = [
            f"partition ({column} = date '{value}') location '{_uri(run.lake / folder)}'"
            for value, folder in before.folders[mart].items()
            if not run.books(mart, column, date.fromisoformat(value))
        ]
        if kept:
            spark.sql(f"alter table marts.{mart} add {' '.join(kept)}")
        if column == "date":
            _register_last(spark, run, before, mart, listed)


def _register_last(spark: SparkSession, run: Run, before: Committed, mart: str, listed: str) -> None:
    """Register the committed rows of the run's own dates as last_committed.<mart>: dates held back keep them."""
    spark.sql(
        f"create table last_committed.{mart} ({listed}) using parquet partitioned by (date)"
        f" location '{_uri(run.work / 'last_committed' / mart)}'"
    )
    held = [
        f"partition (date = date '{value}') location '{_uri(run.lake / folder)}'"
        for value, folder in before.folders[mart].items()
        if run.books(mart, "date", date.fromisoformat(value))
    ]
    if held:
        spark.sql(f"alter table last_committed.{mart} add {' '.join(held)}")


def _uri(path: Path) -> str:
    """An absolute path as Spark takes it, unescaped: `as_uri` escapes =, and a kept date would read as empty."""
    return f"file://{path}"


def _made(spark: SparkSession, run: Run, before: Committed) -> Committed:
    columns, folders = {}, {}
    held_back = {row[0] for row in spark.sql("select distinct table_name from marts.held_back_tables").collect()}
    # Beside the marts, Spark lists the session's own views of what dbt appended.
    for (mart,) in sorted(spark.sql("show tables in marts").where("not isTemporary").select("tableName").collect()):
        if mart in held_back:  # keeps the committed folders, if there are any
            if mart in before.columns:
                columns[mart], folders[mart] = before.columns[mart], before.folders[mart]
            continue
        columns[mart] = [(f.name, f.dataType.simpleString()) for f in spark.table(f"marts.{mart}").schema.fields]
        column, own = partition_column(mart), f"marts/{run.run_id}/{mart}"
        if column is None:
            folders[mart] = {"": own}
            continue
        # A date of the run without rows has no folder; the catalogue names those that the run kept and wrote.
        values = sorted(row[0].partition("=")[2] for row in spark.sql(f"show partitions marts.{mart}").collect())
        folders[mart] = {
            value: f"{own}/{column}={value}"
            if run.books(mart, column, date.fromisoformat(value))
            else before.folders[mart][value]
            for value in values
        }
    return Committed(run.run_id, columns, folders)


def _forget_uncommitted(lake: Path, committed: Committed) -> None:
    """Remove what crashed runs left and what the last commit replaced: its readers have had until now to finish."""
    used = {folder for mart in committed.folders.values() for folder in mart.values()}
    for run in (lake / "marts").iterdir():
        if run.is_dir():
            for folder in [*run.glob("*/*=*"), *(run / mart for mart in COPIED | REMADE)]:
                if folder.relative_to(lake).as_posix() not in used:
                    shutil.rmtree(folder, ignore_errors=True)
            if not any(name.startswith(f"marts/{run.name}/") for name in used):
                shutil.rmtree(run, ignore_errors=True)
    for run in (lake / "runs").iterdir():
        if run.is_dir():
            shutil.rmtree(run, ignore_errors=True)


# --- dbt --------------------------------------------------------------------------------------------------------------


def run_dbt(
    arguments: list[str], run: Run, dbt_vars: Mapping[str, Any], project: Path = DBT_PROJECT
) -> tuple[dict[str, str], dict[str, str]]:
    """Run dbt in this process, on the session that is open; the status of every node, and the rows of data tests that
    did not pass. SparkError unless all is well."""
    from dbt.artifacts.schemas.results import NodeResult  # noqa: PLC0415 (an optional group needs dbt in this process)
    from dbt.artifacts.schemas.run import RunExecutionResult  # noqa: PLC0415
    from dbt.cli.main import dbtRunner  # noqa: PLC0415

    dates = {"start_date": run.start.isoformat(), "end_date": run.end.isoformat()}
    variables = {
        "WATTLEDGER_SPARK_MARTS": _uri(run.marts),
        "WATTLEDGER_SPARK_HELD_BACK": _uri(run.lake / "held_back"),
    }
    scratch = run.work / "dbt"
    folders = ["--project-dir", project, "--profiles-dir", project, "--target-path", scratch]
    common = ["--target", "spark", "--log-path", scratch, "--quiet", "--vars", json.dumps({**dbt_vars, **dates})]
    before = {name: os.environ.get(name) for name in variables}
    _set(variables)
    try:
        done = dbtRunner().invoke([*arguments, *map(str, folders), *map(str, common)])
    finally:
        _set(before)
    if done.exception is not None or not isinstance(done.result, RunExecutionResult):
        raise SparkError(f"dbt did not run on Spark: {done.exception}") from done.exception
    results: Sequence[NodeResult] = done.result.results
    statuses = {result.node.unique_id: str(result.status) for result in results}
    if not done.success:
        wrong = [r for r in results if str(r.status) in ("error", "fail", "runtime error")]
        raise SparkError("; ".join(f"{r.node.unique_id}: {reason(r.message or '')}" for r in wrong[:5]), statuses)
    warned = [result.node for result in results if str(result.status) == "warn"]
    return statuses, {node.unique_id: _rows(node) for node in warned}


def reason(message: str) -> str:
    """A failed node's message in one line: for a runtime error its reason, not only the model's name."""
    lines = [line.strip().removeprefix(": ") for line in message.splitlines()]
    reasons = [
        line for line in lines if line and not line.startswith(("Runtime Error in ", "An error occurred while "))
    ]
    return reasons[0] if reasons else message.strip()


def _rows(test: Any) -> str:
    """The rows that a data test found, as a report of `findings`."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 (an optional group)

    session = SparkSession.getActiveSession()
    if session is None:
        raise SparkError("the Spark session has ended")
    found = session.sql(test.compiled_code)
    names, total = found.columns, found.count()
    lines = [findings.row(names, row) for row in found.orderBy(*names).limit(findings.SHOWN).collect()]
    return findings.report(lines, total, test.config.meta.get("expected", ""), test.config.meta.get("remedy", ""))


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        os.environ.pop(name, None) if value is None else os.environ.update({name: value})
