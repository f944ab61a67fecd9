"""The publication in a real PostgreSQL: the snapshot's values, never a mixture, whole after any failure."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import dagster as dg
import duckdb
import pyarrow as pa
import pytest
from adbc_driver_manager import Error
from adbc_driver_postgresql import dbapi

from pipelines.booking.project import prepared_project
from pipelines.fleet.fleet_file import Fleet, load_fleet
from pipelines.fleet.targets.publication_targets import PostgresqlTarget
from pipelines.publishing import publication
from pipelines.publishing.postgresql import loading as postgresql
from pipelines.publishing.postgresql import server as postgresql_server
from pipelines.publishing.postgresql.asset import postgresql_asset
from pipelines.publishing.postgresql.server import PostgresqlError, Server, quoted
from pipelines.warehouse import contracts, database
from tests.books import on
from tests.servers import Postgresql, free_port
from tests.tiny_marts import NEXT_VERSION, book, publish, published_demo

__all__ = ["published_demo"]  # the fixture
pytestmark = pytest.mark.sampled

NEEDED_BY = {"server": ("postgresql",)}

DSN = "WATTLEDGER_TEST_POSTGRESQL"
FLEET = """
fleet: tiny
synthetic: true
period: {start: 2026-10-01}
sources: [{name: synthetic, kind: synthetic, scenario: demo, interval_seconds: 60}]
publication: {postgresql: {dsn_env: WATTLEDGER_TEST_POSTGRESQL, schema_prefix: "PREFIX", reader: bi}}
"""
MARTS = {
    "model_daily": contracts.Mart((), grain=("date", "model", "team"), never_null=frozenset({"date", "model"})),
}


@pytest.fixture(scope="module")
def server() -> Iterator[Postgresql]:
    with Postgresql.installed() as found:
        found.start()
        for role in ("bi", "ops", "of_search"):
            run(found.uri, f"create role {role} login password 'r3ad'")
        yield found


@pytest.fixture
def fleet(server: Postgresql, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    """A fleet of three small tables, in schemas of its own on the module's server."""
    return tiny(server, tmp_path, f"t{abs(hash(request.node.name)) % 10**9}_", monkeypatch)


