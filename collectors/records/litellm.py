"""Requests that went through a LiteLLM proxy: its spend log, as JSON Lines or from its PostgreSQL table.

Add here what LiteLLM writes. Keep out other gateways' logs, which `access_logs` reads by a column mapping.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from collectors.limits import RECORD_LIMITS, Limits
from collectors.protocols import postgresql_driver, postgresql_uris
from collectors.records import askers as who
from collectors.records import log_columns
from collectors.records.access_logs import is_ok, json_object, numbered_lines
from collectors.records.askers import NO_USERS, Askers
from collectors.records.log_words import quoted, status_of
from collectors.records.request_records import (
    Batches,
    FileCollector,
    between,
    instant_us,
    key_hash,
    text,
    tokens,
    usd,
)
from collectors.records.token_readings import CHAT, READ, REASONING, WRITTEN, checked_tokens
from collectors.records.usage import token_columns
from collectors.rows import Reject, Rejects, readable
from collectors.samples import SourceError, Window
from collectors.text_files import csv_rows, lines

TABLE = '"LiteLLM_SpendLogs"'
# Columns of the table that we read, of its schema.prisma. Those of OPTIONAL came with later versions of LiteLLM.
COLUMNS = (
    "request_id", "api_key", "spend", "prompt_tokens", "completion_tokens", "startTime", "endTime",
    "completionStartTime", "model", "api_base", "user", "team_id", "end_user", "cache_hit", "metadata",
)  # fmt: skip
OPTIONAL = ("status", "call_type", "total_tokens")
# Answers that were asked for again, were listed or ended: their rows repeat tokens and spend of the request that made
# them (BerriAI/litellm#17814).
READS = frozenset(
    f"{prefix}{call}"
    for prefix in ("", "a")
    for call in ("get_responses", "delete_responses", "cancel_responses", "list_input_items")
)
# The driver reads no JSON, and of a time that Python does not have (infinity, year 20000) the whole answer fails.
AS_TEXT = ("metadata", "startTime", "endTime", "completionStartTime")


class LiteLLMFileCollector(FileCollector):
    """Reads .jsonl files (also .gz): rows of the spend log, or the StandardLoggingPayload that callbacks write; and
    the table of the spend log as CSV."""

    source_kind, inside = "litellm", "*.jsonl*"
    has_columns = True

    def columns_of(self, rows: Sequence[bytes]) -> Mapping[str, pa.Array] | None:
        """All columns of plain lines at once."""
        if not isinstance(rows[0], bytes):
            return None  # of a CSV
        try:
            return _plain_columns(log_columns.objects(rows), self.askers)
        except (log_columns.NotPlain, pa.ArrowException, Reject):
            return None

    def read(
        self, path: str, rejects: Rejects
    ) -> tuple[Iterator[tuple[str, Any]], Callable[[Any], dict[str, Any] | None]]:
        """The lines of a file."""
        _, first = next(lines(path, Rejects()), (0, b"{"))
        if b"startTime" in first and b"{" not in first:  # the header of a CSV
            return csv_rows(path, rejects)[1], lambda row: litellm_request(row, self.askers)
        return numbered_lines(path, rejects), lambda line: litellm_request(json_object(line), self.askers)


class LiteLLMPostgresCollector:
    """Reads the spend log from the proxy's own database, through a COPY that streams: memory does not grow with it.

    `dsn_env` names the environment variable that holds the connection URI; a user that may only SELECT the table is
    enough. libpq has no time limit for an answer: whoever waits for the batches keeps to `limits.window_seconds`, and
    the server ends the statement then.
    """

    def __init__(
        self,
        source: str,
        dsn_env: str,
        constants: Mapping[str, Any],
        limits: Limits = RECORD_LIMITS,
        askers: Askers = NO_USERS,
    ) -> None:
        self.source = source
        self.dsn_env = dsn_env
        self.constants = constants
        self.askers = askers
        self.limits = limits

    @property
    def url(self) -> str:
        """Where the database is, as it may be logged."""
        return postgresql_uris.shown(os.environ.get(self.dsn_env, ""), self.dsn_env)

    def collect(self, window: Window, rejects: Rejects) -> Iterator[pa.RecordBatch]:
        """Batches of the requests that began in the window. A database that refuses is a SourceError."""
        try:
            dbapi, refusals = postgresql_driver.driver()
        except postgresql_driver.DriverMissing as missing:
            raise SourceError(self.url, None, str(missing)) from None
        batches = Batches(window, "litellm_postgres", self.constants)
        try:
            uri = postgresql_uris.with_parameters(os.environ[self.dsn_env])
            with dbapi.connect(uri) as connection, connection.cursor() as cursor:
                cursor.execute("set timezone to 'UTC'")
                cursor.execute("set datestyle to 'ISO'")
                cursor.execute(f"set statement_timeout to '{int(self.limits.window_seconds * 1000)}ms'")
                cursor.execute(self._select(_present(cursor), window))
                rows = (
                    (f"{TABLE} request_id {held['request_id']!r}", held)
                    for batch in cursor.fetch_record_batch()
                    for held in batch.to_pylist()
                )
                for request in readable(rows, partial(litellm_request, askers=self.askers), rejects):
                    if request is not None:
                        yield from batches.add(request)
        except refusals as refusal:
            reason = postgresql_uris.secrets_of(os.environ[self.dsn_env]).masked(str(refusal))[:1000]
            raise SourceError(self.url, None, reason) from None
        yield from batches.last()
        rejects.check(self.url)

    def _select(self, present: list[str], window: Window) -> str:
        if not present:
            raise SourceError(self.url, None, f"there is no table {TABLE} that this user may read")
        missing = [column for column in COLUMNS if column not in present]
        if missing:
            raise SourceError(self.url, None, f"{TABLE} has no column {missing[0]!r}; there are {', '.join(present)}")
        # Prisma's DateTime is a timestamp without time zone, in UTC.
        start, end = (at.replace(tzinfo=None).isoformat() for at in (window.start_at, window.end_at))
        chosen = [
            f'"{column}"::text as "{column}"' if column in AS_TEXT else f'"{column}"'
            for column in (*COLUMNS, *(column for column in OPTIONAL if column in present))
        ]
        return (
            f"select {', '.join(chosen)} from {TABLE}"
            f" where \"startTime\" >= timestamp '{start}' and \"startTime\" < timestamp '{end}'"
        )


def _present(cursor: Any) -> list[str]:
    cursor.execute(
        "select column_name from information_schema.columns"
        " where table_name = 'LiteLLM_SpendLogs' and table_schema = any (current_schemas(false))"
    )
    return [row[0] for row in cursor.fetchall()]


def litellm_request(held: Mapping[str, Any], askers: Askers = NO_USERS) -> dict[str, Any] | None:
    """The request of a row of the spend log, or of a StandardLoggingPayload; Reject when it cannot be one, None where
    an answer was only read again."""
    if str(held.get("call_type")) in READS:
        return None
    metadata = _metadata(held.get("metadata"))
    started_us = instant_us(held.get("startTime"), "startTime")
    if started_us is None:
        raise Reject("startTime: missing")
    ended_us = instant_us(held.get("endTime"), "endTime")
    first_us = instant_us(held.get("completionStartTime"), "completionStartTime")
    is_streamed = first_us is not None and ended_us is not None and first_us < ended_us
    status = status_of(text(held.get("status"), "status"))
    is_cached = str(held.get("cache_hit")).lower() == "true"
    counted = _tokens(held, metadata)
    # LiteLLM writes 0 for a model that it has no price for; only its own cache answers for nothing.
    spend = usd(_either(held, "spend", "response_cost"), "spend")
    return {
        "request_id": text(_either(held, "request_id", "id"), "request_id"),
        "started_at": started_us,
        "ended_at": ended_us,
        # A completion that did not stream carries its end as its start.
        "ttft_seconds": between(started_us, first_us, "completionStartTime") if is_streamed else None,
        "end_to_end_seconds": between(started_us, ended_us, "endTime"),
        "status": status,
        "is_ok": is_ok(status),
        "is_gateway_cached": is_cached,
        "model": text(held.get("model"), "model"),
        "api_base": text(held.get("api_base"), "api_base"),
        "team": who.team(text(_either(held, "team_id") or metadata.get("user_api_key_team_id"), "team_id")),
        "tenant": askers.tenant(
            text(held.get("end_user"), "end_user"),
            text(_either(held, "user") or metadata.get("user_api_key_user_id"), "user"),
            text(metadata.get("user_api_key_alias"), "user_api_key_alias"),
        ),
        "key_hash": key_hash(_either(held, "api_key") or metadata.get("user_api_key_hash"), "api_key"),
        "spend_usd": None if spend == 0 and not is_cached else spend,
        **counted,
    }


def _tokens(held: Mapping[str, Any], metadata: Mapping[str, Any]) -> dict[str, Any]:
    """LiteLLM counts as OpenAI does, for Anthropic's models too. A row whose parts exceed its prompt came through a
    pass-through endpoint as the provider counted it, beside its cached parts. All 0 is what LiteLLM writes for unknown.
    """
    input_count = tokens(held.get("prompt_tokens"), "prompt_tokens")
    output = tokens(held.get("completion_tokens"), "completion_tokens")
    if not input_count and not output:
        return checked_tokens(None, None, None, None, None, basis="reported")
    usage, prompt, completion = _usage(metadata)
    read = tokens(_either(usage, "cache_read_input_tokens", beside=prompt, as_="cached_tokens"), "cached_tokens")
    written = tokens(
        _either(usage, "cache_creation_input_tokens", beside=prompt, as_="cache_creation_tokens"), "cache_write_tokens"
    )
    reasoning = tokens(completion.get("reasoning_tokens"), "reasoning_tokens")
    parts = {READ: read, WRITTEN: written, REASONING: reasoning}
    return token_columns(input_count, output, parts, tokens(held.get("total_tokens"), "total_tokens"), api=CHAT)


def _usage(metadata: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """What the metadata has of tokens, and of it the details of prompt and completion."""
    usage: dict[str, Any] = {}
    for key in ("usage_object", "additional_usage_values"):
        if isinstance(metadata.get(key), dict):
            usage |= {name: value for name, value in metadata[key].items() if value is not None}
    prompt, completion = (usage.get(f"{side}_tokens_details") for side in ("prompt", "completion"))
    return usage, prompt if isinstance(prompt, dict) else {}, completion if isinstance(completion, dict) else {}


def _plain_columns(held: log_columns.Lines, askers: Askers) -> dict[str, pa.Array]:
    """The columns of `litellm_request`."""
    if any(str(one.get("call_type")) in READS for one in held):
        raise log_columns.NotPlain  # not every line is a request
    count = len(held)
    metadata = [_metadata(one.get("metadata")) for one in held]
    times = {}
    for name, key in (("started_at", "startTime"), ("ended_at", "endTime"), ("first", "completionStartTime")):
        values = log_columns.column([one.get(key) for one in held])
        times[name] = pa.nulls(count, log_columns.TIME) if values is None else log_columns.instants(values, "s")
    start, end, first = times["started_at"], times["ended_at"], times["first"]
    if start.null_count:
        raise log_columns.NotPlain  # a start is missing
    is_streamed = pc.fill_null(pc.less(first, end), False)
    waited = log_columns.lasted(start, pc.if_else(is_streamed, first, pa.scalar(None, log_columns.TIME)))
    texts = {
        "request_id": [_either(one, "request_id", "id") for one in held],
        "status": [one.get("status") for one in held],
        "model": [one.get("model") for one in held],
        "api_base": [one.get("api_base") for one in held],
        "team": [
            _either(one, "team_id") or of.get("user_api_key_team_id") for one, of in zip(held, metadata, strict=True)
        ],
        "tenant": [one.get("end_user") for one in held],
        "user": [
            _either(one, "user") or of.get("user_api_key_user_id") for one, of in zip(held, metadata, strict=True)
        ],
        "alias": [of.get("user_api_key_alias") for of in metadata],
        "key_hash": [
            _either(one, "api_key") or of.get("user_api_key_hash") for one, of in zip(held, metadata, strict=True)
        ],
    }
    made = {
        name: log_columns.texts(values) for name, of in texts.items() if (values := log_columns.column(of)) is not None
    }
    if "team" in made:
        made["team"] = log_columns.of_each(made["team"], who.team, pa.string())
    named = [made.pop(name, None) for name in ("tenant", "user", "alias")]
    if any(column is not None for column in named):
        made["tenant"] = log_columns.tenants(askers, *named)
    if "status" in made:
        made["status"] = log_columns.of_each(made["status"], status_of, pa.string())
        made["is_ok"] = log_columns.of_each(made["status"], is_ok, pa.bool_())
    if "key_hash" in made:
        made["key_hash"] = log_columns.of_each(made["key_hash"], lambda key: key_hash(key, "api_key"), pa.string())
    is_cached = pa.array([str(one.get("cache_hit")).lower() == "true" for one in held])
    if (spent := log_columns.column([_either(one, "spend", "response_cost") for one in held])) is not None:
        paid = log_columns.dollars(spent)
        is_unpriced = pc.and_(pc.equal(paid, 0), pc.invert(is_cached))
        made["spend_usd"] = pc.if_else(is_unpriced, pa.scalar(None, pa.float64()), paid)
    return {
        **made,
        "started_at": start,
        "ended_at": end,
        "ttft_seconds": waited,
        "end_to_end_seconds": log_columns.lasted(start, end),
        "is_gateway_cached": is_cached,
        **_plain_tokens(held, metadata),
    }


def _plain_tokens(held: log_columns.Lines, metadata: list[Mapping[str, Any]]) -> dict[str, pa.Array]:
    """As `_tokens`, of rows whose parts are in their prompt."""
    asked, made = log_columns.counts(held, "prompt_tokens"), log_columns.counts(held, "completion_tokens")
    none = pa.scalar(None, pa.int64())
    is_nothing = pc.and_(pc.equal(pc.coalesce(asked, 0), 0), pc.equal(pc.coalesce(made, 0), 0))
    usages, prompts, completions = (list(side) for side in zip(*map(_usage, metadata), strict=True))
    read = pc.coalesce(
        log_columns.counts(usages, "cache_read_input_tokens"), log_columns.counts(prompts, "cached_tokens")
    )
    written = pc.coalesce(
        log_columns.counts(usages, "cache_creation_input_tokens"),
        log_columns.counts(prompts, "cache_creation_tokens"),
    )
    reasoning = log_columns.counts(completions, "reasoning_tokens")
    log_columns.adds_up(held, asked, made, (read, written, reasoning))
    known = (pc.if_else(is_nothing, none, of) for of in (asked, made, read, written, reasoning))
    return log_columns.checked(*known)


def _metadata(held: Any) -> Mapping[str, Any]:
    if isinstance(held, str):
        try:
            held = orjson.loads(held)
        except orjson.JSONDecodeError:
            raise Reject(f"metadata: got {quoted(held)}, expected JSON") from None
    return held if isinstance(held, dict) else {}


def _either(held: Mapping[str, Any], *names: str, beside: Mapping[str, Any] | None = None, as_: str = "") -> Any:
    for name in names:
        if held.get(name) not in (None, ""):
            return held[name]
    return (beside or {}).get(as_)
