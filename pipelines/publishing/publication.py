"""The publication: what readers open. A run's marts become one folder, and one symbolic link switches to it.

Between runs the warehouse may have old and new rows side by side; a publication never does. Add here what a reader
opens. Keep out recommendations and reports (these are tables and files in a publication) and everything that writes
the warehouse.

    published/latest -> <publication_id>                 switched in one step
    published/wattledger.duckdb -> latest/wattledger.duckdb
    published/<publication_id>/wattledger.duckdb          schemas marts and published; opens in DuckDB 1.x and 2.x
    published/<publication_id>/parquet/<schema>/<table>.parquet, or <table>/date=<date>.parquet
"""

import hashlib
import logging
import os
import shutil
import tomllib
from collections.abc import Collection, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb

from pipelines.fleet.fleet_file import PROJECT, Fleet
from pipelines.publishing import history, pictures
from pipelines.publishing.published_tables import (
    Table,
    has_dates,
    published_dates,
    quoted,
    replace_tables,
    row_counts,
    tables,
)
from pipelines.warehouse import database, due_dates
from pipelines.warehouse.asset_keys import asset_key
from pipelines.warehouse.raw_tables import create_tables

DATABASE = "wattledger.duckdb"
KEPT = 5
BUILDING = ".building-"
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Publication:
    """One publication: its row in published.publication. The run booked the dates [start_date, end_date)."""

    publication_id: str
    published_at: datetime
    start_date: date
    end_date: date
    fleet: str
    is_synthetic: bool
    code_version: str
    previous_publication_id: str | None
    rows: dict[str, int]
    held_back: dict[date, str]
    forced: tuple[str, ...] = ()


def publish(
    fleet: Fleet,
    start: date,
    end: date,
    *,
    due: Collection[date] | None = None,
    own: Collection[date] | None = None,
    force: bool = False,
    published_at: datetime | None = None,
) -> Publication | None:
    """Publish the marts; the dates [start, end) are the ones that changed since the last publication.

    Starts from a copy of the current publication and replaces these dates, and every table without a `date` column, so
    a day costs the same after years. Dates that are held back keep their published rows. A crash leaves the old
    publication current; the next publication removes what the crash left.

    `due` are the dates that were booked since the last publication (by default all of [start, end)), `own` those that
    this warehouse has published before (by default all). HistoryWouldShrink where published figures would change or
    disappear, unless `force`, which is recorded. None where every date is held back and nothing is published.
    """
    published_at = published_at or datetime.now(UTC)
    folder = fleet.published
    folder.mkdir(parents=True, exist_ok=True)
    for leftover in folder.glob(f"{BUILDING}*"):
        _remove(leftover)
    previous = current(fleet)
    identity = f"{fleet.fleet} {published_at.isoformat()} {start} {end} {previous and previous.name}"
    publication_id = f"{published_at:%Y%m%dT%H%M%S%f}Z-{hashlib.blake2b(identity.encode(), digest_size=4).hexdigest()}"
    building = folder / f"{BUILDING}{publication_id}"
    building.mkdir()
    with closing(database.connect(":memory:")) as connection:
        connection.execute(f"attach '{quoted(fleet.warehouse)}' as warehouse (read_only)")
        held_back = held_back_dates(connection, "warehouse")
        if previous is None and held_back and not has_dates(connection):
            building.rmdir()
            return None
        if previous is not None:
            shutil.copyfile(previous / DATABASE, building / DATABASE)
        # DuckDB 2's own format cannot be read by drivers of 1.x, which most BI tools still carry.
        connection.execute(f"attach '{quoted(building / DATABASE)}' as target (storage_version 'v1.0.0')")
        due = _days(start, end) if due is None else due
        published = [] if previous is None else published_dates(connection)
        found = history.losses(connection, due, held_back, published if own is None else own)
        same = replace_tables(connection, start, end, held_back)
        found += history.misstated_months(connection)
        if found and not force:
            connection.execute("detach target")
            _remove(building)
            raise history.refusal(found)
        publication = Publication(
            publication_id,
            published_at,
            start,
            end,
            fleet.fleet,
            fleet.synthetic,
            code_version(),
            previous.name if previous else None,
            row_counts(connection),
            held_back,
            tuple(found),
        )
        _write_publication(connection, publication)
        _write_parquet(connection, building, previous, publication, same)
        connection.execute("checkpoint target")
        connection.execute("detach target")
    (building / DATABASE).chmod(0o444)
    building.rename(folder / publication_id)
    _link(folder / "latest", publication_id)
    if not (folder / DATABASE).is_symlink():
        _link(folder / DATABASE, f"latest/{DATABASE}")
    _forget_old(fleet)
    return publication


