"""One process scraped twice is one engine, and two processes that look the same stay two.

Each case is an engine of its own in one planted fleet. A copy is scraped 7 seconds later by another job, so that its
values are others at other moments; tokens are worked out from the rate that was planted.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from tests.books import LEDGER
from tests.planted import (
    DAY,
    DAY_SECONDS,
    ENERGY,
    HOURS,
    OUTPUT,
    START_TIME,
    Samples,
    Series,
    board,
    moment,
    plant,
    pod,
    rising,
    steady,
)
from tests.shapes import Seen, Shape, shape

RUNNING = "vllm:num_requests_running"
NOON = 12 * HOURS
LATER = 7  # seconds from one job's scrape to the other's
BOOT = moment(-30 * DAY_SECONDS)
HOUR = "date_diff('hour', date_trunc('day', interval_start_at), interval_start_at)"


def page(model: str, engine: str = "0") -> dict[str, str]:
    """The labels that vLLM's page has."""
    return {"model_name": model, "engine": engine}


def monitor(name: str, address: str, **labels: str) -> dict[str, str]:
    """What a ServiceMonitor adds."""
    return {**pod(name), "job": "vllm", "instance": address, "endpoint": "http", "service": "vllm", **labels}


def annotated(name: str, address: str, **labels: str) -> dict[str, str]:
    """What annotation discovery adds."""
    return {"namespace": "llm", "pod": name, "job": "kubernetes-pods", "instance": address, **labels}


def counted(
    rate: float, *, later: float = 0, first: float = 0, last: float = DAY_SECONDS, start: float = 1e6
) -> Samples:
    """A counter that shows `start` at midnight and rises, scraped each minute and `later` seconds from `first`."""
    return rising(rate, first + later, last, start=start + rate * (first + later))


def board_of(name: str) -> Series:
    return (ENERGY, board(f"GPU-{name}", f"n-{name}", **pod(name)), rising(250_000))


def process(
    model: str,
    labels: dict[str, str],
    rate: float,
    *,
    later: float = 0,
    boot: float | None = BOOT,
    engine: str = "0",
    **when: float,
) -> list[Series]:
    """What one target reports of a process: its tokens, requests and start."""
    own_labels = {**page(model, engine), **labels}
    times = {"first": when.get("first", 0) + later, "last": when.get("last", DAY_SECONDS)}
    return [
        (OUTPUT, own_labels, counted(rate, later=later, **when)),
        (RUNNING, own_labels, steady(1 if rate else 0, **times)),
        *([(START_TIME, labels, steady(boot, **times))] if boot is not None else []),
    ]


def merged() -> list[Series]:
    """Processes that are scraped twice."""
    return [
        # A ServiceMonitor beside annotation discovery.
        board_of("twice-0"),
        *process("twice", monitor("twice-0", "10.0.0.1:8000"), 2),
        *process("twice", annotated("twice-0", "10.0.0.1:8000"), 2, later=LATER),
        # The same without a process start: address alone.
        board_of("mute-0"),
        *process("mute", monitor("mute-0", "10.0.0.2:8000"), 2, boot=None),
        *process("mute", annotated("mute-0", "10.0.0.2:8000"), 2, later=LATER, boot=None),
        # Managed monitoring beside a PodMonitoring: `pod:port` and `ip:port`, the port by its name.
        board_of("managed-0"),
        *process("managed", {**pod("managed-0"), "job": "managed", "instance": "managed-0:metrics"}, 2),
        *process("managed", {"namespace": "llm", "job": "pods", "instance": "managed-0:8000"}, 2, later=LATER),
        # A federation copies the samples and adds a label.
        board_of("fed-0"),
        *process("fed", monitor("fed-0", "10.0.0.4:8000"), 2),
        *process("fed", monitor("fed-0", "10.0.0.4:8000", prometheus="monitoring/k8s"), 2),
        # One job ends at noon and the other goes on.
        board_of("ends-0"),
        *process("ends", monitor("ends-0", "10.0.0.5:8000"), 2, last=NOON),
        *process("ends", annotated("ends-0", "10.0.0.5:8000"), 2, later=LATER),
        # Ranks of one process, scraped twice.
        board_of("ranks-0"),
        *(
            series
            for rank, rate in (("0", 2), ("1", 3))
            for scraped, later in ((monitor, 0), (annotated, LATER))
            for series in process("ranks", scraped("ranks-0", "10.0.0.6:8000"), rate, later=later, engine=rank)
        ),
        # A process that starts as one job scrapes it; the other sees it a minute later, with 120 tokens.
        board_of("born-0"),
        *process("born", monitor("born-0", "10.0.0.8:8000"), 2, first=NOON, boot=moment(NOON), start=-2 * NOON),
        *process("born", annotated("born-0", "10.0.0.8:8000"), 2, first=NOON + 60, boot=moment(NOON), start=-2 * NOON),
        # A process that started 20 s before its source was first read: 37 s later its counter shows 114 tokens.
        board_of("young-0"),
        *(
            series
            for scraped, later in ((monitor, 0), (annotated, LATER))
            for series in process(
                "young", scraped("young-0", "10.0.0.9:8000"), 2, later=later, first=37, boot=moment(-20), start=40
            )
        ),
        # Only the fleet file states it.
        board_of("by-file-0"),
        *process("by-file", monitor("by-file-0", "10.0.0.7:8000"), 2, boot=None),
        *process("by-file", {"job": "static", "instance": "gateway:9000"}, 2, later=LATER, boot=None),
    ]


