"""`python -m bench`: the product and its floor, on a long history, from real servers, the agent, a big fleet, Spark.

Every figure is printed with its aim. No figure fails the bench.

Add a leg here, with a line of docs/bench.md on how to read it. Keep out what a leg runs (`product`, `floor`,
`prometheus`, `sources`, `agent`, `growth`).
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench import agent, answers, backfill, children, day, prometheus, questions, sources, table
from bench.children import Cost
from bench.fleet_day import FIRST_DAY, STEPS
from bench.product import Fleet, Job, write_empty

# What a bigger fleet is compared with, and how big a lake grows.
REFERENCE_GPUS = 1000
GROWTH_MILLIONS = (1, 4, 16)
SAMPLES_PER_GPU = 3 * STEPS


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
        table.heading(f"one day of {gpus} GPUs at 15 s, floor and product in turn, each on a new warehouse")
        fixed = []
        for name, limit, *options in (("counter", 3, "--no-tokens"), ("gauge-only", 4, "--no-tokens", "--gauge-only")):
            self._generate(name, gpus, *options)
            fleet, ratios, by_cpu, without_series = Fleet(self.folder, name, name), [], [], []
            jobs, floor_land = [], []
            for _ in range(self.options.pairs):
                floor, land_cpu_seconds = self._floor(name, f"  floor, {name}")
                _forget(empty)
                start = empty.run()
                table.job("  the job on an empty day", start)
                _forget(fleet)
                job = fleet.run()
                table.job(f"  product, {name}", job)
                fixed.append(start)
                jobs.append(job)
                floor_land.append(land_cpu_seconds)
                ratios.append((job.cost.seconds - start.cost.seconds) / floor.seconds)
                by_cpu.append((job.cost.cpu_seconds - start.cost.cpu_seconds) / floor.cpu_seconds)
                series = job.series_seconds - start.series_seconds
                without_series.append(ratios[-1] - series / floor.seconds)
                print(f"    of which series_daily, beyond the empty day: {series:.2f} s")
            table.ratio(f"{name}: (product - empty day) / floor, aim {limit}", ratios, by_cpu)
            table.median("  the same without series_daily", without_series)
            table.processors(jobs, floor_land, start)
            self._drop(name, fleet)
        later = [empty.run() for _ in range(self.options.pairs)]
        table.median("an empty day on a new warehouse (with seeds), aim 12 s", (job.cost.seconds for job in fixed))
        table.median("an empty day later on, aim 7 s", (job.cost.seconds for job in later))

        table.heading(f"the same day with {gpus // 8} engines: 12 series and 3 histograms each")
        by_wall = sorted(fixed, key=lambda job: job.cost.seconds)
        self._with_engines("tokens", gpus, by_wall[len(by_wall) // 2])

    def ceiling(self) -> None:
        """A big fleet's day with its engines: per sample beside 1,000 GPUs, and with 2 GB of memory for DuckDB."""
        gpus = self.options.gpus
        if gpus <= REFERENCE_GPUS:
            print(f"\nceiling: not measured: it asks for more than {REFERENCE_GPUS} GPUs (make bench GPUS=10000)")
            return
        write_empty(self.folder / "empty")
        empty = Fleet(self.folder, "empty", "empty")
        empty.run()  # dbt's parse of the project, which a checkout needs once
        table.heading(f"one day of {gpus} GPUs and {gpus // 8} engines at 15 s beside {REFERENCE_GPUS} GPUs")
        _forget(empty)
        start = empty.run()
        table.job("  the job on an empty day", start)
        reference = self._with_engines("reference", REFERENCE_GPUS, start)
        per_sample = self._with_engines("asked", gpus, start, limits=("2GB",))
        table.median("cost per sample / that of 1,000 GPUs, aim 1.3", [per_sample / reference])

    def growth(self) -> None:
        """The same models on Spark with one and two workers and on DuckDB, from one lake, at 1, 4 and 16 M samples."""
        table.heading("growth: a day's models, from the same lake, on DuckDB and on Spark")
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
                table.job(f"  DuckDB, {threads} threads, {millions} M samples", job)
                seconds.setdefault(f"DuckDB, {threads} threads", []).append(job.steps["models"])
            for workers in (1, 2):
                cost, text = children.run(
                    *("bench.growth", "--fleet", fleet.path, "--workers", workers),
                    *("--folder", self.folder / f"cluster-{millions}-{workers}"),
                    variables=fleet.environment,
                )
                found = children.printed_json(text)
                table.row(f"  Spark, {workers} workers, {millions} M samples", cost, 0, 0, None, found["seconds"])
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
        table.heading(f"answers over {days} days of {gpus} GPUs: the job on an empty day, without and with the history")
        write_empty(self.folder / "empty")
        fleet = Fleet(self.folder, "answers", "empty", days + 1, more=answers.model_lines())
        last = FIRST_DAY + timedelta(days)
        fleet.run(last)
        alone = fleet.run(last)
        table.job("  nothing to answer", alone)
        cost, text = children.run(
            *("bench.answers", "--warehouse", fleet.warehouse, "--gpus", gpus, "--days", days, "--end", last)
        )
        print(f"  ({int(text):,} rows of intervals written in {cost.seconds:.0f} s)", flush=True)
        with_history = fleet.run(last)
        table.job("  all answers", with_history)
        table.median("seconds of all answers, aim 180", [with_history.cost.seconds - alone.cost.seconds])

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

    def _with_engines(self, name: str, gpus: int, empty: Job, limits: Sequence[str] = ()) -> float:
        """Power and tokens of a day beside the floor that lands both, then within each of `limits`; seconds per sample
        beyond the empty day's."""
        self._generate(name, gpus)
        fleet = Fleet(self.folder, name, name, streams=("power", "tokens"))
        tokens = ("--tokens", self.folder / name / "tokens")
        floor, land_cpu_seconds = self._floor(name, f"  floor, {gpus} GPUs, power and tokens", *tokens)
        job = fleet.run()
        table.job(f"  product, {gpus} GPUs, power and tokens", job)
        beyond = job.cost.seconds - empty.cost.seconds
        table.median(f"{gpus} GPUs with engines: (product - empty day) / floor", [beyond / floor.seconds])
        print(f"  microseconds per sample beyond the empty day: {beyond / job.rows * 1e6:.3f}", flush=True)
        table.processors([job], [land_cpu_seconds], empty)
        for limit in limits:
            _forget(fleet)
            limited = fleet.run(variables={"WATTLEDGER_MEMORY_LIMIT": limit})
            table.job(f"  product, DuckDB's memory_limit {limit}", limited)
        self._drop(name, fleet)
        return beyond / job.rows

    def day(self) -> None:
        """What a day takes at several sizes, each on a new warehouse."""
        write_empty(self.folder / "empty")
        Fleet(self.folder, "empty", "empty").run()  # dbt's parse of the project, which a checkout needs once
        print("\none day at 15 s, power by counter and an engine per 8 GPUs")
        for gpus in self.options.sizes:
            name = f"day-{gpus}"
            self._generate(name, gpus)
            fleet = Fleet(self.folder, name, name, streams=("power", "tokens"))
            day.print_day(gpus, fleet, fleet.run())
            self._drop(name, fleet)

    def disk(self) -> None:
        """Bytes per sample of a mixed day with jitter: landed at once, again, and hour by hour."""
        folder = self.folder / "disk"
        folder.mkdir()
        _, text = children.run("bench.disk", "--gpus", min(self.options.gpus, 104), "--folder", folder)
        print("\ndisk: bytes a sample of a mixed day whose scrapes come up to 20 ms late, aim at most 9")
        for how, each in children.printed_json(text).items():
            print(f"  {how}: {each:.2f}", flush=True)
        shutil.rmtree(folder)

    def history(self) -> None:
        """A day booked again on top of a history, and in a warehouse that holds only that day."""
        gpus, days = self.options.history_gpus, self.options.history_days
        last = FIRST_DAY + timedelta(days)
        table.heading(f"a day of {gpus} GPUs booked again: alone, and on top of {days} days")
        self._generate("days", gpus, "--no-tokens", "--days", days + 1)
        alone, grown = (Fleet(self.folder, name, "days", days + 1) for name in ("alone", "history"))
        table.job(f"  history: {days} days in one run", grown.run(FIRST_DAY, days))
        table.job("  history: the day for the first time", grown.run(last))
        table.job("  alone: the day for the first time", alone.run(last))
        ratios, by_cpu = [], []
        for _ in range(self.options.pairs):
            one, many = alone.run(last), grown.run(last)
            table.job("  alone: the day again", one)
            table.job(f"  history: the day again, on {days} days", many)
            ratios.append(many.cost.seconds / one.cost.seconds)
            by_cpu.append(many.cost.cpu_seconds / one.cost.cpu_seconds)
        table.ratio("on history / alone, aim 1.2", ratios, by_cpu)
        self._drop("days", alone, grown)

    def backfill(self) -> None:
        """A year in one command, then one more day on top of it and alone."""
        gpus, days = self.options.backfill_gpus, self.options.backfill_days
        table.heading(f"backfill: {days} days of {gpus} GPUs in one command, and a day on top of them")
        # Up to yesterday: a day that is not over cannot be booked.
        start = datetime.now(UTC).date() - timedelta(days + 1)
        self._generate("year", gpus, "--no-tokens", "--day", start, "--days", days + 1)
        alone, grown = (Fleet(self.folder, name, "year", days + 1, start=start) for name in ("one-day", "backfill"))
        backfill.print_run(grown, start, days)
        backfill.print_next_day(alone, grown, start + timedelta(days), self.options.pairs)
        self._drop("year", alone, grown)

    def prometheus(self) -> None:
        """A day of samples from a local Prometheus into DuckDB."""
        gpus = min(self.options.gpus, 64)
        table.heading(f"Prometheus: one day of {gpus} GPUs over HTTP into DuckDB")
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
                table.row(
                    "  collector and landing",
                    cost._replace(peak_mib=found["peak_mib"]),
                    found["seconds"],
                    found["rows"],
                )
                rates.append(found["rows_per_second"] / 1e6)
        table.median("M samples/s, aim at least 0.6", rates)

    def sources(self) -> None:
        """A day from a real Prometheus and a real VictoriaMetrics into DuckDB; then the same asked of both."""
        gpus = self.options.gpus
        table.heading(f"sources: one day of {gpus} GPUs from real servers into DuckDB")
        absent = sources.missing()
        if absent:
            print(
                f"  not measured: there is no `{absent}` here (Debian's packages `prometheus` and `victoria-metrics`)"
            )
            return
        self._generate("booked", gpus)
        book = Fleet(self.folder, "booked", "booked", streams=("power", "tokens"))
        table.job("  the same day, booked with its engines", book.run())
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
                    table.row(f"  {name}, {hours} h", row, found["seconds"], found["rows"])
                    if hours == 24:
                        rates.append(found["rows_per_second"] / 1e6)
                table.median(f"{name}: M samples/s, aim {aim:g}", rates)
                questions.ask_in_turn(name, url, path, book.published, FIRST_DAY)
            shutil.rmtree(folder)
        self._drop("booked", book)

    def month(self) -> None:
        """What finance asks of a published month."""
        gpus, days = self.options.month_gpus, 30
        table.heading(f"month: what finance asks of {days} published days of {gpus} GPUs and {gpus // 8} engines")
        self._generate("month", gpus, "--days", days)
        fleet = Fleet(self.folder, "month", "month", days, streams=("power", "tokens"))
        table.job(f"  {days} days in one command", fleet.run(FIRST_DAY, days))
        questions.ask_month(fleet.published, FIRST_DAY)
        self._drop("month", fleet)

    def agent(self) -> None:
        """What importing costs, and the agent on eight boards and two pages."""
        print("\ncollectors: import, and the agent with 8 boards at 1 Hz and 2 pages of 500 series at 15 s")
        table.median("import collectors, ms, aim 100", (_import_ms() for _ in range(9)))
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

    def _floor(self, name: str, title: str, *options: object) -> tuple[Cost, float]:
        """What the floor cost, and the processor seconds of its landing."""
        _, text = children.run("bench.floor", "--power", self.folder / name / "power", *options)
        found = children.printed_json(text)
        # By its own clocks: the ratio leaves out the start of Python on both sides.
        cost = Cost(found["total_seconds"], found["cpu_seconds"], found["peak_rss_mib"])
        table.row(title, cost, found["land_seconds"], found["rows"], None, found["energy_seconds"])
        return cost, found["land_cpu_seconds"]

    def _drop(self, files: str, *fleets: Fleet) -> None:
        shutil.rmtree(self.folder / files)
        for fleet in fleets:
            _forget(fleet)


