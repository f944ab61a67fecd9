"""Bad input: an unreadable part is recorded and does not affect the rest; wrong samples never become energy."""

from __future__ import annotations

import http.server
import math
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from collectors.synthetic.demo_fleet import BOARDS
from tests.books import LEDGER, Book, at, command, day, demo_fleet, files_source, later_command, on, record, recorded
from tests.servers import fields_of, free_port, http_server, reply

pytestmark = pytest.mark.sampled

DAY = on("10-20")
SENTINELS = [float(9223372036854775792 + n) for n in range(4)]
BOARD = {(board.node, board.gpu): board.device_uuid for board in BOARDS}
WATTS, JOULES = "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"


def of_nodes(*nodes: str):
    return lambda labels: labels.get("Hostname") in nodes


# --- sources that do not answer ---------------------------------------------------------------------------------------


@pytest.mark.long
def test_sources_that_fail_are_recorded_and_the_day_is_booked_from_the_rest(tmp_path: Path) -> None:
    record(recorded(day(DAY), of_nodes("a100-03")), tmp_path / "recorded")
    port = free_port()

    def refuse(handler: http.server.BaseHTTPRequestHandler) -> None:
        fields_of(handler)
        reply(handler, 403, b"not for you")

    with http_server(refuse) as refusing:
        down = f"http://127.0.0.1:{port}/prometheus?token=s3cret"
        fleet = demo_fleet(
            tmp_path,
            DAY,
            DAY + timedelta(days=1),
            sources=[
                files_source("good", "recorded/*.parquet"),
                {"name": "down", "kind": "prometheus", "url": down, "interval_seconds": 60},
                {"name": "refusing", "kind": "prometheus", "url": f"{refusing}?key=s3cret", "interval_seconds": 60},
            ],
        )
        done = later_command(fleet, tmp_path / "data")
    book = Book.of(fleet, tmp_path / "data")

    assert done.returncode == 1
    assert "FAILED raw/landings source_down_answers: 2026-10-20 failed" in done.stdout
    assert "FAILED raw/landings source_refusing_answers: 2026-10-20 failed" in done.stdout
    assert ", 2 failed, 2 warned" in done.stdout
    # One node was recorded, the fleet file has more.
    assert "  warned marts/model_daily fleet_file_entries_match: " in done.stdout
    expected_lines = [
        "  warned raw/series_chunks sources_speak: 2 rows",
        "    source down, date 2026-10-20",
        "    source refusing, date 2026-10-20",
        "    Expected: samples up to the end of the day",
    ]
    assert "\n".join(expected_lines) in done.stdout
    assert "    What to do: see whether the source, its exporters and its scraper run" in done.stdout
    window = (at("10-20 00:00"), at("10-21 00:00"))
    assert book.query(
        "select source, outcome, url, status, window_start_at, window_end_at, rows > 0 from raw.landings"
        " where window_start_at = ? and window_end_at = ? order by 1",
        window,
    ) == [
        ("down", "failed", f"http://127.0.0.1:{port}/prometheus/api/v1/query", None, *window, False),
        ("good", "landed", None, None, *window, True),
        ("refusing", "failed", f"{refusing}/api/v1/query", "403", *window, False),
    ]
    # The hours before and after the period are asked for too; the good source has nothing there.
    around = "select source, outcome, count(*) from raw.landings where window_start_at <> ? group by 1, 2 order by 1"
    assert book.query(around, window[:1]) == [("down", "failed", 2), ("good", "empty", 2), ("refusing", "failed", 2)]
    assert book.query("select count(*) from raw.landings where concat(url, status, detail) like '%s3cret%'") == [(0,)]
    assert "s3cret" not in done.stdout + done.stderr
    # Booked, balanced and published.
    rows = book.query("select model, round(coverage_ratio, 3), energy_joules > 3e7 from marts.model_daily")
    assert rows == [("MiniMax-M2.5", pytest.approx(1, abs=0.002), True)]
    assert (book.fleet.published / "wattledger.duckdb").exists()

    # Now no source answers: the run fails, and what is published stays.
    published = (book.fleet.published / "latest").resolve()
    before = book.hashes()
    (tmp_path / "recorded" / "samples.parquet").unlink()
    done = later_command(fleet, tmp_path / "data")
    assert done.returncode == 1
    assert "every source failed" in done.stderr
    assert (book.fleet.published / "latest").resolve() == published
    assert book.hashes() == before
    landings = "select outcome, detail like '%no such file%' from raw.landings where source = 'good'"
    assert book.query(f"{landings} and window_start_at = ? and window_end_at = ?", window) == [
        ("landed", None),
        ("failed", True),
    ]