def apart() -> list[Series]:
    """Processes that look the same."""
    here = {"job": "bare"}
    return [
        # Data-parallel ranks, busy and idle.
        board_of("dp-0"),
        *process("dp", monitor("dp-0", "10.0.1.1:8000"), 2),
        *process("dp", monitor("dp-0", "10.0.1.1:8001"), 2, engine="1"),
        *process("dp", monitor("dp-0", "10.0.1.1:8002"), 0, engine="2"),
        # Two engines on two ports of one host, of other rates, and idle.
        *process("port", {**here, "instance": "host-1:8000"}, 2, boot=None),
        *process("port", {**here, "instance": "host-1:8001"}, 3, later=LATER, boot=None),
        *process("still", {**here, "instance": "host-1:8002"}, 0, boot=None),
        *process("still", {**here, "instance": "host-1:8003"}, 0, later=LATER, boot=None),
        # One pod's name in two clusters.
        board_of("clusters-0"),
        *process("clusters", monitor("clusters-0", "10.0.1.3:8000", cluster="a"), 2),
        *process("clusters", monitor("clusters-0", "10.0.1.3:8000", cluster="b"), 2, later=LATER),
        # A pod that restarted under its name on another address.
        board_of("again-0"),
        *process("again", monitor("again-0", "10.0.1.4:8000"), 2, last=NOON - 60),
        *process("again", monitor("again-0", "10.0.1.5:8000"), 2, first=NOON, boot=moment(NOON - 30), start=-2 * NOON),
    ]


COPIES = shape(
    "copies",
    lambda: [*merged(), *apart()],
    engines=[{"engine": "llm/by-file-0", "targets": ["gateway:9000"]}],
)


@pytest.fixture(scope="module")
def book(shared_book: Callable[[Shape], Seen]) -> Seen:
    return shared_book(COPIES)


def tokens(book: Seen, model: str, hour: int) -> list[tuple]:
    """Engine and output tokens of a model's hour."""
    return book.query(
        f"select engine, round(sum(tokens)::double, 3) from marts.token_ledger where model = ? and {HOUR} = {hour}"
        f" and date = '{DAY}' group by 1 order by 1",
        [model],
    )


@pytest.mark.parametrize("hour", [10, 14])
@pytest.mark.parametrize("model", ["twice", "mute", "managed", "fed", "ends", "by-file"])
def test_one_process_scraped_twice_counts_once(book: Seen, model: str, hour: int) -> None:
    assert tokens(book, model, hour) == [(f"llm/{model}-0", 2 * HOURS)]


def test_the_hour_in_which_one_of_two_jobs_ends_is_whole(book: Seen) -> None:
    assert tokens(book, "ends", 11) == tokens(book, "ends", 12) == [("llm/ends-0", 2 * HOURS)]


def test_ranks_of_a_process_scraped_twice_add_up(book: Seen) -> None:
    assert tokens(book, "ranks", 10) == [("llm/ranks-0", 5 * HOURS)]


def test_what_one_copy_showed_before_the_other_was_scraped_counts_once(book: Seen) -> None:
    """From noon on, in the book and in what it is compared with."""
    (found,) = book.query(
        "select metered_tokens::double, booked_tokens::double from marts.token_reconciliation_daily"
        f" where engine = 'llm/born-0' and token_class = 'output' and date = '{DAY}'"
    )
    assert found == (2 * NOON, 2 * NOON)


def test_what_a_young_process_counted_before_its_first_scrape_counts_once(book: Seen) -> None:
    """Its last sample, a minute's grid from 37 s and 44 s on, shows 2 tokens for each of its seconds."""
    last = DAY_SECONDS - 60 + 44
    found = book.query(
        "select metered_tokens::double, booked_tokens::double from marts.token_reconciliation_daily"
        f" where engine = 'llm/young-0' and token_class = 'output' and date = '{DAY}'"
    )
    assert found == [(2 * (last + 20), 2 * (last + 20))]


def test_joules_per_token_are_those_of_one_scrape(book: Seen) -> None:
    # 250 W over 2 tokens a second.
    rows = book.query(
        "select model, round(joules_per_output_token, 3), active_seconds::double from marts.model_hourly"
        f" where model in ('twice', 'managed', 'ends') and date = '{DAY}'"
        " and hour(hour_start_at at time zone 'UTC') = 14 order by 1"
    )
    assert rows == [(model, 125, HOURS) for model in ("ends", "managed", "twice")]


