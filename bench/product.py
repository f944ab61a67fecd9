"""The product as its users run it: `wattledger run` on a fleet file that names the generated Parquet.

Add a leg here that runs the whole job. Keep out shortcuts: the job is measured from its start to its publication.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import duckdb
import pyarrow.parquet as pq

from bench import children
from bench.children import Cost
from bench.fleet_day import FIRST_DAY, INTERVAL_SECONDS
from collectors.devices.spool_collector import SPOOL_SCHEMA

STREAMS = ("power", "tokens")
# Steps of the job (the end of Dagster's step key) and what the table calls them.
STEPS = {"telemetry": "land", "seeds": "seeds", "ledger": "models", "publication": "publish"}


# The models of series_daily have a line of their own: the book does not need them.
SERIES_MODELS = ("int_series_amounts", "series_daily")
# dbt's log has the seconds of each model then.
LOGGED = {"DBT_LOG_LEVEL_FILE": "info", "DBT_LOG_FORMAT_FILE": "json"}


class Step(NamedTuple):
    """One step of Dagster's: its key, what the table calls it, when it began and ended (Unix seconds)."""

    key: str
    name: str
    start: float
    end: float


class Stretch(NamedTuple):
    """One of the job's runs in Dagster: its first and last date, when it began and ended (Unix seconds), its steps."""

    first: str
    last: str
    start: float
    end: float
    steps: tuple[Step, ...]


class Job(NamedTuple):
    """One run of the job: its cost, its runs in Dagster, seconds per step of STEPS and of the checks, processor seconds
    of its landing (None where there is no /proc), seconds of SERIES_MODELS, rows landed, joules booked."""

    cost: Cost
    stretches: tuple[Stretch, ...]
    steps: dict[str, float]
    land_cpu_seconds: float | None
    series_seconds: float
    rows: int
    energy_joules: float

    @property
    def other_cpu_seconds(self) -> float | None:
        """Processor seconds of everything but the landing: the whole process, its start included."""
        return None if self.land_cpu_seconds is None else self.cost.cpu_seconds - self.land_cpu_seconds


