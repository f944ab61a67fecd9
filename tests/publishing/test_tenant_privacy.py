"""What people wrote and who they are is in no file of the ledger, and an erased tenant's name is in none either.

One day of one engine, and a log of each format, with prompts, answers, addresses and mails in every field that a
gateway may put them into, in sound lines and in broken ones.
"""

from __future__ import annotations

import gzip
import hashlib
import hmac
import json
import sqlite3
import zipfile
from collections.abc import Collection, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests import commands
from tests.books import Book, environment
from tests.planted import DAY, ENERGY, HOURS, OUTPUT, board, plant, pod, rising, vllm

PROMPT, ANSWER, MAIL, ADDRESS = "how-do-i-defuse", "cut-the-blue-one", "jo.doe@quux.example", "203.0.113.77"
PERSONAL = (PROMPT, ANSWER, MAIL, ADDRESS)
TENANT = "quokka-ag"
KEY = "0123456789abcdef0123456789abcdef"
AT = f"{DAY}T10:00:00Z"


def words() -> dict[str, Any]:
    """What gateways put into their logs, whatever they are asked to."""
    return {
        "messages": [{"role": "user", "content": PROMPT}],
        "response": {"choices": [{"message": {"content": ANSWER}}]},
        "request_body": PROMPT,
        "client_ip": ADDRESS,
        "requester_ip_address": ADDRESS,
        "user_email": MAIL,
    }


def edge(**changes: Any) -> dict[str, Any]:
    usage = {"prompt_tokens": 0, "completion_tokens": 60}
    line = {"created": AT, "seconds": 60, "status": 200, "model": "chat", "usage": usage}
    return {**line, **words(), "tenant": TENANT, "who": MAIL, **changes}


def spend(**changes: Any) -> dict[str, Any]:
    line = {"startTime": AT, "endTime": f"{DAY}T10:01:00Z", "status": "success"}
    metadata = {"user_api_key_user_email": MAIL, "requester_ip_address": ADDRESS, "prompt": PROMPT}
    tokens = {"prompt_tokens": 0, "completion_tokens": 60}
    return {**line, **words(), **tokens, "model": "chat", "user": MAIL, "metadata": metadata, **changes}


EDGE = [
    edge(),
    edge(tenant=MAIL),
    edge(tenant=f"{ADDRESS}:443", team=MAIL),
    edge(tenant=None),
    edge(status=f"error: {PROMPT} from {MAIL}"),
    edge(created=PROMPT),
    edge(usage=PROMPT),
    edge(usage={"prompt_tokens": PROMPT}),
    edge(id=f"{MAIL} {PROMPT}" * 40),
]
SPEND = [
    spend(end_user=TENANT),
    spend(end_user=MAIL),
    spend(end_user=None, user=ADDRESS, team_id=MAIL),
    spend(metadata=f"{{{PROMPT} {MAIL}"),
    spend(startTime=f"{PROMPT} {ADDRESS}", end_user=TENANT),
]
AIPERF = [
    {
        "metadata": {"request_start_ns": 1_792_058_400_000_000_000, "request_end_ns": 1_792_058_460_000_000_000},
        "metrics": {"output_sequence_length": {"value": 60, "unit": "tokens"}, "input_sequence_length": {"value": 1}},
        "error": error,
        **words(),
    }
    for error in (None, {"message": f"{PROMPT} {MAIL}", "code": 500}, f"{PROMPT} {ADDRESS}")
]
SPAN = {
    "traceId": "0" * 31 + "1",
    "spanId": "0" * 15 + "1",
    "name": f"chat {PROMPT}",
    "kind": 3,
    "startTimeUnixNano": "1792058400000000000",
    "endTimeUnixNano": "1792058460000000000",
    "status": {"message": PROMPT},
    "attributes": [
        {"key": key, "value": {"stringValue": value}}
        for key, value in {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "chat",
            "gen_ai.input.messages": PROMPT,
            "gen_ai.output.messages": ANSWER,
            "client.address": ADDRESS,
            "user.email": MAIL,
            "enduser.id": MAIL,
        }.items()
    ]
    + [{"key": "gen_ai.usage.output_tokens", "value": {"intValue": "60"}}],
}
OTLP = {"resourceSpans": [{"resource": {"attributes": []}, "scopeSpans": [{"spans": [SPAN]}]}]}
AZURE = f"TIMESTAMP,ContextTokens,GeneratedTokens\n{DAY} 10:00:00.0000000,0,60\n{PROMPT},1,1\n"