def tiny(server: Postgresql, folder: Path, prefix: str, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    monkeypatch.setenv(DSN, server.uri)
    path = folder / "tiny.yaml"
    path.write_text(FLEET.replace("PREFIX", prefix))
    made = load_fleet(path, {**os.environ, "WATTLEDGER_DATA": str(folder / "data")})
    made.root.mkdir(parents=True, exist_ok=True)
    return made


# --- what is given ----------------------------------------------------------------------------------------------------


def load(fleet: Fleet) -> postgresql.Loaded:
    done = postgresql.publish(fleet, target(fleet), MARTS)
    assert done is not None
    return done


def target(fleet: Fleet) -> PostgresqlTarget:
    assert fleet.publication.postgresql is not None
    return fleet.publication.postgresql


# --- what is found ----------------------------------------------------------------------------------------------------


@contextmanager
def session(uri: str, *, autocommit: bool = True) -> Iterator[Any]:
    with dbapi.connect(uri, autocommit=autocommit) as connection, connection.cursor() as cursor:
        yield cursor


def run(uri: str, *statements: str) -> None:
    with session(uri) as cursor:
        for statement in statements:
            cursor.execute(statement)


def ask(fleet: Fleet, query: str, user: str = "") -> list[tuple]:
    """Rows of a query in which `marts`, `published` and `wattledger` are the fleet's schemas."""
    uri = os.environ[DSN].replace("wattledger:s3cret", user) if user else os.environ[DSN]
    prefix = target(fleet).schema_prefix
    with session(uri) as cursor:
        for schema in ("finance", "marts", "published", "wattledger"):
            query = query.replace(f"{schema}.", f"{prefix}{schema}.")
        cursor.execute(query)
        return cursor.fetchall()


def daily(fleet: Fleet) -> dict[str, Decimal]:
    rows = ask(fleet, "select date::text, energy_joules from marts.model_daily order by 1")
    return {at: Decimal(value) for at, value in rows}


def differences(fleet: Fleet) -> list[tuple[str, int]]:
    """Table -> rows that only one of the snapshot and PostgreSQL has; all tables, every column."""
    found = []
    with closing(duckdb.connect(str(fleet.snapshot), read_only=True)) as snapshot, session(os.environ[DSN]) as cursor:
        snapshot.execute("set TimeZone = 'UTC'")
        cursor.execute("set timezone to 'UTC'")
        for schema, table, columns in snapshot.execute(
            "select schema_name, table_name, list((column_name, data_type) order by column_index)"
            " from duckdb_columns() join duckdb_tables() using (database_name, schema_name, table_name) group by all"
        ).fetchall():
            names = ", ".join(f'"{name}"' for name, _ in columns)
            cursor.execute(f'select {names} from "{target(fleet).schema_prefix}{schema}"."{table}"')
            snapshot.register("theirs", cursor.fetch_arrow_table())
            typed = ", ".join(f'cast("{name}" as {kind}) as "{name}"' for name, kind in columns)
            ours = f'select * from "{schema}"."{table}"'
            ((count,),) = snapshot.execute(
                f"select count(*) from (({ours} except all select {typed} from theirs)"
                f" union all (select {typed} from theirs except all {ours}))"
            ).fetchall()
            found.append((f"{schema}.{table}", count))
    return found


# --- the same tables --------------------------------------------------------------------------------------------------


def test_every_table_of_the_demo_has_the_snapshots_values_types_and_comments(
    server: Postgresql, published_demo: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DSN, server.uri)
    reached = PostgresqlTarget.model_construct(dsn_env=DSN, schema_prefix="", reader="bi")
    fleet = published_demo.model_copy(
        update={"publication": published_demo.publication.model_copy(update={"postgresql": reached})}
    )
    prepared = prepared_project()
    marts = contracts.contracts_of(prepared.manifest_path, prepared.project_dir).marts
    first = postgresql.publish(fleet, reached, marts)
    assert first is not None
    assert first.dates == {on("10-06"), on("10-07"), on("10-08")}
    found = differences(fleet)
    print(f"{len(found)} tables, {sum(first.rows.values())} rows")
    assert len(found) > 60
    assert [one for one in found if one[1]] == []
    assert ask(
        fleet,
        "select column_name, data_type, numeric_precision, numeric_scale, collation_name"
        " from information_schema.columns where table_schema = 'marts' and (table_name, column_name) in ("
        "('model_daily', 'energy_joules'), ('model_daily', 'date'), ('model_daily', 'matched_ratio'),"
        " ('model_daily', 'model'), ('model_hourly', 'hour_start_at'), ('model_hourly', 'is_opening_balance'))"
        " order by 1",
    ) == [
        ("date", "date", None, None, None),
        ("energy_joules", "numeric", 28, 6, None),
        ("hour_start_at", "timestamp with time zone", None, None, None),
        ("is_opening_balance", "boolean", None, None, None),
        ("matched_ratio", "double precision", 53, None, None),
        ("model", "text", None, None, "C"),
    ]
    # Each table and column is described as in the snapshot.
    with closing(duckdb.connect(str(fleet.snapshot), read_only=True)) as snapshot:
        described = snapshot.execute(
            "select schema_name, table_name, '', comment from duckdb_tables() where comment is not null union all"
            " select schema_name, table_name, column_name, comment from duckdb_columns()"
            " where comment is not null and schema_name in ('finance', 'marts', 'published')"
        ).fetchall()
    comments = ask(
        fleet,
        "select nspname, relname, '', obj_description(c.oid, 'pg_class') from pg_class as c join pg_namespace as n"
        " on n.oid = relnamespace where nspname in ('finance', 'marts', 'published') and relkind = 'r' union all"
        " select nspname, relname, attname, col_description(c.oid, attnum) from pg_class as c join pg_namespace as n"
        " on n.oid = relnamespace join pg_attribute on attrelid = c.oid"
        " where nspname in ('finance', 'marts', 'published') and relkind = 'r' and attnum > 0",
    )
    assert sorted(described) == sorted(row for row in comments if row[3] is not None)
    assert len(described) > 1_500
    # Keys: primary where the project has no NULL in them, unique for the others.
    keys = dict(
        ask(
            fleet,
            "select relname, pg_get_indexdef(indexrelid) from pg_index join pg_class as c on c.oid = indrelid"
            " where indisunique and relnamespace = 'marts'::regnamespace",
        )
    )
    assert "(date, site, meter_scope)" in keys["fleet_daily"]
    assert (
        "(date, site, deployment, namespace, team, model, device_type, meter_scope, role) NULLS NOT DISTINCT"
        in (keys["model_daily"])
    )
    ((primary, unique, by_date),) = ask(
        fleet,
        "select count(*) filter (where indisprimary), count(*) filter (where indisunique and not indisprimary),"
        " count(*) filter (where indnkeyatts = 1 and not indisunique)"
        " from pg_index join pg_class as c on c.oid = indrelid"
        " where relnamespace in ('finance'::regnamespace, 'marts'::regnamespace, 'published'::regnamespace)",
    )
    tables = columns_by_table(fleet).values()
    dated = sum("date" in names for names in tables)
    of_intervals = sum("interval_start_at" in names for names in tables)
    print(f"{primary} primary keys, {unique} unique indexes, {by_date} indexes on date")
    assert primary + unique == len(found) - of_intervals
    assert primary >= 40
    assert by_date == dated
    # The reader may read and nothing else.
    assert ask(fleet, "select count(*) > 0 from marts.model_daily", "bi:r3ad") == [(True,)]
    for statement in (
        "delete from marts.model_daily",
        "select * from wattledger.loaded",
        "create table marts.x (i int)",
    ):
        with pytest.raises(Error, match="permission denied"):
            ask(fleet, statement, "bi:r3ad")
    again = postgresql.publish(fleet, reached, marts)
    assert (again.rows, again.dates, again.previous_id) == ({}, set(), first.publication_id)


def columns_by_table(fleet: Fleet) -> dict[str, list[str]]:
    with closing(duckdb.connect(str(fleet.snapshot), read_only=True)) as snapshot:
        return dict(
            snapshot.execute(
                "select table_name, list(column_name) from duckdb_columns()"
                " where schema_name in ('finance', 'marts', 'published') group by schema_name, table_name"
            ).fetchall()
        )


def test_only_changed_dates_are_replaced_and_missed_ones_caught_up(fleet: Fleet) -> None:
    book(fleet, {"2026-10-01": 1, "2026-10-02": 2})
    publish(fleet)
    load(fleet)
    prefix = target(fleet).schema_prefix
    before = ask(fleet, "select date::text, xmin::text from marts.energy_ledger where meter = 'GPU-1' order by 1")
    book(fleet, {"2026-10-01": 1, "2026-10-02": 20})
    publish(fleet, "2026-10-02", "2026-10-03")
    book(fleet, {"2026-10-01": 1, "2026-10-02": 20, "2026-10-03": 3})
    last = publish(fleet, "2026-10-03", "2026-10-04")
    done = load(fleet)
    assert done.dates == {on("10-02"), on("10-03")}
    assert done.rows == {
        "marts.energy_ledger": 4,
        "marts.model_daily": 2,
        "marts.model_monthly": 1,
        "published.publication": 1,
    }
    after = ask(fleet, "select date::text, xmin::text from marts.energy_ledger where meter = 'GPU-1' order by 1")
    assert after[0] == before[0]
    assert after[1] != before[1]
    assert daily(fleet) == {"2026-10-01": 1, "2026-10-02": 20, "2026-10-03": 3}
    assert [(name, n) for name, n in differences(fleet) if n] == []
    assert ask(fleet, "select publication_id from published.publication") == [(last.publication_id,)]
    # A date that the snapshot has no more goes; a table that a person dropped comes back.
    book(fleet, {"2026-10-02": 20, "2026-10-03": 3})
    run(os.environ[DSN], f"drop table {prefix}marts.model_monthly")
    publish(fleet)
    load(fleet)
    assert daily(fleet) == {"2026-10-02": 20, "2026-10-03": 3}
    assert [(name, n) for name, n in differences(fleet) if n] == []


# --- who may read what ------------------------------------------------------------------------------------------------

OF_FINANCE = """
create schema fleet; create schema raw; create schema finance;
create table marts.tenant_usage_daily as select date '2026-10-01' as date, 'acme' as tenant;
create view finance.cost as select * from (values (date '2026-10-01', 'search', 12),
    (date '2026-10-01', 'platform', 18)) as rows(month, team, known_cost_usd);
create view finance.chargeback as select * from (values (date '2026-10-01', 'search', 'acme', 12),
    (date '2026-10-01', 'platform', 'beta', 18)) as rows(month, payer, tenant, known_cost_usd);
create view finance.budgets as select * from (values (date '2026-10-01', 'team', 'search', 20),
    (date '2026-10-01', 'model', 'search', 30), (date '2026-10-01', 'team', 'platform', 40))
    as rows(month, scope, name, budget_usd);
create view finance.months as select date '2026-10-01' as month, 30 as known_cost_usd
"""


@pytest.mark.needs("postgresql")
def test_each_reader_sees_what_he_may(fleet: Fleet) -> None:
    """bi everything, ops neither finance nor tenants, of_search the rows of its team alone."""
    book(fleet, {"2026-10-01": 1}, more=OF_FINANCE)
    publish(fleet)
    everything = target(fleet)
    apart = everything.model_copy(update={"operations_reader": "ops", "team_readers": {"search": "of_search"}})
    # A role that could read all before, and may not any more.
    postgresql.publish(fleet, everything.model_copy(update={"reader": "of_search"}), MARTS)
    for _ in range(2):
        postgresql.publish(fleet, apart, MARTS)
        for table, rows in (
            ("cost", [("search", 12)]),
            ("chargeback", [("search", 12)]),
        ):
            who = "team" if table == "cost" else "payer"
            query = f"select {who}, known_cost_usd from finance.{table} order by 2"
            assert ask(fleet, query, "of_search:r3ad") == rows
            assert len(ask(fleet, query, "bi:r3ad")) == len(ask(fleet, query)) == 2
        assert ask(fleet, "select scope, name from finance.budgets", "of_search:r3ad") == [("team", "search")]
        assert ask(fleet, "select count(*) from marts.model_daily", "ops:r3ad") == [(1,)]
        for user, query in (
            ("of_search", "select * from finance.months"),
            ("of_search", "select * from marts.model_daily"),
            ("ops", "select * from finance.cost"),
            ("ops", "select * from marts.tenant_usage_daily"),
        ):
            with pytest.raises(Error, match="permission denied"):
                ask(fleet, query, f"{user}:r3ad")


# Roles that differ in their last letters alone; the names of PostgreSQL have 63 bytes.
LONG = "readers_of_the_team_with_a_name_that_is_long_enough"
TEAMS = {"search": f"{LONG}_search", "platform": f"{LONG}_others", "other": "ä" * 31}


@pytest.mark.needs("postgresql")
def test_roles_with_long_names_share_no_rows(fleet: Fleet) -> None:
    """Policies of an older version, with cut names, are dropped, and that of a role that is named no more."""
    book(fleet, {"2026-10-01": 1}, more=OF_FINANCE)
    publish(fleet)
    everything = target(fleet)
    postgresql.publish(fleet, everything, MARTS)
    finance, uri = f"{target(fleet).schema_prefix}finance", os.environ[DSN]
    run(uri, *(f"create role \"{role}\" login password 'r3ad'" for role in TEAMS.values()))
    run(
        uri,
        f'create policy "{f"wattledger_reader {LONG}"[:63]}" on {finance}.chargeback using (true)',
        f"create policy theirs on {finance}.chargeback for insert with check (false)",
    )
    for _ in range(2):
        postgresql.publish(fleet, everything.model_copy(update={"team_readers": TEAMS}), MARTS)
        for team, rows in (("search", [("search",)]), ("platform", [("platform",)]), ("other", [])):
            assert ask(fleet, "select payer from finance.chargeback", f"{quote(TEAMS[team])}:r3ad") == rows
        of_table = f"schemaname = '{finance}' and tablename = 'chargeback'"
        policies = [name for (name,) in ask(fleet, f"select policyname from pg_policies where {of_table}")]
        assert len(policies) == 5
        assert "theirs" in policies
    postgresql.publish(fleet, everything.model_copy(update={"team_readers": {"search": TEAMS["search"]}}), MARTS)
    assert ask(fleet, "select payer from finance.chargeback", f"{TEAMS['search']}:r3ad") == [("search",)]
    assert ask(fleet, "select payer from finance.chargeback", f"{TEAMS['platform']}:r3ad") == []
    assert len(ask(fleet, "select payer from finance.chargeback", "bi:r3ad")) == 2


def test_a_role_is_named_once() -> None:
    with pytest.raises(ValueError, match=r"the role 'bi' is named twice\. Give each reader a role of its own"):
        PostgresqlTarget.model_validate(
            {"dsn_env": DSN, "reader": "bi", "team_readers": {"search": "bi"}}, context={"environ": {DSN: "x"}}
        )


# --- readers ----------------------------------------------------------------------------------------------------------

STATE = [
    "select max(publication_id) from published.publication",
    "select sum(energy_joules) from marts.model_daily",
    "select sum(energy_joules) from marts.energy_ledger",
    "select sum(energy_joules) from marts.model_monthly",
]


@pytest.mark.rest
def test_readers_see_one_publication_or_the_next_and_are_not_kept_waiting(fleet: Fleet) -> None:
    """Each publication has another total. Sessions ask in single statements, or in repeatable read with a
    statement per table, ten of each, and one stays in the transaction that it began before the first of them."""
    expected: dict[str, int] = {}

    def next_publication(n: int) -> None:
        book(fleet, {"2026-10-01": 1, "2026-10-02": 10 * n})
        expected[publish(fleet, "2026-10-02", "2026-10-03").publication_id] = 1 + 10 * n
        load(fleet)

    next_publication(1)
    stop = threading.Event()
    seen: dict[str, list[tuple[str, int, int, int]]] = {"statement": [], "transaction": []}
    longest = {"statement": 0.0, "transaction": 0.0}
    prefix = target(fleet).schema_prefix
    single = [one.replace("marts.", f"{prefix}marts.").replace("published.", f"{prefix}published.") for one in STATE]
    queries = f"select {', '.join(f'({query})' for query in single)}"

    def read(kind: str) -> None:
        with session(os.environ[DSN], autocommit=kind == "statement") as cursor:
            while not stop.is_set():
                began = time.monotonic()
                if kind == "statement":
                    cursor.execute(queries)
                    found = cursor.fetchall()[0]
                else:
                    cursor.execute("set transaction isolation level repeatable read")
                    found = ()
                    for query in single:
                        cursor.execute(query)
                        found += cursor.fetchall()[0]
                    cursor.connection.commit()
                longest[kind] = max(longest[kind], time.monotonic() - began)
                stop.wait(0.05)
                seen[kind].append((found[0], *(int(Decimal(value)) for value in found[1:])))

    with session(os.environ[DSN], autocommit=False) as long:
        long.execute("set transaction isolation level repeatable read")
        long.execute(queries)
        before = long.fetchall()
        readers = [threading.Thread(target=read, args=(kind,)) for kind in longest for _ in range(10)]
        for reader in readers:
            reader.start()
        try:
            for n in range(2, 7):
                next_publication(n)
        finally:
            stop.set()
            for reader in readers:
                reader.join()
        long.execute(queries)
        assert long.fetchall() == before
    for kind, states in seen.items():
        mixed = [state for state in states if {expected[state[0]]} != set(state[1:])]
        publications = len({state[0] for state in states})
        print(
            f"{kind}: {len(states)} reads of {publications} publications, {len(mixed)} mixed, longest"
            f" {longest[kind]:.2f} s"
        )
        assert mixed == []
        assert publications > 2


@pytest.mark.rest
def test_a_new_column_waits_for_a_reader_that_holds_the_table_and_rows_do_not(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgresql_server, "SHORT_LOCK_PATIENCE_SECONDS", 0.0)
    book(fleet, {"2026-10-01": 1})
    publish(fleet)
    load(fleet)
    with session(os.environ[DSN], autocommit=False) as reader:
        reader.execute("set application_name to 'dump'")
        reader.execute(f"select count(*) from {target(fleet).schema_prefix}marts.model_daily")
        reader.fetchall()
        book(fleet, {"2026-10-01": 2})
        publish(fleet)
        load(fleet)
        assert daily(fleet) == {"2026-10-01": 2}
        book(fleet, {"2026-10-01": 3}, more="alter table marts.model_daily add column watts double")
        publish(fleet)
        with pytest.raises(PostgresqlError, match=r"gets other columns, and other sessions kept it.*dump"):
            load(fleet)
        assert daily(fleet) == {"2026-10-01": 2}
    load(fleet)
    assert daily(fleet) == {"2026-10-01": 3}


# --- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.rest
@pytest.mark.needs("postgresql")
def test_a_server_that_is_killed_half_way_keeps_the_old_publication(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Postgresql.installed() as server:
        server.start()
        fleet = tiny(server, tmp_path, "", monkeypatch)
        book(fleet, {"2026-10-01": 1, "2026-10-02": 2})
        old = publish(fleet)
        load(fleet)
        book(fleet, {"2026-10-01": 10, "2026-10-02": 20})
        new = publish(fleet)
        copy, loaded = Server.copy, []

        def kill_in_the_third(self: Server, schema: str, table: str, batches: pa.RecordBatchReader) -> int:
            def until_the_kill() -> Iterator[pa.RecordBatch]:
                for batch in batches:
                    yield batch
                    if len(loaded) == 2:
                        server.kill()
                    yield batch.slice(0, 0)

            loaded.append(
                copy(self, schema, table, pa.RecordBatchReader.from_batches(batches.schema, until_the_kill()))
            )
            return loaded[-1]

        with monkeypatch.context() as patched:
            patched.setattr(Server, "copy", kill_in_the_third)
            with pytest.raises(PostgresqlError) as refusal:
                load(fleet)
        assert loaded == [2, 2]
        message = str(refusal.value)
        assert message.startswith(f"publication.postgresql: postgresql://127.0.0.1:{server.port}/postgres: ")
        assert f"The snapshot {new.publication_id} is published; PostgreSQL keeps what it has" in message
        assert "\n" not in message
        assert "s3cret" not in message
        # It is down: the asset fails with the reason, whatever the run did before.
        asset = postgresql_asset(fleet, target(fleet), MARTS, "pool")
        failed = dg.materialize([asset, dg.AssetSpec(["published", "publication"])], raise_on_error=False)
        (event,) = failed.get_step_failure_events()
        assert "Connection refused" in event.step_failure_data.error.to_string()
        assert "s3cret" not in event.step_failure_data.error.to_string()
        server.start()
        assert daily(fleet) == {"2026-10-01": 1, "2026-10-02": 2}
        assert ask(fleet, "select publication_id from published.publication") == [(old.publication_id,)]
        # A day more, and the next run has all of it.
        book(fleet, {"2026-10-01": 10, "2026-10-02": 20, "2026-10-03": 30})
        publish(fleet, "2026-10-03", "2026-10-04")
        done = dg.materialize([asset, dg.AssetSpec(["published", "publication"])])
        (event,) = done.get_asset_materialization_events()
        metadata = event.materialization.metadata
        assert (metadata["dates"].value, metadata["previous_publication_id"].value) == (3, old.publication_id)
        assert "there is no role 'bi'" in metadata["notices"].value[0]
        assert daily(fleet) == {"2026-10-01": 10, "2026-10-02": 20, "2026-10-03": 30}
        assert [(name, n) for name, n in differences(fleet) if n] == []


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("postgresql://wattledger:wr0ng-one@127.0.0.1:PORT/postgres", "password authentication failed"),
        ("postgresql://wattledger:s3cret@127.0.0.1:PORT/absent", 'database "absent" does not exist'),
        (
            "host=127.0.0.1 port=PORT user=wattledger password=wr0ng-one dbname=postgres",
            "password authentication failed",
        ),
        ("postgresql://wattledger:wr0ng-one@127.0.0.1:CLOSED/postgres", "Connection refused"),
        ("postgresql://wattledger:wr0ng-one@127.0.0.1:PORT/postgres?wrong=wr0ng-one", "invalid URI query parameter"),
        ("", "failed"),
    ],
)
def test_a_server_that_refuses_is_named_in_one_line_without_its_password(
    server: Postgresql, fleet: Fleet, monkeypatch: pytest.MonkeyPatch, uri: str, reason: str
) -> None:
    book(fleet, {"2026-10-01": 1})
    publish(fleet)
    monkeypatch.setenv(DSN, uri.replace("PORT", str(server.port)).replace("CLOSED", str(free_port())))
    with pytest.raises(PostgresqlError) as refusal:
        load(fleet)
    assert reason in str(refusal.value)
    assert "wr0ng" not in str(refusal.value)
    assert "s3cret" not in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_two_publishers_take_turns(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    book(fleet, {"2026-10-01": 1})
    publish(fleet)
    monkeypatch.setenv("WATTLEDGER_LOCK_SECONDS", "0")
    with (
        postgresql_server.connected(target(fleet)),
        pytest.raises(PostgresqlError, match=r"another publisher writes schemas .*\(pid \d+ from 127\.0\.0\.1, since"),
    ):
        load(fleet)
    monkeypatch.delenv("WATTLEDGER_LOCK_SECONDS")
    done: list[int] = []
    publishers = [threading.Thread(target=lambda: done.append(sum(load(fleet).rows.values()))) for _ in range(2)]
    for publisher in publishers:
        publisher.start()
    for publisher in publishers:
        publisher.join()
    assert sorted(done) == [0, 5]
    assert daily(fleet) == {"2026-10-01": 1}


def test_what_is_not_ours_is_refused_or_left_alone(fleet: Fleet, tmp_path: Path) -> None:
    prefix = target(fleet).schema_prefix
    run(
        os.environ[DSN],
        f"create schema {prefix}marts",
        f"create table {prefix}marts.model_daily (theirs int)",
        f"create table {prefix}marts.other as select 1 as theirs",
    )
    book(fleet, {"2026-10-01": 1})
    publish(fleet)
    with pytest.raises(PostgresqlError, match=r"model_daily\" is there and Wattledger did not make it"):
        load(fleet)
    assert ask(fleet, "select count(*) from marts.model_daily") == [(0,)]
    run(os.environ[DSN], f"drop table {prefix}marts.model_daily")
    load(fleet)
    run(os.environ[DSN], f"alter table {prefix}marts.model_daily add column note text")
    run(os.environ[DSN], f"update {prefix}marts.model_daily set note = 'mine'")
    book(fleet, {"2026-10-01": 1, "2026-10-02": 2})
    publish(fleet)
    load(fleet)
    assert ask(fleet, "select date::text, note from marts.model_daily order by 1") == [
        ("2026-10-01", "mine"),
        ("2026-10-02", None),
    ]
    assert ask(fleet, "select theirs from marts.other") == [(1,)]
    # A publication that is older than the one there, and another fleet's.
    run(
        os.environ[DSN],
        f"update {prefix}published.publication set published_at = '2099-01-01', publication_id = 'later'",
    )
    with pytest.raises(PostgresqlError, match="it has the later publication later"):
        load(fleet)
    run(os.environ[DSN], f"update {prefix}published.publication set fleet = 'other'")
    with pytest.raises(PostgresqlError, match=r"hold the fleet 'other', expected 'tiny'.*schema_prefix"):
        load(fleet)


def test_a_database_that_cannot_hold_every_letter_is_refused(
    server: Postgresql, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(server.uri, "create database latin encoding 'LATIN1' locale 'C' template template0")
    book(fleet, {"2026-10-01": 1})
    publish(fleet)
    monkeypatch.setenv(DSN, server.uri.replace("/postgres", "/latin"))
    with pytest.raises(PostgresqlError, match="the database's encoding is LATIN1, expected UTF8"):
        load(fleet)


# --- columns that come and go, names and values that are hostile ------------------------------------------------------


def test_an_added_column_is_added_and_a_removed_one_stays_for_a_version(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = target(fleet).schema_prefix
    monkeypatch.setattr(publication, "code_version", lambda: "0.1.0")
    book(fleet, {"2026-10-01": 1, "2026-10-02": 2})
    publish(fleet)
    load(fleet)
    run(
        os.environ[DSN], f"create view {prefix}marts.seen as select date, coverage_ratio from {prefix}marts.model_daily"
    )
    monkeypatch.setattr(publication, "code_version", lambda: "0.2.0")
    book(fleet, {"2026-10-01": 1, "2026-10-02": 2}, more=NEXT_VERSION)
    publish(fleet)
    load(fleet)
    assert ask(fleet, "select date::text, energy_joules, watts, coverage_ratio from marts.model_daily order by 1") == [
        ("2026-10-01", 1.0, 5.0, None),
        ("2026-10-02", 2.0, 5.0, None),
    ]
    assert ask(fleet, "select count(*) from marts.model_monthly") == [(0,)]
    query = (
        "select col_description('marts.model_daily'::regclass, attnum) from pg_attribute"
        " where attrelid = 'marts.model_daily'::regclass and attname = 'coverage_ratio'"
    )
    ((comment,),) = ask(fleet, query)
    assert comment.startswith("Deprecated: model_daily has no such column since version 0.2.0. NULL in rows")
    monkeypatch.setattr(publication, "code_version", lambda: "0.2.7")
    publish(fleet)
    load(fleet)
    assert ask(fleet, "select count(coverage_ratio), count(*) from marts.model_daily") == [(0, 2)]
    # 0.3 drops both; the column stays as long as a person's view needs it.
    monkeypatch.setattr(publication, "code_version", lambda: "0.3.0")
    publish(fleet)
    (notice,) = load(fleet).notices
    assert notice.endswith(
        'drop column "coverage_ratio": not done, because others use it. Drop it yourself when they do not'
    )
    run(os.environ[DSN], f"drop view {prefix}marts.seen")
    assert load(fleet).notices == []
    with pytest.raises(Error, match='column "coverage_ratio" does not exist'):
        ask(fleet, "select coverage_ratio from marts.model_daily")
    with pytest.raises(Error, match="does not exist"):
        ask(fleet, "select 1 from marts.model_monthly")
    assert [(name, n) for name, n in differences(fleet) if n] == []


def test_hostile_names_and_values_arrive(fleet: Fleet) -> None:
    wild = "Select order' $wattledger$ Ä🔥"
    model = "'; drop table x; --\u202e\U0001f525" + "m" * 300
    table = f"marts.{quoted(wild)}"
    book(
        fleet,
        {"2026-10-01": 1},
        more=rf"""
        create table {table}
            (date date, "a""b" varchar, "Größe" double, "select" json, list integer[], big ubigint, "end" varchar);
        insert into {table} values
            ('2026-10-01', 'nul' || chr(0) || 'x', 'infinity', '{{"a": "\u0000"}}', [1, null], 18446744073709551615,
                ''),
            (null, '', 'nan', null, null, null, null), ('0001-01-01', '\N', '-infinity', '1', [], 0, '\ud800');
        comment on table {table} is {database.literal(f"it's $wattledger$; {model}")}
        """,
        model=model,
    )
    publish(fleet)
    load(fleet)
    assert ask(fleet, "select model from marts.model_daily") == [(model,)]
    columns = """date::text, "a""b", "Größe"::text, "select"::text, list::text, big::text, "end" """
    assert ask(fleet, f"select {columns} from {table} order by 1") == [
        ("0001-01-01", r"\N", "-Infinity", "1", "[]", "0", r"\ud800"),
        ("2026-10-01", "nul␀x", "Infinity", r'{"a": "\u0000"}', "[1,null]", "18446744073709551615", ""),
        (None, "", "NaN", None, None, None, None),
    ]
    assert load(fleet).rows == {}


@pytest.mark.parametrize(
    ("model", "more"), [("🔥" * 1000, ""), ("m", "insert into marts.model_daily by name from marts.model_daily")]
)
def test_rows_that_do_not_fit_the_key_cost_the_table_its_key(fleet: Fleet, model: str, more: str) -> None:
    keys = "select count(*) from pg_index where indrelid = 'marts.model_daily'::regclass and indisunique"
    book(fleet, {"2026-10-01": 1})
    publish(fleet)
    load(fleet)
    assert ask(fleet, keys) == [(1,)]
    book(fleet, {"2026-10-01": 1, "2026-10-02": 2}, model=model, more=more)
    publish(fleet)
    (notice,) = load(fleet).notices
    assert notice.startswith("marts.model_daily has no key any more in PostgreSQL: two rows share it")
    assert ask(fleet, keys) == [(0,)]
    book(fleet, {"2026-10-01": 1, "2026-10-02": 2, "2026-10-03": 3})
    publish(fleet)
    assert load(fleet).notices == []
    assert ask(fleet, keys) == [(0,)]
    assert [(name, n) for name, n in differences(fleet) if n] == []


# A tenant that pays half of the rows: its name is among the most common values of a column, and of two together.
OF_TENANTS = """
create schema if not exists fleet; create schema if not exists raw; create schema if not exists finance;
create or replace table raw.tenant_names
    (tenant_key varchar, tenant varchar, named_at timestamptz, erased_at timestamptz, former_key varchar);
insert into raw.tenant_names values ('tenant-1', 'NAME', now(), ERASED, null);
create or replace view finance.chargeback as select date '2026-10-01' as month, 'search' as payer,
    if(n % 2 = 0, 'NAME', 'beta') as tenant, n as known_cost_usd from range(200) as rows (n)
"""


@pytest.mark.needs("postgresql")
def test_the_statistics_of_postgresql_forget_an_erased_name(fleet: Fleet) -> None:
    """Also those that a person made of two columns; a reader that began before keeps no load waiting."""
    chargeback = f"{target(fleet).schema_prefix}finance.chargeback"
    stats = (
        "select (select count(*) from pg_stats as s where s::text like '%quokka-ag%'),"
        " (select count(*) from pg_stats_ext as s where s::text like '%quokka-ag%')"
    )
    book(fleet, {"2026-10-01": 1}, more=OF_TENANTS.replace("NAME", "quokka-ag").replace("ERASED", "null"))
    publish(fleet)
    load(fleet)
    run(os.environ[DSN], f"create statistics of_two (mcv) on payer, tenant from {chargeback}", f"analyze {chargeback}")
    assert ask(fleet, stats) == [(1, 1)]
    vacuumed = "select last_vacuum from pg_stat_user_tables where relid = 'finance.chargeback'::regclass"
    assert ask(fleet, vacuumed) == [(None,)]
    book(fleet, {"2026-10-01": 1}, more=OF_TENANTS.replace("NAME", "tenant-1").replace("ERASED", "now()"))
    publish(fleet)
    with session(os.environ[DSN], autocommit=False) as reader:
        reader.execute(f"select count(*) from {chargeback}")
        load(fleet)
    assert ask(fleet, stats) == [(0, 0)]
    # Once; where no name was erased since, the next load leaves the table alone.
    ((first,),) = ask(fleet, vacuumed)
    assert first is not None
    load(fleet)
    assert ask(fleet, vacuumed) == [(first,)]