def _forget(fleet: Fleet) -> None:
    shutil.rmtree(fleet.data, ignore_errors=True)


def _import_ms() -> float:
    timed = "import time; t = time.perf_counter(); import collectors; print((time.perf_counter() - t) * 1e3)"
    return float(children.python("-c", timed)[1])


def main() -> None:
    legs: dict[str, Callable[[Bench], Any]] = {
        "day": Bench.day,
        "disk": Bench.disk,
        "floor": Bench.floor,
        "history": Bench.history,
        "backfill": Bench.backfill,
        "prometheus": Bench.prometheus,
        "sources": Bench.sources,
        "month": Bench.month,
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
    parser.add_argument("--sizes", type=int, nargs="+", default=[16, 1000], help="GPUs of the leg day's fleets")
    parser.add_argument("--history-gpus", type=int, default=250)
    parser.add_argument("--history-days", type=int, default=30)
    parser.add_argument("--backfill-gpus", type=int, default=100)
    parser.add_argument("--backfill-days", type=int, default=365)
    parser.add_argument("--month-gpus", type=int, default=80)
    parser.add_argument("--agent-seconds", type=float, default=60.0)
    parser.add_argument("--folder", type=Path, help="where to put gigabytes until the end (default: the system's own)")
    options = parser.parse_args()
    if options.legs is None:
        is_big = options.gpus > REFERENCE_GPUS
        options.legs = ["ceiling"] if is_big else ["floor", "history", "prometheus", "agent"]
    print(f"Wattledger bench: {table.machine()}")
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="wattledger-bench-", dir=options.folder) as folder:
        bench = Bench(Path(folder), options)
        for leg in options.legs:
            legs[leg](bench)
    print(f"\ntook {(time.perf_counter() - began) / 60:.1f} min")


if __name__ == "__main__":
    main()
