"""LiteLLM's spend log from a real PostgreSQL: its own table, its own types, streamed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from adbc_driver_postgresql import dbapi

from collectors.records.litellm import LiteLLMPostgresCollector
from collectors.records.request_records import REQUEST_SCHEMA
from collectors.rows import Rejects
from collectors.samples import SourceError, Window
from pipelines.fleet.places import PROJECT
from tests.collectors.test_requests import REQUEST, SPEND_LOG
from tests.servers import free_port, postgresql

NEEDED_BY = {"server": ("postgresql",)}

DAY = Window(datetime(2026, 10, 1, tzinfo=UTC), datetime(2026, 10, 2, tzinfo=UTC))

# As Prisma makes it of LiteLLM 1.109's schema.prisma (String is text, Int integer, DateTime timestamp(3), Json jsonb).
TABLE = """
create table "LiteLLM_SpendLogs" (
    request_id text primary key, call_type text not null, api_key text not null default '',
    spend double precision not null default 0, total_tokens integer not null default 0,
    prompt_tokens integer not null default 0, completion_tokens integer not null default 0,
    "startTime" timestamp(3) not null, "endTime" timestamp(3) not null, request_duration_ms integer,
    "completionStartTime" timestamp(3), model text not null default '', model_id text default '',
    model_group text default '', custom_llm_provider text default '', api_base text default '',
    "user" text default '', metadata jsonb default '{}', cache_hit text default '', cache_key text default '',
    request_tags jsonb default '[]', team_id text, organization_id text, end_user text, requester_ip_address text,
    messages jsonb default '{}', response jsonb default '{}', session_id text, status text,
    mcp_namespaced_tool_name text, agent_id text, proxy_server_request jsonb default '{}'
)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgresql() as uri:
        run(uri, TABLE, insert(**SPEND_LOG))
        yield uri


def run(uri: str, *statements: str) -> None:
    with dbapi.connect(uri, autocommit=True) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def insert(**row: Any) -> str:
    values = {name: json.dumps(value) if isinstance(value, dict) else value for name, value in row.items()}
    names = ", ".join(f'"{name}"' for name in values)
    quoted = ", ".join("'" + str(value).replace("'", "''") + "'" for value in values.values())
    return f'insert into "LiteLLM_SpendLogs" ({names}) values ({quoted})'


def collected(uri: str, monkeypatch: pytest.MonkeyPatch, window: Window = DAY) -> tuple[list[dict], Rejects]:
    monkeypatch.setenv("LITELLM_DSN", uri)
    rejects = Rejects()
    batches = list(LiteLLMPostgresCollector("gateway", "LITELLM_DSN", {}).collect(window, rejects))
    assert {str(batch.schema) for batch in batches} <= {str(REQUEST_SCHEMA)}
    rows = [row for batch in batches for row in batch.to_pylist()]
    return [{name: value for name, value in row.items() if value is not None} for row in rows], rejects


def test_a_row_of_the_table_is_the_request_of_the_same_row_in_a_file(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, rejects = collected(server, monkeypatch)
    assert rows == [{**REQUEST, "source_kind": "litellm_postgres"}]
    assert rejects.rows == 0
    assert collected(server, monkeypatch, Window(DAY.end_at, datetime(2026, 10, 3, tzinfo=UTC))) == ([], Rejects())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ('alter table "LiteLLM_SpendLogs" rename to "Other"', 'there is no table "LiteLLM_SpendLogs"'),
        (
            'alter table "LiteLLM_SpendLogs" rename column prompt_tokens to tokens_in',
            "\"LiteLLM_SpendLogs\" has no column 'prompt_tokens'; there are request_id, call_type",
        ),
    ],
)
def test_a_table_that_is_not_litellms_is_named(
    server: str, monkeypatch: pytest.MonkeyPatch, change: str, reason: str
) -> None:
    back = {
        "Other": 'alter table "Other" rename to "LiteLLM_SpendLogs"',
        "tokens_in": 'alter table "LiteLLM_SpendLogs" rename column tokens_in to prompt_tokens',
    }
    run(server, change)
    try:
        with pytest.raises(SourceError) as refusal:
            collected(server, monkeypatch)
    finally:
        run(server, next(undo for word, undo in back.items() if word in change))
    assert reason in str(refusal.value)
    assert "s3cret" not in str(refusal.value)


