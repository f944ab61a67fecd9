"""A date that no run has asked for is in no table; one that was asked for is as in a run of all dates."""

from __future__ import annotations

import random
from datetime import date, timedelta
from pathlib import Path

import pytest

from tests.books import LEDGER, Book
from tests.planted import (
    DAY,
    DAY_SECONDS,
    ENERGY,
    HOURS,
    INPUT,
    OUTPUT,
    WATTS,
    Series,
    board,
    plant,
    pod,
    rising,
    steady,
    vllm,
    without,
)

DAYS = [DAY + timedelta(days=n) for n in range(5)]
MODEL = "llama-3.1-8b"


def four_days(folder: Path) -> Book:
    """An engine on a board of 100 W, and its 10 output tokens a second: four days from midnight to midnight. A second
    board of 100 W is not seen from the first noon to the last."""
    last, noon = 4 * DAY_SECONDS, DAY_SECONDS // 2
    series = [
        (ENERGY, board("GPU-1", "n1", **pod("p1")), rising(100e3, last=last)),
        (ENERGY, board("GPU-2", "n1"), without(rising(100e3, last=last), noon, noon + 3 * DAY_SECONDS)),
        (INPUT, vllm("p1", MODEL), rising(20, last=last)),
        (OUTPUT, vllm("p1", MODEL), rising(10, last=last)),
    ]
    rates = [{"device_type": "a100-sxm4-80gb", "usd_per_gpu_hour": 2.0, "source": "contract"}]
    return plant(folder, series, days=4, cost_rates=rates)


def dates_of_tables(book: Book) -> dict[date, set[str]]:
    """Each date of a public table's rows, with these tables."""
    found: dict[date, set[str]] = {}
    for table, column in book.query(
        "select table_name, column_name from duckdb_columns() join duckdb_tables() using (schema_name, table_name)"
        " where schema_name in ('marts', 'published') and column_name in"
        " ('date', 'local_date', 'hour_start_at', 'interval_start_at', 'last_seen_date')"
    ):
        schema = (
            "marts"
            if book.query("select 1 from duckdb_tables() where schema_name = 'marts' and table_name = ?", [table])
            else "published"
        )
        for (on,) in book.query(
            f'select distinct cast({column} as date) from {schema}."{table}" where {column} is not null'
        ):
            found.setdefault(on, set()).add(table)
    return found


def test_a_date_that_no_run_asked_for_is_in_no_table_until_one_does(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "whole").mkdir()
    book, whole = four_days(tmp_path / "parts"), four_days(tmp_path / "whole")
    first, second, third, fourth, end = DAYS
    assert book.run(first, second) == (first, second)
    assert book.run(fourth, end) == (fourth, end)  # what the first run read on to has not changed
    book.write(first, end)  # as a rebuild does
    found = dates_of_tables(book)
    assert set(found) == {first, fourth}
    assert {"model_daily", "token_ledger", "cost_daily", "series_daily"} <= found[first] & found[fourth]
    daily = (
        "select date, round(sum(energy_joules)::double), sum(output_tokens)::double from marts.model_daily"
        " group by 1 order by 1"
    )
    # 86,400 s × 2 × 100 W and × 10 tokens
    assert book.query(daily) == [(first, 17_280_000, 864_000), (fourth, 17_280_000, 864_000)]
    assert book.query("select date from raw.due_dates where due = 'booking'") == []
    book.run(second, fourth)
    whole.run()
    assert book.hashes() == whole.hashes()
    assert book.query(daily) == [(on, 17_280_000, 864_000) for on in (first, second, third, fourth)]


def drawn_series(chance: random.Random) -> list[Series]:
    """Five days of boards and engines, each silent now and then, for up to two and a half days."""
    last = 5 * DAY_SECONDS

    def silent(samples: list[tuple[float, float]]) -> list[tuple[float, float]]:
        for _ in range(chance.randint(0, 2)):
            first = chance.randint(0, last // HOURS) * HOURS
            samples = without(samples, first, first + chance.choice([1, 7, 30, 60]) * HOURS)
        return samples

    series: list[Series] = []
    for number in range(3):
        labels = board(f"GPU-{number}", f"n{number}", **pod(f"p{number}"))
        series += [
            (ENERGY, labels, silent(rising(chance.randint(80, 300) * 1e3, last=last, step=300))),
            (WATTS, labels, silent(steady(chance.randint(80, 300), last=last, step=300))),
            (INPUT, vllm(f"p{number}", MODEL), silent(rising(20, last=last, step=300))),
            (OUTPUT, vllm(f"p{number}", MODEL), silent(rising(10, last=last, step=300))),
        ]
    return series


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_whatever_dates_are_asked_for_first_each_is_as_in_a_run_of_all(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    series = drawn_series(chance)
    books = []
    for name in ("whole", "parts"):
        (tmp_path / name).mkdir()
        books.append(plant(tmp_path / name, series, days=5, marts=LEDGER))
    whole, parts = books
    whole.run()
    order = chance.sample(DAYS, k=len(DAYS))
    for count, on in enumerate(order, start=1):
        parts.run(on, on + timedelta(days=1))
        if count in (2, 3, 5):
            asked = sorted(order[:count])
            assert parts.query("select distinct date from marts.series_daily order by 1") == [(one,) for one in asked]
            listed = ", ".join(f"date '{one}'" for one in asked)
            for mart in LEDGER:
                rows = f"select * from marts.{mart} where date in ({listed}) order by all"
                assert parts.query(rows) == whole.query(rows), (seed, order[:count], mart)
                assert parts.query(f"select count(*) from marts.{mart} where date not in ({listed})") == [(0,)]
