"""A third party's published power result, reproduced: MLPerf v4.1 entry 4.1-0049, not verified by MLCommons."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.fleet.places import PROJECT
from tests.books import Book, later_command, validation_data

NEEDED_BY = {"book": ("validation-data",)}

# window: official watts, J/output token, output tokens of the window and of its engine's ranging window
WINDOWS = {
    "gptj-99.offline.run_1": (4775.2703598485, 0.364619, 13_835_877, 13_835_842),
    "gptj-99.server.run_1": (4722.5611727417, 0.403610, 7_382_292, 7_384_468),
    "llama2-70b-99.offline.run_1": (6152.9844351733, 0.243566, 78_735_271, 78_735_144),
    "llama2-70b-99.server.run_1": (6280.214, 0.271717, 57_783_952, 57_815_518),
    "mixtral-8x7b.offline.run_1": (6154.8035493827, 0.125639, 126_966_986, 126_966_581),
    "mixtral-8x7b.server.run_1": (6174.8963283828, 0.135721, 110_275_083, 110_298_204),
}


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Book:
    validation_data()
    data = tmp_path_factory.mktemp("mlperf")
    fleet = PROJECT / "fleets" / "mlperf.yaml"
    done = later_command(fleet, data)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "fleet mlperf, 2024-07-17 to 2024-07-24: measured telemetry" in done.stdout
    return Book.of(fleet, Path(data))


@pytest.mark.long
def test_the_six_official_watts_are_reproduced_to_a_millionth(book: Book) -> None:
    found = dict(book.query("select window_id, mean_watts from marts.run_windows where window_id like '%run_1'"))
    assert found == {window: pytest.approx(watts, rel=1e-6) for window, (watts, *_) in WINDOWS.items()}


@pytest.mark.rest
def test_no_window_is_in_doubt(book: Book) -> None:
    assert book.query("select distinct doubt_reasons from marts.run_windows where energy_joules is not null") == [("",)]


@pytest.mark.rest
def test_the_six_joules_per_token_are_reproduced_to_a_thousandth(book: Book) -> None:
    found = dict(
        book.query(
            "select window_id, joules_per_output_token from marts.run_windows"
            " where window_id like '%run_1' and is_valid"
        )
    )
    assert found == {window: pytest.approx(joules, rel=1e-3) for window, (_, joules, *_) in WINDOWS.items()}


@pytest.mark.rest
def test_energy_by_trapezoid_is_the_mean_times_the_duration(book: Book) -> None:
    rows = book.query(
        "select energy_joules::double, mean_watts * (epoch(end_at) - epoch(start_at)) from marts.run_windows"
    )
    assert len(rows) == 12
    assert [joules for joules, _ in rows] == [pytest.approx(expected, rel=1e-3) for _, expected in rows]


@pytest.mark.rest
def test_the_book_balances_and_the_two_sentinels_are_rejected(book: Book) -> None:
    rows = book.query(
        "select date::varchar, metered_joules > 0, abs(difference_joules::double) / metered_joules::double < 1e-6,"
        " rejected_samples from marts.reconciliation_daily order by date"
    )
    assert rows == [("2024-07-17", True, True, 2), ("2024-07-23", True, True, 0), ("2024-07-24", True, True, 0)]
    assert book.query("select count(*) from raw.power_samples where value = -1") == [(2,)]


@pytest.mark.rest
def test_the_token_ledger_holds_every_token_of_both_windows_of_each_engine(book: Book) -> None:
    booked = book.query("select engine, sum(tokens)::double from marts.token_ledger group by 1")
    assert dict(booked) == {
        window.removesuffix(".run_1").replace(".", "-"): float(run + ranging)
        for window, (_, _, run, ranging) in WINDOWS.items()
    }
    assert book.query("select count(*), max(abs(difference_tokens)) < 0.001 from marts.token_reconciliation_daily") == [
        (7, True)
    ]


@pytest.mark.rest
def test_between_the_windows_the_node_is_parked_or_unallocated_and_never_unknown(book: Book) -> None:
    assert book.query("select distinct state from marts.energy_ledger order by 1") == [
        ("active",),
        ("parked",),
        ("unallocated",),
    ]
    # The bench's location is unknown: no CO2 and no dollars, rather than wrong ones.
    assert book.query("select count(location_gco2e), count(energy_cost_usd) from marts.model_daily") == [(0, 0)]
