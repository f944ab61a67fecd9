"""Books that tests make and read: real telemetry through the real landing, dbt project and command line.

Add here a way to give a fleet or to book it. Keep out assertions, and every figure that a book should show. `command`
is what a user types (about 20 s of one core, most of it Dagster and dbt starting); a `Book` does the same to a folder
of its own by the plain functions behind the assets, so that a test can land and book dozens of times.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from collectors.collector import Collector
from collectors.samples import Window
from collectors.series import SeriesRegister
from collectors.synthetic.generator import SyntheticCollector
from pipelines.advice import (
    advice_score,
    consolidation_table,
    cost_forecasts,
    efficiency_fits,
    empty_tables,
    right_sizing_table,
    sleep_table,
)
from pipelines.booking import invariants, project
from pipelines.booking.dbt_run import run_dbt
from pipelines.booking.project import prepared_project
from pipelines.fleet import catalog
from pipelines.fleet.fleet_file import Fleet, load_fleet
from pipelines.fleet.places import DBT_PROJECT, DEFAULT_FLEET, PROJECT
from pipelines.landing import (
    benchmark_landing,
    bill_landing,
    fleet_landing,
    grid_landing,
    landing_days,
    price_landing,
    request_landing,
)
from pipelines.landing.telemetry_landing import Landing
from pipelines.warehouse import advice_history, closings, database, due_dates
from pipelines.warehouse.raw_tables import create_tables
from tests import commands, metered, opened, optional, templates
from tests.kept import kept
from tests.mutants.listed import mutants
from tests.replay import replay

templates.compile_once()

# Of one run of the command line: a machine that is full takes ten times as long as one that is not.
LIMIT_SECONDS = 1500
NOW = datetime(2026, 11, 20, tzinfo=UTC)  # every day of the demo is over


def on(month_day: str) -> date:
    """The date of `10-17` in the demo's year."""
    return date.fromisoformat(f"2026-{month_day}")


def at(month_day_time: str) -> datetime:
    """The time of `10-17 23:41` in the demo's year, UTC."""
    return datetime.fromisoformat(f"2026-{month_day_time}+00:00")


def day(of: date) -> Window:
    """The UTC day of a date."""
    start_at = datetime.combine(of, time(), UTC)
    return Window(start_at, start_at + timedelta(days=1))


def validation_data() -> Path:
    """The folder of real recordings."""
    (folder,) = optional.required("validation-data")
    return folder


# --- what is given ----------------------------------------------------------------------------------------------------


def demo_fleet(folder: Path, start: date, end: date, **changes: object) -> Path:
    """A fleet file in `folder`: the bundled demo with another period, and with whole keys replaced by `changes`."""
    contents = yaml.safe_load(DEFAULT_FLEET.read_text(encoding="utf-8"))
    contents |= {"period": {"start": start, "end": end}, "run_windows": {}, "bills": {}, "budgets": [], **changes}
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "fleet.yaml"
    path.write_text(yaml.safe_dump(contents, sort_keys=False), encoding="utf-8")
    return path


def files_source(name: str, pattern: str, **more: object) -> dict[str, object]:
    """A source of the fleet file that reads what `record` wrote."""
    file = {"path": pattern, "time": "observed_at", "metric": "metric", "labels_json": "labels", "value": "value"}
    return {"name": name, "kind": "files", "interval_seconds": 60, "site": "west", "files": [file], **more}


def recorded(window: Window, keep: Callable[[Mapping[str, str]], bool] = lambda labels: True) -> pa.Table:
    """What the demo's exporters reported in the window: metric, labels (JSON), observed_at, value; time by time.

    `keep` is asked with the labels of each series.
    """
    return collected(SyntheticCollector("synthetic"), window, keep)


def collected(
    collector: Collector, window: Window, keep: Callable[[Mapping[str, str]], bool] = lambda labels: True
) -> pa.Table:
    """The samples of a collector as a table of metric, labels (JSON), observed_at, value."""
    register = SeriesRegister(collector.source, window)
    batches = [samples for _, samples in collector.collect(window, catalog.families(), register)]
    series = register.series_table().select(["series_id", "metric", "labels"])
    kept = series.filter(pa.array([keep(json.loads(labels)) for labels in series["labels"].to_pylist()], pa.bool_()))
    samples = pa.Table.from_batches(batches).join(kept, "series_id", join_type="inner")
    return samples.select(["metric", "labels", "observed_at", "value"]).sort_by(
        [("metric", "ascending"), ("labels", "ascending"), ("observed_at", "ascending")]
    )