def held_back_dates(connection: duckdb.DuckDBPyConnection, database: str) -> dict[date, str]:
    """The dates that an attached database holds back, each with the invariants that it breaks."""
    known = connection.execute(
        "select count(*) from duckdb_tables() where database_name = ? and table_name = 'held_back_dates'", [database]
    ).fetchall()
    if known == [(0,)]:
        return {}
    rows = connection.execute(
        "select date, string_agg(distinct invariant, ', ' order by invariant)"
        f" from {database}.marts.held_back_dates group by date order by date"
    )
    return dict(rows.fetchall())


def current(fleet: Fleet) -> Path | None:
    """The folder of the publication that readers see; None before the first one."""
    latest = fleet.published / "latest"
    return latest.resolve() if latest.is_symlink() and (latest / DATABASE).exists() else None


def code_version() -> str:
    """The version of this checkout."""
    version: str = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    return version


class PublicationConfig(dg.Config):
    """`force` publishes even if published figures change or disappear; this is recorded. It never publishes a date that
    is held back."""

    force: bool = False


def publication_asset(fleet: Fleet, marts: list[dg.AssetKey], pool: str) -> dg.AssetsDefinition:
    """published/publication, after every mart and its blocking checks."""

    @dg.asset(
        key=asset_key(fleet, "published", "publication"),
        deps=marts,
        group_name="published",
        kinds={"duckdb", "parquet"},
        pool=pool,
    )
    def publication(config: PublicationConfig) -> dg.MaterializeResult[None]:
        """The marts for readers: one read-only DuckDB file and Parquet files, replaced in one step."""
        with database.writing(fleet.warehouse, "publication"):
            with closing(database.connect(fleet.warehouse)) as connection:
                create_tables(connection)
                start, end = due_dates.dates_to_publish(connection, date.max, date.min)
                due, own = (
                    due_dates.due(connection, due_dates.PUBLICATION),
                    due_dates.due(connection, due_dates.PUBLISHED),
                )
            if start >= end and current(fleet) is not None:
                return dg.MaterializeResult(metadata={"unchanged": str(current(fleet))})
            try:
                made = publish(fleet, start, end, due=due, own=own, force=config.force)
            except history.HistoryWouldShrink as refusal:
                raise dg.Failure(str(refusal)) from None
            if made is None:
                return dg.MaterializeResult(metadata={"nothing_published": "every date is held back"})
            with closing(database.connect(fleet.warehouse)) as connection:
                due_dates.published(connection, start, end)
        logger.info("published %s", made.publication_id)
        return dg.MaterializeResult(metadata=_metadata(fleet, made))

    return publication


def _metadata(fleet: Fleet, made: Publication) -> dict[str, Any]:
    tables = "\n".join(["| table | rows |", "|---|---|", *(f"| {name} | {n} |" for name, n in made.rows.items())])
    return {
        "publication_id": made.publication_id,
        "dates": f"[{made.start_date}, {made.end_date})",
        "synthetic": made.is_synthetic,
        **({"held_back": {str(on): invariants for on, invariants in made.held_back.items()}} if made.held_back else {}),
        **({"forced": list(made.forced)} if made.forced else {}),
        "path": dg.MetadataValue.path(str(fleet.published / DATABASE)),
        "dagster/row_count": sum(made.rows.values()),
        "tables": dg.MarkdownMetadataValue(tables),
        "energy": dg.MarkdownMetadataValue(pictures.attempted("energy", lambda: _energy_picture(fleet, made))),
    }


