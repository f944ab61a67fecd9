"""What receipts cost: `python -m bench.receipt_speed --requests 10000000` prints the seconds, memory and bytes of a
date of so many logged requests, beyond landing them.

Add here a step of a run that grows with requests. Keep out whether receipts are right (`receipt_truth`).
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path

from bench import children, receipt_books
from pipelines.fleet.fleet_file import load_fleet
from pipelines.fleet.places import DEFAULT_FLEET
from pipelines.fleet.running.receipt_rules import Receipts
from pipelines.receipts import receipt_files
from pipelines.warehouse import database

ON = receipt_books.ON


def main(arguments: Sequence[str] | None = None) -> None:
    """Print what the date costs; `--folder` holds gigabytes until the end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--of", type=Path, help=argparse.SUPPRESS)
    stated = parser.parse_args(arguments)
    if stated.of is not None:
        leg(stated.of)
        return
    with tempfile.TemporaryDirectory(dir=stated.folder) as folder:
        fill(Path(folder), stated.requests)
        cost, printed = children.run("bench.receipt_speed", "--of", folder)
        print(f"{stated.requests:,} requests of a date, beyond landing (aims for 10 million: 90 s, 3 GB):")
        print(f"  {cost.seconds:.0f} s, {cost.cpu_seconds:.0f} s of processors, {cost.peak_mib:,} MiB at most")
        print(printed.rstrip())


def fill(folder: Path, requests: int) -> None:
    """A warehouse with so many requests of eight models and 400 tenants, and the book that they were served by."""
    with closing(receipt_books.warehouse(folder)) as connection:
        connection.execute("set preserve_insertion_order = false")
        connection.execute(f"""
            insert into raw.requests by name
            select 'edge' as source, 'chatcmpl-' || md5(cast(i as varchar)) as request_id,
                timestamptz '{ON} 00:00+00' + to_microseconds(cast(i * (86300e6 / {requests}) as bigint)) as started_at,
                started_at + interval 9 seconds as ended_at, 0.3 + i % 7 * 0.1 as ttft_seconds,
                9 as end_to_end_seconds, true as is_ok, 'm' || i % 8 as model, 't' || i % 400 as tenant,
                100 + i % 3001 as input_tokens, i % 90 as cached_input_tokens, 10 + i % 797 as output_tokens
            from range({requests}) as r(i)
        """)
        for model in [f"m{number}" for number in range(8)]:
            connection.execute(f"""
                create or replace temp table intervals as
                select time_bucket(interval 5 minutes, started_at) as interval_start_at,
                    sum(output_tokens) * 1.2 as joules, sum(input_tokens - cached_input_tokens) as computed,
                    sum(output_tokens) as output, sum(cached_input_tokens) as cached
                from raw.requests where model = '{model}' group by all
            """)
            ((cached,),) = connection.execute("select sum(cached) from intervals").fetchall()
            receipt_books.book(connection, "intervals", float(cached), model)
        connection.execute("checkpoint")


def leg(folder: Path) -> None:
    """What a run does once the marts are made, in this process."""
    seconds = receipt_books.make(folder)
    # The demo's file, with its data in this folder.
    fleet = load_fleet(DEFAULT_FLEET).model_copy(update={"root": folder, "receipts": Receipts(keep=True)})
    began = time.monotonic()
    with closing(database.connect(folder / "warehouse.duckdb")) as connection:
        (written,) = receipt_files.write(connection, fleet, ON + timedelta(days=1))
    if written.broken:
        sys.exit(f"the receipts are not the book: {written.broken}")
    took = time.monotonic() - began
    size = sum(path.stat().st_size for path in receipt_files.folder_of(fleet).rglob("*.parquet"))
    print(f"  models {seconds:.0f} s, files {took:.0f} s: {size / written.requests:.0f} bytes each")
    shutil.rmtree(receipt_files.folder_of(fleet))


if __name__ == "__main__":
    main()
