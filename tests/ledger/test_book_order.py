"""Any order of landing and booking gives the same book, on one thread or two."""

from __future__ import annotations

import itertools
import random
from datetime import date, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from tests.books import (
    LEDGER,
    Book,
    at,
    day,
    demo_fleet,
    files_source,
    on,
    record,
    recorded,
)

SEED = 20261017


def spans(start: date, end: date, chance: random.Random, longest: int) -> list[tuple[date, date]]:
    """[start, end) cut into stretches of at most `longest` days, shuffled."""
    found, first = [], start
    while first < end:
        last = min(end, first + timedelta(days=chance.randint(1, longest)))
        found.append((first, last))
        first = last
    chance.shuffle(found)
    return found


@pytest.mark.long
# The pod's move, a negative watt, the gap over midnight; an engine's restart and eight energy counters that begin anew.
@pytest.mark.parametrize(
    ("start", "end", "marts"),
    [("10-15", "10-19", ()), ("10-06", "10-09", LEDGER)],
    ids=["move_and_gap", "resets"],
)
def test_any_order_of_days_gives_the_same_book(tmp_path: Path, start: str, end: str, marts: tuple[str, ...]) -> None:
    fleet, first, last = demo_fleet(tmp_path, on(start), on(end)), on(start), on(end)
    whole = Book.of(fleet, tmp_path / "whole", marts=marts)
    whole.run(threads=2)
    expected = whole.hashes()
    stated_by_fleets = {
        "run_windows", "load_test_phases", "model_list_prices", "benchmark_efficiency", "phase_pools_hourly",
        "held_back_dates", "held_back_tables", "unmetered_devices", "scrape_copies_daily", "budget_monthly",
        "platform_results", "platform_comparison", "platform_crossover", "platform_partial_load",
        "configuration_history", "unreadable_values", "mig_instances_daily", "unplaced_meters",
        "capacity_sources_hourly",
    }  # fmt: skip
    assert min(expected[mart][0] for mart in marts or set(expected) - stated_by_fleets) > 0
    # One thread, one or two days at a time, and one of them twice.
    shuffled = Book.of(fleet, tmp_path / "shuffled", marts=marts)
    order = spans(first, last, random.Random(SEED), 2)
    for span in (*order, order[0]):
        shuffled.run(*span, threads=1)
    assert shuffled.hashes() == expected, f"in the order {order}"


@pytest.mark.rest
def test_an_engine_that_starts_before_midnight_is_booked_alike_in_any_order(tmp_path: Path) -> None:
    """It starts at 23:50 and loads until 00:10: which day comes first must not decide what its 700 tokens are."""
    labels = '{"Hostname":"n1","model_name":"m","engine":"0","pod":"p1","namespace":"llm","container":"c"}'
    own = '{"Hostname":"n1","pod":"p1","namespace":"llm","container":"c"}'
    gpu = '{"Hostname":"n1","UUID":"GPU-1","modelName":"NVIDIA A100-SXM4-80GB"}'
    midnight = int(at("10-03 00:00").timestamp())
    minutes = range(-2 * 1440, 1440)
    rows = [("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", gpu, 60 * m, 6e6 * (m + 5000)) for m in minutes]
    rows += [("vllm:generation_tokens_total", labels, 60 * m, 70.0 * m) for m in range(10, 1440)]
    rows += [("process_start_time_seconds", own, 60 * m, midnight - 600.0) for m in range(10, 1440)]
    samples = pa.table(
        {
            "metric": [metric for metric, *_ in rows],
            "labels": [labels_json for _, labels_json, *_ in rows],
            "observed_at": pa.array([(midnight + s) * 1_000_000 for _, _, s, _ in rows]).view(
                pa.timestamp("us", "UTC")
            ),
            "value": [value for *_, value in rows],
        }
    )
    record(samples, tmp_path / "recorded")
    fleet = demo_fleet(
        tmp_path, on("10-01"), on("10-04"), sources=[files_source("cluster", "recorded/*.parquet")], nodes=[], models=[]
    )
    found = []
    for name, order in {"forward": (1, 2, 3), "backward": (3, 2, 1)}.items():
        book = Book.of(fleet, tmp_path / name, marts=LEDGER)
        for number in order:
            book.run(on(f"10-0{number}"), on(f"10-0{number}") + timedelta(days=1))
        found.append((book.hashes(), book.query("select sum(tokens)::double from marts.token_ledger")))
    assert found[0] == found[1]
    assert found[0][1][0][0] in (70.0 * 1429, 70.0 * 1439)  # from its first sample on, or from its process's start


@pytest.mark.long
def test_late_data_books_what_it_changes_and_nothing_else(tmp_path: Path) -> None:
    """One node's file of 10-22 comes last: its neighbours are the samples of the 21st and the 23rd."""
    days = [on("10-20") + timedelta(days=n) for n in range(5)]
    folder = tmp_path / "recorded"
    for node, one in itertools.product(("a6000-01", "a100-03"), days):
        if (node, one) != ("a100-03", on("10-22")):
            record(
                recorded(day(one), lambda labels, node=node: labels.get("Hostname") == node), folder, f"{node}-{one}"
            )
    sources = [files_source("boards", "recorded/*.parquet")]
    fleet = demo_fleet(tmp_path, days[0], days[-1] + timedelta(days=1), sources=sources)
    book = Book.of(fleet, tmp_path / "late")
    book.run()
    with_a_hole = book.hashes()
    # Rows of untouched dates carry a mark that booking them again would wash away.
    with book.connection() as connection:
        connection.execute(
            "update marts.energy_ledger set rack = 'untouched' where date not between ? and ?", days[1:4:2]
        )
    record(recorded(day(on("10-22")), lambda labels: labels.get("Hostname") == "a100-03"), folder, "late")
    assert book.run(on("10-22"), on("10-23")) == (on("10-21"), on("10-24"))
    marked = book.query("select distinct date from marts.energy_ledger where rack = 'untouched' order by 1")
    assert marked == [(on("10-20"),), (on("10-24"),)]
    clean = Book.of(fleet, tmp_path / "clean")
    clean.run()
    booked = "date between '2026-10-21' and '2026-10-23'"
    assert {m: h for m, h in book.hashes("true").items() if m == "model_monthly"} == {
        "model_monthly": clean.hashes()["model_monthly"]
    }
    for mart in ("energy_ledger", "token_ledger", "model_daily", "reconciliation_daily"):
        assert one_hash(book, mart, booked) == one_hash(clean, mart, booked), mart
    assert with_a_hole != clean.hashes()


def one_hash(book: Book, mart: str, where: str) -> list[tuple]:
    return book.query(f"select count(*), bit_xor(hash(t)) from marts.{mart} as t where {where}")