def test_what_looks_alike_stays_apart(book: Seen) -> None:
    assert tokens(book, "dp", 10) == [("llm/dp-0", 4 * HOURS)]
    assert tokens(book, "port", 10) == [("host-1:8000", 2 * HOURS), ("host-1:8001", 3 * HOURS)]
    assert tokens(book, "still", 10) == [("host-1:8002", 0), ("host-1:8003", 0)]
    assert tokens(book, "clusters", 10) == [(f"llm/clusters-0@{cluster}", 2 * HOURS) for cluster in ("a", "b")]
    assert tokens(book, "again", 10) == tokens(book, "again", 14) == [("llm/again-0", 2 * HOURS)]


def test_a_merge_is_reported_with_both_label_sets(book: Seen) -> None:
    rows = dict(book.query(f"select engine, basis from marts.scrape_copies_daily where date = '{DAY}'"))
    assert rows == {
        "llm/twice-0": "same_process",
        "llm/mute-0": "same_address",
        "llm/managed-0": "same_process",
        "llm/fed-0": "same_process",
        "llm/ends-0": "same_process",
        "llm/ranks-0": "same_process",
        "llm/born-0": "same_process",
        "llm/young-0": "same_process",
        "llm/by-file-0": "fleet_file",
    }
    copies = "select kept_labels, redundant_labels from marts.scrape_copies_daily where engine = 'llm/managed-0'"
    assert book.query(copies) == [
        (
            "container=engine,instance=managed-0:metrics,job=managed,namespace=llm,pod=managed-0",
            "instance=managed-0:8000,job=pods,namespace=llm",
        )
    ]


def test_copies_balance(book: Seen) -> None:
    rows = book.query(
        f"select engine, difference_tokens::double from marts.token_reconciliation_daily where date = '{DAY}'"
        " and abs(difference_tokens) > 0.001"
    )
    assert rows == []


def changing() -> list[Series]:
    """Three days on which copies come and go, a process restarts, one scrape is bad at midnight and one is silent."""
    first, second, end = monitor("a-0", "10.0.0.1:8000"), annotated("a-0", "10.0.0.1:8000"), 3 * DAY_SECONDS
    bare = {"job": "static", "instance": "b-0:8000"}
    dip = [(at, 0.0 if at == moment(2 * DAY_SECONDS) else value) for at, value in counted(3, last=end)]
    return [
        board_of("a-0"),
        *process("a", first, 2, last=DAY_SECONDS + 18 * HOURS),
        *process("a", second, 2, later=LATER, first=6 * HOURS, last=end),
        # A copy without the pod's name, alone on the third day.
        board_of("b-0"),
        *process("b", monitor("b-0", "10.0.0.2:8000"), 2, last=2 * DAY_SECONDS - 600),
        *process("b", bare, 2, later=LATER, last=end),
        board_of("c-0"),
        (OUTPUT, {**page("c"), **monitor("c-0", "10.0.0.3:8000")}, dip),
        (START_TIME, monitor("c-0", "10.0.0.3:8000"), steady(BOOT, 0, end)),
        # Silent over midnight, and restarted meanwhile.
        board_of("d-0"),
        *process("d", monitor("d-0", "10.0.0.4:8000"), 2, last=DAY_SECONDS - 1_800),
        *process(
            "d",
            annotated("d-0", "10.0.0.4:8000"),
            2,
            first=DAY_SECONDS + 1_800,
            last=end,
            boot=moment(DAY_SECONDS - 900),
        ),
        board_of("e-0"),
        *process("e", monitor("e-0", "10.0.0.5:8000"), 2, last=DAY_SECONDS - 3_600),
        *process("e", monitor("e-0", "10.0.0.5:8000"), 2, first=DAY_SECONDS + 3_600, last=end),
    ]


@pytest.mark.rest
def test_any_order_of_booking_gives_the_same_book(tmp_path: Path) -> None:
    at_once = plant(tmp_path / "at_once", changing(), days=3, marts=LEDGER)
    at_once.run()
    by_day = plant(tmp_path / "by_day", changing(), days=3, marts=LEDGER)
    for number in (2, 0, 1):
        by_day.run(DAY + timedelta(days=number), DAY + timedelta(days=number + 1))
    assert by_day.hashes() == at_once.hashes()
    rows = at_once.query(
        "select date::varchar, engine, round(sum(tokens)::double, 3) from marts.token_ledger where model in ('a', 'b')"
        f" and {HOUR} = 12 group by all order by 1, 2"
    )
    assert rows == [
        ("2026-10-15", "llm/a-0", 2 * HOURS),
        ("2026-10-15", "llm/b-0", 2 * HOURS),
        ("2026-10-16", "llm/a-0", 2 * HOURS),
        ("2026-10-16", "llm/b-0", 2 * HOURS),
        ("2026-10-17", "b-0:8000", 2 * HOURS),
        ("2026-10-17", "llm/a-0", 2 * HOURS),
    ]
    # Over both midnights: nothing is lost where a copy hands over to itself.
    assert at_once.query(
        "select count(*) from marts.token_reconciliation_daily where abs(difference_tokens) > 0.001"
    ) == [(0,)]
    assert at_once.query(
        "select round(sum(tokens)::double, 3) from marts.token_ledger where model = 'b' and date = '2026-10-16'"
    ) == [(2 * DAY_SECONDS,)]
