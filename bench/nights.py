"""Nights in small: what a year of them costs in seconds and bytes: `python -m bench.nights --nights 60` prints tables.

With `--folder` it goes on after the last night of an earlier call that was stopped. With `--faults` nights go wrong
(`night_faults`).

Two boards and two engines behind a backfilled history, on a real VictoriaMetrics that gets each day's samples as they
come. By chance a day comes late in part, an exporter is silent for hours, a counter starts anew, or the server is down
for a night. Each night runs `wattledger run` on the day that is over. Add here what may happen in a night. Keep out
what a layer of the data is: that is `pipelines.upkeep.layers`, whose sizes each run writes into `raw.disk_use`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import numpy as np
import yaml

from bench import children, night_faults
from tests.servers import victoria_metrics_with_history

FIRST = date(2025, 1, 1)
STEP_SECONDS, DAY_SECONDS = 300, 86_400
BOARDS = {"GPU-a": ("n1", "chat"), "GPU-b": ("n2", "code")}
BUSY_HOURS = {"chat": range(7, 20), "code": range(9, 18)}
BUSY_WATTS, IDLE_WATTS, TOKENS_PER_SECOND = 300.0, 80.0, 40.0
# Of each night by chance: half a day comes up to three nights later; a board is silent for some hours; counters start
# anew; the server is down while the night runs.
LATE, SILENT, RESTART, DOWN = 0.1, 0.1, 0.1, 0.05
SHOWN = (1, 30, 60, 180, 365)


# Nights are minutes apart here: a publication goes as soon as the next ones have taken its place.
AT_ONCE = {"WATTLEDGER_KEEP_HOURS": "0"}


@dataclass(frozen=True)
class Night:
    """What a night took: seconds of the run, its exit status, and the bytes of each layer after it. Night 0 is the run
    that books the history."""

    number: int
    seconds: float
    status: int
    layers: dict[str, int]


def day_lines(on: date, random: Random) -> tuple[list[str], list[str]]:
    """The day's samples as lines of VictoriaMetrics' import: those of its first half, and of its second."""
    midnight = datetime(on.year, on.month, on.day, tzinfo=UTC).timestamp()
    restarts = random.random() < RESTART
    silent = random.choice(list(BOARDS)) if random.random() < SILENT else None
    halves: tuple[list[str], list[str]] = ([], [])
    for uuid, (node, engine) in BOARDS.items():
        labels = f'Hostname="{node}",UUID="{uuid}",modelName="NVIDIA A100-SXM4-80GB",namespace="llm",pod="{engine}-0"'
        served = f'namespace="llm",pod="{engine}-0",model_name="org/{engine}"'
        days = (on - FIRST).days
        tokens = 0.0 if restarts else days * len(BUSY_HOURS[engine]) * 3600 * TOKENS_PER_SECOND
        for second in range(0, DAY_SECONDS, STEP_SECONDS):
            is_busy = second // 3600 in BUSY_HOURS[engine]
            at = f"{(midnight + second) * 1000:.0f}"
            half = halves[second >= DAY_SECONDS / 2]
            if not (uuid == silent and 3 <= second // 3600 < 6):
                watts = BUSY_WATTS if is_busy else IDLE_WATTS
                half.append(f"DCGM_FI_DEV_POWER_USAGE{{{labels}}} {watts} {at}")
            half.append(f"vllm:generation_tokens_total{{{served}}} {tokens} {at}")
            tokens += TOKENS_PER_SECOND * STEP_SECONDS if is_busy else 0
    return halves


@dataclass(frozen=True)
class Drawn:
    """What chance makes of a night: its day by halves, nights until the second comes, whether the server is down."""

    halves: tuple[list[str], list[str]]
    nights_late: int
    is_down: bool


# The words after `wattledger`, and variables -> seconds, exit status, what was printed.
Command = Callable[[Sequence[str], Mapping[str, str]], tuple[float, int, str]]


def in_a_process(words: Sequence[str], variables: Mapping[str, str]) -> tuple[float, int, str]:
    """Run the command as cron does."""
    cost, status, printed = children.ended("pipelines", *words, variables=variables)
    return cost.seconds, status, printed


class Year:
    """A fleet, its server, and the nights that it has run."""

    def __init__(self, folder: Path, url: str, command: Command, *, seed: int, history: int, nights: int) -> None:
        self.fleet, self.data, self.url = folder / "fleet.yaml", folder / "data", url
        self._seed, self._history, self._nights, self._command = seed, history, nights, command

    def write_fleet(self, url: str) -> None:
        """The fleet file, of the server or of none."""
        stated: dict[str, Any] = {
            "fleet": "nights",
            "period": {"start": FIRST, "end": self._date(self._nights + 1)},
            "sources": [{"name": "cluster", "kind": "prometheus", "url": url, "interval_seconds": STEP_SECONDS}],
            "sites": [{"name": "west", "zone": "US-CAL-CISO", "pue": 1.2, "tariff": [{"usd_per_kwh": 0.1}]}],
            "retention": {"publications": 5, "history_days": 30, "log_days": 30},
        }
        self.fleet.write_text(yaml.safe_dump(stated, sort_keys=False), encoding="utf-8")

    def backfill(self) -> Night:
        """Book the history in one run."""
        for number in range(1 - self._history, 1):
            for half in self.drawn(number).halves:
                self.send(half)
        self.write_fleet(self.url)
        seconds, status = self._run(FIRST, self._date(1))
        return Night(0, seconds, status, self._layers())

    def night(self, number: int) -> Night:
        """One night: what comes, comes, and the day that is over is booked."""
        drawn = self.drawn(number)
        self.send(drawn.halves[0])
        for earlier in range(max(number - 3, 1), number + 1):
            before = self.drawn(earlier)
            if earlier + before.nights_late == number:
                self.send(before.halves[1])
        self.write_fleet("http://127.0.0.1:9" if drawn.is_down else self.url)
        seconds, status = self._run(self._date(number), self._date(number + 1))
        return Night(number, seconds, status, self._layers())

    def _date(self, number: int) -> date:
        return FIRST + timedelta(days=self._history + number - 1)

    def drawn(self, number: int) -> Drawn:
        """The same for a number at each call, so that a stopped year goes on as it was."""
        random = Random(f"{self._seed}:{number}")
        halves = day_lines(self._date(number), random)
        return Drawn(halves, random.randint(1, 3) if random.random() < LATE else 0, random.random() < DOWN)

    def _run(self, start: date, end: date) -> tuple[float, int]:
        words = ["run", "--fleet", str(self.fleet), "--start", start.isoformat(), "--end", end.isoformat()]
        seconds, status, printed = self._command(words, {"WATTLEDGER_DATA": str(self.data), **AT_ONCE})
        if status not in (0, 1):
            raise RuntimeError(printed[-2000:])
        return seconds, status

    def _layers(self) -> dict[str, int]:
        with closing(duckdb.connect(str(self.data / "nights" / "warehouse.duckdb"), read_only=True)) as warehouse:
            rows = warehouse.execute(
                "select layer, bytes from raw.disk_use"
                " where run_id = (select max_by(run_id, measured_at) from raw.disk_use)"
            ).fetchall()
        return dict(rows)

    def send(self, lines: Sequence[str]) -> None:
        for path, body in (("api/v1/import/prometheus", "\n".join(lines)), ("internal/force_flush", "")):
            with urllib.request.urlopen(f"{self.url}/{path}", data=body.encode(), timeout=60) as answer:
                answer.read()


def slope(values: Sequence[float]) -> float:
    """What a value grows by from one night to the next: the slope of a straight line."""
    return float(np.polyfit(np.arange(len(values)), values, 1)[0]) if len(values) > 1 else 0.0


def added(nights: Sequence[Night]) -> dict[str, float]:
    """Bytes that each layer has grown by in a night: the mean of the nights after the first of these."""
    first, last = nights[0], nights[-1]
    return {layer: (last.layers[layer] - first.layers[layer]) / (len(nights) - 1) for layer in last.layers}


def lines(nights: Sequence[Night]) -> Iterator[str]:
    """The tables: some nights, and the growth per night over the last half of them."""
    nights = [night for night in nights if night.number]
    layers = sorted({layer for night in nights for layer in night.layers})
    yield "| night | seconds | " + " | ".join(f"{layer}, MB" for layer in layers) + " |"
    yield "|---|---|" + "---|" * len(layers)
    for night in nights:
        if night.number in SHOWN or night is nights[-1]:
            sizes = " | ".join(f"{night.layers.get(layer, 0) / 1e6:,.2f}" for layer in layers)
            yield f"| {night.number} | {night.seconds:.1f} | {sizes} |"
    late = nights[len(nights) // 2 :]
    grown = " | ".join(f"{slope([night.layers.get(layer, 0) for night in late]) / 1e3:+,.1f} kB" for layer in layers)
    yield f"| a night adds | {slope([night.seconds for night in late]):+.3f} s | {grown} |"
    down = sum(night.status != 0 for night in nights)
    yield f"\n{down} of {len(nights)} nights ended with status 1: the server was down"


def nights_of(folder: Path, nights: int, history: int, seed: int, command: Command = in_a_process) -> Iterator[Night]:
    """Book a history and then night after night; `folder` is ours, empty or with the nights of an earlier call."""
    server, done = folder / "server", folder / "nights.jsonl"
    server.mkdir(exist_ok=True)
    with victoria_metrics_with_history(server, ()) as url:
        year = Year(folder, url, command, seed=seed, history=history, nights=nights)
        earlier = []
        if done.exists():
            earlier = [Night(**json.loads(line)) for line in done.read_text(encoding="utf-8").splitlines()]
        yield from earlier
        for number in range(earlier[-1].number + 1 if earlier else 0, nights + 1):
            night = year.night(number) if number else year.backfill()
            with done.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(night)) + "\n")
            yield night


def main() -> int:
    """Run the nights that the options ask for and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nights", type=int, default=60)
    parser.add_argument("--history", type=int, default=300, help="days that one run books before (default 300)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="an empty folder to keep, or that of a call that was stopped")
    parser.add_argument("--faults", type=int, metavar="SEED", help="each night may go wrong (`night_faults`; as root)")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="wattledger-nights-")))
        faults = None
        if options.faults is not None:
            stack.enter_context(night_faults.disk(folder))
            faults = stack.enter_context(closing(night_faults.Faults(folder, options.faults)))
        found = []
        for night in nights_of(folder, options.nights, options.history, options.seed, faults or in_a_process):
            print(f"night {night.number}: {night.seconds:.1f} s, status {night.status}", file=sys.stderr, flush=True)
            found.append(night)
        print("\n".join(lines(found)))
        if faults:
            print("\n".join(faults.lines()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
