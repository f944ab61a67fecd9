"""What a day of a small fleet costs and where its seconds go: `python -m bench.empty_day` prints the tables.

Each day is one `wattledger run` in a process of its own, on top of the days before it; the first, which makes the
warehouse, is not measured. Of such a day nearly all is what a run costs before its first sample. Add here what else is
to be seen of a day. Keep out what belongs to which part (`where_spent`).
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import duckdb

from bench import children, where_spent
from bench.product import LOGGED
from pipelines.fleet.fleet_file import load_fleet
from pipelines.fleet.places import DEFAULT_FLEET

END, UNSEEN = "Python's end", "threads that ended between two samples"
SLOWEST = 5


class Day(NamedTuple):
    """A run: its cost, processor and wall seconds by part, and what dbt built, by the name of its node."""

    cost: children.Cost
    processor: Mapping[str, float]
    wall: Mapping[str, float]
    nodes: Mapping[str, Any]


def booked(fleet: Path, root: Path, on: date, out: Path, variables: Mapping[str, str]) -> Day:
    """Book a date beside a sampler. RuntimeError where the run, or one of its checks, fails."""
    log = root / "dbt" / "dbt.log"
    log.unlink(missing_ok=True)
    span = ("--start", on, "--end", on + timedelta(1))
    cost, _ = children.run("bench.where_spent", out, "run", "--fleet", fleet, *span, variables={**variables, **LOGGED})
    ended = time.time()
    found = children.printed_json(out.read_text(encoding="utf-8"))
    processor, wall = Counter(found["processor"]), Counter(found["wall"])
    processor[END], wall[END] = cost.cpu_seconds - found["used"], ended - found["ended"]
    processor[UNSEEN] = found["used"] - sum(found["processor"].values())
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    done = [one["data"] for one in lines if one["info"]["name"] in ("LogModelResult", "LogTestResult")]
    return Day(cost, processor, wall, {one["node_info"]["unique_id"]: one for one in done})


def _parts(days: Sequence[Day]) -> Iterator[str]:
    """Seconds by part, the costliest first: of each part the median of the days."""
    whole = statistics.median(day.cost.cpu_seconds for day in days)
    yield "| part | processor s | share | s of the main thread |\n|---|---|---|---|"
    rows = [
        (statistics.median(day.processor.get(part, 0.0) for day in days), part)
        for part in {part for day in days for part in (*day.processor, *day.wall)}
    ]
    for seconds, part in sorted(rows, reverse=True):
        wall = statistics.median(day.wall.get(part, 0.0) for day in days)
        yield f"| {part} | {seconds:.2f} | {seconds / whole:.0%} | {wall:.2f} |"
    yield f"| **a day** | **{whole:.1f}** | | **{statistics.median(day.cost.seconds for day in days):.1f}** |"


def _kind(node: Mapping[str, Any], held: Mapping[tuple[str, str], int]) -> str:
    info = node["node_info"]
    if info["resource_type"] != "model":
        return "data tests"
    if info["materialized"] == "view":
        return "views"
    if info["materialized"] == "incremental":
        return "marts"
    relation = info["node_relation"]
    rows = held.get((relation["schema"], relation["alias"]), 0)
    return "tables of the run, with rows" if rows else "tables of the run, without rows"


def _models(day: Day, warehouse: Path) -> Iterator[str]:
    """What dbt built by kind, with the seconds that it gives, while two of them work side by side."""
    with duckdb.connect(str(warehouse), read_only=True) as connection:
        rows = connection.execute("select schema_name, table_name, estimated_size from duckdb_tables()").fetchall()
    held = {(schema, table): size for schema, table, size in rows}
    seconds: dict[str, list[float]] = {}
    for node in day.nodes.values():
        seconds.setdefault(_kind(node, held), []).append(node["execution_time"])
    yield "| what dbt makes | number | s, two side by side | ms each |\n|---|---|---|---|"
    for kind, took in sorted(seconds.items(), key=lambda pair: -sum(pair[1])):
        yield f"| {kind} | {len(took)} | {sum(took):.1f} | {sum(took) / len(took) * 1e3:.0f} |"
    slowest = sorted(day.nodes.values(), key=lambda node: -node["execution_time"])[:SLOWEST]
    named = ", ".join(f"{one['node_info']['node_name']} {one['execution_time']:.2f} s" for one in slowest)
    yield f"\nThe slowest: {named}."


def _events(home: Path) -> Iterator[str]:
    """The newest run's events in Dagster's history, by type."""
    import dagster as dg  # noqa: PLC0415 (a second that the measured runs need not wait for)

    with dg.DagsterInstance.from_config(str(home)) as instance:
        (newest,) = instance.get_runs(limit=1)
        events = instance.all_logs(newest.run_id)
    types = Counter(one.dagster_event.event_type_value if one.dagster_event else "log line" for one in events)
    listed = ", ".join(f"{number} {kind}" for kind, number in types.most_common())
    yield f"Dagster's history has {len(events)} events of a run: {listed}."


def main() -> int:
    """Book the days that the options ask for and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m bench.empty_day", description=__doc__.partition("\n")[0])
    parser.add_argument("--fleet", type=Path, default=DEFAULT_FLEET, help="a small fleet (default: the demo)")
    parser.add_argument("--days", type=int, default=3, help="measured days: the median is printed (default: 3)")
    options = parser.parse_args()
    period = load_fleet(options.fleet).period
    if options.days < 1 or (period.end is not None and (period.end - period.start).days <= options.days):
        parser.error(f"expected --days of at least 1, and a day before them in the fleet's period: got {options.days}")
    with tempfile.TemporaryDirectory(prefix="wattledger-bench-") as folder:
        root = Path(folder) / load_fleet(options.fleet).fleet
        variables = {"WATTLEDGER_DATA": folder, "DAGSTER_HOME": str(root / ".dagster")}
        span = ("--start", period.start, "--end", period.start + timedelta(1))
        cost, _ = children.run("pipelines", "run", "--fleet", options.fleet, *span, variables=variables)
        print(f"the first day, on a new warehouse: {cost.seconds:.1f} s, {cost.cpu_seconds:.1f} processor s\n")
        dates = [period.start + timedelta(number) for number in range(1, options.days + 1)]
        days = [booked(options.fleet, root, on, Path(folder) / "spent.json", variables) for on in dates]
        each = ", ".join(f"{day.cost.cpu_seconds:.1f}" for day in days)
        print(f"days later on, {where_spent.SAMPLES_PER_SECOND} samples a second; processor s of each: {each}\n")
        for table in (_parts(days), _models(days[-1], root / "warehouse.duckdb"), _events(root / ".dagster")):
            print("\n".join(table) + "\n", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
