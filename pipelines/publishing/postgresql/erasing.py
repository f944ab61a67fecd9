"""What PostgreSQL keeps of rows that are gone: their dead versions, and their values in the planner's statistics.

After the erasure of a tenant's name the tables that have tenants are vacuumed and analyzed, and so are the catalogs of
the statistics, whose old rows are dead by then. Add here what the server keeps of a value. Keep out what an erasure is
(`pipelines.publishing.tenant_erasure`).
"""

from __future__ import annotations

from pipelines.publishing.postgresql import registry
from pipelines.publishing.postgresql.server import Server, quoted
from pipelines.warehouse.database import literal

# Only the database's owner or a superuser may do this; for others the server skips it with a warning, and autovacuum
# does it later. Others read these catalogs through views, which have what is current.
CATALOGS = ("pg_catalog.pg_statistic", "pg_catalog.pg_statistic_ext_data")


def vacuum_after_erasure(server: Server, prefix: str, column: str) -> None:
    """Vacuum and analyze the tables of ours with this column that were not since the last erasure. It keeps no
    reader out, and a load that was killed before this is caught up by the next one."""
    publication = quoted(f"{prefix}published", "publication")
    due = server.rows(
        f"select c.schema_name, c.table_name from {quoted(f'{prefix}{registry.SCHEMA}')}.columns as c"
        " join pg_stat_user_tables on schemaname = c.schema_name and relname = c.table_name"
        # An older version's publication has no such column.
        f" where c.column_name = {literal(column)} and coalesce(least(last_vacuum, last_analyze), '-infinity') <"
        f" (select max((to_jsonb(p) ->> 'tenant_erased_at')::timestamptz) from {publication} as p) order by 1, 2"
    )
    server.commit()
    names = [quoted(*name) for name in due]
    server.outside_transactions(
        *(f"vacuum (analyze) {name}" for name in names), *(f"vacuum {name}" for name in CATALOGS if names)
    )
