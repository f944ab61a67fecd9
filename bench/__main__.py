"""`python -m bench`: the product and its floor, on a long history, from real servers, the agent, a big fleet, Spark.

Every figure is printed with its aim. No figure fails the bench.

Add a leg here, with a line of docs/bench.md on how to read it. Keep out what a leg runs (`product`, `floor`,
`prometheus`, `sources`, `agent`, `growth`).
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import duckdb

from bench import agent, answers, children, prometheus, sources
from bench.children import Cost
from bench.fleet_day import FIRST_DAY, STEPS
from bench.product import Fleet, Job, write_empty

COLUMNS = ("", "wall s", "cpu s", "peak MiB", "land s", "M rows/s", "seeds s", "models s", "checks s", "publish s")
# What a bigger fleet is compared with, and how big a lake grows.
REFERENCE_GPUS = 1000
GROWTH_MILLIONS = (1, 4, 16)
SAMPLES_PER_GPU = 3 * STEPS
WIDTHS = (46, *(max(len(column), 8) for column in COLUMNS[1:]))


class Bench:
    """The options, and the folder that holds all generated files until the end."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self.folder, self.options = folder, options

    def floor(self) -> None:
        """One day beside the floor, by counter and by gauge; then with the engines' tokens."""
        gpus = self.options.gpus
        write_empty(self.folder / "empty")
        empty = Fleet(self.folder, "empty", "empty")
        empty.run()  # dbt's parse of the project, which a checkout needs once
        _heading(f"one day of {gpus} GPUs at 15 s, floor and product in turn, each on a new warehouse")
        fixed = []
        for name, limit, *options in (("counter", 3, "--no-tokens"), ("gauge-only", 4, "--no-tokens", "--gauge-only")):
            self._generate(name, gpus, *options)
            fleet, ratios, by_cpu, without_series = Fleet(self.folder, name, name), [], [], []
            for _ in range(self.options.pairs):
                floor = self._floor(name, f"  floor, {name}")
                _forget(empty)
                start = empty.run()
                _job("  the job on an empty day", start)
                _forget(fleet)
                job = fleet.run()
                _job(f"  product, {name}", job)
                fixed.append(start)
                ratios.append((job.cost.seconds - start.cost.seconds) / floor.seconds)
                by_cpu.append((job.cost.cpu_seconds - start.cost.cpu_seconds) / floor.cpu_seconds)
                series = job.series_seconds - start.series_seconds
                without_series.append(ratios[-1] - series / floor.seconds)
                print(f"    of which series_daily, beyond the empty day: {series:.2f} s")
            _ratio(f"{name}: (product - empty day) / floor, aim {limit}", ratios, by_cpu)
            _median("  the same without series_daily", without_series)
            self._drop(name, fleet)
        later = [empty.run() for _ in range(self.options.pairs)]
        _median("an empty day on a new warehouse (with seeds), aim 12 s", (job.cost.seconds for job in fixed))
        _median("an empty day later on, aim 7 s", (job.cost.seconds for job in later))

        _heading(f"the same day with {gpus // 8} engines: 12 series and 3 histograms each")
        self._with_engines("tokens", gpus, statistics.median(job.cost.seconds for job in fixed))

    def ceiling(self) -> None:
        """A big fleet's day with its engines: per sample beside 1,000 GPUs, and with 2 GB of memory for DuckDB."""
        gpus = self.options.gpus
        if gpus <= REFERENCE_GPUS:
            print(f"\nceiling: not measured: it asks for more than {REFERENCE_GPUS} GPUs (make bench GPUS=10000)")
            return
        write_empty(self.folder / "empty")
        empty = Fleet(self.folder, "empty", "empty")
        empty.run()  # dbt's parse of the project, which a checkout needs once
        _heading(f"one day of {gpus} GPUs and {gpus // 8} engines at 15 s beside {REFERENCE_GPUS} GPUs")
        _forget(empty)
        start = empty.run()
        _job("  the job on an empty day", start)
        reference = self._with_engines("reference", REFERENCE_GPUS, start.cost.seconds)
        per_sample = self._with_engines("asked", gpus, start.cost.seconds, limits=("2GB",))
        _median("cost per sample / that of 1,000 GPUs, aim 1.3", [per_sample / reference])

    def growth(self) -> None:
        """The same models on Spark with one and two workers and on DuckDB, from one lake, at 1, 4 and 16 M samples."""
        _heading("growth: a day's models, from the same lake, on DuckDB and on Spark")
        if find_spec("pyspark") is None:
            print("  not measured: pyspark is not installed (make bench-spark)")
            return
        seconds: dict[str, list[float]] = {}
        samples = []
        for millions in GROWTH_MILLIONS:
            gpus = round(millions * 1e6 / SAMPLES_PER_GPU)
            samples.append(gpus * SAMPLES_PER_GPU)
            name = f"lake-{millions}"
            self._generate(name, gpus, "--no-tokens")
            fleet = Fleet(self.folder, name, name, landing="{target: lake, path: lake/}")
            for threads in (1, 2):
                _forget(fleet)
                job = fleet.run(variables={"WATTLEDGER_THREADS": str(threads)})
                _job(f"  DuckDB, {threads} threads, {millions} M samples", job)
                seconds.setdefault(f"DuckDB, {threads} threads", []).append(job.steps["models"])
            for workers in (1, 2):
                cost, text = children.run(
                    *("bench.growth", "--fleet", fleet.path, "--workers", workers),
                    *("--folder", self.folder / f"cluster-{millions}-{workers}"),
                    variables=fleet.environment,
                )
                found = children.printed_json(text)
                _row(f"  Spark, {workers} workers, {millions} M samples", cost, 0, 0, None, found["seconds"])
                seconds.setdefault(f"Spark, {workers} workers", []).append(found["seconds"])
            self._drop(name, fleet)
        print(
            f"\n  {'thousand samples per second':<30}" + "".join(f"{m:>8} M" for m in GROWTH_MILLIONS) + "   each more"
        )
        for engine, took in seconds.items():
            rates = [count / second / 1e3 for count, second in zip(samples, took, strict=True)]
            # What a further sample costs, without the fixed seconds of a build.
            further = (samples[-1] - samples[0]) / (took[-1] - took[0]) / 1e3
            print(f"  {engine:<30}" + "".join(f"{rate:>10.0f}" for rate in rates) + f"{further:>12.0f}")

    def answers(self) -> None:
        """The job on an empty day, without and with thirty days of a big fleet: what curves, sizing and packing add."""
        gpus, days = self.options.gpus, 30
        _heading(f"answers over {days} days of {gpus} GPUs: the job on an empty day, without and with the history")
        write_empty(self.folder / "empty")
        fleet = Fleet(self.folder, "answers", "empty", days + 1, more=answers.model_lines())
        last = FIRST_DAY + timedelta(days)
        fleet.run(last)
        alone = fleet.run(last)
        _job("  nothing to answer", alone)
        cost, text = children.run(
            *("bench.answers", "--warehouse", fleet.warehouse, "--gpus", gpus, "--days", days, "--end", last)
        )
        print(f"  ({int(text):,} rows of intervals written in {cost.seconds:.0f} s)", flush=True)
        with_history = fleet.run(last)
        _job("  all answers", with_history)
        _median("seconds of all answers, aim 180", [with_history.cost.seconds - alone.cost.seconds])

    def packing(self) -> None:
        """A plan for a generated fleet: at four sites of three device types each, and all at one place of one type."""
        print(f"\npacking: a plan for {self.options.gpus} GPUs, over four weeks of 5-minute loads")
        for sites, types in ((4, 3), (1, 1)):
            _, text = children.run(
                *("bench.packing", "--gpus", self.options.gpus, "--sites", sites, "--types", types),
            )
            plan = children.printed_json(text)
            print(
                f"  {sites} sites x {types} types: {plan['deployments']} deployments, {plan['engines']} engines on"
                f" {plan['gpus']} GPUs; {plan['gpus_before']} that could be shared, {plan['gpus_after']} in the plan,"
                f" bound {plan['gpus_bound']}: gap {plan['gap_ratio']:.2%} (aim 1 %); nodes {plan['nodes_before']} ->"
                f" {plan['nodes_after']}; {plan['plan_seconds']:.1f} s (aim 60; processors"
                f" {plan['plan_cpu_seconds']:.1f} s), check {plan['check_seconds']:.1f} s,"
                f" {plan['violations']} rules broken, peak {plan['peak_mib']} MiB",
                flush=True,
            )

    def _with_engines(self, name: str, gpus: int, fixed_seconds: float, limits: Sequence[str] = ()) -> float:
        """Power and tokens of a day beside the floor that lands both, then within each of `limits`; seconds per sample
        beyond the fixed ones."""
        self._generate(name, gpus)
        fleet = Fleet(self.folder, name, name, streams=("power", "tokens"))
        floor = self._floor(name, f"  floor, {gpus} GPUs, power and tokens", "--tokens", self.folder / name / "tokens")
        job = fleet.run()
        _job(f"  product, {gpus} GPUs, power and tokens", job)
        beyond = job.cost.seconds - fixed_seconds
        _median(f"{gpus} GPUs with engines: (product - empty day) / floor", [beyond / floor.seconds])
        print(f"  microseconds per sample beyond the empty day: {beyond / job.rows * 1e6:.3f}", flush=True)
        for limit in limits:
            _forget(fleet)
            _job(f"  product, DuckDB's memory_limit {limit}", fleet.run(variables={"WATTLEDGER_MEMORY_LIMIT": limit}))
        self._drop(name, fleet)
        return beyond / job.rows

    def history(self) -> None:
        """A day booked again on top of a history, and in a warehouse that holds only that day."""
        gpus, days = self.options.history_gpus, self.options.history_days
        last = FIRST_DAY + timedelta(days)
        _heading(f"a day of {gpus} GPUs booked again: alone, and on top of {days} days")
        self._generate("days", gpus, "--no-tokens", "--days", days + 1)
        alone, grown = (Fleet(self.folder, name, "days", days + 1) for name in ("alone", "history"))
        _job(f"  history: {days} days in one run", grown.run(FIRST_DAY, days))
        _job("  history: the day for the first time", grown.run(last))
        _job("  alone: the day for the first time", alone.run(last))
        ratios, by_cpu = [], []
        for _ in range(self.options.pairs):
            one, many = alone.run(last), grown.run(last)
            _job("  alone: the day again", one)
            _job(f"  history: the day again, on {days} days", many)
            ratios.append(many.cost.seconds / one.cost.seconds)
            by_cpu.append(many.cost.cpu_seconds / one.cost.cpu_seconds)
        _ratio("on history / alone, aim 1.2", ratios, by_cpu)
        self._drop("days", alone, grown)

    def prometheus(self) -> None:
        """A day of samples from a local Prometheus into DuckDB."""
        gpus = min(self.options.gpus, 64)
        _heading(f"Prometheus: one day of {gpus} GPUs over HTTP into DuckDB")
        absent = prometheus.missing()
        if absent:
            print(f"  not measured: there is no `{absent}` here (Debian's package `prometheus`)")
            return
        (self.folder / "prometheus").mkdir()
        with prometheus.server(self.folder / "prometheus", gpus, FIRST_DAY) as url:
            rates = []
            for number in range(self.options.pairs):
                path = self.folder / f"prometheus-{number}.duckdb"
                cost, text = children.run("bench.prometheus", "--url", url, "--warehouse", path)
                found = children.printed_json(text)
                _row(
                    "  collector and landing",
                    cost._replace(peak_mib=found["peak_mib"]),
                    found["seconds"],
                    found["rows"],
                )
                rates.append(found["rows_per_second"] / 1e6)
        _median("M samples/s, aim at least 0.6", rates)

    def sources(self) -> None:
        """A day from a real Prometheus and a real VictoriaMetrics into DuckDB, and 5-minute energy: theirs and ours."""
        gpus = self.options.gpus
        _heading(f"sources: one day of {gpus} GPUs from real servers into DuckDB")
        absent = sources.missing()
        if absent:
            print(
                f"  not measured: there is no `{absent}` here (Debian's packages `prometheus` and `victoria-metrics`)"
            )
            return
        path = self.folder / "source.duckdb"
        kinds = {"Prometheus": (prometheus.server, 1.0), "VictoriaMetrics": (sources.victoria_metrics, 3.0)}
        for name, (server, aim) in kinds.items():
            folder = self.folder / f"source-{name}"
            folder.mkdir()
            with server(folder, gpus, FIRST_DAY) as url:
                rates = []
                for hours in (1, 6, *[24] * self.options.pairs):
                    path.unlink(missing_ok=True)
                    cost, text = children.run("bench.prometheus", "--url", url, "--warehouse", path, "--hours", hours)
                    found = children.printed_json(text)
                    row = cost._replace(peak_mib=found["peak_mib"])
                    _row(f"  {name}, {hours} h", row, found["seconds"], found["rows"])
                    if hours == 24:
                        rates.append(found["rows_per_second"] / 1e6)
                _median(f"{name}: M samples/s, aim {aim:g}", rates)
                with duckdb.connect(str(path), read_only=True) as landed:
                    questions = {
                        name: partial(sources.energy_by_server, url, FIRST_DAY),
                        "DuckDB, the same": partial(sources.energy_by_sql, landed, sources.INCREASE),
                        "DuckDB, edges shared by time": partial(sources.energy_by_sql, landed, sources.SHARED),
                    }
                    answers = [{whose: ask() for whose, ask in questions.items()} for _ in range(5)]
            print("  energy per device and 5 minutes of the day, in turn:")
            for whose in questions:
                result = answers[0][whose]
                what = f"  {whose}: {result.figures} figures, {result.energy_joules / 3.6e6:.3f} kWh; s"
                _median(what, (answer[whose].seconds for answer in answers))
            for whose in list(questions)[1:]:
                ratios = (answer[whose].seconds / answer[name].seconds for answer in answers)
                _median(f"  {whose} / {name}, aim 1", ratios)
            shutil.rmtree(folder)

    def agent(self) -> None:
        """What importing costs, and the agent on eight boards and two pages."""
        print("\ncollectors: import, and the agent with 8 boards at 1 Hz and 2 pages of 500 series at 15 s")
        _median("import collectors, ms, aim 100", (_import_ms() for _ in range(9)))
        with agent.pages() as urls:
            pages = [word for url in urls for word in ("--page", url)]
            seconds = ("--seconds", self.options.agent_seconds)
            _, text = children.run("bench.agent", "--spool", self.folder / "spool", *seconds, *pages)
        found = children.printed_json(text)
        print(
            f"  agent over {self.options.agent_seconds:g} s: {found['core_share']:.2%} of a core (aim 2 %),"
            f" {found['rows']} rows in its spool, {found['peak_mib']} MiB"
        )

    def _generate(self, name: str, gpus: int, *options: object) -> None:
        children.run("bench.fleet_day", "--gpus", gpus, "--out", self.folder / name, *options)

    def _floor(self, name: str, title: str, *options: object) -> Cost:
        _, text = children.run("bench.floor", "--power", self.folder / name / "power", *options)
        found = children.printed_json(text)
        # By its own clocks: the ratio leaves out the start of Python on both sides.
        cost = Cost(found["total_seconds"], found["cpu_seconds"], found["peak_rss_mib"])
        _row(title, cost, found["land_seconds"], found["rows"], None, found["energy_seconds"])
        return cost

    def _drop(self, files: str, *fleets: Fleet) -> None:
        shutil.rmtree(self.folder / files)
        for fleet in fleets:
            _forget(fleet)


