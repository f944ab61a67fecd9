"""A book that is wrong does not balance: each test breaks a copy of the SQL and sees the balance turn red."""

from __future__ import annotations

from pathlib import Path

import pytest

from collectors.synthetic.demo_fleet import BOARDS
from tests.books import Book, broken_project, on

ENERGY_BALANCE, TOKEN_BALANCE = "every_metered_joule_is_booked_once", "tokens_are_booked_once"
BOARD = {(board.node, board.gpu): board.device_uuid for board in BOARDS}
NOON = "timestamptz '2026-10-07 12:00:00+00'"


@pytest.fixture(scope="module")
def sound(three_days: Book) -> Book:
    return three_days


def broken(sound: Book, folder: Path, mutant: str) -> Book:
    """The same raw data, booked anew by SQL that is wrong in one place."""
    book = sound.copy(folder / "data", broken_project(folder, mutant=mutant))
    book.write(on("10-06"), on("10-09"))
    return book


def unbalanced(book: Book) -> dict[tuple, tuple[float, float]]:
    """(date, meter) -> (metered, booked) joules, where they differ by more than a millionth, of what is held back."""
    rows = book.query(
        "select date, meter, metered_joules::double, booked_joules::double from held_back.reconciliation_daily"
        " where abs(difference_joules::double) > 1e-6 * metered_joules::double"
    )
    return {(date, meter): (metered, booked) for date, meter, metered, booked in rows}


@pytest.mark.rest
def test_an_interval_that_is_dropped_turns_the_balance_red(sound: Book, tmp_path: Path) -> None:
    book = broken(sound, tmp_path, "attribution-lost-interval")
    assert book.failed_tests(ENERGY_BALANCE, TOKEN_BALANCE) == {ENERGY_BALANCE}
    ((place, (metered, booked)),) = unbalanced(book).items()
    assert place == (on("10-07"), BOARD["a100-01", 3])
    ((lost,),) = sound.query(
        f"select energy_joules::double from marts.energy_ledger where interval_start_at = {NOON} and device_uuid = ?",
        [BOARD["a100-01", 3]],
    )
    assert metered - booked == pytest.approx(lost, abs=0.001)


@pytest.mark.long
def test_a_meter_that_is_booked_twice_turns_the_balance_red(sound: Book, tmp_path: Path) -> None:
    """The A100 boards report energy and power: the counter books them, the gauge is its cross-check."""
    book = broken(sound, tmp_path, "meters-cross-check-is-booked")
    assert ENERGY_BALANCE in book.failed_tests(ENERGY_BALANCE, TOKEN_BALANCE)
    found = unbalanced(book)
    assert {meter for _, meter in found} == {board.device_uuid for board in BOARDS if board.kind.has_energy_counter}
    assert len(found) == 60
    assert [booked / metered for metered, booked in found.values()] == [pytest.approx(2, abs=0.02)] * 60


@pytest.mark.long
def test_a_reset_that_is_lost_turns_both_balances_red(sound: Book, tmp_path: Path) -> None:
    book = broken(sound, tmp_path, "counters-reset-is-lost")
    assert book.failed_tests(ENERGY_BALANCE, TOKEN_BALANCE) == {ENERGY_BALANCE, TOKEN_BALANCE}
    found = unbalanced(book)
    assert set(found) == {(on("10-08"), BOARD["a100-02", gpu]) for gpu in range(8)}
    # The value of each counter 40 s after its restart, in millijoules: that was lost, and nothing else.
    counted = sound.query(
        "select json_extract_string(labels, '$.UUID'), value / 1000"
        " from raw.power_samples join raw.series using (series_id)"
        " where metric = 'DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION' and labels like '%a100-02%'"
        " and observed_at = timestamptz '2026-10-08 08:01:52.604+00'"
    )
    assert {meter: metered - booked for (_, meter), (metered, booked) in found.items()} == {
        device: pytest.approx(value, abs=0.001) for device, value in counted
    }
    assert min(value for _, value in counted) > 40 * 52
    # Eight boards hold back their date; one engine is named, and its date is published.
    lost = book.query(
        "select distinct date, engine from marts.token_reconciliation_daily where difference_tokens < -1 order by 1"
    )
    assert lost == [(on("10-06"), "llm-shared/gpt-oss-7d9f6c5b48-x2kqz")]
    assert book.query("select distinct date, entity from marts.doubts where reason = 'unbalanced_tokens'") == lost


@pytest.mark.rest
def test_a_token_interval_that_is_dropped_turns_the_token_balance_red(sound: Book, tmp_path: Path) -> None:
    book = broken(sound, tmp_path, "tokens-lost-interval")
    assert book.failed_tests(ENERGY_BALANCE, TOKEN_BALANCE) == {TOKEN_BALANCE}
    rows = book.query(
        "select date, token_class, difference_tokens < 0 from held_back.token_reconciliation_daily"
        " where abs(difference_tokens) > 0.001 order by 2"
    )
    assert rows == [
        (on("10-07"), token_class, True) for token_class in ("cached_input", "computed_input", "input", "output")
    ]
