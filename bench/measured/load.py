"""Requests of one shape, kept up until a moment, and what is counted of them.

Add here what counts and when. Keep out how tokens are computed (an `Engine`) and when a stretch begins (`run`).

The rule: a token counts when the step that computed it has ended, by the wall clock. The step that runs while the time
is up counts nowhere; the requests that it cuts off keep the tokens that they had, prompts included, and are
`cancelled`. So the log of requests, the page of counters and the results agree to the token.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol, TextIO

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from bench.measured.plan import Stretch

RULE = (
    "A token counts when the step that computed it has ended, by the wall clock. The step that runs when a stretch or a"
    " warm-up ends counts nowhere; the requests that it cuts off are `cancelled` and keep the tokens that they had."
)
MODEL = "llama-8b-random"
# How the log of requests calls an end, and how vLLM's counter does.
REASONS = {"length": "length", "cancelled": "abort"}


class Engine(Protocol):
    """A model with the cache of as many requests as run at a time. Each call returns when the accelerator is done."""

    mode: str

    def start(self, requests: int, prompt_tokens: int, output_tokens: int) -> None:
        """Make room for requests of this shape, and drop those before."""

    def prefill(self) -> Iterator[int]:
        """Compute the prompts in pieces, with the last one also the first output token; yields each piece's tokens."""

    def rewind(self) -> None:
        """Back to where the prompts are in the cache and no output is."""

    def decode(self) -> None:
        """One more output token of each request."""


@dataclass
class Counts:
    """What was counted of all requests together."""

    requests: int = 0
    cancelled_requests: int = 0
    input_tokens: int = 0
    cached_input_tokens: int = 0
    output_tokens: int = 0
    first_token_seconds: list[float] = field(default_factory=list)


class Page:
    """The counters as vLLM names them, for the agent to scrape."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        labels = {"model_name": MODEL, "engine": "0"}

        def named(kind: type, name: str, about: str) -> Any:
            return kind(f"vllm:{name}", about, list(labels), registry=self.registry).labels(**labels)

        self.input = named(Counter, "prompt_tokens", "Tokens of prompts, cached ones included")
        self.cached = named(Counter, "prompt_tokens_cached", "Of these, tokens that were in the cache")
        self.output = named(Counter, "generation_tokens", "Generated tokens")
        self.running = named(Gauge, "num_requests_running", "Requests that run")
        self.first_token = named(Histogram, "time_to_first_token_seconds", "Seconds to the first output token")
        ended = Counter(
            "vllm:request_success", "Requests that ended", [*labels, "finished_reason"], registry=self.registry
        )
        self.ended = {status: ended.labels(**labels, finished_reason=reason) for status, reason in REASONS.items()}


def steps(engine: Engine, stretch: Stretch) -> Iterator[tuple[int, int, int]]:
    """Compute one batch; after each step the input, cached input and output tokens that each request has got by it."""
    if stretch.kind == "decode":
        engine.rewind()
        engine.decode()
        yield stretch.prompt_tokens, stretch.prompt_tokens, 1
    else:
        done = 0
        for tokens in engine.prefill():
            done += tokens
            yield tokens, 0, int(done == stretch.prompt_tokens)
    for _ in range(stretch.output_tokens - 1):
        engine.decode()
        yield 0, 0, 1


@dataclass
class Batch:
    """Requests that began together and go on in lockstep: what each of them has got until now."""

    began: float
    ended: float
    status: str = "length"
    first_token_seconds: float | None = None
    input_tokens: int = 0
    cached_input_tokens: int = 0
    output_tokens: int = 0


class Load:
    """An engine under load. What counts goes to the page at once, and to the log (`requests`) when a batch ends."""

    def __init__(self, engine: Engine, page: Page, requests: TextIO, now: Callable[[], float] = time.time) -> None:
        self.engine, self._page, self._requests, self._now = engine, page, requests, now

    def keep_up(self, stretch: Stretch, tenant: str, until: float) -> Counts:
        """Run one batch after another until a moment (Unix seconds)."""
        counts = Counts()
        size = stretch.concurrency
        while (began := self._now()) < until:
            self._page.running.set(size)
            batch = self._batch(stretch, Batch(began, began), until)
            self._page.running.set(0)
            counts.requests += size
            counts.cancelled_requests += size * (batch.status == "cancelled")
            counts.input_tokens += size * batch.input_tokens
            counts.cached_input_tokens += size * batch.cached_input_tokens
            counts.output_tokens += size * batch.output_tokens
            if batch.first_token_seconds is not None:
                counts.first_token_seconds.append(batch.first_token_seconds)
            self._write(batch, tenant, size)
        return counts

    def _batch(self, stretch: Stretch, batch: Batch, until: float) -> Batch:
        page, size = self._page, stretch.concurrency
        for read, cached, written in steps(self.engine, stretch):
            moment = self._now()
            if moment > until:
                batch.status, batch.ended = "cancelled", until
                break
            batch.ended = moment
            batch.input_tokens += read
            batch.cached_input_tokens += cached
            batch.output_tokens += written
            page.input.inc(size * read)
            page.cached.inc(size * cached)
            page.output.inc(size * written)
            if batch.first_token_seconds is None and written:
                batch.first_token_seconds = moment - batch.began
                for _ in range(size):
                    page.first_token.observe(batch.first_token_seconds)
        page.ended[batch.status].inc(size)
        return batch

    def _write(self, batch: Batch, tenant: str, size: int) -> None:
        line = {
            "started_at": round(batch.began * 1e6),
            "ended_at": round(batch.ended * 1e6),
            "ttft_seconds": batch.first_token_seconds,
            "status": batch.status,
            "model": MODEL,
            "tenant": tenant,
            "usage": {
                "prompt_tokens": batch.input_tokens,
                "completion_tokens": batch.output_tokens,
                "prompt_tokens_details": {"cached_tokens": batch.cached_input_tokens},
            },
        }
        for number in range(size):
            self._requests.write(json.dumps({"id": f"{line['started_at']}-{number}", **line}) + "\n")
        self._requests.flush()
