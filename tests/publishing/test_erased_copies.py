"""An erased tenant in every place that the ledger writes: files, a real PostgreSQL, an S3 server with Delta's history.

The fleet of `test_tenant_privacy`, without what it plants.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from fnmatch import fnmatch
from pathlib import Path

import pytest
from pyarrow.fs import S3FileSystem, copy_files

from pipelines.command_line.tenant_commands.places_of_names import PLACES
from pipelines.fleet.fleet_file import load_fleet
from pipelines.today import ticks
from tests import commands
from tests.books import environment
from tests.planted import DAY, ENERGY, OUTPUT, board, plant, pod, rising, vllm
from tests.publishing.test_postgresql import session
from tests.publishing.test_tenant_privacy import contents, edge, found_in
from tests.servers import postgresql, s3_bucket

pytestmark = [pytest.mark.long, pytest.mark.needs("postgresql")]

DSN = "DSN_OF_THE_COPY"
ERASED, KEPT = "quokka-ag", "wombat-gmbh"
CHARGED = (
    "select tenant, sum(output_tokens)::int, sum(known_cost_usd)::text from finance.chargeback"
    " where output_tokens > 0 group by tenant order by sum(output_tokens)"
)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with postgresql() as uri:
        monkeypatch.setenv(DSN, uri)
        yield uri


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with s3_bucket(monkeypatch) as url:
        yield url


def written(folder: Path, bucket: str) -> None:
    """A day of one engine of 1 token/s; one tenant has 60 tokens of it, the other 120."""
    columns = {"duration_seconds": "seconds", "status": "status", "tenant": "tenant"}
    lines = [edge(tenant=ERASED), edge(tenant=KEPT), edge(tenant=KEPT)]
    (folder / "edge.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    plant(
        folder,
        [
            (ENERGY, board("GPU-a", "n-a", **pod("chat-0")), rising(360_000)),
            (OUTPUT, vllm("chat-0", "chat"), rising(1)),
        ],
        nodes=[{"name": "n-a", "site": "west", "host_watts": 0}],
        cost_rates=[{"device_type": "a100-sxm4-80gb", "usd_per_gpu_hour": 2.0, "source": "contract"}],
        models=[{"name": "chat", "contract_prices": [{"tenant": ERASED, "output_usd_per_mtok": 1}]}],
        receipts={"keep": True},
        alarms={"receivers": [{"name": "chat", "kind": "webhook", "url": "http://127.0.0.1:9"}]},
        requests=[{"name": "edge", "kind": "access_log", "path": "edge.jsonl", "columns": columns}],
        publication={
            "postgresql": {"dsn_env": DSN},
            "object_store": {"url": f"{bucket}/ledger", "tables": "delta", "keep_days": 10},
        },
    ).start_empty()


def ask(folder: Path, *words: str) -> str:
    surroundings = environment(folder / "data", DAGSTER_HOME=str(folder / "history"))
    done = commands.run([*words, "--fleet", str(folder / "fleet.yaml")], surroundings, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rows_that_name(uri: str, text: str) -> set[str]:
    """Tables and views of PostgreSQL of which a row has the text, in any column."""
    with session(uri) as cursor:
        cursor.execute(
            "select table_schema, table_name from information_schema.tables"
            " where table_schema not in ('pg_catalog', 'information_schema')"
        )
        found = set()
        for schema, table in cursor.fetchall():
            cursor.execute(f'select count(*) from "{schema}"."{table}" as t where t::text like \'%{text}%\'')
            if cursor.fetchall() != [(0,)]:
                found.add(f"{schema}.{table}")
        return found


def kept_values(uri: str, text: str) -> set[str]:
    """Where the planner's statistics have the text, as a superuser sees them: the views, and the rows of the catalog,
    whose old versions stay until a vacuum."""
    queries = {
        "pg_stats": "select s::text from pg_stats as s",
        "pg_stats_ext": "select s::text from pg_stats_ext as s",
        "pg_statistic": "select encode(t_data, 'escape') from"
        " generate_series(0, pg_relation_size('pg_statistic') / 8192 - 1) as n,"
        " heap_page_items(get_raw_page('pg_statistic', n::integer))",
    }
    with session(uri) as cursor:
        cursor.execute("create extension if not exists pageinspect")
        found = set()
        for place, query in queries.items():
            cursor.execute(f"select count(*) from ({query}) as t (v) where v like '%{text}%'")
            if cursor.fetchall() != [(0,)]:
                found.add(place)
        return found


def charged(uri: str) -> list[tuple]:
    with session(uri) as cursor:
        cursor.execute(CHARGED)
        return cursor.fetchall()


def copied(bucket: str, folder: Path) -> Path:
    """All objects of the bucket, as files."""
    store = S3FileSystem(endpoint_override=os.environ["AWS_ENDPOINT_URL"], region=os.environ["AWS_REGION"])
    copy_files(bucket.removeprefix("s3://"), str(folder), source_filesystem=store)
    return folder


def test_an_erased_name_is_in_no_place_that_the_ledger_writes(tmp_path: Path, server: str, bucket: str) -> None:
    """Files of the fleet's folder with a tick, receipts, a statement, an export, alarms; Dagster's history in a folder
    elsewhere; rows and statistics of PostgreSQL; objects of the store."""
    written(tmp_path, bucket)
    ask(tmp_path, "run")
    ask(tmp_path, "export")
    for tenant in (ERASED, KEPT):
        ask(tmp_path, "receipt", "--tenant", tenant, "--month", f"{DAY:%Y-%m}", "--html")
    fleet = load_fleet(tmp_path / "fleet.yaml", environment(tmp_path / "data"))
    ticks.refresh(fleet, datetime(DAY.year, DAY.month, DAY.day, 12, tzinfo=UTC))
    with session(server) as cursor:
        cursor.execute("create statistics of_two (mcv) on payer, tenant from finance.chargeback")
        cursor.execute("analyze finance.chargeback")
    before = charged(server)
    assert [(tenant, tokens) for tenant, tokens, _ in before if tenant in (ERASED, KEPT)] == [(ERASED, 60), (KEPT, 120)]
    assert "finance.chargeback" in rows_that_name(server, ERASED)
    assert kept_values(server, ERASED) == {"pg_stats", "pg_stats_ext", "pg_statistic"}
    assert found_in(copied(bucket, tmp_path / "first"), [ERASED, KEPT]) != set()
    named = {path.relative_to(fleet.root).parts[0] for path, _ in places_in(fleet.root, ERASED)}
    assert named == {"warehouse.duckdb", "published", "statements", ".today"}
    assert "alarms.json" in {path.name for path in fleet.root.iterdir()}
    assert places_in(tmp_path / "history", "wattledger") != set()
    # A fleet file that names the tenant would bring it back.
    path = tmp_path / "fleet.yaml"
    path.write_text(path.read_text().replace(f"tenant: {ERASED}", f"tenant: {KEPT}"))

    ask(tmp_path, "erase", "--tenant", ERASED)
    after = charged(server)
    assert rows_that_name(server, ERASED) == set()
    assert kept_values(server, ERASED) == set()
    assert "finance.chargeback" in rows_that_name(server, KEPT)
    assert "pg_stats" in kept_values(server, KEPT)
    left = copied(bucket, tmp_path / "then")
    assert found_in(left, [ERASED]) == set()
    assert {text for _, text in found_in(left, [ERASED, KEPT])} == {KEPT}
    assert places_in(fleet.root, ERASED) | places_in(tmp_path / "history", ERASED) == set()
    assert {path.relative_to(fleet.root).parts[0] for path, _ in places_in(fleet.root, KEPT)} >= {"statements"}
    # The key has what the name had, to the digit.
    assert [figures for _, *figures in after] == [figures for _, *figures in before]
    assert after[0][0].startswith("tenant-")
    # Whatever a version writes beside these needs a place in the list.
    patterns = [place.where for place in PLACES]
    assert [at.name for at in fleet.root.iterdir() if not any(fnmatch(at.name, one) for one in patterns)] == []


def places_in(folder: Path, text: str) -> set[tuple[Path, str]]:
    """Files that have the text, decoded by their format."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {(path, text) for path in files if any(text.encode() in content for content in contents(path))}