def test_a_table_of_an_older_litellm_has_no_status(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run(server, 'alter table "LiteLLM_SpendLogs" rename column status to later')
    try:
        (row,), _ = collected(server, monkeypatch)
    finally:
        run(server, 'alter table "LiteLLM_SpendLogs" rename column later to status')
    assert {"status", "is_ok"} & row.keys() == set()


def test_refusals_never_tell_the_password(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for uri in (server.replace("s3cret", "s3cret-wrong"), f"postgresql://w:s3cret-wrong@127.0.0.1:{free_port()}/x"):
        with pytest.raises(SourceError) as refusal:
            collected(uri, monkeypatch)
        assert "s3cret" not in str(refusal.value)
        assert refusal.value.url.startswith("postgresql://127.0.0.1:")


def test_impossible_rows_are_counted_and_the_others_come(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    day = {"startTime": "2026-10-05 01:00:00", "endTime": "2026-10-05 01:00:01", "call_type": "acompletion"}
    run(
        server,
        insert(request_id="ok", prompt_tokens=5, completion_tokens=6, **day),
        insert(request_id="ok too", prompt_tokens=5, completion_tokens=6, **day),
        insert(request_id="negative", prompt_tokens=-5, completion_tokens=6, **day),
        insert(request_id="free", prompt_tokens=5, completion_tokens=6, spend="NaN", **day),
        insert(
            request_id="backwards", prompt_tokens=5, completion_tokens=6, **{**day, "endTime": "2026-10-04 00:00:00"}
        ),
        insert(
            request_id="odd \u202e\U0001f525", prompt_tokens=5, completion_tokens=6, metadata='["no object"]', **day
        ),
    )
    window = Window(datetime(2026, 10, 5, tzinfo=UTC), datetime(2026, 10, 6, tzinfo=UTC))
    rows, rejects = collected(server, monkeypatch, window)
    assert [row["request_id"] for row in rows] == ["ok", "ok too", "odd \u202e\U0001f525"]
    assert rejects.rows == 3
    assert rejects.first[0] == (
        "\"LiteLLM_SpendLogs\" request_id 'negative': prompt_tokens: got -5, expected a count of tokens,"
        " at most 10,000,000,000"
    )


@pytest.mark.parametrize("column", ["endTime", "completionStartTime"])
@pytest.mark.parametrize("time", ["infinity", "-infinity", "20000-01-01 00:00:00", "0044-03-15 00:00:00 BC"])
def test_a_time_that_python_does_not_have_costs_its_row(
    server: str, monkeypatch: pytest.MonkeyPatch, column: str, time: str
) -> None:
    day = {"startTime": "2026-10-09 01:00:00.25", "endTime": "2026-10-09 01:00:01.5", "call_type": "acompletion"}
    run(
        server,
        """delete from "LiteLLM_SpendLogs" where "startTime"::date = '2026-10-09'""",
        insert(request_id="fine", prompt_tokens=5, completion_tokens=6, **day),
        insert(request_id="odd", prompt_tokens=5, completion_tokens=6, **{**day, column: time}),
    )
    window = Window(datetime(2026, 10, 9, tzinfo=UTC), datetime(2026, 10, 10, tzinfo=UTC))
    (row,), rejects = collected(server, monkeypatch, window)
    assert (row["request_id"], row["end_to_end_seconds"]) == ("fine", 1.25)
    assert row["started_at"] == datetime(2026, 10, 9, 1, 0, 0, 250_000, tzinfo=UTC)
    assert (rejects.rows, rejects.read) == (1, 1)
    assert rejects.first[0].startswith(f"\"LiteLLM_SpendLogs\" request_id 'odd': {column}: got '{time}'")


def test_memory_does_not_grow_with_the_table(server: str, tmp_path: Path) -> None:
    run(
        server,
        """
        insert into "LiteLLM_SpendLogs" (request_id, call_type, "startTime", "endTime", prompt_tokens, metadata)
        select 'r' || n, 'acompletion', timestamp '2026-10-07' + n * interval '0.1 second', timestamp '2026-10-08', 7,
            jsonb_build_object('additional_usage_values', jsonb_build_object('padding', repeat('x', 2000)))
        from generate_series(1, 40000) as n
        """,
    )
    program = tmp_path / "read.py"
    program.write_text(
        "import json, resource\n"
        "from datetime import UTC, datetime, timedelta\n"
        "from collectors.records.litellm import LiteLLMPostgresCollector\n"
        "from collectors.rows import Rejects\n"
        "from collectors.samples import Window\n"
        "start = datetime(2026, 10, 7, tzinfo=UTC)\n"
        "peaks = []\n"
        "for hours in (0.2, 24):\n"
        "    window = Window(start, start + timedelta(hours=hours))\n"
        "    collector = LiteLLMPostgresCollector('gateway', 'LITELLM_DSN', {})\n"
        "    rows = sum(batch.num_rows for batch in collector.collect(window, Rejects()))\n"
        "    peak = next(line for line in open('/proc/self/status') if line.startswith('VmHWM'))\n"
        "    peaks.append((rows, int(peak.split()[1]) // 1024))\n"
        "print(json.dumps(peaks))\n"
    )
    done = subprocess.run(
        [sys.executable, program],
        env={**os.environ, "LITELLM_DSN": server, "PYTHONPATH": os.pathsep.join([str(PROJECT), *sys.path])},
        capture_output=True,
        text=True,
        check=True,
    )
    (few, small), (many, large) = json.loads(done.stdout)
    assert (few, many) == (7_199, 40_000)
    # 40,000 rows are 80 MB of metadata, several times that as objects; on the wire they come 16 MB at a time.
    assert large - small < 60
