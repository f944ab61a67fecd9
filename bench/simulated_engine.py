"""An engine that serves requests by a law of its own, and what each request really used.

The law is not the estimator's. A step of decoding reads the weights once for all that run, reads each one's context,
and takes longer the more run and the longer they are; a prompt is computed alone, at a cost that grows with its square;
whatever is done, a working accelerator draws its active floor. What a step has in common (floor, weights) is shared
equally by the requests that are then running, the rest is each one's own. Add a part of the law here. Keep out what is
estimated (`receipt_truth`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

BATCH = 64  # requests that run at once; more wait
INTERVAL_SECONDS = 300.0
SHAPES = 30  # kinds of request; each comes often enough for its mean to be known


@dataclass(frozen=True)
class Law:
    """Watts, joules and seconds above an idle accelerator, and what is asked of it."""

    floor_watts: float = 250.0
    weights_joules: float = 1.2  # of a step
    token_joules: float = 0.12  # of a generated token
    context_joules: float = 3e-5  # of a generated token and a token of its context
    step_seconds: float = 0.012
    sequence_seconds: float = 1.2e-4  # of a step and a request in it
    context_seconds: float = 1.2e-7
    prompt_seconds: float = 1 / 9000  # of a computed token
    prompt_joules: float = 0.035
    attention_joules: float = 3e-6  # of a computed token and a token before it
    log_input: float = 6.6  # mean of the logarithm of input tokens
    log_output: float = 5.2
    requests_per_second: float = 2.2  # at the peak


@dataclass(frozen=True)
class Served:
    """What was served: an entry per request, in the order of arrival, and sums per interval."""

    shape: np.ndarray
    input_tokens: np.ndarray
    cached_tokens: np.ndarray
    output_tokens: np.ndarray
    start: np.ndarray
    first: np.ndarray
    end: np.ndarray
    joules: np.ndarray
    neighbours: np.ndarray  # that ran beside it, on average
    interval_joules: np.ndarray
    interval_computed: np.ndarray
    interval_output: np.ndarray

    @property
    def expected_joules(self) -> np.ndarray:
        """What a request of that shape used on average, over all moments at which one ran."""
        count = np.bincount(self.shape, minlength=SHAPES)
        return (np.bincount(self.shape, self.joules, SHAPES) / np.maximum(count, 1))[self.shape]


def drawn_law(rng: np.random.Generator) -> Law:
    """A law drawn from wide ranges: small and large models, fast and slow prefill, idle and crowded engines."""

    def between(low: float, high: float) -> float:
        return float(low * (high / low) ** rng.random())

    return Law(
        floor_watts=between(80, 400),
        weights_joules=between(0.4, 3),
        token_joules=between(0.05, 0.5),
        context_joules=between(5e-6, 1e-4),
        step_seconds=between(0.006, 0.025),
        sequence_seconds=between(3e-5, 4e-4),
        context_seconds=between(2e-8, 4e-7),
        prompt_seconds=between(1 / 30_000, 1 / 2_500),
        prompt_joules=between(0.008, 0.15),
        attention_joules=between(3e-7, 1e-5),
        log_input=float(rng.uniform(5.8, 7.6)),
        log_output=float(rng.uniform(4.6, 5.9)),
        requests_per_second=between(0.4, 2.5),
    )


class _Engine:
    """The state of a running engine: who runs, what each has used, and sums per interval."""

    def __init__(self, law: Law, start: np.ndarray, tokens: np.ndarray, cached: np.ndarray, output: np.ndarray) -> None:
        self.law = law
        self.start, self.tokens, self.computed, self.output = start, tokens, tokens - cached, output
        self.joules, self.beside, self.first, self.end = (np.zeros(start.size) for _ in range(4))
        self.left, self.context = np.zeros(start.size), np.zeros(start.size)
        self.intervals = np.zeros((3, int(start[-1] / INTERVAL_SECONDS) + 100))
        self.running = np.array([], int)
        self.now = 0.0

    def book(self, row: int, until: float, amount: float) -> None:
        """Spread an amount evenly over the time up to `until`."""
        since = self.now
        while True:
            number = int(since // INTERVAL_SECONDS)
            edge = (number + 1) * INTERVAL_SECONDS
            if until <= edge:
                self.intervals[row, number] += amount
                return
            part = amount * (edge - since) / (until - since)
            self.intervals[row, number] += part
            since, amount = edge, amount - part

    def compute_prompt(self, one: int) -> None:
        """The prompt of one request, while all others wait."""
        took = max(self.computed[one] * self.law.prompt_seconds, 0.004)
        self.running = np.append(self.running, one)
        size = self.running.size
        before = self.tokens[one] - self.computed[one] / 2
        own = self.computed[one] * (self.law.prompt_joules + self.law.attention_joules * before)
        self.joules[self.running] += self.law.floor_watts * took / size
        self.joules[one] += own
        self.beside[self.running] += took * size
        self.book(0, self.now + took, self.law.floor_watts * took + own)
        self.book(1, self.now + took, self.computed[one])
        self.now += took
        self.first[one], self.left[one], self.context[one] = self.now, self.output[one], self.tokens[one]

    def decode(self, until: float) -> None:
        """As many steps as pass before `until`, or before one of the requests is done."""
        law, running = self.law, self.running
        size = running.size
        step = law.step_seconds + law.sequence_seconds * size + law.context_seconds * self.context[running].sum()
        steps = int(max(1, min(self.left[running].min(), (until - self.now) / step + 1, 20 / step)))
        took = steps * step
        common = law.floor_watts * took + law.weights_joules * steps
        own = steps * (law.token_joules + law.context_joules * (self.context[running] + steps / 2))
        self.joules[running] += common / size + own
        self.beside[running] += took * size
        self.book(0, self.now + took, common + float(own.sum()))
        self.book(2, self.now + took, steps * size)
        self.now += took
        self.context[running] += steps
        self.left[running] -= steps
        is_done = self.left[running] <= 0
        self.end[running[is_done]] = self.now
        self.running = running[~is_done]


def serve(law: Law, rng: np.random.Generator, cycles: int, cycle_seconds: float) -> Served:
    """Serve `cycles` rises and falls of demand. A prompt is computed before the next step; decoding waits for it."""
    shapes = np.array(
        [
            (
                np.clip(rng.lognormal(law.log_input, 1.1), 30, 12_000),
                np.clip(rng.lognormal(law.log_output, 0.9), 8, 1_500),
                rng.choice([0, 0, 0.5, 0.9]),
            )
            for _ in range(SHAPES)
        ]
    )
    length = cycles * cycle_seconds
    asked = np.sort(rng.uniform(0, length, int(length * law.requests_per_second)))
    demand = 0.07 + 0.93 * (0.5 - 0.5 * np.cos(2 * np.pi * asked / cycle_seconds)) ** 1.5
    start = asked[rng.uniform(size=asked.size) < demand]
    shape = rng.integers(0, SHAPES, start.size)
    tokens, output = shapes[shape, 0].astype(int), shapes[shape, 1].astype(int)
    cached = (tokens * shapes[shape, 2]).astype(int)
    engine = _Engine(law, start, tokens, cached, output)
    waiting, arrived = list[int](), 0
    while arrived < start.size or engine.running.size or waiting:
        while arrived < start.size and start[arrived] <= engine.now:
            waiting.append(arrived)
            arrived += 1
        if waiting and engine.running.size < BATCH:
            engine.compute_prompt(waiting.pop(0))
        elif engine.running.size:
            engine.decode(start[arrived] if arrived < start.size else np.inf)
        else:
            engine.now = start[arrived]
    used = np.flatnonzero(engine.intervals.any(axis=0))[-1] + 1
    return Served(
        shape,
        tokens,
        cached,
        output,
        start,
        engine.first,
        engine.end,
        engine.joules,
        engine.beside / (engine.end - start),
        *engine.intervals[:, :used],
    )
