"""Counts of tokens as each API names them, and which of them are within another.

`input` becomes all that the model read, what a cache gave included; `output` all that it wrote, its reasoning included.
Whether an API counts a part within its whole or beside it is documented, or shown by the row's own total. Add an API as
a row of DIALECTS. Keep out where a log has its usage (`access_logs`, `litellm`, `load_tests`, `otlp_spans`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from collectors.records.log_words import quoted
from collectors.records.request_records import tokens
from collectors.records.token_readings import CHAT, PARTS, READ, REASONING, WRITTEN, Reading, checked_tokens
from collectors.rows import Reject

SPANS = "spans"


@dataclass(frozen=True)
class Dialect:
    """Where a usage object has its counts: names, with a dot for what an object below holds, the best first. `beside`
    are the parts that the API counts beside their whole. `needs` are names of which one is in no other. `api` is stated
    where other APIs have taken over the names and count otherwise: there the rows show how."""

    input: tuple[str, ...]
    output: tuple[str, ...]
    read: tuple[str, ...] = ()
    written: tuple[str, ...] = ()
    reasoning: tuple[str, ...] = ()
    total: tuple[str, ...] = ("total_tokens",)
    beside: frozenset[str] = frozenset()
    needs: tuple[str, ...] = ()
    # More input that its name for input leaves out.
    more: tuple[str, ...] = ()
    api: str | None = None


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


CACHE_READ = _names("cached_tokens cache_read_input_tokens prompt_cache_hit_tokens")
CACHE_WRITTEN = _names("cache_creation_tokens cache_creation_input_tokens cache_write_tokens")


def _details(of: str, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{of}.{name}" for name in names) + names


# The order counts: the first whose input or output an object has, and one of whose `needs`.
DIALECTS = (
    # OpenAI's chat, vLLM, SGLang, LiteLLM, DeepSeek (platform.openai.com/docs/api-reference/chat/object). xAI has these
    # names too and counts reasoning beside completion_tokens (docs.x.ai, consumption and rate limits): its total shows.
    Dialect(
        _names("prompt_tokens"),
        _names("completion_tokens"),
        _details("prompt_tokens_details", CACHE_READ),
        _details("prompt_tokens_details", CACHE_WRITTEN),
        _names("completion_tokens_details.reasoning_tokens"),
        api=CHAT,
    ),
    # OpenAI's responses (platform.openai.com/docs/api-reference/responses/object).
    Dialect(
        _names("input_tokens"),
        _names("output_tokens"),
        _details("input_tokens_details", CACHE_READ),
        _details("input_tokens_details", CACHE_WRITTEN),
        _names("output_tokens_details.reasoning_tokens"),
        needs=_names("input_tokens_details"),
        api="responses",
    ),
    # OpenTelemetry's conventions, below gen_ai.usage (opentelemetry.io/docs/specs/semconv/gen-ai).
    Dialect(
        _names("input_tokens"),
        _names("output_tokens"),
        _names("cache_read.input_tokens"),
        _names("cache_creation.input_tokens"),
        _names("reasoning.output_tokens"),
        needs=_names("cache_read cache_creation reasoning"),
        api=SPANS,
    ),
    # Anthropic's messages: input_tokens is what no cache gave (docs.claude.com, prompt caching).
    Dialect(
        _names("input_tokens"),
        _names("output_tokens"),
        CACHE_READ,
        CACHE_WRITTEN,
        _names("output_tokens_details.reasoning_tokens"),
        beside=frozenset({READ, WRITTEN}),
    ),
    # Gemini: thoughts are beside the candidates, prompts of tools beside the prompt, cached content within it
    # (ai.google.dev/api/generate-content, UsageMetadata).
    Dialect(
        _names("promptTokenCount"),
        _names("candidatesTokenCount"),
        _names("cachedContentTokenCount"),
        (),
        _names("thoughtsTokenCount"),
        _names("totalTokenCount"),
        beside=frozenset({REASONING}),
        more=_names("toolUsePromptTokenCount"),
    ),
    # Vercel's AI SDK (ai-sdk.dev, generateText: usage).
    Dialect(
        _names("inputTokens"),
        _names("outputTokens"),
        _names("cachedInputTokens inputTokenDetails.cacheReadTokens"),
        _names("inputTokenDetails.cacheWriteTokens"),
        _names("reasoningTokens outputTokenDetails.reasoningTokens"),
        _names("totalTokens"),
        needs=_names("cachedInputTokens reasoningTokens inputTokenDetails outputTokenDetails"),
    ),
    # Bedrock's Converse: reads and writes are beside inputTokens (docs.aws.amazon.com, TokenUsage); of its streams some
    # count writes within, and their total shows it.
    Dialect(
        _names("inputTokens"),
        _names("outputTokens"),
        _names("cacheReadInputTokens cacheReadInputTokenCount"),
        _names("cacheWriteInputTokens cacheWriteInputTokenCount"),
        (),
        _names("totalTokens"),
        beside=frozenset({READ, WRITTEN}),
    ),
    # OpenRouter: native_… is by the model's own tokenizer, tokens_… by one for all models (openrouter.ai/docs).
    Dialect(
        _names("native_tokens_prompt"),
        _names("native_tokens_completion"),
        _names("native_tokens_cached"),
        (),
        _names("native_tokens_reasoning"),
    ),
    Dialect(
        _names("tokens_prompt"),
        _names("tokens_completion"),
        _names("tokens_cached"),
        (),
        _names("tokens_reasoning"),
    ),
    # Ollama (docs.ollama.com/api/usage).
    Dialect(_names("prompt_eval_count"), _names("eval_count")),
    # Langfuse: each kind of token is counted once, and `total` is their sum (langfuse.com/docs, model usage and cost).
    Dialect(
        _names("input"),
        _names("output"),
        _names("input_cached_tokens cache_read_input_tokens input_cache_read"),
        _names("input_cache_creation cache_creation_input_tokens"),
        _names("output_reasoning_tokens output_reasoning"),
        _names("total"),
        beside=frozenset(PARTS),
    ),
)
# Names that a row without a usage object may have itself, one of WHOLES at least; `input` and `output` are texts there.
_FLAT = [one for one in DIALECTS if "input" not in one.input]
WHOLES = frozenset(name for one in _FLAT for name in (*one.input, *one.output))
FLAT = WHOLES | {
    name.partition(".")[0]
    for one in _FLAT
    for names in (one.read, one.written, one.reasoning, one.total, one.more)
    for name in names
}
# A usage with nothing else has neither input nor output, and is no mistake.
_OF_ALL = frozenset({"total_tokens", "totalTokens", "totalTokenCount", "total", "cost", "unit"})


def usage_tokens(usage: Any) -> dict[str, Any]:
    """The token columns of a `usage` object of any API of DIALECTS; all None where it is missing or empty. Reject where
    its names are of none, or a part exceeds its whole.

    A part that the row's own total shows within its whole, or beside it, is so whatever the API documents; where no
    reading has that total, the API's counts, and their basis is "contradicted". Of names that several APIs have, what
    the row shows or leaves open is its `reading`.
    """
    if usage is None:
        usage = {}
    if not isinstance(usage, Mapping):
        raise Reject(f"usage: got {quoted(usage)}, expected an object")
    dialect = next((one for one in DIALECTS if _fits(one, usage)), None)
    if dialect is None:
        named = [name for name, value in usage.items() if value is not None and name not in _OF_ALL]
        if named:
            raise Reject(
                f"usage: got the names {', '.join(map(str, named[:8]))}, expected those of an API that"
                " docs/sources/requests.md lists, such as prompt_tokens and completion_tokens"
            )
        return checked_tokens(None, None, None, None, None, basis="reported")
    input_count, output = (_count(usage, names) for names in (dialect.input, dialect.output))
    if input_count is not None:
        input_count += sum(_count(usage, (name,)) or 0 for name in dialect.more)
    parts = {part: _count(usage, getattr(dialect, part)) for part in PARTS}
    return token_columns(input_count, output, parts, _count(usage, dialect.total), dialect.beside, api=dialect.api)


def token_columns(
    asked: int | None,
    made: int | None,
    parts: Mapping[str, int | None],
    total: int | None,
    documented: frozenset[str] | None = None,
    *,
    api: str | None = None,
) -> dict[str, Any]:
    """The token columns of counts whose `parts` are within them or, as `documented`, beside; where nothing is, cached
    parts that exceed the input are beside it. With an `api` also the `reading` that other rows are read by, or this one
    by others."""
    exceeds = documented is None and asked is not None and (parts[READ] or 0) + (parts[WRITTEN] or 0) > asked
    reading = Reading(api or "", asked, made, parts, None)
    stated = (frozenset({READ, WRITTEN}) if exceeds else documented or frozenset()) & reading.counted
    fitting = _fitting(asked, made, parts, total)
    shown = fitting[0] if len(fitting) == 1 else stated if exceeds else None
    beside = shown if shown is not None and stated not in fitting else stated
    columns = reading.columns(beside, total)
    if api and reading.counted and (shown is not None or not total):
        columns["reading"] = replace(reading, beside=shown)
    return columns


def _fits(dialect: Dialect, usage: Mapping[str, Any]) -> bool:
    has_count = any(usage.get(name) is not None for name in (*dialect.input, *dialect.output))
    return has_count and (not dialect.needs or any(usage.get(name) is not None for name in dialect.needs))


def _count(usage: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    for name in names:
        above, dot, below = name.partition(".")
        held: Any = usage.get(above)
        held = held.get(below) if dot and isinstance(held, Mapping) else None if dot else held
        if held is not None:
            return tokens(held, name)
    return None


def _fitting(
    asked: int | None, made: int | None, parts: Mapping[str, int | None], total: int | None
) -> list[frozenset[str]]:
    """The readings (which parts are beside their whole) that add up to the total."""
    if total is None or asked is None or made is None:
        return []
    return [
        beside
        for beside in _readings(parts)
        if asked + made + sum(parts[part] or 0 for part in beside) == total
        and sum(parts[part] or 0 for part in (READ, WRITTEN) if part not in beside) <= asked
        and (REASONING in beside or (parts[REASONING] or 0) <= made)
    ]


def _readings(parts: Mapping[str, int | None]) -> Iterator[frozenset[str]]:
    counted = [part for part in PARTS if parts[part]]
    for chosen in product((False, True), repeat=len(counted)):
        yield frozenset(part for part, is_beside in zip(counted, chosen, strict=True) if is_beside)