def _energy_picture(fleet: Fleet, made: Publication) -> str:
    sums = ", ".join(f"sum({account})::double as {account}" for account in pictures.ACCOUNTS)
    with closing(database.connect(fleet.published / DATABASE, read_only=True)) as connection:
        models = connection.execute(
            # A board's joules and a whole node's joules are two quantities: each scope has a bar of its own.
            f"""
            with sums as (
                select model, meter_scope, {sums} from marts.model_daily
                where date >= ? and date < ? and energy_joules is not null group by model, meter_scope
            )
            select * exclude (model, meter_scope), case
                when (select count(distinct meter_scope) from sums) > 1 then format('{{}} ({{}})', model, meter_scope)
                else model end as model
            from sums
            """,
            [made.start_date, made.end_date],
        ).df()
    label = "synthetic telemetry" if made.is_synthetic else "metered"
    last = made.end_date - timedelta(days=1)
    return pictures.energy_accounts(models, f"{fleet.fleet}, {made.start_date} to {last} ({label})")


def _days(start: date, end: date) -> list[date]:
    return [start + timedelta(days=n) for n in range((end - start).days)]


def _write_publication(connection: duckdb.DuckDBPyConnection, made: Publication) -> None:
    connection.execute(
        """
        create or replace table target.published.publication (
            publication_id varchar, published_at timestamptz, start_date date, end_date date, fleet varchar,
            is_synthetic boolean, code_version varchar, previous_publication_id varchar, held_back_dates varchar,
            held_back_reasons varchar, is_forced boolean, forced_reasons varchar)
        """
    )
    connection.execute(
        "insert into target.published.publication values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            made.publication_id,
            made.published_at,
            made.start_date,
            made.end_date,
            made.fleet,
            made.is_synthetic,
            made.code_version,
            made.previous_publication_id,
            ",".join(on.isoformat() for on in made.held_back) or None,
            "; ".join(f"{on}: {invariants}" for on, invariants in made.held_back.items()) or None,
            bool(made.forced),
            "; ".join(made.forced) or None,
        ],
    )


def _write_parquet(
    connection: duckdb.DuckDBPyConnection, building: Path, previous: Path | None, made: Publication, same: set[str]
) -> None:
    labels = {
        "fleet": made.fleet,
        "is_synthetic": str(made.is_synthetic).lower(),
        "publication_id": made.publication_id,
    }
    listed = ", ".join(f"{name}: '{quoted(value)}'" for name, value in labels.items())
    options = f"format parquet, compression zstd, kv_metadata {{{listed}}}"

    def copy(query: str, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        connection.execute(f"copy ({query}) to '{quoted(path)}' ({options})").fetchall()

    for table in [*tables(connection, "target").values(), Table("published", "publication", ())]:
        place = Path("parquet", table.schema, table.name)
        if not table.is_fine_grained:
            copy(f"select * from target.{table}", (building / place).with_suffix(".parquet"))
            continue
        kept = _untouched(previous / place, made) if previous is not None and str(table) in same else []
        for path in kept:
            (building / place).mkdir(parents=True, exist_ok=True)
            _share(path, building / place / path.name)
        dates = connection.execute(
            f"select distinct date from target.{table}"
            + (" where date >= ? and date < ?" if str(table) in same else ""),
            [made.start_date, made.end_date] if str(table) in same else [],
        ).fetchall()
        for (on,) in sorted(dates):
            query = f"select * from target.{table} where date = date '{on.isoformat()}'"
            copy(query, building / place / f"date={on.isoformat()}.parquet")


def _untouched(folder: Path, made: Publication) -> Iterator[Path]:
    for path in folder.glob("date=*.parquet"):
        if not made.start_date <= date.fromisoformat(path.stem.removeprefix("date=")) < made.end_date:
            yield path


def _share(path: Path, at: Path) -> None:
    """Put the same file into another publication: as a hard link, or as a copy where the file system has no links."""
    try:
        os.link(path, at)
    except OSError:
        shutil.copyfile(path, at)


def _link(at: Path, target: str) -> None:
    """Point `at` to `target` in one step: a reader always finds the old target or the new one."""
    fresh = at.with_name(f"{BUILDING}{at.name}")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target)
    fresh.replace(at)


def _forget_old(fleet: Fleet) -> None:
    """Keep the newest KEPT publications, and the current one whatever its age."""
    now = current(fleet)
    made = sorted(path for path in fleet.published.iterdir() if path.is_dir() and not path.is_symlink())
    for path in made[:-KEPT]:
        if path.resolve() != now:
            _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
