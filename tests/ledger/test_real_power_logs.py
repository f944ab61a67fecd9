"""Power logs that people really keep: every 0.2 s with stalls, four boards without a name, every 50 ms.

Two are read a second time by the name of their format alone. Their times are moved to one day, so that one fleet
books them. Joules are those of the trapezoid over all samples of a board, worked out here from the file itself and
stated where its publisher or our own notes state them.
"""

from __future__ import annotations

import csv

import pytest

from collectors.recognition.folders import recognise
from tests.books import Book, validation_data
from tests.planted import DAY, moment, plant

pytestmark = pytest.mark.needs("validation-data")

STALLS, UNNAMED, FAST = "gpu_power_log_stalls.csv", "nvidia_smi_no_identity.csv", "nvidia_smi_50ms.csv"
STALLS_DAY_AT = 1763596800  # 2025-11-20
UNNAMED_WATTS = (118.11, 118.68, 122.18, 118.2)


def smi(log: str, node: str, interval_seconds: float, **more: object) -> dict[str, object]:
    """A source of an nvidia-smi log."""
    file = {
        "path": log,
        "time": "timestamp",
        "constant_labels": {"node": node},
        "values": {"nvml_power_watts": "power.draw [W]"},
        **more,
    }
    return {"name": node, "kind": "files", "site": "west", "interval_seconds": interval_seconds, "files": [file]}


def named(log: str, node: str, interval_seconds: float) -> dict[str, object]:
    """A source of such a log that states its format and maps no column."""
    file = {"path": log, "format": "nvidia_smi", "constant_labels": {"node": node}}
    return {"name": node, "kind": "files", "site": "west", "interval_seconds": interval_seconds, "files": [file]}


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Book:
    """The three logs on one day; the one without names is read as four boards, and once more without saying so."""
    folder, logs = tmp_path_factory.mktemp("logs"), validation_data() / "logs"
    with (logs / STALLS).open(encoding="utf-8") as given, (folder / STALLS).open("w", encoding="utf-8") as moved:
        print(given.readline().strip(), file=moved)
        for line in given:
            at, _, rest = line.strip().partition(",")
            print(f"{float(at) - STALLS_DAY_AT + moment(0):.3f},{rest}", file=moved)
    for log, date in ((UNNAMED, "2026/07/18"), (FAST, "2024/10/30")):
        text = (logs / log).read_text(encoding="utf-8")
        (folder / log).write_text(text.replace(date, f"{DAY:%Y/%m/%d}"), encoding="utf-8")
    per_board = [
        {
            "path": STALLS,
            "time": "timestamp",
            "time_unit": "s",
            "constant_labels": {"node": "stalls", "index": str(n)},
            "values": {"nvml_power_watts": f"GPU{n}"},
        }
        for n in range(2)
    ]
    # As it was found, without a mapping by hand: its node has the name of the file.
    (found,) = recognise(folder / STALLS).fleet_parts()["sources"]
    planted = plant(
        folder,
        {},
        more_sources=[
            {"name": "stalls", "kind": "files", "site": "west", "interval_seconds": 0.2, "files": per_board},
            smi(UNNAMED, "unnamed", 0.25, rows_are="boards"),
            smi(UNNAMED, "refused", 0.25),
            smi(FAST, "fast", 0.05, constant_labels={"node": "fast", "index": "0"}),
            named(UNNAMED, "unnamed_by_format", 0.25),
            named(FAST, "fast_by_format", 0.05),
            {**found, "site": "west"},
        ],
        marts=("reconciliation_daily", "series_daily"),
    )
    planted.run()
    return planted


def trapezoid(times: list[float], watts: list[float]) -> float:
    """Joules of a board's samples."""
    return sum((b + a) / 2 * (t - s) for s, t, a, b in zip(times, times[1:], watts, watts[1:], strict=False))


def booked(book: Book, node: str) -> list[float]:
    """Joules of each board of a node, by its name."""
    rows = book.query(
        "select sum(energy_joules)::double from marts.energy_ledger where node = ? group by device_uuid, meter"
        " order by meter",
        [node],
    )
    return [joules for (joules,) in rows]


def test_a_log_of_a_fifth_of_a_second_with_stalls_of_one_has_all_its_joules(book: Book) -> None:
    with (validation_data() / "logs" / STALLS).open(encoding="utf-8") as text:
        rows = [[float(cell) for cell in row] for row in list(csv.reader(text))[1:]]
    times = [row[0] for row in rows]
    expected = [trapezoid(times, [row[n] for row in rows]) for n in (1, 2)]
    assert expected == [pytest.approx(6635.768, abs=1e-3), pytest.approx(8655.924, abs=1e-3)]
    assert booked(book, "stalls") == pytest.approx(expected, abs=0.01)


def test_four_boards_without_a_name_are_four_boards_where_the_fleet_file_says_so(book: Book) -> None:
    # 99 moments from 21:26:02.997 to 21:26:27.497; of the hundredth only three rows are in the file.
    seconds = 24.5
    assert booked(book, "unnamed") == pytest.approx([watts * seconds for watts in UNNAMED_WATTS], abs=0.01)
    ((detail,),) = book.query("select distinct detail from raw.landings where source = 'unnamed' and rows > 0")
    assert detail.startswith("3 of 399 rows rejected")


def test_and_are_refused_where_it_does_not(book: Book) -> None:
    assert booked(book, "refused") == []
    ((outcome, detail),) = book.query("select distinct outcome, detail from raw.landings where source = 'refused'")
    assert outcome == "failed"
    assert "4 rows have the time '2026/10/15 21:26:02.997' and the same labels, expected one" in detail
    assert "rows_are: boards" in detail


def test_a_log_of_50_ms_has_its_trapezoid(book: Book) -> None:
    assert booked(book, "fast") == [pytest.approx(79.8203, abs=1e-3)]


def test_by_the_name_of_their_format_they_have_the_same_joules(book: Book) -> None:
    assert booked(book, "unnamed_by_format") == pytest.approx([watts * 24.5 for watts in UNNAMED_WATTS], abs=0.01)
    assert booked(book, "fast_by_format") == [pytest.approx(79.8203, abs=1e-3)]


def test_boards_side_by_side_are_found_without_a_mapping(book: Book) -> None:
    expected = [pytest.approx(6635.768, abs=0.01), pytest.approx(8655.924, abs=0.01)]
    assert booked(book, "gpu_power_log_stalls") == expected


def test_the_balance_agrees(book: Book) -> None:
    assert book.failed_tests("every_metered_joule_is_booked_once", "seconds_fit_into_the_interval") == set()
