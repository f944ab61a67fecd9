"""Engines of known capacity by hand, and that the back-test of advice sees advice that hurts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bench import advice, served_fleet, served_telemetry
from bench.advice_replay import Change, Replays, month_of
from bench.product import Fleet
from bench.served_fleet import Deployment
from bench.served_load import Engine, Requests, serve
from pipelines.analysis import capacities, sizes
from pipelines.fleet.fleet_file import load_fleet
from tests.advice.test_sizes import NO_BENCHMARKS, usage

# 10 GiB of weights at 100 GiB a second: 0.1 s a step. 1,024 tokens of 1 MiB: 0.01 s. 18 - 10 GiB hold 8,192 tokens.
ENGINE = Engine(
    boards=1,
    weights_gib=10.0,
    kv_bytes_per_token=2.0**20,
    compute_seconds_per_token=0.001,
    bandwidth_gb_per_second=107.3741824,
    memory_gib=20.0,
    max_running=4,
    bare_watts=50.0,
    parked_watts=100.0,
    limit_watts=300.0,
)


def asked(*requests: tuple[float, float, float]) -> Requests:
    """Requests of (seconds, prompt tokens, output tokens)."""
    return Requests(*np.array(requests, dtype=float).T)


def test_the_law_of_capacity() -> None:
    """One request of 1,024 tokens: 0.1 + 0.01 + 0.001 s a token; four: 0.1 + 0.04 + 0.004; two boards take half."""
    assert ENGINE.tokens_per_second(1, 1024) == pytest.approx(1 / 0.111)
    assert ENGINE.tokens_per_second(4, 1024) == pytest.approx(4 / 0.144)
    assert ENGINE.on(2).tokens_per_second(4, 1024) == pytest.approx(4 / 0.072)
    assert ENGINE.kv_tokens == 8192
    assert ENGINE.on(2).kv_tokens == 26 * 1024
    assert [ENGINE.watts(0), ENGINE.watts(2), ENGINE.on(2).watts(4)] == [100, 250, 600]


def test_one_request_by_hand() -> None:
    """At 5 s, 1,024 tokens of prompt: 1.024 s of it. 100 tokens, while 1,024 to 1,124 are in the cache: 100 × 0.101 s
    and (1,024 × 100 + 100² / 2) / 102,400 s. Joules: 100 W parked, 300 W for the prompt, 225 W for the answer."""
    done = serve(ENGINE, asked((5, 1024, 100)), np.array([0.0, 5.5, 60.0]))
    answer = 10.1 + 107_400 / 102_400
    assert (done.started_at[0], done.first_token_at[0]) == pytest.approx((5, 6.024))
    assert done.finished_at[0] == pytest.approx(6.024 + answer)
    assert done.running.tolist() == [0, 1, 0]
    idle = 60 - 1.024 - answer
    assert done.joules.tolist() == pytest.approx([0, 500 + 150, 100 * idle + 300 * 1.024 + 225 * answer])
    assert (done.prompt_tokens[-1], done.output_tokens[-1]) == pytest.approx((1024, 100))


def test_too_little_kv_cache_queues_where_more_boards_would_not() -> None:
    """Four requests of 3,000 tokens and 100 more: two fit in 8,192, all in 26,624."""
    four = asked(*[(0, 3000, 100)] * 4)
    at = np.array([0.0, 15.0, 200.0])
    one, two = serve(ENGINE, four, at), serve(ENGINE.on(2), four, at)
    assert (one.running[1], one.waiting[1]) == (2, 2)
    assert (two.running[1], two.waiting[1]) == (4, 0)
    assert one.kv_ratio[1] > 0.73
    assert one.output_tokens[-1] == two.output_tokens[-1] == pytest.approx(400)


def test_a_full_cache_sends_the_last_request_back_and_no_token_is_lost() -> None:
    """Two of 4,000 tokens leave 192: after 96 each it is full. The second begins anew once the first is done."""
    done = serve(ENGINE, asked((0, 4000, 200), (0, 4000, 200)), np.array([0.0, 300.0]))
    assert done.preemptions[-1] == 1
    assert done.output_tokens[-1] == pytest.approx(400)
    # 4,096 tokens are computed again: 4.096 s, after the first has its answer.
    assert done.finished_at[1] - done.finished_at[0] > 4.096 + 104 * 0.1
    assert done.started_at[1] == pytest.approx(4.0)
    # What can never fit is refused, and others are served.
    refused = serve(ENGINE, asked((0, 9000, 200), (1, 100, 10)), np.array([0.0, 300.0]))
    assert np.isnan(refused.finished_at).tolist() == [True, False]


def drawn(seed: int, per_second: float, seconds: float) -> Requests:
    chance = np.random.default_rng(seed)
    count = chance.poisson(per_second * seconds)
    times = np.sort(chance.uniform(0, seconds, count))
    return Requests(times, chance.integers(50, 800, count) * 1.0, chance.integers(20, 300, count) * 1.0)


@pytest.mark.parametrize("per_second", [0.005, 0.2])
def test_tokens_are_conserved_and_littles_law_holds(per_second: float) -> None:
    """Tokens served are those of the finished requests, of a calm engine and of one that queues and preempts; who is
    there on the mean is how many come a second × how long each stays."""
    requests = drawn(1, per_second, 40_000)
    done = serve(ENGINE, requests, np.arange(0.0, 400_001.0))
    assert not np.isnan(done.finished_at).any()
    assert done.output_tokens[-1] == pytest.approx(requests.output.sum())
    assert done.prompt_tokens[-1] == pytest.approx(requests.prompt.sum())
    stays = (done.finished_at - requests.arrived_at).sum()
    assert (done.running + done.waiting).sum() == pytest.approx(stays, rel=0.01)
    assert (done.waiting.max() > 0) == (per_second > 0.1)


def test_a_month_counts_intervals_in_which_requests_wait_or_break_the_slo() -> None:
    """Of two intervals of 300 s one has five requests at once: the fifth waits for the first, more than 5 s. All tokens
    take 0.1 s and more."""
    done = [serve(ENGINE, asked(*[(10, 100, 100)] * 5, (310, 100, 100)), np.array([0.0, 600.0]))]
    calm, slow = (month_of(done, slo, 0, 600) for slo in (0.2, 0.11))
    assert (calm.waiting_ratio, calm.late_ratio, slow.late_ratio) == (0.5, 0.5, 0.5)
    assert np.isnan(month_of(done, np.nan, 0, 600).late_ratio)
    assert month_of(done, 0.05, 0, 600).late_ratio == 1
    assert month_of(done, 0.2, 300, 600).waiting_ratio == 0


def deployment(number: int, per_second: float, days: int) -> Deployment:
    """Four replicas of sixteen requests each; for ten minutes of the second hour three times as many come."""
    parts = drawn(number, per_second, days * served_fleet.DAY), drawn(100 + number, 2 * per_second, 600)
    calm, burst = parts[0], parts[1]._replace(arrived_at=parts[1].arrived_at + 3600)
    order = np.argsort(np.concatenate([calm.arrived_at, burst.arrived_at]))
    arrived_at, prompt, output = (np.concatenate(pair)[order] for pair in zip(calm, burst, strict=True))
    engine = replace(ENGINE, max_running=16, kv_bytes_per_token=2.0**17)
    return Deployment(f"m{number}", "steady", engine, 4, np.nan, Requests(arrived_at, prompt, 6 * output))


def hurting(fleet: list[Deployment], days: int) -> tuple[int, int]:
    """How many changes are proposed from the first half of the days, and how many of them hurt in the second."""
    minutes = np.arange(0, days * served_fleet.DAY + 1, 300)
    served = {
        one.name: [serve(one.engine, part, minutes) for part in one.requests.dealt(one.replicas)] for one in fleet
    }
    found = []
    for one in fleet:
        tokens = sum(np.diff(engine.output_tokens)[: len(minutes) // 2] for engine in served[one.name]) / 300
        facts = {"demand_tokens_per_second_p99": float(np.quantile(tokens, 0.99)), "replicas": one.replicas}
        facts |= {"demand_tokens_per_second_max": float(tokens.max()), "gpus": float(one.boards)}
        facts |= {
            "capacity_tokens_per_second_per_gpu": float(tokens.max()) / one.boards,
            "is_capacity_lower_bound": True,
        }
        found.append(facts | {"gpus_per_replica": 1.0, "capacity_basis": "highest_observed"})
    proposed = sizes.candidates(usage(*found), NO_BENCHMARKS, "demand_tokens_per_second")
    cuts = proposed[proposed["kind"] == "fewer_replicas"]
    rows = cuts.assign(model=[fleet[number].name for number in cuts["usage"]])
    rows = rows.assign(
        reason_code="demand_fits", **dict.fromkeys(("saving_kwh_month", "saving_low", "saving_high"), 1.0)
    )
    replays = Replays(served, days // 2, days, 0)
    outcomes, _, _ = advice.score(fleet, replays, pd.DataFrame(rows), days // 2)
    return len(outcomes), sum(one.hurts for one in outcomes)


def test_a_wrong_capacity_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of six deployments five are advised a smaller size, and none less than it needs. With capacities taken twice as
    high all are, and half of that hurts."""
    days = 2
    monkeypatch.setattr(advice, "AFTER_DAYS", days // 2)
    fleet = [deployment(number, per_second, days) for number, per_second in enumerate(np.linspace(0.05, 0.2, 6))]
    right, hurt = hurting(fleet, days)
    real = capacities.unchanged

    def doubled(frame: pd.DataFrame, benchmarks: pd.DataFrame) -> capacities.Capacity:
        found = real(frame, benchmarks)
        return capacities.Capacity(2 * found.low, 2 * found.high, found.basis, found.on_paper)

    monkeypatch.setattr(capacities, "unchanged", doubled)
    wrong, wrongly_hurt = hurting(fleet, days)
    assert (right, hurt) == (5, 0)
    assert (wrong, wrongly_hurt) == (6, 3)


def test_replays_of_a_deployment_that_is_stopped_or_sleeps() -> None:
    """Boards without a model take 50 W. A request that comes in an hour asleep waits for its end."""
    one = Deployment("m", "steady", ENGINE, 2, np.nan, asked((3700.0, 100, 50), (90_000.0, 100, 50)))
    served = {"m": [serve(ENGINE, part, np.arange(0, 3) * 86_400.0) for part in one.requests.dealt(2)]}
    replays = Replays(served, 0, 2, 0)
    stopped = replays.month(one, Change(0, 0), 0, 2)
    assert (stopped.joules, stopped.waiting_ratio) == (2 * 50 * 2 * 86_400, 2 / 576)
    asleep = replays.month(one, Change(2, 1, frozenset({1, 2, 3})), 0, 2)
    before = replays.month(one, None, 0, 2)
    assert (before.waiting_ratio, asleep.waiting_ratio) == (0, 1 / 576)
    # Two boards, three hours of one night, 100 - 50 W; 90 - 50 W more for 180 s while weights are loaded.
    assert before.joules - asleep.joules == pytest.approx(2 * (3 * 3600 * 50 - 180 * 40))


def test_telemetry_is_a_fleet_that_the_product_reads(tmp_path: Path) -> None:
    """A day at 120 s of two replicas on one board each: 720 samples of an energy counter per board, of eight series per
    engine, and of 7 + 9 buckets where an SLO is stated."""
    one = Deployment("m", "steady", ENGINE, 2, 0.2, drawn(1, 0.01, served_fleet.DAY))
    at = np.arange(0, served_fleet.DAY + 1, served_telemetry.SAMPLE_SECONDS)
    served = [[serve(ENGINE, part, at) for part in one.requests.dealt(2)]]
    assert served_telemetry.write(tmp_path / "some", [one], served, 1) == 2 * 720 * (1 + 8 + 7 + 9)
    more = served_telemetry.fleet_lines([one])
    fleet = Fleet(tmp_path, "some", "some", streams=("power", "tokens"), interval_seconds=120, more=more)
    loaded = load_fleet(fleet.path, environ={"WATTLEDGER_DATA": str(fleet.data)})
    assert (loaded.models[0].slo.tpot_seconds, loaded.models[0].context_tokens) == (0.2, 16_000)
    assert [node.name for node in loaded.nodes] == ["m-0", "m-1"]