def record(samples: pa.Table, folder: Path, name: str = "samples") -> None:
    """Write samples as Parquet, for a files source."""
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(samples, folder / f"{name}.parquet")


# --- what is done with it ---------------------------------------------------------------------------------------------


def environment(data: Path, **more: str) -> dict[str, str]:
    """This process's environment with a data folder of its own, and nothing of another run's."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("WATTLEDGER_", "DAGSTER_"))}
    validation = os.environ.get("WATTLEDGER_VALIDATION_DATA", str(PROJECT / "../shared/data"))
    # A worker of xdist has one core: on a small fleet a second thread costs half as much again, and saves nothing.
    ours = {"WATTLEDGER_VALIDATION_DATA": validation, "WATTLEDGER_DATA": str(data), "WATTLEDGER_THREADS": "1"}
    return {**kept, **ours, **more}


def arguments(fleet: Path, *options: object) -> list[str]:
    """`wattledger run --fleet …` as a list."""
    return [sys.executable, "-m", "pipelines", "run", "--fleet", str(fleet), *map(str, options)]


def command(fleet: Path, data: Path, *options: object, **more: str) -> subprocess.CompletedProcess[str]:
    """Run the ledger as a user does, with packages that are loaded already. The caller checks the status and both
    outputs."""
    words, surroundings = arguments(fleet, *options), environment(data, **more)
    if "TZ" in more:  # which Python and packages read as they load
        metered.counts["commands"] += 1
        return subprocess.run(
            words, env=surroundings, cwd=PROJECT, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
        )
    # dbt parses here: in a forked process it was once seen to wait for ever, for a thread that is not in a fork.
    prepared_project()
    return commands.run(words[words.index("pipelines") + 1 :], surroundings, timeout=LIMIT_SECONDS)


def later_command(fleet: Path, data: Path, *options: object, **more: str) -> subprocess.CompletedProcess[str]:
    """`command` for a warehouse that has all tables: creating them in a first run takes as long as booking a day."""
    Book.of(fleet, data).start_empty()
    return command(fleet, data, *options, **more)


# Who used which joules and tokens, and the balances: two fifths of the models, for tests that book a fleet many times.
LEDGER = (
    "energy_ledger",
    "token_ledger",
    "model_hourly",
    "reconciliation_daily",
    "token_reconciliation_daily",
    "series_daily",
)

# What dbt keeps of a parsed project, in its folder `target`.
PARSED = "partial_parse.msgpack"


@dataclass(frozen=True)
class Book:
    """A fleet's warehouse in a folder of its own, and the dbt project that books it.

    With `marts` only these are made, with what they read, and no advice: most tests read two or three of all, and the
    core of the ledger is a third of the models.
    """

    fleet: Fleet
    project: Path = DBT_PROJECT
    marts: tuple[str, ...] = ()

    @classmethod
    def of(cls, fleet: Path, data: Path, project: Path = DBT_PROJECT, marts: tuple[str, ...] = ()) -> Book:
        """The book of a fleet file with its data under `data`; made by `run`, or by `command`."""
        return cls(load_fleet(fleet, environment(data)), project, marts)

    def run(self, start: date | None = None, end: date | None = None, *, threads: int = 1) -> tuple[date, date]:
        """Land and book the dates [start, end), by default the whole period; returns the dates that were booked."""
        start, end = start or self.fleet.period.start, end or self.fleet.period.end
        if self.project == DBT_PROJECT and not self.fleet.warehouse.exists():
            self.start_empty()
        self.land(start, end, threads=threads)
        return self.write(start, end, threads=threads)

    def start_empty(self) -> None:
        """All tables without a row, of today's code: also for a project of the same tables that a test broke. A
        warehouse that is there stays."""
        self.fleet.root.mkdir(parents=True, exist_ok=True)
        if not self.fleet.warehouse.exists():
            shutil.copyfile(empty_warehouse(), self.fleet.warehouse)

    def land(self, start: date, end: date, *, threads: int = 1, force: bool = False) -> list[Landing]:
        """Land the dates [start, end) and the fleet file's own tables."""
        with _threads(threads), self.connection() as connection:
            create_tables(connection)
            fleet_landing.write_fleet(connection, self.fleet)
            grid_landing.land_grid(connection, self.fleet, start, end, run_id="test", force=force)
            price_landing.land_prices(connection, self.fleet.prices.files)
            for source in self.fleet.requests:
                request_landing.land(connection, source.collector(), start, end, run_id="test", force=force)
            fleet_landing.write_run_windows(connection, self.fleet)
            benchmark_landing.write_benchmark_results(connection, self.fleet)
            bill_landing.write_bills(connection, self.fleet)
            return landing_days.land_days(connection, self.fleet, start, end, run_id="test", force=force, now=NOW)

    def write(self, start: date, end: date, *, threads: int = 1) -> tuple[date, date]:
        """Book what is landed of the dates [start, end) and what else is due; returns the dates that were booked."""
        metered.counts["bookings"] += 1
        with self.connection() as connection:
            first, last = due_dates.dates_to_book(connection, start, end)
            is_seeded = connection.execute(
                "select count(*) from duckdb_tables() where schema_name = 'reference'"
            ).fetchall() != [(0,)]
        if not is_seeded:
            self.dbt("seed", threads=threads)
        self._make(first, last, threads)
        with self.connection() as connection:
            if not self.marts:
                efficiency_fits.write_fits(connection)
                cost_forecasts.write_forecasts(connection)
                right_sizing_table.write_right_sizing(connection)
                consolidation_table.write_consolidation(connection)
                advice_score.write_score(connection)
                sleep_table.write_sleep_after(connection)
            due_dates.booked(connection, first, last)
        return first, last

    def _make(self, first: date, last: date, threads: int) -> None:
        """Make the models as dbt does; without dbt where every table is there, and only the rows are to be made."""
        if not self._is_replayed():
            self.dbt("run", *self._selection(), dates=(first, last), threads=threads)
            return
        variables = self._variables(first, last)
        names = {key.rpartition(".")[2] for key in self._booked()} if self.marts else set[str]()
        with _threads(threads), self.connection() as connection:
            left = replay(connection, variables, names, empty_warehouse())
        if left:
            self.dbt("run", "--select", *left, dates=(first, last), threads=threads)

    def _variables(self, first: date, last: date) -> dict[str, Any]:
        """dbt's vars for booking the dates [first, last) of what has landed."""
        unasked: list[date] = []
        if self.fleet.warehouse.exists():
            with self.connection(read_only=True) as connection:
                if "landings" in database.tables(connection, "raw"):
                    unasked = due_dates.unasked(connection, first, last)
        return project.variables_of(self.fleet, first, last, unasked=unasked)

    def _is_replayed(self) -> bool:
        if self.project != DBT_PROJECT:
            return False
        with self.connection(read_only=True) as connection:
            return database.tables(connection, "marts") >= _empty_marts()

    def dbt(
        self, *words: str, dates: tuple[date, date] | None = None, threads: int = 1, is_expected: bool = True
    ) -> list[Any]:
        """Run dbt on this book; returns its result of each node."""
        if self.project == DBT_PROJECT:
            prepared_project()  # one parse for all worker processes; the others only read
        variables = self._variables(*(dates or (self.fleet.period.start, self.fleet.period.end)))
        surroundings = {**project.environment_of(self.fleet), "WATTLEDGER_THREADS": str(threads)}
        results = run_dbt(words, variables, surroundings, self.fleet.root / "dbt", project=self.project)
        wrong = [f"{one.node.name}: {one.message}" for one in results if one.status not in ("success", "pass", "warn")]
        if is_expected and wrong:
            raise AssertionError(f"dbt {' '.join(words)} failed: {'; '.join(wrong)}")
        return results

    def failed_tests(self, *names: str) -> set[str]:
        """The names of the invariants that do not hold of what was booked last, and of the data tests that fail; with
        `names`, those of them."""
        data_tests, rules = (
            self._answered({path.stem for path in DBT_PROJECT.glob(pattern)})
            for pattern in ("tests/*.sql", "models/balance/invariants/*.sql")
        )
        if unknown := set(names) - data_tests - rules:
            listed = ", ".join(sorted(unknown))
            raise AssertionError(f"no data test or invariant of {self.marts or 'all marts'}: {listed}")
        failed = set(self.broken()) if not names or rules.intersection(names) else set()
        if chosen := data_tests.intersection(names or data_tests):
            results = self.dbt("test", "--select", *sorted(chosen), is_expected=False)
            failed |= {one.node.name for one in results if one.status != "pass"}
        return failed & set(names) if names else failed

    def broken(self, dates: tuple[date, date] | None = None) -> dict[str, list[invariants.Broken]]:
        """The rows that break an invariant, by its name: what is held back; of a part of the marts, what would be of
        these dates, by default the period's."""
        if not self.marts or "held_back_dates" in self.marts:
            with self.connection(read_only=True) as connection:
                return invariants.broken(connection, "")
        rules = self._answered({path.stem for path in DBT_PROJECT.glob("models/balance/invariants/*.sql")})
        compiled = {
            one.node.name: one.node.compiled_code
            for one in self.dbt("compile", "--select", *sorted(rules), dates=dates)
        }
        found = {
            name: self.query(
                "select cast(date as varchar), table_name, row_key, found, unit, expected, '' as remedy,"
                f" count(*) over () from ({compiled[name]}) as broken order by all"
            )
            for name in sorted(rules)
        }
        return {name: [invariants.Broken(*row) for row in rows] for name, rows in found.items() if rows}

    def _answered(self, names: set[str]) -> set[str]:
        """Those of these data tests and invariants whose every model is booked: of a part of the marts, the others read
        tables without rows, and would hold whatever the book has."""
        if not self.marts:
            return names
        nodes, parents = _graph()
        booked = self._booked()

        def is_booked(key: str) -> bool:
            if nodes.get(key, {}).get("config", {}).get("materialized") == "ephemeral":
                return all(map(is_booked, parents[key]))
            return key in booked or not key.startswith("model.")

        found = {node["name"]: key for key, node in nodes.items() if node["name"] in names}
        return {name for name in names if all(map(is_booked, parents[found[name]]))}

    def _booked(self) -> set[str]:
        """The keys of the nodes that `marts` are made of."""
        _, parents = _graph()
        booked, reached = set[str](), [f"model.wattledger.{mart}" for mart in self.marts]
        while reached:
            if (key := reached.pop()) not in booked:
                booked.add(key)
                reached += parents.get(key, [])
        return booked

    # --- what is found ------------------------------------------------------------------------------------------------

    @contextmanager
    def connection(self, read_only: bool = False) -> Iterator[duckdb.DuckDBPyConnection]:
        """The warehouse, closed afterwards."""
        self.fleet.root.mkdir(parents=True, exist_ok=True)
        with closing(database.connect(self.fleet.warehouse, read_only)) as connection:
            yield connection

    def query(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple]:
        """Rows of the warehouse."""
        return opened.rows(self.fleet.warehouse, sql, list(parameters))

    def hashes(self, where: str = "true") -> dict[str, tuple]:
        """Mart -> (rows, hash of its rows in whatever order)."""
        with self.connection(read_only=True) as connection:
            marts = connection.execute(
                "select table_name from duckdb_tables() where schema_name = 'marts' order by 1"
            ).fetchall()
            return {
                mart: connection.execute(
                    f"select count(*), bit_xor(hash(t)), sum(cast(hash(t) as hugeint)) from marts.{mart} as t"
                    f" where {where}"
                ).fetchall()[0]
                for (mart,) in marts
            }

    def copy(self, data: Path, project: Path | None = None, *, is_published: bool = True) -> Book:
        """The same warehouse, and what is published of it, in another folder, to be broken."""
        root = data / self.fleet.fleet
        root.mkdir(parents=True)
        shutil.copyfile(self.fleet.warehouse, root / "warehouse.duckdb")
        if is_published and self.fleet.published.exists():
            shutil.copytree(self.fleet.published, root / "published", symlinks=True)
        return replace(self, fleet=self.fleet.model_copy(update={"root": root}), project=project or self.project)

    def _selection(self) -> list[str]:
        return ["--select", *(f"+{mart}" for mart in self.marts)] if self.marts else []


