"""One build of a lake's day on Spark: `python -m bench.growth --fleet fleet.yaml --workers 2 --folder DIR`.

Starts a standalone master and that many one-core workers, builds every model with its data tests, and prints seconds
as JSON. The fleet has been landed before. Keep out DuckDB: that is `product`.
"""

from __future__ import annotations

import argparse
import json
import time
from contextlib import closing
from datetime import timedelta
from pathlib import Path

from bench.fleet_day import FIRST_DAY
from pipelines.fleet.fleet_file import load_fleet
from pipelines.landing import stores
from pipelines.landing.lake import SAMPLE_TABLES, export_control
from pipelines.spark import driver
from pipelines.warehouse import database
from tests.spark import cluster


def run(fleet_path: Path, workers: int, folder: Path) -> dict[str, float]:
    """Seconds of `spark.build`, the session's start included, and of the cluster's start before it."""
    fleet = load_fleet(fleet_path)
    lake = stores.store_of(fleet).lake
    control_id, end = f"bench-{workers}", FIRST_DAY + timedelta(1)
    with closing(database.connect(fleet.warehouse, read_only=True)) as connection:
        export_control(connection, lake, control_id, FIRST_DAY, end)
    files = {table: lake.sample_files(table, FIRST_DAY, end) for table in SAMPLE_TABLES}
    dbt_vars = {"grid_seconds": fleet.grid_seconds, "max_spread_seconds": round(fleet.max_spread_days * 86400)}
    began = time.perf_counter()
    control = Path(lake.path(f"control/{control_id}"))
    # Java's own options: the tests' spare the compiler that pays off with many rows.
    with (
        cluster.running(folder, workers) as running,
        running.driver(java_options="", driver_java_options="") as process,
    ):
        ready = time.perf_counter()
        process.submit(driver.build, Path(lake.root), files, control, FIRST_DAY, end, dbt_vars=dbt_vars).result()
        built = time.perf_counter()
    return {"seconds": round(built - ready, 3), "cluster_seconds": round(ready - began, 3)}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.growth", description=__doc__.partition("\n")[0])
    parser.add_argument("--fleet", type=Path, required=True)
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True, help="for the cluster's own files")
    options = parser.parse_args()
    seconds = run(options.fleet, options.workers, options.folder)
    print("\n" + json.dumps(seconds))


if __name__ == "__main__":
    main()
