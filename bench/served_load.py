"""Engines whose capacity is known: what becomes of the same requests on one size or another.

A request arrives, waits for a place in the batch and in the KV cache, has its prompt computed, and gets its tokens. One
decoding step gives each running request a token. It takes the time to read the weights and the KV cache once, and to
compute a token for each request:

    step seconds = (weights + KV bytes) / (boards × bandwidth) + running requests × seconds per token / boards

A prompt takes its tokens × the same seconds per token / boards, and the others wait meanwhile. A full KV cache
sends the request that came last back to the queue, where all that it had is computed again (vLLM's recomputation).
Tokens flow within a step: nothing is rounded. Add here what an engine does with requests. Keep out which requests come
(`served_fleet`) and how exporters report it (`served_telemetry`).
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

GIB = 2**30
USABLE_MEMORY_RATIO = 0.9  # of a board, for weights and KV cache, as engines reserve it by default
KV_WATERMARK_RATIO = 0.01  # of the KV cache that stays free when a request is admitted, as in vLLM
LEAST_BUSY_RATIO = 0.5  # of the watts above parked that a step of one request takes


class Requests(NamedTuple):
    """Requests in the order in which they arrive: seconds, and tokens of prompt and answer."""

    arrived_at: np.ndarray
    prompt: np.ndarray
    output: np.ndarray

    def between(self, first: float, last: float) -> Requests:
        """Those that arrive in [first, last), with the same clock."""
        chosen = slice(*np.searchsorted(self.arrived_at, [first, last]))
        return Requests(*(part[chosen] for part in self))

    def dealt(self, replicas: int) -> list[Requests]:
        """One after the other to each of the replicas in turn, as a router does."""
        return [Requests(*(part[first::replicas] for part in self)) for first in range(replicas)]


@dataclass(frozen=True)
class Engine:
    """One replica: a dense model on `boards` accelerators. Bandwidth and seconds per token are those of one board."""

    boards: int
    weights_gib: float
    kv_bytes_per_token: float
    compute_seconds_per_token: float
    bandwidth_gb_per_second: float = 1200.0
    memory_gib: float = 80.0
    max_running: int = 8
    bare_watts: float = 55.0  # per board: no model
    parked_watts: float = 93.0  # per board: loaded, nothing runs
    limit_watts: float = 400.0  # per board: a prompt is computed

    @property
    def kv_tokens(self) -> float:
        """Tokens that fit in the KV cache."""
        free = self.boards * USABLE_MEMORY_RATIO * self.memory_gib - self.weights_gib
        return max(free, 0.0) * GIB / self.kv_bytes_per_token

    def step_seconds(self, running: float, kv_tokens: float) -> float:
        """How long one decoding step of so many requests takes, with so many tokens in the KV cache."""
        read = self.weights_gib * GIB + kv_tokens * self.kv_bytes_per_token
        return (read / (self.bandwidth_gb_per_second * 1e9) + running * self.compute_seconds_per_token) / self.boards

    def tokens_per_second(self, running: float, kv_tokens_each: float) -> float:
        """Output tokens per second of a batch whose requests have so many tokens each."""
        return running / self.step_seconds(running, running * kv_tokens_each)

    def prompt_seconds(self, tokens: float) -> float:
        """How long the engine takes for a prompt."""
        return tokens * self.compute_seconds_per_token / self.boards

    def watts(self, running: int) -> float:
        """What all boards draw while so many requests get their tokens."""
        if running == 0:
            return self.boards * self.parked_watts
        busy = LEAST_BUSY_RATIO + (1 - LEAST_BUSY_RATIO) * running / self.max_running
        return self.boards * (self.parked_watts + busy * (self.limit_watts - self.parked_watts))

    def on(self, boards: int) -> Engine:
        """The same model on another number of boards."""
        return replace(self, boards=boards)


@dataclass(frozen=True)
class Served:
    """What one engine did. Per request (NaN: never): when its first place, its first token and its last came. At each
    of `sampled_at`: counters since the start (`output_tokens`, `prompt_tokens`, `preemptions`, `joules`), and what
    `running`, `waiting` and `kv_ratio` were."""

    requests: Requests
    started_at: np.ndarray
    first_token_at: np.ndarray
    finished_at: np.ndarray
    sampled_at: np.ndarray
    output_tokens: np.ndarray
    prompt_tokens: np.ndarray
    running: np.ndarray
    waiting: np.ndarray
    kv_ratio: np.ndarray
    preemptions: np.ndarray
    joules: np.ndarray


class _Run:
    """The state of an engine: its clock, its batch, its queue and its counters."""

    def __init__(self, engine: Engine, requests: Requests, sampled_at: np.ndarray) -> None:
        self.engine = engine
        self.prompt, self.output = requests.prompt.tolist(), requests.output.tolist()
        self.sampled_at, self.rows = sampled_at.tolist(), list[tuple[float, ...]]()
        self.now = 0.0
        self.steps = 0.0  # tokens that a request has had that runs since the start
        self.kv_base = 0.0  # KV tokens are kv_base + running × steps
        self.running: dict[int, tuple[float, float]] = {}  # request: steps when it was admitted, tokens had before
        self.finishes: list[tuple[float, int]] = []  # (steps at which it has all tokens, request); some are outdated
        self.queue: deque[int] = deque()
        self.had = dict[int, float]()  # of those that were sent back
        self.output_tokens = self.prompt_tokens = self.joules = 0.0
        self.preemptions = 0
        nothing = [np.nan] * len(self.prompt)
        self.started_at, self.first_token_at, self.finished_at = nothing, nothing.copy(), nothing.copy()
        boards, bandwidth = engine.boards, engine.bandwidth_gb_per_second * 1e9
        self.weights_seconds = engine.weights_gib * GIB / bandwidth / boards
        self.kv_seconds = engine.kv_bytes_per_token / bandwidth / boards
        self.each_seconds = engine.compute_seconds_per_token / boards
        self.room = engine.kv_tokens
        self.watts = [engine.watts(running) for running in range(engine.max_running + 1)]

    @property
    def kv_tokens(self) -> float:
        return self.kv_base + len(self.running) * self.steps

    def sample(self, until: float, watts: float, extra: int = 0) -> None:
        """Report up to `until` what stays as it is until then."""
        while len(self.rows) < len(self.sampled_at) and self.sampled_at[len(self.rows)] <= until:
            at = self.sampled_at[len(self.rows)]
            kv_ratio = self.kv_tokens / self.room if self.room else 0.0
            self.rows.append(
                (self.output_tokens, self.prompt_tokens, len(self.running) + extra, len(self.queue), kv_ratio,
                 self.preemptions, self.joules + watts * (at - self.now))
            )  # fmt: skip

    def admit(self) -> bool:
        """Give the first of the queue a place, if there is one; its prompt is computed."""
        if not self.queue or len(self.running) >= self.engine.max_running:
            return False
        request = self.queue[0]
        had = self.had.get(request, 0.0)
        tokens = self.prompt[request] + had
        if self.kv_tokens + tokens > self.room * (1 - KV_WATERMARK_RATIO) and self.running:
            return False
        self.queue.popleft()
        if self.prompt[request] + self.output[request] > self.room:
            return True  # it never fits: refused
        if np.isnan(self.started_at[request]):
            self.started_at[request] = self.now
        seconds = self.engine.prompt_seconds(tokens)
        watts = self.engine.boards * self.engine.limit_watts
        self.sample(self.now + seconds, watts, extra=1)
        self.joules += watts * seconds
        self.now += seconds
        if not had:
            self.prompt_tokens += self.prompt[request]
            self.first_token_at[request] = self.now
        self.running[request] = (self.steps, had)
        self.kv_base += tokens - self.steps
        heapq.heappush(self.finishes, (self.steps + self.output[request] - had, request))
        return True

    def decode(self, until: float) -> None:
        """Give tokens until then, or until a request has all of its own or the KV cache is full."""
        running = len(self.running)
        if not running:
            self.sample(until, self.watts[0])
            self.joules += self.watts[0] * (until - self.now)
            self.now = until
            return
        step = self.weights_seconds + self.kv_seconds * self.kv_tokens + self.each_seconds * running
        slower = self.kv_seconds * running  # by what each step is longer than the one before
        while self.finishes[0][1] not in self.running or not self._is_current(*self.finishes[0]):
            heapq.heappop(self.finishes)
        steps = self.finishes[0][0] - self.steps
        to_full = (self.room - self.kv_tokens) / running
        is_full, steps = to_full < steps, min(to_full, steps)
        seconds = step * steps + slower * steps**2 / 2
        is_cut = self.now + seconds > until
        if is_cut:
            seconds = until - self.now
            steps = 2 * seconds / (step + (step**2 + 2 * slower * seconds) ** 0.5)
        self.steps += steps
        self.output_tokens += running * steps
        self.joules += self.watts[running] * seconds
        self.now += seconds
        if not is_cut:
            self._preempt() if is_full else self._finish()

    def _is_current(self, at: float, request: int) -> bool:
        admitted, had = self.running[request]
        return at == admitted + self.output[request] - had

    def _leave(self, request: int) -> float:
        admitted, had = self.running.pop(request)
        self.kv_base -= self.prompt[request] + had - admitted
        return had + self.steps - admitted

    def _finish(self) -> None:
        _, request = heapq.heappop(self.finishes)
        self._leave(request)
        self.finished_at[request] = self.now

    def _preempt(self) -> None:
        request = next(reversed(self.running))
        self.had[request] = self._leave(request)
        self.queue.appendleft(request)
        self.preemptions += 1


def serve(engine: Engine, requests: Requests, sampled_at: np.ndarray) -> Served:
    """Serve requests until the last of `sampled_at`, seconds that grow from 0 on. ValueError: no room for weights."""
    if engine.kv_tokens <= 0:
        raise ValueError(f"{engine.weights_gib} GiB of weights do not fit on {engine.boards} boards")
    run = _Run(engine, requests, sampled_at)
    arrived_at, count, end = requests.arrived_at.tolist(), len(requests.arrived_at), float(sampled_at[-1])
    arrived = 0
    while run.now < end:
        while arrived < count and arrived_at[arrived] <= run.now:
            run.queue.append(arrived)
            arrived += 1
        if run.admit():
            continue
        until = min(arrived_at[arrived], end) if arrived < count else end
        if run.running and len(run.rows) < len(run.sampled_at):
            until = min(until, run.sampled_at[len(run.rows)])
        run.decode(until)
        if run.running or run.now == until:
            run.sample(run.now, 0.0)
    columns = np.array(run.rows[: len(sampled_at)], dtype=float).reshape(-1, 7).T
    times = (np.array(times) for times in (run.started_at, run.first_token_at, run.finished_at))
    output, prompt, running, waiting, kv_ratio, preemptions, joules = columns
    return Served(
        requests, *times, sampled_at[: len(output)], output, prompt, running, waiting, kv_ratio, preemptions, joules
    )
