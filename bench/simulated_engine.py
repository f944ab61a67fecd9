"""An engine that serves requests by a law of its own, and what each request really used: the truth of `receipt_truth`.

The law is not the estimator's. A step of decoding reads the weights once for all that run, reads each one's context, and
takes longer the more run and the longer they are; a prompt is computed alone, at a cost that grows with its square;
whatever is done, a working accelerator draws its active floor. What a step has in common (floor, weights) is shared
equally by the requests that are then running, the rest is each one's own. Add a part of the law here. Keep out what is
estimated.
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
    n = start.size
    shape = rng.integers(0, SHAPES, n)
    tokens, output = shapes[shape, 0].astype(int), shapes[shape, 1].astype(int)
    cached = (tokens * shapes[shape, 2]).astype(int)
    computed = tokens - cached
    joules, beside, first, end = np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n)
    left, context = np.zeros(n), np.zeros(n)
    intervals = np.zeros((3, int(length / INTERVAL_SECONDS) + 50))
    running, waiting, arrived, now = np.array([], int), list[int](), 0, 0.0

    def book(row: int, since: float, until: float, amount: float) -> None:
        while True:
            number = int(since // INTERVAL_SECONDS)
            edge = (number + 1) * INTERVAL_SECONDS
            if until <= edge:
                intervals[row, number] += amount
                return
            part = amount * (edge - since) / (until - since)
            intervals[row, number] += part
            since, amount = edge, amount - part

    while arrived < n or running.size or waiting:
        while arrived < n and start[arrived] <= now:
            waiting.append(arrived)
            arrived += 1
        if not running.size and not waiting:
            now = start[arrived]
            continue
        if waiting and running.size < BATCH:
            one = waiting.pop(0)
            took = max(computed[one] * law.prompt_seconds, 0.004)
            running = np.append(running, one)
            own = computed[one] * (law.prompt_joules + law.attention_joules * (tokens[one] - computed[one] / 2))
            joules[running] += law.floor_watts * took / running.size
            joules[one] += own
            beside[running] += took * running.size
            book(0, now, now + took, law.floor_watts * took + own)
            book(1, now, now + took, computed[one])
            now += took
            first[one], left[one], context[one] = now, output[one], tokens[one]
            continue
        size = running.size
        step = law.step_seconds + law.sequence_seconds * size + law.context_seconds * context[running].sum()
        until = start[arrived] - now if arrived < n else np.inf
        steps = int(max(1, min(left[running].min(), until / step + 1, 20 / step)))
        took = steps * step
        common = law.floor_watts * took + law.weights_joules * steps
        own = steps * (law.token_joules + law.context_joules * (context[running] + steps / 2))
        joules[running] += common / size + own
        beside[running] += took * size
        book(0, now, now + took, common + float(own.sum()))
        book(2, now, now + took, steps * size)
        now += took
        context[running] += steps
        left[running] -= steps
        done = running[left[running] <= 0]
        end[done] = now
        running = running[left[running] > 0]
    return Served(shape, tokens, cached, output, start, first, end, joules, beside / (end - start), *intervals)