def create_read(connection: duckdb.DuckDBPyConnection) -> None:
    """The tables that models read and that no model makes, empty."""
    empty_tables.create(connection)
    closings.create(connection)
    advice_history.create(connection)


@cache
def empty_warehouse() -> Path:
    """A warehouse of dbt's seeds and of all marts without a row, with which each new book begins: creating the tables
    and proving their contracts is longer than a book, and is done once for each state of the code."""
    return kept("empty", _make_empty) / "warehouse.duckdb"


def _make_empty(folder: Path) -> None:
    path = folder / "warehouse.duckdb"
    with closing(database.connect(path)) as connection:
        create_tables(connection)
        create_read(connection)
    prepared_project()  # one parse for all worker processes; the others only read
    for word in ("seed", "run"):
        done = run_dbt([word], {}, {"WATTLEDGER_WAREHOUSE": str(path)}, folder)
        wrong = [f"{one.node.name}: {one.message}" for one in done if one.status != "success"]
        if wrong:
            raise AssertionError(f"dbt {word} failed on empty tables: {'; '.join(wrong)}")


@cache
def _empty_marts() -> set[str]:
    with closing(database.connect(empty_warehouse(), read_only=True)) as connection:
        return database.tables(connection, "marts")


@cache
def advice_models() -> dict[str, str]:
    """Name -> SQL of the models of advice, in order; in a warehouse that is called `warehouse`."""
    return compiled_models("tag:advice")


