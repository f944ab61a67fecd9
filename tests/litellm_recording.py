"""What a real LiteLLM showed and logged (`tests/collectors/litellm`), as if its first page had been read at another
time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from collectors.protocols.exposition import parse_page
from collectors.rows import Rejects
from tests.planted import START_TIME, Samples, Series

RECORDED = Path(__file__).parent / "collectors" / "litellm"
_TIMES = ("startTime", "endTime", "completionStartTime")


def _lines(name: str) -> list[dict]:
    return [json.loads(line) for line in (RECORDED / name).read_text(encoding="utf-8").splitlines()]


def _moved_seconds(first_look_at: float) -> float:
    return first_look_at - float(_lines("looks.jsonl")[0]["at"])


def pages(first_look_at: float) -> Iterator[Series]:
    """The samples of all pages; `first_look_at` in seconds since 1970."""
    moved = _moved_seconds(first_look_at)
    found: dict[tuple[str, str], Samples] = {}
    for look in _lines("looks.jsonl"):
        samples, _ = parse_page((RECORDED / look["page"]).read_text(encoding="utf-8"), Rejects())
        for sample in samples:
            key = (sample.metric, json.dumps({**sample.labels, "instance": "litellm:4000"}))
            started = moved if sample.metric == START_TIME else 0
            found.setdefault(key, []).append((look["at"] + moved, sample.value + started))
    return ((metric, json.loads(labels), samples) for (metric, labels), samples in found.items())


def log(first_look_at: float) -> str:
    """The log of the same requests, as JSON lines."""
    moved = _moved_seconds(first_look_at)
    lines = [{**line, **{key: line[key] + moved for key in _TIMES}} for line in _lines("log.jsonl")]
    return "".join(f"{json.dumps(line)}\n" for line in lines)
