"""Tokens of requests: counts whose input includes its cached parts, and what the rows of a source show of one another.

Most rows have a total that shows whether a part (cached, written to a cache, reasoning) is within its whole or beside
it. One without a total is read as the others of its source, API and model show. Keep out the names of counts (`usage`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from collectors.rows import Reject

READ, WRITTEN, REASONING = "read", "written", "reasoning"
# Each part of the tokens of a request, and its column.
PARTS = {
    READ: "cached_input_tokens",
    WRITTEN: "cache_write_input_tokens",
    REASONING: "reasoning_output_tokens",
}
# The names of OpenAI's chat, which other APIs have taken over.
CHAT = "prompt_tokens"


@dataclass(frozen=True)
class Reading:
    """How the tokens of a row may be read. `beside` are the parts that the row itself shows beside their whole, None
    where it shows nothing; `api` is whose names it has."""

    api: str
    asked: int | None
    made: int | None
    parts: Mapping[str, int | None]
    beside: frozenset[str] | None

    @property
    def counted(self) -> frozenset[str]:
        """The parts that the row has tokens of."""
        return frozenset(part for part in PARTS if self.parts.get(part))

    def columns(self, beside: frozenset[str], total: int | None = None) -> dict[str, Any]:
        """The token columns where these parts are beside their whole."""
        asked, made = self.asked, self.made
        if asked is not None:
            asked += sum(self.parts[part] or 0 for part in beside if part != REASONING)
        if made is not None and REASONING in beside:
            made += self.parts[REASONING] or 0
        # A request that failed may have a prompt and a total of 0.
        is_right = not total or asked is None or made is None or asked + made == total
        basis = "reported" if is_right else "contradicted"
        return checked_tokens(asked, self.parts[READ], self.parts[WRITTEN], made, self.parts[REASONING], basis=basis)


class Readings:
    """What the rows of a source have shown, by API and model."""

    def __init__(self) -> None:
        self._shown: defaultdict[tuple[str, str | None], set[tuple[str, bool]]] = defaultdict(set)

    def learn(self, api: str, model: str | None, part: str, is_beside: bool) -> None:
        """A row shows that a part is beside its whole, or within."""
        self._shown[api, model].add((part, is_beside))

    def columns(self, reading: Reading, model: str | None) -> dict[str, Any]:
        """The token columns of a row that shows nothing itself, where they are others than its API's: of the parts that
        all rows which show it have beside."""
        shown = self._shown[reading.api, model]
        beside = frozenset(part for part in reading.counted if (part, True) in shown and (part, False) not in shown)
        return reading.columns(beside) if beside else {}


def checked_tokens(
    input_count: int | None,
    read: int | None,
    written: int | None,
    output: int | None,
    reasoning: int | None,
    *,
    basis: str,
) -> dict[str, Any]:
    """The token columns of a request whose input includes its cached part; Reject when a part exceeds its whole.

    `basis` is who counted: "reported" by the server or gateway, "contradicted" by the same row's total, or
    "client_counted" by a load test's own tokenizer.
    """
    if input_count is not None and (read or 0) + (written or 0) > input_count:
        raise Reject(
            f"input tokens: got {input_count}, of which {read or 0} read from and {written or 0} written to a cache"
        )
    if output is not None and (reasoning or 0) > output:
        raise Reject(f"output tokens: got {output}, of which {reasoning} reasoning")
    return {
        "input_tokens": input_count,
        "cached_input_tokens": read,
        "cache_write_input_tokens": written,
        "output_tokens": output,
        "reasoning_output_tokens": reasoning,
        "tokens_basis": None if input_count is None and output is None else basis,
    }
