"""The fleets that `mission.yaml` asks, booked: a planted one, the demo, and MLPerf's recordings.

Add here how a fleet comes to its book. Keep out what it holds (inputs/fleet.yaml, inputs/telemetry.yaml, the demo's
scenario), and every question (mission.yaml).
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import yaml

from pipelines.fleet.fleet_file import Fleet, load_fleet
from pipelines.fleet.places import DEFAULT_FLEET, PROJECT
from pipelines.publishing import publication
from pipelines.receipts import receipt_files
from tests import commands
from tests.books import Book, environment, record, validation_data
from tests.planted import ENERGY, INPUT, OUTPUT, WATTS, Samples, Series, board, table_of

INPUTS = Path(__file__).parent / "inputs"
FIRST, END = datetime(2026, 9, 24, tzinfo=UTC), datetime(2026, 10, 2, tzinfo=UTC)
STEP_SECONDS = 300
# A night late: these samples of GPU-late are read by the second run.
LATE = (datetime(2026, 9, 30, 12, tzinfo=UTC).timestamp(), datetime(2026, 10, 1, tzinfo=UTC).timestamp())
LIMIT_SECONDS = 600
TTFT = "vllm:time_to_first_token_seconds_bucket"
NAMES = {
    "input": (INPUT, {}),
    "output": (OUTPUT, {}),
    "ttft_within_1_second": (TTFT, {"le": "1.0"}),
    "ttft": (TTFT, {"le": "+Inf"}),
}
ByHour = Mapping[float, float]


@dataclass
class Planted:
    """The planted fleet in a folder of its own, and what each command printed."""

    folder: Path
    printed: dict[str, str] = field(default_factory=dict)

    @property
    def fleet(self) -> Fleet:
        return load_fleet(self.folder / "fleet.yaml", environment(self.folder / "data"))

    def command(self, words: str) -> str:
        """What `wattledger <words>` prints; it is run once, and `{folder}` is the fleet's own."""
        if words not in self.printed:
            arguments = shlex.split(words.format(folder=self.folder))
            environ = environment(self.folder / "data", WATTLEDGER_FLEET=str(self.folder / "fleet.yaml"))
            done = commands.run(arguments, environ, LIMIT_SECONDS)
            if done.returncode != 0:
                raise AssertionError(f"wattledger {words} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
            self.printed[words] = done.stdout
        return self.printed[words]

    def query(self, sql: str) -> list[tuple]:
        """Rows of the snapshot, as any reader opens it."""
        with closing(duckdb.connect(str(self.fleet.snapshot), read_only=True)) as connection:
            return connection.execute(sql).fetchall()


def planted(folder: Path) -> Planted:
    """Eight dates booked at once, September closed, then two of them booked again with what came late."""
    shutil.copytree(INPUTS, folder, dirs_exist_ok=True)
    telemetry = yaml.safe_load((INPUTS / "telemetry.yaml").read_text(encoding="utf-8"))
    hours = [(FIRST + timedelta(hours=n)) for n in range(8 * 24)]
    grams = telemetry["grid_gco2e_per_kwh"]
    lines = [f"{at.isoformat()},{_value(grams, at.hour * 3600)}" for at in hours]
    (folder / "grid.csv").write_text("\n".join(["at,grams", *lines]) + "\n", encoding="utf-8")
    in_time, late = [], []
    for metric, labels, samples in series(telemetry):
        held_up = {sample for sample in samples if labels.get("UUID") == "GPU-late" and LATE[0] <= sample[0] < LATE[1]}
        in_time.append((metric, labels, [sample for sample in samples if sample not in held_up]))
        if held_up:
            late.append((metric, labels, sorted(held_up)))
    record(table_of(in_time), folder / "recorded", "in_time")
    book, made = Book.of(folder / "fleet.yaml", folder / "data"), Planted(folder)
    book.run()
    publication.publish(made.fleet, FIRST.date(), END.date())
    made.command("close 2026-09")
    record(table_of(late), folder / "recorded", "late")
    changed = (date(2026, 9, 30), END.date())
    book.land(*changed)
    book.write(*changed)
    publication.publish(made.fleet, *changed)
    with book.connection() as connection:
        receipt_files.write(connection, made.fleet, END.date())
    return made


def series(telemetry: Mapping[str, Any]) -> Iterator[Series]:
    """The samples of telemetry.yaml: a counter is the sum of its rate, a gauge its value."""
    for entry in telemetry["boards"]:
        labels = board(entry["board"], entry["node"], **_pod(entry["pod"]) if "pod" in entry else {})
        step = entry.get("step", STEP_SECONDS)
        if entry.get("gauge"):
            yield WATTS, labels, _gauge(entry["watts"], step)
        else:
            yield ENERGY, labels, _counter(entry["watts"], step, 1000)
    for entry in telemetry["engines"]:
        for name, rate in entry.items():
            if name in ("pod", "model", "labels"):
                continue
            metric, more = NAMES.get(name, (name, {}))
            # A frontend of Dynamo names the model as `model`.
            model = "model" if metric.startswith("dynamo_frontend_") else "model_name"
            labels = {model: entry["model"], **_pod(entry["pod"]), **entry.get("labels", {}), **more}
            yield metric, labels, _counter(rate, STEP_SECONDS)


def _pod(name: str) -> dict[str, str]:
    namespace, _, pod = name.partition("/")
    return {"namespace": namespace, "pod": pod, "container": "engine"}


def _value(by_hour: ByHour, second: float) -> float:
    """The value of a second of the day."""
    return by_hour[max(hour for hour in by_hour if round(hour * 3600) <= second)]


def _times(step: int) -> list[int]:
    """Unix seconds from the first midnight to an hour after the last."""
    return list(range(int(FIRST.timestamp()), int(END.timestamp()) + 3601, step))


def _gauge(by_hour: ByHour, step: int) -> Samples:
    return [(float(at), float(_value(by_hour, at % 86_400))) for at in _times(step)]


def _counter(by_hour: ByHour, step: int, per_unit: float = 1) -> Samples:
    """Rates change at a sample alone, so that the rate at a sample holds until the next one."""
    total, samples = 1e6, []
    for at in _times(step):
        samples.append((float(at), total))
        total += per_unit * step * _value(by_hour, at % 86_400)
    return samples


def demo(folder: Path) -> Book:
    """The bundled demo's four weeks, of its marts those that are asked for."""
    book = Book.of(DEFAULT_FLEET, folder / "data", marts=("model_daily", "run_windows"))
    book.run()
    return book


def mlperf(folder: Path) -> Book:
    """The six runs of one published entry, from the recordings of its wall meter; only the dates that have any."""
    validation_data()
    book = Book.of(PROJECT / "fleets" / "mlperf.yaml", folder / "data", marts=("run_windows",))
    for first, end in ((date(2024, 7, 17), date(2024, 7, 18)), (date(2024, 7, 23), date(2024, 7, 25))):
        book.run(first, end)
    return book


MAKE: dict[str, Callable[[Path], Any]] = {"planted": planted, "demo": demo, "mlperf": mlperf}
