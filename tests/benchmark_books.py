"""A book of published results alone: benchmark files landed, and the marts that are made of them."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

from pipelines.landing import benchmark_landing, fleet_landing
from pipelines.warehouse.raw_tables import create_tables
from tests.books import Book, create_read, demo_fleet

MODELS = (
    "int_benchmark_results",
    "benchmark_efficiency",
    "platform_results",
    "platform_comparison",
    "platform_crossover",
    "platform_partial_load",
    "configuration_history",
)


def entry(name: str, path: str, kind: str = "inferencex") -> dict[str, str]:
    """A benchmark of the fleet file."""
    return {"name": name, "kind": kind, "path": path, "as_of": "2026-06-11"}


def book_of_benchmarks(folder: Path, *entries: dict[str, Any]) -> Book:
    """The published results of these entries of a fleet file; everything else is empty."""
    fleet = demo_fleet(folder, date(2026, 10, 1), date(2026, 10, 2), benchmarks=list(entries))
    book = Book.of(fleet, folder / "data")
    with book.connection() as connection:
        create_tables(connection)
        create_read(connection)
        fleet_landing.write_fleet(connection, book.fleet)
        assert [one.failure for one in benchmark_landing.write_benchmark_results(connection, book.fleet)] == [
            None for _ in entries
        ]
    book.dbt("seed")
    book.dbt("run", "--empty")
    book.dbt("run", "--select", "stg_device_types", "int_cost_rates", "accelerator_prices", *MODELS, "held_back_tables")
    return book