def _forget(fleet: Fleet) -> None:
    shutil.rmtree(fleet.data, ignore_errors=True)


def _import_ms() -> float:
    timed = "import time; t = time.perf_counter(); import collectors; print((time.perf_counter() - t) * 1e3)"
    return float(children.python("-c", timed)[1])


def _heading(title: str) -> None:
    print(f"\n{title}")
    cells = [column.rjust(width) if column else " " * width for column, width in zip(COLUMNS, WIDTHS, strict=True)]
    print(" ".join(cells).rstrip(), flush=True)


def _row(name: str, cost: Cost, land: float, rows: int, *steps: float | None) -> None:
    cells = [f"{cost.seconds:.1f}", f"{cost.cpu_seconds:.1f}", f"{cost.peak_mib}"]
    cells += [f"{land:.2f}", f"{rows / land / 1e6:.2f}" if rows else "-"]
    cells += ["-" if step is None else f"{step:.2f}" for step in steps]
    print(name.ljust(WIDTHS[0]), " ".join(c.rjust(w) for c, w in zip(cells, WIDTHS[1:], strict=False)), flush=True)


def _job(name: str, job: Job) -> None:
    steps = (job.steps[step] for step in ("seeds", "models", "checks", "publish"))
    _row(name, job.cost, job.steps["land"], job.rows, *steps)


