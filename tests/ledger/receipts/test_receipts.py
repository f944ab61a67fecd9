"""Receipts: what each logged request used, beside an engine whose law is known, and with the book to the last digit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from bench.simulated_engine import INTERVAL_SECONDS, Law, Served, serve
from pipelines.fleet.running.receipt_rules import Receipts
from pipelines.receipts import receipt_files
from tests.books import Book
from tests.planted import (
    DAY,
    DAY_SECONDS,
    ENERGY,
    INPUT,
    OUTPUT,
    Samples,
    Series,
    board,
    moment,
    plant,
    pod,
    rising,
    steady,
    vllm,
)

IDLE_WATTS = 90.0
RUNNING = "vllm:num_requests_running"
BEGAN = 3600  # the simulated engine serves from one o'clock
TODAY = DAY + timedelta(days=1)
pytestmark = pytest.mark.rest
MARTS = ("model_daily", "model_hourly", "model_intervals", "phase_sums_daily", "tenant_usage_daily")


@pytest.fixture(scope="module")
def served() -> Served:
    return serve(Law(), np.random.default_rng(3), 2, 3600.0)


def counted(amounts: np.ndarray, per_second: float = 0) -> Samples:
    """A counter that rises by the amounts of the simulated intervals, from `BEGAN` on, and steadily beside them."""
    edges = BEGAN + np.arange(amounts.size + 1) * INTERVAL_SECONDS
    sums = np.concatenate([[0], np.cumsum(amounts)])
    seconds = np.arange(0, DAY_SECONDS + 1, 60)
    return [
        (moment(at), 1e9 + total + per_second * at)
        for at, total in zip(seconds.tolist(), np.interp(seconds, edges, sums).tolist(), strict=True)
    ]


def running(served: Served) -> Samples:
    """How many of the simulated requests run at each minute."""
    seconds = np.arange(0, DAY_SECONDS + 1, 60) - BEGAN
    at_once = np.searchsorted(np.sort(served.start), seconds) - np.searchsorted(np.sort(served.end), seconds)
    return [(moment(BEGAN + at), float(number)) for at, number in zip(seconds.tolist(), at_once, strict=True)]


def series(served: Served) -> Iterator[Series]:
    millijoules = counted(served.interval_joules * 1000, IDLE_WATTS * 1000)
    yield ENERGY, board("GPU-chat", "n-chat", **pod("chat-0")), millijoules
    computed, cached = served.interval_computed, float((served.cached_tokens).sum())
    share = cached / computed.sum()
    yield INPUT, vllm("chat-0", "chat"), counted(computed * (1 + share))
    yield "vllm:prompt_tokens_cached_total", vllm("chat-0", "chat"), counted(computed * share)
    yield OUTPUT, vllm("chat-0", "chat"), counted(served.interval_output)
    yield RUNNING, vllm("chat-0", "chat"), running(served)
    yield ENERGY, board("GPU-plain", "n-plain", **pod("plain-0")), rising(360_000, start=1e9)
    yield INPUT, vllm("plain-0", "plain"), rising(4)
    yield OUTPUT, vllm("plain-0", "plain"), rising(1)
    yield RUNNING, vllm("plain-0", "plain"), steady(1)


def line(
    identity: str | None, model: str, at: float, seconds: float | None, tokens: tuple[int, int, int] | None
) -> dict:
    usage = tokens and {
        "prompt_tokens": tokens[0],
        "prompt_tokens_details": {"cached_tokens": tokens[1]},
        "completion_tokens": tokens[2],
    }
    created = datetime(DAY.year, DAY.month, DAY.day, tzinfo=UTC) + timedelta(seconds=at)
    return {
        "id": identity,
        "created": created.isoformat(),
        "seconds": seconds,
        "model": model,
        "usage": usage,
        "who": "acme",
    }


PLAIN = [
    line("whole", "plain", 40_000, 9, (1_000, 0, 100)),
    line("twice", "plain", 41_000, 9, (1_000, 0, 100)),
    line(None, "plain", 42_000, None, (1_000, 0, 100)),
    line("unknown", "plain", 43_000, 9, None),
    line("ghost", "ghost", 44_000, 9, (1_000, 0, 100)),
]
# A second log of one of these requests, by who asked.
AGAIN = [line("twice", "plain", 41_000.5, 9, (1_000, 0, 100))]


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory, served: Served) -> Book:
    folder = tmp_path_factory.mktemp("receipts")
    chat = [
        line(str(number), "chat", BEGAN + start, end - start, (int(tokens), int(cached), int(output)))
        for number, (start, end, tokens, cached, output) in enumerate(
            zip(served.start, served.end, served.input_tokens, served.cached_tokens, served.output_tokens, strict=True)
        )
    ]
    for name, lines in {"edge": [*chat, *PLAIN], "again": AGAIN}.items():
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in lines), encoding="utf-8")
    columns = {"duration_seconds": "seconds", "tenant": "who"}
    planted = plant(
        folder,
        series(served),
        marts=MARTS,
        requests=[
            {"name": name, "kind": "access_log", "path": f"{name}.jsonl", "columns": columns}
            for name in ("edge", "again")
        ],
        cost_rates=[{"device_type": "a100-sxm4-80gb", "usd_per_gpu_hour": 2.0, "source": "contract"}],
    )
    planted.run()
    kept = replace(planted, fleet=planted.fleet.model_copy(update={"receipts": Receipts(keep=True)}))
    kept.dbt("run", "--select", "int_token_weights", "int_phase_fits", "path:models/receipts")
    return kept


def test_receipts_hold_what_such_a_request_used_and_do_not_move_with_its_neighbours(book: Book, served: Served) -> None:
    """At least 95 % are covered, the median half-width is at most a quarter, and a kind of request, beside 1 to 40
    others, has the same energy."""
    found = book.query(
        "select own_energy_joules::double, own_energy_joules_low::double, own_energy_joules_high::double"
        " from intermediate.int_receipts where model = 'chat' order by request_id::int"
    )
    own, low, high = np.array(found).T
    truth = served.expected_joules
    assert own.size == served.start.size
    assert np.ptp(served.neighbours) > 10
    assert ((low <= truth) & (truth <= high)).mean() >= 0.95
    assert np.median((high - low) / 2 / own) <= 0.25
    assert own.sum() == pytest.approx(served.joules.sum(), rel=0.03)
    for shape in np.unique(served.shape):
        of_shape = own[served.shape == shape]
        assert np.ptp(of_shape) < 1e-3 * of_shape.mean()
    # The same requests' shares of what was drawn while they ran differ by more than their mean.
    spreads = [
        np.ptp(served.joules[served.shape == one]) / served.joules[served.shape == one].mean() for one in range(30)
    ]
    assert np.median(spreads) > 1


def test_a_receipt_follows_from_the_lookbacks_tokens_and_joules(book: Book) -> None:
    """(360 - 90) W all day are 23,328,000 J over 86,400 output and 345,600 input tokens, which the engine does not
    divide. With one request at once an input token weighs 0.012, at the ends 0.003 and 0.048: a token costs 257.633588,
    266.798419 and 226.510067 J. The error is √(0.09² + 0.05²). Of 7,776,000 idle joules a token of
    86,400 + 345,600 / 4 carries 45."""
    (found,) = book.query(
        "select own_energy_joules, own_energy_joules_low, own_energy_joules_high, active_floor_energy_joules,"
        " idle_energy_joules, quality, method from intermediate.int_receipts where request_id = 'whole'"
    )
    *joules, quality, method = found
    error = (0.09**2 + 0.05**2) ** 0.5
    assert [float(one) for one in joules] == pytest.approx(
        [
            257.633587786 * 112,
            266.798418972 * 103 * (1 - error),
            226.510067114 * 148 * (1 + error),
            257.633587786 * 100 * 0.69,
            45 * 350,
        ],
        abs=1e-3,
    )
    assert (quality, method) == ("good", "concurrency")


def test_what_a_log_lacks_is_in_the_quality_of_the_row(book: Book) -> None:
    assert book.query(
        "select request_id, quality, round(own_energy_joules)::int from intermediate.int_receipts where model <> 'chat'"
        " order by started_at"
    ) == [
        ("whole", "good", 28_855),
        ("twice", "id_twice", 0),
        ("twice", "good", 28_855),
        (None, "no_times", 28_855),
        ("unknown", "no_tokens", None),
        ("ghost", "not_served", None),
    ]


def test_receipts_and_balancing_rows_are_the_book(book: Book) -> None:
    for fact in ("energy_joules", "location_gco2e", "compute_cost_usd"):
        own = "own_energy_joules" if fact == "energy_joules" else fact
        totals = book.query(
            f"select (select sum({own}) + sum(idle_{fact}) from intermediate.int_receipts)"
            f" + (select sum({fact}) from intermediate.int_receipt_balances),"
            f" (select sum({fact}) from marts.model_daily)"
        )
        assert totals[0][0] == totals[0][1] > 0
    # Of 86,400 output tokens the log has 300, of 345,600 input tokens 3,000: 257.633588 × (86,100 + 0.012 × 342,600).
    assert book.query(
        "select part, round(energy_joules)::int from intermediate.int_receipt_balances where model = 'plain'"
        " and abs(energy_joules) > 1 order by part"
    ) == [("idle", 7_776_000 - 47_250), ("unlogged", 23_241_435)]
    assert book.query("select * from intermediate.int_broken_receipts") == []


def test_a_date_whose_receipts_are_not_the_book_is_not_written(book: Book, tmp_path: Path) -> None:
    broken = book.copy(tmp_path, is_published=False)
    with broken.connection() as connection:
        (written,) = receipt_files.write(connection, broken.fleet, TODAY)
        assert (written.date, written.broken) == (DAY, ())
        file = receipt_files.folder_of(broken.fleet) / "request_receipts" / f"date={DAY}" / "rows.parquet"
        before = file.read_bytes()
        connection.execute("delete from intermediate.int_receipts where request_id = 'whole'")
    broken.dbt("run", "--select", "int_broken_receipts")
    with broken.connection() as connection:
        (written,) = receipt_files.write(connection, broken.fleet, TODAY)
    facts = [fact for _, fact, *_ in written.broken]
    assert facts == ["compute_cost_usd", "energy_joules", "location_gco2e", "market_gco2e", "requests"]
    assert file.read_bytes() == before


def test_receipts_are_files_by_date_that_expire(book: Book) -> None:
    with book.connection() as connection:
        receipt_files.write(connection, book.fleet, TODAY)
        receipt_files.attach(connection, book.fleet)
        rows = connection.execute(
            "select date, count(*) from receipts.request_receipts where model = 'plain' group by 1"
        )
        assert rows.fetchall() == [(DAY, 5)]
    assert receipt_files.dates_of(book.fleet) == [DAY]
    assert receipt_files.expire(book.fleet, DAY + timedelta(days=90)) == []
    assert receipt_files.expire(book.fleet, DAY + timedelta(days=91)) == [DAY]
    assert receipt_files.dates_of(book.fleet) == []


def test_a_fleet_that_keeps_no_receipts_has_none(book: Book, tmp_path: Path) -> None:
    other = book.copy(tmp_path, is_published=False)
    other = replace(other, fleet=other.fleet.model_copy(update={"receipts": Receipts()}))
    other.dbt("run", "--select", "path:models/receipts")
    assert other.query("select count(*) from intermediate.int_receipts") == [(0,)]
    assert other.query("select count(*) from intermediate.int_receipt_balances") == [(0,)]