class Fleet:
    """A fleet whose samples are under `files`, as `bench.fleet_day` writes them; its data is next to its fleet file."""

    def __init__(
        self,
        folder: Path,
        name: str,
        files: str,
        days: int = 1,
        *,
        start: date = FIRST_DAY,
        streams: Sequence[str] = ("power",),
        landing: str = "{target: duckdb}",
        interval_seconds: int = INTERVAL_SECONDS,
        time_zone: str = "America/Los_Angeles",
        more: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.data = folder / f"data-{name}"
        self.path = folder / f"{name}.yaml"
        sources = [
            f"  - {{name: {stream}, kind: files, interval_seconds: {interval_seconds}, site: west, files: ["
            f"{{path: {files}/{stream}/host=*/date=*/*.parquet,"
            " time: observed_at, metric: metric, labels_json: labels, value: value}]}"
            for stream in streams
        ]
        lines = [
            f"fleet: {name}",
            "synthetic: true",
            f"period: {{start: {start}, end: {start + timedelta(days)}}}",
            f"landing: {landing}",
            "sources:",
            *sources,
            "sites:",
            f"  - {{name: west, zone: US-CAL-CISO, time_zone: {time_zone}, pue: 1.2,",
            "     tariff: [{usd_per_kwh: 0.12, local_hours: [0, 24], valid_from: 2020-01-01}]}",
            *more,
        ]
        self.path.write_text("\n".join(lines) + "\n", encoding="utf-8")

    @property
    def environment(self) -> dict[str, str]:
        """The environment variable that names the fleet's data folder, for every command on the fleet."""
        return {"WATTLEDGER_DATA": str(self.data), "DAGSTER_HOME": str(self.home)}

    @property
    def home(self) -> Path:
        """The fleet's own Dagster instance."""
        return self.data / self.name / ".dagster"

    @property
    def warehouse(self) -> Path:
        """The DuckDB file that the job writes."""
        return self.data / self.name / "warehouse.duckdb"

    @property
    def published(self) -> Path:
        """The DuckDB file of the newest publication."""
        return self.data / self.name / "published" / "wattledger.duckdb"

    def run(self, start: date = FIRST_DAY, days: int = 1, variables: Mapping[str, str] | None = None) -> Job:
        """Run the job of these dates, with `variables` in its environment. RuntimeError when it, or one of its checks,
        fails, with its last lines."""
        span = ("--start", start, "--end", start + timedelta(days))
        began = datetime.now(UTC)
        cost, _ = children.run(
            "pipelines",
            "run",
            "--fleet",
            self.path,
            *span,
            variables={**self.environment, **LOGGED, **(variables or {})},
        )
        stretches = _stretches_of(self.home, began)
        steps = [step for one in stretches for step in one.steps]
        seconds = dict.fromkeys((*STEPS.values(), "checks", "other"), 0.0)
        for step in steps:
            seconds[step.name] += step.end - step.start
        land = [cost.cpu_between(step.start, step.end) for step in steps if step.name == "land"]
        land_cpu = None if None in land else sum(land)
        return Job(cost, stretches, seconds, land_cpu, self._series_seconds(), *self._held(start, days))

    def _series_seconds(self) -> float:
        """What dbt took for SERIES_MODELS in the newest run; where its threads work side by side, at most."""
        lines = (self.data / self.name / "dbt" / "dbt.log").read_text(encoding="utf-8").splitlines()
        done = [json.loads(line)["data"] for line in lines if '"LogModelResult"' in line]
        took = {one["node_info"]["node_name"]: one["execution_time"] for one in done}  # the newest run's come last
        return sum(took.get(name, 0.0) for name in SERIES_MODELS)

    def _held(self, start: date, days: int) -> tuple[int, float]:
        with duckdb.connect(str(self.warehouse), read_only=True) as connection:
            connection.execute("set TimeZone = 'UTC'")
            span = [start, start + timedelta(days)]
            landed, booked = (
                connection.execute(query, span).fetchall()[0][0]
                for query in (
                    "select sum(samples) from raw.series_chunks where chunk_start_at >= ? and chunk_start_at < ?",
                    "select sum(energy_joules) from marts.energy_ledger where date >= ? and date < ?",
                )
            )
        return int(landed or 0), float(booked or 0)


def write_empty(files: Path) -> None:
    """Files as `bench.fleet_day` leaves them, without a row."""
    for stream in STREAMS:
        folder = files / stream / "host=bench" / f"date={FIRST_DAY}"
        folder.mkdir(parents=True)
        pq.write_table(SPOOL_SCHEMA.empty_table(), folder / "bench-00000.parquet")


def _stretches_of(home: Path, since: datetime) -> tuple[Stretch, ...]:
    """Dagster's runs that were created since then, in order, from its own events."""
    import dagster as dg  # noqa: PLC0415 (a second that the other legs need not wait for)

    with dg.DagsterInstance.from_config(str(home)) as instance:
        records = instance.get_run_records(dg.RunsFilter(created_after=since), ascending=True)
        return tuple(
            Stretch(
                record.dagster_run.tags["dagster/asset_partition_range_start"],
                record.dagster_run.tags["dagster/asset_partition_range_end"],
                record.start_time or 0.0,
                record.end_time or 0.0,
                tuple(
                    Step(step.step_key, _step_name(step.step_key), step.start_time, step.end_time)
                    for step in instance.get_run_step_stats(record.dagster_run.run_id)
                    if step.start_time is not None and step.end_time is not None
                ),
            )
            for record in records
        )


def _step_name(key: str) -> str:
    noun = next((noun for noun in STEPS if key.endswith(noun)), None)
    return STEPS[noun] if noun else "checks" if key.startswith(("marts__", "raw__series_")) else "other"
