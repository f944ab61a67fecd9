"""Every landed series has an outcome, and what it measured is in a booked row, or is listed.

The second reading of the labels shares no step with the book's: breaking either shows in the balance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import composed
from tests.books import Book, broken_project
from tests.planted import DAY, ENERGY, HOURS, INPUT, OUTPUT, WATTS, Series, board, pod, rising, steady, vllm
from tests.shapes import Seen, Shape, shape

NOON = 12 * HOURS
LISTED = "every_series_is_accounted_for"
ENERGY_BALANCE, TOKEN_BALANCE = "every_metered_joule_is_booked_once", "tokens_are_booked_once"


def outcomes() -> list[Series]:
    """A board whose pod moves at noon, one without a name, one without a valid sample, a wall meter, ranks."""
    nameless = {"gpu_uuid": "N/A", "node_name": "outcome-1"}
    sglang = {"model_name": "sg", **pod("sg-9"), "mode": "decode"}
    return [
        (ENERGY, board("GPU-outcome", "outcome-1", **pod("outcome-a")), rising(300_000, last=NOON)),
        (
            ENERGY,
            board("GPU-outcome", "outcome-1", **pod("outcome-b")),
            rising(300_000, NOON + 60, start=1e6 + 300_000 * (NOON + 60)),
        ),
        (WATTS, board("GPU-outcome", "outcome-1", **pod("outcome-a")), steady(300, last=NOON)),
        ("kepler_node_gpu_watts", nameless, steady(100)),
        (ENERGY, board("GPU-blank", "outcome-1"), steady(9223372036854775794.0)),
        ("wall_power_watts", {"node": "outcome-1"}, steady(900)),
        (INPUT, vllm("outcome-a", "outcome"), rising(10)),
        (OUTPUT, vllm("outcome-a", "outcome"), rising(5)),
        *(("sglang:realtime_tokens_total", {**sglang, "tp_rank": rank}, rising(2)) for rank in ("0", "1")),
        ("sglang:generation_tokens_total", {"model_name": "sg", **pod("sg-9")}, rising(2)),
    ]


OUTCOMES = shape("outcomes", outcomes)


@pytest.fixture(scope="module")
def book(shared_book: Callable[[Shape], Seen]) -> Seen:
    return shared_book(OUTCOMES)


def test_each_series_has_one_outcome(book: Seen) -> None:
    rows = book.query(
        "select metric, coalesce(meter, engine), outcome, reason, booked_for, booked_seconds::double,"
        " own_joules::double, own_tokens::double from marts.series_daily where date = ? order by all",
        [DAY],
    )
    # The day's samples end a minute before midnight.
    day, half = 86_340, NOON
    after_noon = day - NOON - 60
    assert [row for row in rows if row[5]] == [
        (ENERGY, "GPU-outcome", "booked", None, "GPU-outcome", after_noon, 300 * after_noon, None),
        (ENERGY, "GPU-outcome", "booked", None, "GPU-outcome", half, 300 * half, None),
        ("sglang:realtime_tokens_total", "llm/sg-9", "booked", None, "llm/sg-9", day, None, 2 * day),
        (OUTPUT, "llm/outcome-a", "booked", None, "llm/outcome-a", day, None, 5 * day),
        (INPUT, "llm/outcome-a", "booked", None, "llm/outcome-a", day, None, 10 * day),
    ]
    assert [row for row in rows if not row[5]] == [
        (WATTS, "GPU-outcome", "cross_check", "better_metric_speaks", None, 0, 300 * half, None),
        (ENERGY, "GPU-blank", "refused", "no_valid_sample", None, 0, None, None),
        ("kepler_node_gpu_watts", None, "unused", "names_no_meter", None, 0, 100 * day, None),
        ("sglang:generation_tokens_total", "llm/sg-9", "cross_check", "better_metric_speaks", None, 0, None, 2 * day),
        ("sglang:realtime_tokens_total", "llm/sg-9", "redundant", "rank_repeats_another", None, 0, None, 2 * day),
        ("wall_power_watts", "outcome-1", "coarser_scope", "measures_the_host", None, 0, 900 * day, None),
    ]


def test_joules_that_no_booked_row_accounts_for_are_listed(book: Seen) -> None:
    assert book.failed_tests(LISTED) == {LISTED}
    listed = book.query(
        "select metric, unaccounted_joules::double from marts.series_daily"
        " where date = ? and (unaccounted_joules > 0 or unaccounted_tokens > 0)",
        [DAY],
    )
    assert listed == [("kepler_node_gpu_watts", 100 * 86_340)]
    # No meter is named, so the doubt is its source's, and no row of a board is marked.
    assert book.query("select reason, entity_kind, entity, evidence from marts.doubts where entity = 'outcomes'") == [
        ("unaccounted_joules", "source", "outcomes", "kepler_node_gpu_watts has 8634000 J more")
    ]
    assert book.query("select distinct doubt_reasons from marts.model_daily") == [("",)]


def test_outcomes_of_the_composed_cluster(composed_book: Book) -> None:
    rows = composed_book.query("select quantity, outcome, coalesce(reason, '') from marts.series_daily")
    boards = len(composed.BOARDS)
    assert Counter(rows) == {
        # Ten boards, the shifted one and one of the two MIG instances, which repeat their board.
        ("energy", "booked", ""): boards + 2,
        ("energy", "redundant", "repeats_a_series"): 1,
        ("energy", "cross_check", "better_metric_speaks"): 2,  # the agent and Kepler see GPU-solo
        ("energy", "refused", "no_valid_sample"): 1,  # DCGM's blanks
        ("power", "cross_check", "better_metric_speaks"): boards,
        ("power", "booked", ""): 1,
        ("tokens", "booked", ""): 18,
        ("tokens", "redundant", "rank_repeats_another"): 3,  # SGLang's second rank
        ("tokens", "cross_check", "better_metric_speaks"): 2,
        ("tokens", "unused", "counted_at_the_other_role"): 3,
        ("tokens", "coarser_scope", "nearer_source_speaks"): 3,
    }
    assert composed_book.failed_tests(LISTED) == set()


@pytest.mark.rest
@pytest.mark.parametrize(
    ("mutant", "seen"),
    [
        ("staging-two-boards-are-one", {ENERGY_BALANCE}),
        ("staging-unit-doubled", {ENERGY_BALANCE, TOKEN_BALANCE}),
        ("staging-each-tensor-rank-counts", {TOKEN_BALANCE}),
    ],
)
def test_a_mistake_of_the_books_reading_of_labels_shows(
    composed_book: Book, tmp_path: Path, mutant: str, seen: set[str]
) -> None:
    copy = composed_book.copy(tmp_path / "data", broken_project(tmp_path, mutant=mutant))
    copy.write(composed.DAY, copy.fleet.period.end)
    assert copy.failed_tests(ENERGY_BALANCE, TOKEN_BALANCE) == seen


@pytest.mark.rest
def test_a_mistake_of_the_second_reading_shows(composed_book: Book, tmp_path: Path) -> None:
    project = broken_project(tmp_path, mutant="balance-second-reading-of-a-name")
    copy = composed_book.copy(tmp_path / "data", project)
    copy.write(composed.DAY, copy.fleet.period.end)
    assert copy.failed_tests(ENERGY_BALANCE) == {ENERGY_BALANCE}
    # The date is held back, and there every series of a board that spoke is listed: both of each board of two metrics,
    # GPU-solo's by two more exporters, two MIG instances, the shifted board and the gauge-only one.
    listed = copy.query("select count(*) from held_back.series_daily where unaccounted_joules > 0")
    assert listed == [(2 * len(composed.BOARDS) + 2 + 2 + 1 + 1,)]
