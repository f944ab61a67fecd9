"""Runs that several benchmark files hold count once, before any table is made of them; what looks alike stays two."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.benchmark_books import book_of_benchmarks, entry
from tests.books import Book, broken_project, validation_data

NEEDED_BY = {"published": ("validation-data",)}

# 8 boards of 600 W: 4,800 W for 8 × 40 = 320 output tokens a second are 15 J, for 8 × 300 tokens of both kinds 2 J.
MEASURED = {
    "tput_per_gpu": 300.0,
    "input_tput_per_gpu": 260.0,
    "output_tput_per_gpu": 40.0,
    "median_intvty": 50.0,
    "median_ttft": 0.5,
    "p99_ttft": 1.5,
    "median_e2el": 122.88,
    "avg_power_w": 600.0,
}
RUN: dict[str, Any] = {
    "hardware": "b200",
    "framework": "sglang",
    "model": "dsr1",
    "precision": "fp8",
    "spec_method": "none",
    "disagg": False,
    "prefill_tp": 8,
    "prefill_ep": 8,
    "decode_tp": 8,
    "decode_ep": 8,
    "num_prefill_gpu": 64,
    "num_decode_gpu": 64,
    "isl": 8192,
    "osl": 1024,
    "conc": 32,
    "image": "sglang:v9",
    "metrics": MEASURED,
    "workers": None,
    "date": "2026-05-18",
    "run_url": "https://example.org/runs/1",
}
TRIMMED = {key: value for key, value in RUN.items() if key != "image"} | {
    "metrics": {key: value for key, value in MEASURED.items() if key not in ("p99_ttft", "avg_power_w")}
}


def measured_otherwise(**metrics: float) -> dict[str, Any]:
    return RUN | {"metrics": MEASURED | metrics}


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Book:
    """Four files in one glob: the run three times whole, once with fewer columns, and runs that only look like it."""
    folder = tmp_path_factory.mktemp("copies")
    files = {
        "a": [TRIMMED],
        "b": [RUN, measured_otherwise(median_ttft=0.6)],
        "c": [RUN, measured_otherwise(avg_power_w=610.0)],
        "d": [RUN, RUN | {"run_url": "https://example.org/runs/2"}],
    }
    for name, rows in files.items():
        (folder / f"{name}.json").write_text(json.dumps(rows))
    return book_of_benchmarks(folder, entry("site", f"{folder}/?.json"))


def test_a_run_of_four_files_counts_once_with_all_that_is_published_of_it(book: Book) -> None:
    columns = "copies, software, ttft_p99_seconds, measured_joules_per_token"
    runs = book.query(
        f"select {columns} from marts.platform_results where run_url like '%/1' and copies > 1 order by all"
    )
    assert runs == [(4, "sglang:v9", 1.5, pytest.approx(2.0))]


def test_runs_that_differ_in_one_figure_or_in_their_address_stay_two(book: Book) -> None:
    """Of the same configuration, date and address: another time to the first token, other watts; and another run."""
    both = "select run_url, repetition, joules_per_output_token from marts.benchmark_efficiency order by all"
    first, second = "https://example.org/runs/1", "https://example.org/runs/2"
    # 8 × 610 W / 320 tokens a second are 15.25 J.
    assert sorted((url, joules) for url, _, joules in book.query(both)) == [
        (first, 15.0),
        (first, 15.0),
        (first, 15.25),
        (second, 15.0),
    ]
    keys = "select run_url, repetition, measured_joules_per_output_token from marts.platform_results order by all"
    assert book.query(keys) == book.query(both)
    assert [number for _, number, _ in book.query(both)] == [1, 2, 3, 1]


def test_no_table_is_held_back(book: Book) -> None:
    assert book.query("select table_name, row_key from marts.held_back_tables") == []
    assert book.query("select count(*) > 0 from marts.platform_comparison") == [(True,)]


def test_a_table_of_joules_that_fails_does_not_hold_back_the_platforms(book: Book, tmp_path: Path) -> None:
    """Whoever computes from the failing table waits with it; tables of the same results do not."""
    broken = book.copy(tmp_path / "data", broken_project(tmp_path, mutant="benchmarks-key-twice"))
    broken.dbt("run", "--select", "benchmark_efficiency", "held_back_tables")
    held = {table for (table,) in broken.query("select distinct table_name from marts.held_back_tables")}
    assert "benchmark_efficiency" in held
    assert {table for table in held if table.startswith(("platform", "configuration", "model_footprints"))} == set()
    assert broken.query("select count(*) from marts.platform_results") == [(4,)]


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Book:
    """The publisher's two files, and the first of them once more, in one glob."""
    folder = tmp_path_factory.mktemp("published")
    for name, copied in (("benchmarks", "now"), ("benchmarks", "now_again"), ("history", "before")):
        shutil.copyfile(validation_data() / f"inferencex/{name}.json", folder / f"{copied}.json")
    return book_of_benchmarks(folder, entry("site", f"{folder}/*.json"))


@pytest.mark.rest
def test_published_files_that_share_runs_are_all_booked(published: Book) -> None:
    """435 rows twice and 816, of which 90 are among the 435: 726 once, 345 twice and 90 three times, 1,161 in all.
    17 of the 435 state watts."""
    assert published.query("select copies, count(*) from marts.platform_results group by 1 order by 1") == [
        (1, 726),
        (2, 345),
        (3, 90),
    ]
    assert published.query("select count(*) from marts.benchmark_efficiency") == [(17,)]
    # What the longer file alone has, the image of the software, stays with the runs of all three.
    assert published.query("select count(software) from marts.platform_results where copies = 3") == [(90,)]
    assert published.query("select table_name, row_key from marts.held_back_tables") == []