def _median(name: str, values: Iterable[float]) -> None:
    values = list(values)
    print(f"  {name}: {statistics.median(values):.2f} ({', '.join(f'{value:.2f}' for value in values)})", flush=True)


def _ratio(name: str, by_wall: list[float], by_cpu: list[float]) -> None:
    _median(name, by_wall)
    _median("  the same by processor seconds", by_cpu)


def _machine() -> str:
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    packages = ", ".join(f"{name} {version(name)}" for name in ("duckdb", "dagster", "dbt-core"))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{cores} cores, {memory_gib:.0f} GiB, Python {platform.python_version()}, {packages}"


def main() -> None:
    legs: dict[str, Callable[[Bench], Any]] = {
        "floor": Bench.floor,
        "history": Bench.history,
        "prometheus": Bench.prometheus,
        "sources": Bench.sources,
        "agent": Bench.agent,
        "ceiling": Bench.ceiling,
        "answers": Bench.answers,
        "packing": Bench.packing,
        "growth": Bench.growth,
    }
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.partition("\n")[0])
    parser.add_argument("--gpus", type=int, default=1000)
    parser.add_argument(
        "--legs", nargs="+", choices=legs, help="which to run (default: what the number of GPUs is for)"
    )
    parser.add_argument("--pairs", type=int, default=3, help="how often what is compared runs in turn (default: 3)")
    parser.add_argument("--history-gpus", type=int, default=250)
    parser.add_argument("--history-days", type=int, default=30)
    parser.add_argument("--agent-seconds", type=float, default=60.0)
    parser.add_argument("--folder", type=Path, help="where to put gigabytes until the end (default: the system's own)")
    options = parser.parse_args()
    if options.legs is None:
        is_big = options.gpus > REFERENCE_GPUS
        options.legs = ["ceiling"] if is_big else ["floor", "history", "prometheus", "agent"]
    print(f"Wattledger bench: {_machine()}")
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="wattledger-bench-", dir=options.folder) as folder:
        bench = Bench(Path(folder), options)
        for leg in options.legs:
            legs[leg](bench)
    print(f"\ntook {(time.perf_counter() - began) / 60:.1f} min")


if __name__ == "__main__":
    main()
