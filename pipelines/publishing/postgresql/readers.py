"""Who may read what in PostgreSQL: everything, all but finance and tenants, or what one team pays.

Add a kind of reader here. Keep out tables and rows: those are in `loading`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping

from pipelines.fleet.targets.publication_targets import PostgresqlTarget
from pipelines.publishing import published_tables
from pipelines.publishing.postgresql import registry
from pipelines.publishing.postgresql.server import Server, quoted
from pipelines.publishing.published_tables import BROUGHT, FINANCE
from pipelines.warehouse import closings
from pipelines.warehouse.database import literal

# Table of schema finance -> the rows of a team; {team} is its name as a literal.
OF_A_TEAM = {
    "budgets": "scope = 'team' and name = {team}",
    "chargeback": "payer = {team}",
    "cost": "team = {team}",
}
POLICY = "wattledger_reader"
TENANT = "tenant"


def grant(server: Server, target: PostgresqlTarget, notices: list[str]) -> None:
    """Let each reader of the fleet file select what he may. Of a role that is missing there is a notice."""
    prefix = target.schema_prefix
    reader = target.reader if _is_there(server, target.reader, "reader", notices) else None
    if reader is not None:
        for schema in published_tables.SCHEMAS:
            _grant_all(server, prefix, schema, reader)
    role = target.operations_reader
    if _is_there(server, role, "operations_reader", notices) and role is not None:
        _grant_only(server, prefix, role, {schema: _without_tenants(server, prefix, schema) for schema in BROUGHT})
    teams = {
        team: role
        for team, role in sorted(target.team_readers.items())
        if _is_there(server, role, f"team_readers.{team}", notices)
    }
    for role in teams.values():
        _grant_only(server, prefix, role, {FINANCE: OF_A_TEAM})
    for table, rows in OF_A_TEAM.items():
        rows_of = {role: rows.format(team=literal(team)) for team, role in teams.items()}
        _restrict(server, f"{prefix}{FINANCE}", table, rows_of, reader)


def _is_there(server: Server, role: str | None, key: str, notices: list[str]) -> bool:
    if role is None:
        return False
    if server.rows(f"select 1 from pg_roles where rolname = {literal(role)}"):
        return True
    notices.append(
        f"publication.postgresql.{key}: there is no role {role!r}, so nothing is granted. Create it:"
        f" create role {quoted(role)} login password '…'; the next run grants"
    )
    return False


def _grant_all(server: Server, prefix: str, schema: str, role: str) -> None:
    """Every table of ours in the schema, and those that this user will make there."""
    name = f"{prefix}{schema}"
    server.together(
        [
            f"grant usage on schema {quoted(name)} to {quoted(role)}",
            f"alter default privileges in schema {quoted(name)} grant select on tables to {quoted(role)}",
            *_grants(server, prefix, name, role, None),
        ]
    )


def _grant_only(server: Server, prefix: str, role: str, tables: Mapping[str, Collection[str]]) -> None:
    """These tables by schema, and no other of ours, whatever the role could read before."""
    statements = []
    for schema in published_tables.SCHEMAS:
        name, may = f"{prefix}{schema}", tables.get(schema, ())
        of_role = server.rows(
            f"select table_name from {quoted(f'{prefix}{registry.SCHEMA}')}.tables where schema_name = {literal(name)}"
            f" and has_table_privilege({literal(role)}, format('%I.%I', schema_name, table_name), 'select')"
        )
        statements += [
            f"revoke select on {quoted(name, table)} from {quoted(role)}" for (table,) in of_role if table not in may
        ]
        in_schema = f"in schema {quoted(name)}"
        statements.append(f"alter default privileges {in_schema} revoke select on tables from {quoted(role)}")
        if may:
            statements.append(f"grant usage on schema {quoted(name)} to {quoted(role)}")
            statements += _grants(server, prefix, name, role, may)
    server.together(statements)


def _grants(server: Server, prefix: str, name: str, role: str, tables: Collection[str] | None) -> Iterator[str]:
    """Of the tables of ours in a schema (by default all) those that the role may not read yet."""
    ungranted = server.rows(
        f"select table_name from {quoted(f'{prefix}{registry.SCHEMA}')}.tables as t"
        f" where schema_name = {literal(name)} and not has_table_privilege({literal(role)},"
        " format('%I.%I', schema_name, table_name), 'select') order by table_name"
    )
    for (table,) in ungranted:
        if tables is None or table in tables:
            yield f"grant select on {quoted(name, table)} to {quoted(role)}"


def _without_tenants(server: Server, prefix: str, schema: str) -> list[str]:
    """Our tables of a schema that name no tenant and are no closing."""
    rows = server.rows(
        f"select table_name from {quoted(f'{prefix}{registry.SCHEMA}')}.tables"
        f" where schema_name = {literal(f'{prefix}{schema}')} and table_name not in (select table_name from"
        f" {quoted(f'{prefix}{registry.SCHEMA}')}.columns where schema_name = {literal(f'{prefix}{schema}')}"
        f" and column_name = {literal(TENANT)})"
    )
    return [table for (table,) in rows if table not in closings.TABLES]


def _restrict(server: Server, schema: str, table: str, rows_of: Mapping[str, str], reader: str | None) -> None:
    """Each of these roles sees its rows of the table alone, `reader` all of them, any other role none.

    A policy is called by a digest of its role and rows: PostgreSQL keeps 63 bytes of a name, and of two roles whose
    names are equal so far one would get the other's rows.
    """
    at, of_table = quoted(schema, table), f"schemaname = {literal(schema)} and tablename = {literal(table)}"
    ours = f"select policyname from pg_policies where {of_table} and starts_with(policyname, {literal(f'{POLICY} ')})"
    there = {name for (name,) in server.rows(ours)}
    if not rows_of and not there:
        return
    all_rows = {reader: "true"} if reader is not None else {}
    wanted = {
        f"{POLICY} {hashlib.sha256(f'{role} {rows}'.encode()).hexdigest()[:32]}": (role, rows)
        for role, rows in {**rows_of, **all_rows}.items()
    }
    statements = [f"drop policy {quoted(name)} on {at}" for name in sorted(there - wanted.keys())]
    statements += [
        f"create policy {quoted(name)} on {at} for select to {quoted(role)} using ({rows})"
        for name, (role, rows) in wanted.items()
        if name not in there
    ]
    # It needs the table for itself, so it is done once.
    if server.rows(f"select 1 from pg_tables where {of_table} and not rowsecurity"):
        statements.append(f"alter table {at} enable row level security")
    server.together(statements)
