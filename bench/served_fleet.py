"""A fleet whose right sizes are known: deployments, and the requests that come to them, drawn by a seed.

Some deployments hold too much and some just enough. Most are load-tested now and then. Some grow or get more at a date,
rest at night, or have no requests, for good or until a date. Add here a kind of demand. Keep out what an engine does
with it (`served_load`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bench.served_load import Engine, Requests

DAY = 86_400.0
# Name as it is served (the published model, and four digits), GiB, KV bytes and seconds of compute per token, and on
# how many A100 it may run. Seconds: 2 × parameters / half of 312 TFLOP/s.
MODELS = (
    ("Llama-3.3-70B-Instruct", 131.5, 327_680.0, 0.90e-3, (4, 8)),
    ("Qwen3-32B", 61.0, 262_144.0, 0.42e-3, (2, 4)),
    ("Llama-3.1-8B-Instruct", 15.0, 131_072.0, 0.10e-3, (1,)),
)
CONTEXT_TOKENS = 16_000
PROMPT_TOKENS = (1000.0, 0.8)  # median and spread of a log-normal law, cut at half of the context
OUTPUT_TOKENS = (1600.0, 0.6)
FIRST_TOKEN_SECONDS = 5.0  # of the SLO, where there is one
COLD_START_SECONDS = 180.0
# Share of the peak by hour of the day; weekdays from Tuesday on (the first day is one).
HOURS = np.repeat([0.28, 0.24, 0.29, 0.5, 0.85, 1.0, 0.98, 0.98, 0.86, 0.7, 0.54, 0.39], 2)
OFFICE = np.array([0.0] * 8 + [0.7, 1.0, 1.0, 0.9, 0.7, 0.9, 1.0, 1.0, 0.8, 0.4] + [0.0] * 6)
WEEKDAYS = np.array([1.0, 1.04, 1.0, 0.95, 0.6, 0.55, 0.98])
# What the demand does, of twelve deployments.
DEMANDS = ("never tested", "office", "silent", "returns", *("steady",) * 5, *("grows",) * 2, "steps")
UNTESTED = DEMANDS[:4]
GROWTH_PER_WEEK = 0.05
# Hours at night in which so much of what all replicas serve is asked for: a load test, what a capacity is seen by.
DAYS_BETWEEN_TESTS, TEST_RATIOS, TEST_HOUR = 20, (0.45, 0.65, 0.85), 2
DAYS_BETWEEN_BURSTS = 5


@dataclass(frozen=True)
class Deployment:
    """Replicas of one engine, and what they promise. `slo_seconds` per output token; NaN: no SLO is stated."""

    name: str
    demand: str
    engine: Engine
    replicas: int
    slo_seconds: float
    requests: Requests

    @property
    def boards(self) -> int:
        return self.engine.boards * self.replicas


def drawn(seed: int, days: int, demands: tuple[str, ...] = DEMANDS) -> list[Deployment]:
    """The deployments of a seed with the requests of so many days; the same seed gives the same."""
    return [_deployment(np.random.default_rng([seed, number]), number, demand, days)
            for number, demand in enumerate(demands)]  # fmt: skip


def _deployment(chance: np.random.Generator, number: int, demand: str, days: int) -> Deployment:
    model, weights, kv_bytes, compute, sizes = MODELS[number % len(MODELS)]
    bare = chance.normal(55, 5)  # about the reference of the device type
    engine = Engine(
        boards=int(chance.choice(sizes)),
        weights_gib=weights,
        kv_bytes_per_token=kv_bytes,
        compute_seconds_per_token=compute,
        bare_watts=bare,
        parked_watts=bare + chance.uniform(28, 48),
    )
    replicas = int(chance.integers(2, 6)) if engine.boards < 8 else int(chance.integers(1, 3))
    used = np.exp(chance.uniform(np.log(0.08), np.log(0.45)))  # of what all replicas serve at most, at a usual peak
    most = engine.tokens_per_second(engine.max_running, 2 * PROMPT_TOKENS[0]) * replicas
    full = engine.step_seconds(engine.max_running, engine.max_running * 2 * PROMPT_TOKENS[0])
    slo = full * chance.uniform(1.2, 3.0) if number % 2 else np.nan
    ratio = used * _shape(chance, demand, days)
    if demand not in UNTESTED:
        for day in range(int(chance.integers(DAYS_BETWEEN_TESTS // 2)), days, DAYS_BETWEEN_TESTS):
            for hour, tested in enumerate(TEST_RATIOS, TEST_HOUR):
                ratio[(day * 24 + hour) * 60 : (day * 24 + hour + 1) * 60] = tested
    requests = _requests(chance, ratio * most / (OUTPUT_TOKENS[0] * np.exp(OUTPUT_TOKENS[1] ** 2 / 2)))
    return Deployment(f"{model}-{1000 + number}", demand, engine, replicas, slo, requests)


def _shape(chance: np.random.Generator, demand: str, days: int) -> np.ndarray:
    """Share of the usual peak in each minute: the day, the week, bursts of some minutes, and what changes."""
    minute = np.arange(days * 1440)
    day = minute // 1440
    share = (OFFICE if demand == "office" else HOURS)[minute // 60 % 24] * WEEKDAYS[day % 7]
    if demand == "office":
        share = share * (WEEKDAYS[day % 7] > 0.9)
    for start in np.flatnonzero(chance.random(len(minute)) < 1 / (DAYS_BETWEEN_BURSTS * 1440)):
        share[start : start + chance.integers(5, 21)] *= chance.uniform(2.0, 6.0)
    if demand == "grows":
        share = share * (1 + GROWTH_PER_WEEK) ** (day / 7)
    if demand == "steps":
        share = share * np.where(day < chance.integers(20, 50), 1.0, chance.uniform(1.5, 2.5))
    if demand == "silent":
        share = share * 0
    if demand == "returns":
        share = share * (day >= chance.integers(30, 50))
    return share


def _requests(chance: np.random.Generator, per_second: np.ndarray) -> Requests:
    """Poisson arrivals at a rate per second that each minute has its own of."""
    counts = chance.poisson(per_second * 60)
    arrived_at = np.sort(np.repeat(np.arange(len(counts)) * 60.0, counts) + chance.uniform(0, 60, counts.sum()))
    prompt, output = (
        np.clip(np.rint(median * np.exp(chance.normal(0, spread, len(arrived_at)))), 1, CONTEXT_TOKENS // 2)
        for median, spread in (PROMPT_TOKENS, OUTPUT_TOKENS)
    )
    return Requests(arrived_at, prompt, output)