def compiled_models(selection: str, project: Path = DBT_PROJECT) -> dict[str, str]:
    """Name -> compiled SQL of the models of a selection, in order, without the ephemeral ones; in a warehouse that is
    called `warehouse`."""
    if project == DBT_PROJECT:
        prepared_project()
    with tempfile.TemporaryDirectory() as folder:
        surroundings = {"WATTLEDGER_WAREHOUSE": f"{folder}/warehouse.duckdb"}
        results = run_dbt(["compile", "--select", selection], {}, surroundings, Path(folder), project=project)
    nodes = [one.node for one in results if one.node.config.materialized != "ephemeral"]
    return {f"{node.schema}.{node.name}": node.compiled_code for node in nodes}


def create_advice_models(connection: duckdb.DuckDBPyConnection, *names: str) -> None:
    """The models of advice as views over marts that a test wrote by hand; with `names`, those alone."""
    for name, sql in advice_models().items():
        if not names or name in names:
            connection.execute(f"create schema if not exists {name.partition('.')[0]}")
            connection.execute(f"create view {name} as {sql}")


def broken_project(folder: Path, file: str = "", right: str = "", wrong: str = "", *, mutant: str = "") -> Path:
    """A copy of the dbt project in which `right` (once, in `file`) became `wrong`; with `mutant`, as the mutant of this
    name has them (tests/mutants/mutants.yaml)."""
    project = folder / "dbt_project"
    shutil.copytree(DBT_PROJECT, project, ignore=shutil.ignore_patterns("target", "logs"))
    if mutant:
        mutants()[mutant].apply(folder)
    else:
        text = (project / file).read_text(encoding="utf-8")
        if text.count(right) != 1:
            raise AssertionError(f"{file} holds {text.count(right)} times, expected once: {right}")
        (project / file).write_text(text.replace(right, wrong), encoding="utf-8")
    # Of the parsed project dbt then reads only the changed file anew: half a second instead of five.
    prepared_project()
    (project / "target").mkdir()
    shutil.copyfile(DBT_PROJECT / "target" / PARSED, project / "target" / PARSED)
    return project


@cache
def _graph() -> tuple[dict[str, Any], dict[str, list[str]]]:
    """The nodes of the dbt project, and what each reads."""
    manifest = json.loads(prepared_project().manifest_path.read_text(encoding="utf-8"))
    return manifest["nodes"], manifest["parent_map"]


@contextmanager
def _environ(**variables: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _threads(threads: int) -> Any:
    return _environ(WATTLEDGER_THREADS=str(threads))
