"""Engines of one name that are there at once: pods in two clusters, containers of a pod, processes of a host.

Each has a board of its own and moves tokens at a constant rate all day: joules per token are watts over tokens per
second. What looks alike and is one engine keeps its name.
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
    rising,
    steady,
)
from tests.shapes import Seen, Shape, shape

NOON = 12 * HOURS
LATER = 7  # seconds from one job's scrape to the other's
BOOT = moment(-30 * DAY_SECONDS)


def powered(uuid: str, watts: float, **labels: str) -> Series:
    return (ENERGY, board(uuid, labels.pop("host", f"n-{uuid}"), job="dcgm", **labels), rising(1000 * watts))


def process(model: str, tokens: Samples, rank: str = "0", boot: float = BOOT, **labels: str) -> list[Series]:
    """What a scrape job has of a vLLM; `rank` is the data-parallel one."""
    starts = [(at, boot) for at, _ in tokens]
    return [(OUTPUT, {"model_name": model, "engine": rank, **labels}, tokens), (START_TIME, labels, starts)]


def named(pod: str, **labels: str) -> dict[str, str]:
    return {"namespace": "twins", "pod": pod, "container": "engine", **labels}


def separated() -> list[Series]:
    return [
        # One name in two regions, of two models.
        *process("k-region-a", rising(50), **named("k-region-0", instance="10.1.0.1:8000", job="vllm", region="us")),
        *process("k-region-b", rising(25), **named("k-region-0", instance="10.1.0.1:8000", job="vllm", region="eu")),
        powered("GPU-k-region-us", 100, **named("k-region-0", region="us")),
        powered("GPU-k-region-eu", 200, **named("k-region-0", region="eu")),
        # One of two has the label.
        *process("k-lack-a", rising(50), **named("k-lack-0", instance="10.1.0.5:8000", job="vllm")),
        *process("k-lack-b", rising(25), **named("k-lack-0", instance="10.1.0.5:8000", job="vllm", region="eu")),
        powered("GPU-k-lack-us", 100, **named("k-lack-0")),
        powered("GPU-k-lack-eu", 200, **named("k-lack-0", region="eu")),
        # The fleet file has the model of a board; a gateway counts it as well.
        *process("k-gated", rising(50), instance="k-gated-host", job="vllm"),
        (
            "litellm_output_tokens_metric_total",
            {"model": "k-gated", "requested_model": "k-gated", "team": "x", "instance": "k-gated-edge:4000"},
            rising(50),
        ),
        powered("GPU-k-gated", 100, host="k-gated-host"),
        # Of one model, each scraped by two jobs, under a label that no seed lists.
        *(
            series
            for hall, rate, boot in (("x", 10, BOOT), ("y", 40, BOOT - 900))
            for job, later in (("monitor", 0), ("annotation", LATER))
            for series in process(
                "k-hall",
                rising(rate, later, start=1e6 + rate * later),
                boot=boot,
                **named("k-hall-0", instance="10.1.0.2:8000", job=job, hall=hall),
            )
        ),
        powered("GPU-k-hall-x", 300, **named("k-hall-0", hall="x")),
        powered("GPU-k-hall-y", 100, **named("k-hall-0", hall="y")),
        # Two containers of one pod; a board without container is of both.
        *process("k-cont-a", rising(50), **named("k-cont-0", container="eng-a", instance="10.1.0.3:8000", job="vllm")),
        *process("k-cont-b", rising(150), **named("k-cont-0", container="eng-b", instance="10.1.0.3:8001", job="vllm")),
        powered("GPU-k-cont-a", 450, **named("k-cont-0", container="eng-a")),
        powered("GPU-k-cont-b", 150, **named("k-cont-0", container="eng-b")),
        # Two bare engines, whose address was replaced by their host's name.
        *process("k-bare-a", rising(50), instance="k-host", job="vllm-a"),
        *process("k-bare-b", rising(25), instance="k-host", job="vllm-b"),
        powered("GPU-k-bare-a", 100, host="k-host"),
        powered("GPU-k-bare-b", 200, host="k-host"),
        # The second region is there from noon on; its process began then, and has 600 tokens by its first sample.
        *process("k-later-a", rising(10), **named("k-later-0", instance="10.1.0.4:8000", job="vllm", region="us")),
        *process(
            "k-later-b",
            rising(20, NOON + 30, start=600),
            boot=moment(NOON),
            **named("k-later-0", instance="10.1.0.4:8000", job="vllm", region="eu"),
        ),
        powered("GPU-k-later", 100, **named("k-later-0", region="us")),
    ]


def alike() -> list[Series]:
    lora = named("k-lora-0", instance="10.2.0.5:8000", job="vllm")
    moved = named("k-moved-0", instance="10.2.0.6:8000", job="vllm", zone="a")
    workers = [named(f"k-ray-{number}", ReplicaId="k-replica", node=f"n-ray-{number}", job="ray") for number in (0, 1)]
    jitter = [(moment(60 * n + n * 7 % 5), 1e6 + 20 * (60 * n + n * 7 % 5)) for n in range(1440)]
    return [
        # A pair of servers that scrape within seconds of each other, and keep a label each.
        *process("k-pair", rising(20), **named("k-pair-0", instance="10.2.0.1:8000", job="vllm", server="a")),
        *process("k-pair", jitter, **named("k-pair-0", instance="10.2.0.1:8000", job="vllm", server="b")),
        powered("GPU-k-pair", 100, **named("k-pair-0")),
        # The same, by a label that pages of Ray have.
        *process("k-copy", rising(20), **named("k-copy-0", instance="10.2.0.8:8000", job="vllm", replica="a")),
        *process("k-copy", jitter, **named("k-copy-0", instance="10.2.0.8:8000", job="vllm", replica="b")),
        powered("GPU-k-copy", 100, **named("k-copy-0")),
        # Annotation discovery has a target for each container, all with the address of the one that answers.
        *process("k-side", rising(20), **named("k-side-0", instance="10.2.0.2:8000", job="pods")),
        *process(
            "k-side",
            rising(20, LATER, start=1e6 + 20 * LATER),
            **named("k-side-0", container="proxy", instance="10.2.0.2:8000", job="pods"),
        ),
        powered("GPU-k-side", 100, **named("k-side-0")),
        # A container without tokens.
        *process("k-quiet", rising(20), **named("k-quiet-0", instance="10.2.0.3:8000", job="vllm")),
        (START_TIME, named("k-quiet-0", container="proxy", instance="10.2.0.3:9000", job="pods"), steady(BOOT + 60)),
        powered("GPU-k-quiet", 100, **named("k-quiet-0")),
        # Data-parallel ranks behind ports of one container, with a number each and without.
        *(
            series
            for pod, ranks in (("k-ranks-0", "01"), ("k-ports-0", "00"))
            for port, (rank, rate) in enumerate(zip(ranks, (20, 30), strict=True))
            for series in process(
                pod[:-2],
                rising(rate),
                rank,
                boot=BOOT + port,
                **named(pod, instance=f"10.2.0.4:800{port}", job=f"rank-{port}", endpoint=f"rank{port}"),
            )
        ),
        powered("GPU-k-ranks", 100, **named("k-ranks-0")),
        powered("GPU-k-ports", 100, **named("k-ports-0")),
        # A base model and its LoRA on one page.
        *process("k-lora", rising(15), **lora),
        (OUTPUT, {"model_name": "k-lora-x", "engine": "0", **lora}, rising(5)),
        powered("GPU-k-lora", 100, **named("k-lora-0")),
        # A pod that moved to another zone at noon.
        *process("k-moved", rising(20, 0, NOON - 60), **moved),
        *process(
            "k-moved",
            rising(20, NOON, start=0),
            boot=moment(NOON),
            **{**moved, "instance": "10.2.0.7:8000", "zone": "b"},
        ),
        powered("GPU-k-moved", 100, **named("k-moved-0")),
        # Two workers of one Ray replica.
        *(
            series
            for rank, worker in enumerate(workers)
            for series in process("k-ray", rising(10), str(rank), boot=BOOT + rank, **worker)
        ),
    ]


NAMESAKES = shape(
    "namesakes",
    lambda: [*separated(), *alike()],
    assignments=[
        {"device_uuid": f"GPU-k-{name}", "model": f"k-{name}", "start_at": "2026-01-01T00:00:00Z"}
        for name in ("bare-a", "bare-b", "gated")
    ],
)


@pytest.fixture(scope="module")
def book(shared_book: Callable[[Shape], Seen]) -> Seen:
    return shared_book(NAMESAKES)


@pytest.mark.parametrize(
    ("models", "figures"),
    [
        ("k-region", [("k-region-a", 2), ("k-region-b", 8)]),
        ("k-cont", [("k-cont-a", 9), ("k-cont-b", 1)]),
        ("k-bare", [("k-bare-a", 2), ("k-bare-b", 8)]),
        ("k-lack", [("k-lack-a", 2), ("k-lack-b", 8)]),
        ("k-gated", [("k-gated", 2)]),
        # 400 W over 50 tokens a second.
        ("k-hall", [("k-hall", 8)]),
    ],
)
def test_each_has_the_energy_of_its_own_board(book: Seen, models: str, figures: list[tuple]) -> None:
    rows = book.query(
        "select model, round(joules_per_output_token, 2) from marts.model_daily where model like ? || '%' order by 1",
        [models],
    )
    assert rows == figures


@pytest.mark.parametrize(
    ("model", "engines"),
    [
        ("k-region-b", [("twins/k-region-0@eu", 200, 25)]),
        ("k-hall", [("twins/k-hall-0@x", 300, 10), ("twins/k-hall-0@y", 100, 40)]),
        ("k-cont-a", [("twins/k-cont-0@eng-a", 450, 50)]),
        ("k-bare-b", [("k-host@vllm-b", 200, 25)]),
        ("k-lack-a", [("twins/k-lack-0@no region", 100, 50)]),
    ],
)
def test_the_label_that_tells_them_apart_is_in_their_names(book: Seen, model: str, engines: list[tuple]) -> None:
    watts = book.query(
        f"select engine, round(sum(energy_joules)::double / {DAY_SECONDS}) from marts.energy_ledger where model = ?"
        " group by 1 order by 1",
        [model],
    )
    rates = book.query(
        f"select engine, round(sum(tokens)::double / {DAY_SECONDS}) from marts.token_ledger where model = ?"
        " group by 1 order by 1",
        [model],
    )
    assert watts == [(engine, drawn) for engine, drawn, _ in engines]
    assert rates == [(engine, moved) for engine, _, moved in engines]


def test_one_that_begins_beside_another_counts_from_zero(book: Seen) -> None:
    assert book.query(
        "select engine, round(sum(tokens)::double) from marts.token_ledger where model = 'k-later-b' group by 1"
    ) == [("twins/k-later-0@eu", 600 + 20 * (NOON - 60))]


@pytest.mark.parametrize(
    ("name", "rate"),
    [
        ("pair", 20),
        ("copy", 20),
        ("side", 20),
        ("quiet", 20),
        ("ranks", 50),
        ("ports", 50),
        ("lora", 20),
        ("moved", 20),
    ],
)
def test_what_is_one_engine_keeps_its_name(book: Seen, name: str, rate: float) -> None:
    # 10:00 to 11:00.
    rows = book.query(
        "select engine, sum(tokens)::double from marts.token_ledger where engine like ? || '%'"
        " and hour(interval_start_at at time zone 'UTC') = 10 group by 1",
        [f"twins/k-{name}-0"],
    )
    assert rows == [(f"twins/k-{name}-0", pytest.approx(rate * HOURS))]


def test_a_replica_of_ray_is_one_engine(book: Seen) -> None:
    assert book.query("select distinct engine from marts.token_ledger where model = 'k-ray'") == [("k-replica",)]


def test_the_balance_of_tokens_and_energy_holds(book: Seen) -> None:
    assert book.query("select * from marts.token_reconciliation_daily where difference_tokens <> 0") == []
    assert book.query("select * from marts.reconciliation_daily where difference_joules <> 0") == []
    assert book.broken() == {}


@pytest.mark.rest
def test_any_order_of_booking_gives_the_same_book(tmp_path: Path) -> None:
    """The second region is there from noon of the second day on: until then the first one has the name for itself."""
    end, noon = 3 * DAY_SECONDS, DAY_SECONDS + NOON
    us, eu = (named("o-0", instance="10.3.0.1:8000", job="vllm", region=region) for region in ("us", "eu"))
    series = [
        *process("o-a", rising(10, 0, end), **us),
        *process("o-b", rising(20, noon, end, start=0), boot=moment(noon), **eu),
        (ENERGY, board("GPU-o-us", "n-o-us", job="dcgm", **named("o-0", region="us")), rising(100_000, 0, end)),
        (ENERGY, board("GPU-o-eu", "n-o-eu", job="dcgm", **named("o-0", region="eu")), rising(300_000, 0, end)),
    ]
    at_once = plant(tmp_path / "at_once", series, days=3, marts=LEDGER)
    at_once.run()
    by_day = plant(tmp_path / "by_day", series, days=3, marts=LEDGER)
    for number in (2, 0, 1):
        by_day.run(DAY + timedelta(days=number), DAY + timedelta(days=number + 1))
    assert by_day.hashes() == at_once.hashes()
    assert at_once.query(
        "select date::varchar, engine, round(sum(tokens)::double) from marts.token_ledger group by all order by 1, 2"
    ) == [
        ("2026-10-15", "twins/o-0", 10 * DAY_SECONDS),
        ("2026-10-16", "twins/o-0@eu", 20 * NOON),
        ("2026-10-16", "twins/o-0@us", 10 * DAY_SECONDS),
        ("2026-10-17", "twins/o-0@eu", 20 * DAY_SECONDS),
        ("2026-10-17", "twins/o-0@us", 10 * DAY_SECONDS),
    ]
    assert at_once.query("select * from marts.token_reconciliation_daily where difference_tokens <> 0") == []