def written(folder: Path) -> Book:
    for name, lines in {"edge": EDGE, "spend": SPEND}.items():
        text = "".join(f"{json.dumps(line)}\n" for line in lines)
        (folder / f"{name}.jsonl").write_text(text + f'{{"messages": "{PROMPT} {MAIL} {ADDRESS}\n', encoding="utf-8")
    (folder / "load").mkdir()
    (folder / "load" / "profile_export.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in AIPERF))
    (folder / "trace.csv").write_text(AZURE)
    (folder / "spans.jsonl").write_text(json.dumps(OTLP) + "\n")
    columns = {"duration_seconds": "seconds", "status": "status", "tenant": "tenant", "team": "team", "user": "who"}
    book = plant(
        folder,
        [
            (ENERGY, board("GPU-a", "n-a", **pod("chat-0")), rising(360_000)),
            (OUTPUT, vllm("chat-0", "chat"), rising(1)),
        ],
        nodes=[{"name": "n-a", "site": "west", "host_watts": 0}],
        cost_rates=[{"device_type": "a100-sxm4-80gb", "usd_per_gpu_hour": 2.0, "source": "contract"}],
        requests=[
            {"name": "edge", "kind": "access_log", "path": "edge.jsonl", "columns": columns,
                "user_key_env": "KEY_OF_USERS", "limits": {"bad_rows_ratio": 0.9}},
            {"name": "gateway", "kind": "litellm", "path": "spend.jsonl", "limits": {"bad_rows_ratio": 0.9}},
            {"name": "load", "kind": "aiperf", "path": "load", "model": "chat"},
            {"name": "spans", "kind": "otlp", "path": "spans.jsonl", "tenant_attributes": ["enduser.id"]},
            {"name": "trace", "kind": "azure_trace", "path": "trace.csv", "model": "chat"},
        ],
    )  # fmt: skip
    book.start_empty()
    return book


def ask(folder: Path, *arguments: str, status: int | None = 0) -> str:
    """Run a command; returns what it printed."""
    surroundings = environment(folder / "data", KEY_OF_USERS=KEY)
    line = [*arguments, "--fleet", str(folder / "fleet.yaml")]
    done = commands.run(line, surroundings, timeout=600)
    assert status is None or done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def found_in(folder: Path, texts: Collection[str]) -> set[tuple[str, str]]:
    """Which of the texts a file has, as bytes, in a text column of a database or of Parquet, or in a workbook."""
    return {
        (path.name, text)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        for content in contents(path)
        for text in texts
        if text.encode() in content
    }


def contents(path: Path) -> Iterator[bytes]:
    """What a file holds: its bytes, and what is packed in it by its format."""
    yield path.read_bytes()
    if path.suffix in (".xlsx", ".zip"):
        with zipfile.ZipFile(path) as book:
            for name in book.namelist():
                yield book.read(name)
    elif path.suffix == ".gz":
        yield gzip.decompress(path.read_bytes())
    elif path.suffix == ".parquet":
        # Statistics of the footer are of the columns, and may be of rows that a reader would not see.
        yield repr(duckdb.sql(f"from parquet_metadata('{path}')").fetchall()).encode()
        yield repr(duckdb.sql(f"from parquet_kv_metadata('{path}')").fetchall()).encode()
        yield repr(duckdb.sql(f"from read_parquet('{path}')").fetchall()).encode()
    elif path.suffix == ".duckdb":
        with duckdb.connect() as connection:
            connection.execute(f"attach '{path}' as held (read_only)")
            tables = connection.execute(
                "select schema_name, table_name from duckdb_tables() where database_name = 'held'"
            ).fetchall()
            for schema, table in tables:
                yield repr(connection.execute(f'from held."{schema}"."{table}"').fetchall()).encode()
    elif path.suffix in (".db", ".sqlite"):
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            yield "\n".join(connection.iterdump()).encode()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("private")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KEY_OF_USERS", KEY)
        book = written(made)
        book.start_empty()
    ask(made, "run")
    return made


def rows(folder: Path, query: str) -> list[tuple]:
    with duckdb.connect(str(folder / "data" / "planted" / "warehouse.duckdb"), read_only=True) as connection:
        return connection.execute(query).fetchall()


def test_what_people_wrote_and_their_addresses_are_in_no_file(folder: Path) -> None:
    # They are found where they are.
    assert {text for _, text in found_in(folder, PERSONAL) if _ in ("edge.jsonl", "spend.jsonl")} == {*PERSONAL}
    assert found_in(folder / "data", PERSONAL) == set()


def test_sound_lines_land_and_broken_ones_are_named_without_their_words(folder: Path) -> None:
    assert rows(folder, "select source, count(*) from raw.requests group by source order by source") == [
        ("edge", 5),
        ("gateway", 3),
        ("load", 3),
        ("spans", 1),
        ("trace", 1),
    ]
    details = "\n".join(text for (text,) in rows(folder, "select distinct detail from raw.landings where detail <> ''"))
    assert f"started_at: got a text of {len(PROMPT)} characters, expected a time such as" in details
    assert "edge: 5 of 10 rows rejected" in details or "5 of 10 rows rejected" in details


def test_users_are_a_keyed_digest_where_the_fleet_file_asks_for_it(folder: Path) -> None:
    """Of the edge log alone; the gateway's users are dropped."""
    digest = "user-" + hmac.new(KEY.encode(), MAIL.encode(), hashlib.sha256).hexdigest()[:32]
    of_address = "user-" + hmac.new(KEY.encode(), f"{ADDRESS}:443".encode(), hashlib.sha256).hexdigest()[:32]
    found = rows(
        folder,
        "select source, names.tenant, count(*) from raw.requests left join raw.tenant_names as names"
        " on requests.tenant = tenant_key where source in ('edge', 'gateway') group by all order by all",
    )
    assert sorted(found, key=str) == sorted(
        [
            ("edge", TENANT, 2),
            ("edge", digest, 2),
            ("edge", of_address, 1),
            ("gateway", TENANT, 1),
            ("gateway", None, 2),
        ],
        key=str,
    )


def test_the_book_has_keys_and_one_table_has_the_names(folder: Path) -> None:
    with duckdb.connect(str(folder / "data" / "planted" / "warehouse.duckdb"), read_only=True) as connection:
        tables = connection.execute("select schema_name, table_name from duckdb_tables()").fetchall()
        named = [
            f"{schema}.{table}"
            for schema, table in tables
            if TENANT in repr(connection.execute(f'from {schema}."{table}"').fetchall())
        ]
    assert named == ["raw.tenant_names"]
    ((key, tokens),) = rows(
        folder,
        "select tenant_key, sum(output_tokens)::int from finance.chargeback"
        f" where tenant = '{TENANT}' group by tenant_key",
    )
    assert key.startswith("tenant-") and len(key) == len("tenant-") + 16
    # Two requests of the edge log and one of the gateway's, 60 tokens each.
    assert tokens == 180
    assert rows(folder, f"select sum(output_tokens)::int from marts.tenant_daily where tenant = '{key}'") == [(180,)]


@pytest.mark.long
def test_an_erased_name_is_in_no_file_and_no_figure_moves(folder: Path) -> None:
    """The last test of the folder. Logs are the user's: the fleet file's folder keeps them."""
    query = "select month, sum(known_cost_usd), sum(output_tokens) from finance.chargeback group by all order by all"
    before = rows(folder, query)
    ((key,),) = rows(folder, f"select tenant_key from raw.tenant_names where tenant = '{TENANT}'")
    assert {name for name, _ in found_in(folder / "data", [TENANT])} >= {"warehouse.duckdb", "wattledger.duckdb"}
    printed = ask(folder, "erase", "--tenant", TENANT)
    assert printed.startswith(f"the name is dropped; its figures stay under {key}\n")
    assert "USD as before" in printed
    assert found_in(folder / "data", [TENANT]) == set()
    assert rows(folder, query) == before
    assert rows(folder, f"select distinct tenant from finance.chargeback where tenant_key = '{key}'") == [(key,)]
    # What changed, with its digests.
    ((what, is_other, usd_before, usd_after),) = rows(
        folder,
        f"select what, hash_before <> hash_after, usd_before, usd_after from raw.erasures where tenant_key = '{key}'",
    )
    assert (what, is_other) == (f"finance.chargeback {DAY:%Y-%m}", True)
    assert usd_before == usd_after
    assert usd_after == pytest.approx(24 * HOURS / HOURS * 2.0, rel=0.05)
    assert f"no tenant {TENANT!r} is known" in ask(folder, "erase", "--tenant", TENANT, status=2)