@pytest.mark.rest
def test_an_answer_with_fewer_rows_erases_nothing(tmp_path: Path) -> None:
    samples = recorded(day(DAY), of_nodes("a100-03"))
    record(samples, tmp_path / "recorded")
    fleet = demo_fleet(tmp_path, DAY, DAY + timedelta(days=1), sources=[files_source("boards", "recorded/*.parquet")])
    book = Book.of(fleet, tmp_path / "data")
    book.run()
    before = book.hashes()
    record(samples.slice(0, samples.num_rows // 2), tmp_path / "recorded")
    landing, *_ = book.land(DAY, DAY + timedelta(days=1))
    assert (landing.outcome, landing.is_answered, landing.rows_before) == ("refused_fewer", False, samples.num_rows)
    book.write(DAY, DAY + timedelta(days=1))
    assert book.hashes() == before


# --- wrong samples ----------------------------------------------------------------------------------------------------


MARTS = (*LEDGER, "model_daily", "unreadable_values")


def lines(metric: str, labels: str, times: list, values: list[float]) -> pa.Table:
    """Samples of one series, in this order."""
    return pa.table(
        {
            "metric": [metric] * len(values),
            "labels": [labels] * len(values),
            "observed_at": pa.array(times, pa.timestamp("us", "UTC")),
            "value": pa.array(values, pa.float64()),
        }
    )


def series_of(samples: pa.Table, metric: str, device: str) -> pa.Table:
    rows = [
        metric == name and device in labels
        for name, labels in zip(samples["metric"].to_pylist(), samples["labels"].to_pylist(), strict=True)
    ]
    return samples.filter(pa.array(rows))


def booked_with(folder: Path, samples: pa.Table) -> Book:
    folder.mkdir()
    record(samples, folder / "recorded")
    fleet = demo_fleet(folder, DAY, DAY + timedelta(days=1), sources=[files_source("boards", "recorded/*.parquet")])
    book = Book.of(fleet, folder / "data", marts=MARTS)
    book.run()
    return book


def joules(book: Book) -> list[tuple]:
    return book.query(
        "select interval_start_at, device_uuid, model, sum(energy_joules) from marts.energy_ledger group by all"
        " order by all"
    )


def tokens(book: Book) -> list[tuple]:
    return book.query("select interval_start_at, engine, token_class, tokens from marts.token_ledger order by all")


@pytest.fixture(scope="module")
def samples() -> pa.Table:
    """A day of gauge-only boards with a busy engine, and of boards with counters."""
    return recorded(day(DAY), of_nodes("a6000-01", "a100-03"))


@pytest.fixture(scope="module")
def clean(samples: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Book:
    return booked_with(tmp_path_factory.mktemp("clean") / "book", samples)


def test_what_is_no_measurement_never_becomes_energy_and_is_counted(
    samples: pa.Table, clean: Book, tmp_path: Path
) -> None:
    wrong_values = [math.nan, math.inf, -math.inf, -1.0, -350.0, *SENTINELS]
    planted = [samples]
    for metric, device in ((WATTS, BOARD["a6000-01", 0]), (JOULES, BOARD["a100-03", 2])):
        labels = series_of(samples, metric, device)["labels"][0].as_py()
        times = [at("10-20 09:00") + timedelta(minutes=11 * n, seconds=31) for n in range(len(wrong_values))]
        planted.append(lines(metric, labels, times, wrong_values))
    generated = next(
        labels
        for metric, labels in zip(samples["metric"].to_pylist(), samples["labels"].to_pylist(), strict=True)
        if metric == "vllm:generation_tokens_total" and "gpt-oss" in labels
    )
    planted.append(lines("vllm:generation_tokens_total", generated, times, wrong_values))
    book = booked_with(tmp_path / "book", pa.concat_tables(planted))
    assert joules(book) == joules(clean)
    assert tokens(book) == tokens(clean)
    assert book.query("select sum(rejects) from raw.series_chunks") == [(27,)]
    counted = "select meter, rejected_samples from marts.reconciliation_daily where rejected_samples > 0 order by 1"
    assert book.query(counted) == sorted([(BOARD["a6000-01", 0], 9), (BOARD["a100-03", 2], 9)])
    assert book.query(
        "select token_class, rejected_samples from marts.token_reconciliation_daily where rejected_samples > 0"
    ) == [("output", 9)]


@pytest.mark.rest
def test_a_meter_with_only_wrong_samples_is_still_listed(samples: pa.Table, clean: Book, tmp_path: Path) -> None:
    """Where a counter has sentinels only, its board's gauge books it; a board with no second meter has no joules."""
    device, silent = BOARD["a100-03", 0], BOARD["a6000-01", 0]
    values = [
        SENTINELS[2] if (metric == JOULES and device in labels) or (metric == WATTS and silent in labels) else value
        for metric, labels, value in zip(*(samples[c].to_pylist() for c in ("metric", "labels", "value")), strict=True)
    ]
    book = booked_with(tmp_path / "book", samples.set_column(3, "value", pa.array(values, pa.float64())))
    assert book.query("select metric, rejected_samples from marts.reconciliation_daily where meter = ?", [device]) == [
        (WATTS, 1440)
    ]
    columns = "metric, metered_joules, booked_joules, rejected_samples"
    listed = book.query(f"select {columns} from marts.reconciliation_daily where meter = ?", [silent])
    assert listed == [(None, None, None, 1440)]
    ((gauge,),) = book.query(
        "select sum(energy_joules)::double from marts.energy_ledger where device_uuid = ?", [device]
    )
    ((counter,),) = clean.query(
        "select sum(energy_joules)::double from marts.energy_ledger where device_uuid = ?", [device]
    )
    assert gauge == pytest.approx(counter, rel=0.001)


@pytest.mark.rest
def test_order_of_arrival_and_repeats_change_nothing(samples: pa.Table, clean: Book, tmp_path: Path) -> None:
    """Every row at a random place, a thousand of them twice, and a hundred counter values repeated lower."""
    chance = np.random.default_rng(20261020)
    counter = series_of(samples, JOULES, BOARD["a100-03", 1])
    lower = counter.slice(600, 100)
    lower = lower.set_column(3, "value", pa.array([value - 1e6 for value in lower["value"].to_pylist()]))
    repeated = samples.take(pa.array(chance.choice(samples.num_rows, 1000, replace=False)))
    everything = pa.concat_tables([samples, repeated, lower])
    book = booked_with(tmp_path / "book", everything.take(pa.array(chance.permutation(everything.num_rows))))
    # Sample by sample, each piece is rounded to a microjoule: to a thousandth of a joule in five minutes.
    for found, expected in ((joules(book), joules(clean)), (tokens(book), tokens(clean))):
        assert [row[:3] for row in found] == [row[:3] for row in expected]
        assert [float(row[3]) for row in found] == [pytest.approx(float(row[3]), abs=0.001) for row in expected]
    ((duplicates, out_of_order),) = book.query("select sum(duplicates), sum(out_of_order) from raw.series_chunks")
    assert duplicates == 1100
    assert out_of_order > 10_000
    # The typical interval is the meter's own, or a gauge's gaps would be filled.
    assert book.query("select distinct typical_interval_seconds, longest_gap_seconds from raw.series_chunks") == [
        (60, 60)
    ]
    refused = "select sum(rejected_samples), sum(out_of_order_samples) from marts."
    ((rejected_power, late_power),) = book.query(f"{refused}reconciliation_daily")
    ((rejected_tokens, late_tokens),) = book.query(f"{refused}token_reconciliation_daily")
    assert 100 <= rejected_power <= 1100 - rejected_tokens
    assert rejected_tokens > 0
    assert out_of_order / 2 < late_power + late_tokens <= out_of_order


@pytest.mark.parametrize("hours", [-3, 3])
def test_a_clock_that_jumps_makes_no_energy_from_a_counter(
    samples: pa.Table, clean: Book, tmp_path: Path, hours: int
) -> None:
    """Ten minutes of a board's counter arrive once more, stamped three hours off: 1.2 MJ up or down and back each time.

    Dips that the next sample takes back are no readings at all; of leaps, the gauge has what the board really drew.
    """
    counter = series_of(samples, JOULES, BOARD["a100-03", 3])
    minutes = counter.slice(720, 10)
    jumped = [when + timedelta(hours=hours, seconds=17) for when in minutes["observed_at"].to_pylist()]
    strayed = lines(JOULES, counter["labels"][0].as_py(), jumped, minutes["value"].to_pylist())
    book = booked_with(tmp_path / "book", pa.concat_tables([samples, strayed]))
    assert book.query("select count(*) from raw.power_samples") == [
        (clean.query("select count(*) from raw.power_samples")[0][0] + 10,)
    ]
    by_day = "select device_uuid, sum(energy_joules)::double from marts.energy_ledger group by 1 order by 1"
    assert book.query(by_day) == [(device, pytest.approx(value, rel=1e-4)) for device, value in clean.query(by_day)]


@pytest.mark.rest
def test_samples_of_other_years_stay_out_of_the_day(samples: pa.Table, clean: Book, tmp_path: Path) -> None:
    counter = series_of(samples, JOULES, BOARD["a100-03", 3])
    years = [at("10-20 12:00").replace(year=year) for year in (2001, 2019, 2038, 2099)]
    strayed = lines(JOULES, counter["labels"][0].as_py(), years, [1e9, 2e9, 3e12, 4e12])
    book = booked_with(tmp_path / "book", pa.concat_tables([samples, strayed]))
    assert book.hashes() == clean.hashes()


@pytest.mark.rest
def test_samples_of_no_possible_year_are_listed_and_change_nothing(
    samples: pa.Table, clean: Book, tmp_path: Path
) -> None:
    counter = series_of(samples, JOULES, BOARD["a100-03", 3])
    years = [at("10-20 12:00").replace(year=year) for year in (1970, 1999, 2106)]
    strayed = lines(JOULES, counter["labels"][0].as_py(), years, [1e3, 1e6, 5e12])
    book = booked_with(tmp_path / "book", pa.concat_tables([samples, strayed]))
    listed = "select expected, outcome, samples from marts.unreadable_values"
    assert book.query(listed) == [("a number from 0 to 9.2e18, at a time from 2000 to 2099", "refused", 3)]
    counted = ("reconciliation_daily", "series_daily", "unreadable_values")
    found, expected = book.hashes(), clean.hashes()
    assert {name for name in found if found[name] != expected[name]} == set(counted)


# --- a wrong fleet file -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value", "quoted"),
    [
        ("grid_seconds", 7, ["grid_seconds", "7", "divisor of 3600"]),
        ("synthetic", False, ["synthetic", "false", "expected true"]),
        ("period", {"start": "2026-10-20", "end": "2026-10-20"}, ["period", "2026-10-20", "after the start"]),
        ("sites", [{"name": "west", "zone": "X", "pue": 0.4}], ["pue", "0.4", "expected 1 to 10"]),
        ("grid_secs", 300, ["grid_secs", "unknown key"]),
        ("nodes", [{"name": "n", "site": "east"}], ["nodes[n].site", "east", "west"]),
    ],
)
def test_a_wrong_fleet_file_is_refused_before_anything_runs(
    tmp_path: Path, key: str, value: object, quoted: list[str]
) -> None:
    path = demo_fleet(tmp_path, DAY, DAY + timedelta(days=1), **{key: value})
    done = command(path, tmp_path / "data")
    assert (done.returncode, done.stdout) == (2, "")
    assert [words for words in [str(path), *quoted] if words not in done.stderr] == [], done.stderr
    assert not (tmp_path / "data").exists()
