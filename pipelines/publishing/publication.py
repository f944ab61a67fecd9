"""The publication: what readers open. A run's marts become one folder, and one symbolic link switches to it.

Between runs the warehouse may have old and new rows side by side; a publication never does. Add here what a reader
opens. Keep out recommendations and reports (these are tables and files in a publication) and everything that writes
the warehouse.

    published/latest -> <publication_id>                 switched in one step
    published/wattledger.duckdb -> latest/wattledger.duckdb
    published/<publication_id>/wattledger.duckdb          schemas finance, marts, published; opens in DuckDB 1.x and 2.x
    published/<publication_id>/wattledger.xlsx            a sheet per question; linked from published/, too
    published/<publication_id>/manifest.json              each table's dates and files, with size, time and SHA-256
    published/<publication_id>/report.html                written afterwards (pipelines.report); linked as well
    published/<publication_id>/parquet/<schema>/<table>.parquet, or <table>/date=<date>.parquet
    published/<publication_id>/focus/cost_and_usage_<billing month>.csv
"""

import hashlib
import logging
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb

from collectors.durable_files import opened, sync_folder
from pipelines.fleet.fleet_file import Fleet
from pipelines.publishing import (
    finance_tables,
    history,
    parts,
    pictures,
    publication_manifest,
    published_files,
    published_tables,
    restatements,
    restoring,
    retention,
)
from pipelines.publishing.focus import cost_and_usage
from pipelines.publishing.parts import Parts
from pipelines.publishing.publication_manifest import DATABASE, WORKBOOK, Manifest
from pipelines.publishing.restoring import PublicationDamaged
from pipelines.publishing.workbook import sheets
from pipelines.warehouse import compaction, database, disk_room, due_dates, findings, settings
from pipelines.warehouse.asset_keys import asset_key
from pipelines.warehouse.closings import ClosingsLost
from pipelines.warehouse.raw_tables import create_tables
from pipelines.warehouse.settings import code_version
from pipelines.warehouse.tenants import tenant_names

BUILDING = ".building-"
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Publication:
    """One publication: its row in published.publication. The run booked the dates [start_date, end_date). `parts` has
    what could not be made beside its tables."""

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
    parts: Parts = field(default_factory=Parts, compare=False)


def publish(
    fleet: Fleet,
    start: date,
    end: date,
    *,
    due: Collection[date] | None = None,
    own: Collection[date] | None = None,
    ahead: Collection[date] = (),
    force: bool = False,
    published_at: datetime | None = None,
) -> Publication | None:
    """Publish the marts; the dates [start, end) are the ones that changed since the last publication.

    Starts from a copy of the current publication, whose files are compared with its manifest first, and replaces these
    dates, and every table without a `date` column, so a day costs the same after years. Dates that are held back keep
    their published rows. A failure (a full disk) or a crash leaves the old publication current; what a crash left, the
    next publication removes. Everything is on the disk before readers are sent to it.

    `due` are the dates that were booked since the last publication (by default all of [start, end)), `own` those that
    this warehouse has published before (by default all). A change of those `ahead` is no restatement: they were
    published before their history was. HistoryWouldShrink where published figures would change or
    disappear, unless `force`, which is recorded. PublicationDamaged where the current publication has lost rows that
    none of its files has. None where every date is held back and nothing is published.
    """
    fleet.published.mkdir(parents=True, exist_ok=True)
    opened(fleet.published)
    # One at a time, also without the warehouse's lock: what another publisher builds would be taken for leftovers.
    with database.writing(fleet.published, "publication"):
        retention.kept_hours()  # raises if the environment is wrong
        for leftover in fleet.published.glob(f"{BUILDING}*"):
            retention.remove(leftover)
        try:
            return _publish(
                fleet,
                start,
                end,
                due=due,
                own=own,
                ahead=ahead,
                force=force,
                published_at=published_at or datetime.now(UTC),
            )
        except BaseException:
            for unfinished in fleet.published.glob(f"{BUILDING}*"):
                retention.remove(unfinished)
            raise


def _publish(
    fleet: Fleet,
    start: date,
    end: date,
    *,
    due: Collection[date] | None,
    own: Collection[date] | None,
    ahead: Collection[date],
    force: bool,
    published_at: datetime,
) -> Publication | None:
    folder = fleet.published
    previous = fleet.latest_publication
    before = None if previous is None else restoring.restored(previous, now=published_at)
    identity = f"{fleet.fleet} {published_at.isoformat()} {start} {end} {previous and previous.name}"
    publication_id = f"{published_at:%Y%m%dT%H%M%S%f}Z-{hashlib.blake2b(identity.encode(), digest_size=4).hexdigest()}"
    building = folder / f"{BUILDING}{publication_id}"
    building.mkdir()
    with database.connect(":memory:") as connection:
        connection.execute(f"attach {database.literal(fleet.warehouse)} as warehouse (read_only)")
        held_back = held_back_dates(connection, "warehouse")
        if previous is None and held_back and not published_tables.has_dates(connection):
            building.rmdir()
            return None
        if previous is not None and before is not None:
            before = _start_from(previous, before, building, published_at)
        connection.execute(
            f"attach {database.literal(building / DATABASE)} as target"
            f" (storage_version '{published_tables.STORAGE_VERSION}')"
        )
        due = [start + timedelta(days=n) for n in range((end - start).days)] if due is None else due
        published = [] if previous is None else published_tables.published_dates(connection)
        found = history.losses(connection, due, held_back, published if own is None else own)
        restated = restatements.remember(connection, start, end)
        tenant_names.rekey_copy(connection, "target")
        same = published_tables.replace_tables(connection, start, end, held_back)
        finance_tables.write(connection, publication_id, published_at, {*held_back, *ahead} if restated else None)
        found += history.misstated_months(connection)
        if found and not force:
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
            published_tables.row_counts(connection),
            held_back,
            tuple(found),
        )
        erased_at = _write_publication(connection, publication)
        labels = published_files.labels_of(fleet.fleet, fleet.synthetic, publication_id)
        carried = (previous, before) if previous is not None and before is not None else None
        files = published_files.write_parquet(connection, building, carried, (start, end), same, labels=labels)
        focus = cost_and_usage.write(connection, building, carried, (start, end), same, parts=publication.parts)
        tables = publication_manifest.listed(connection, "target", files)
        connection.execute("checkpoint target")
        blocks = compaction.blocks_of(connection, "target")
        connection.execute("detach target")
    _write_anew(building / DATABASE, blocks, is_due=_is_before(previous, erased_at))
    (building / DATABASE).chmod(0o444)
    sheets.write(building / DATABASE, building / WORKBOOK, fleet.fleet, fleet.synthetic, publication.parts)
    compared_at = before.hashes_compared_at if before is not None else published_at
    manifest = Manifest(publication_id, compared_at, publication_manifest.file_of(building, DATABASE), tables, focus)
    (building / publication_manifest.NAME).write_bytes(publication_manifest.to_json(manifest))
    retention.sync(building)
    building.rename(folder / publication_id)
    sync_folder(folder)
    _link(folder / "latest", publication_id)
    for name in (DATABASE, WORKBOOK):
        if not (folder / name).is_symlink():
            _link(folder / name, f"latest/{name}")
    retention.forget_old(folder, fleet.latest_publication, published_at, fleet.retention.publications or retention.KEPT)
    if compared_at == published_at:
        restoring.older_ones_restored(folder, fleet.latest_publication, published_at)
    return publication


def _is_before(previous: Path | None, erased_at: datetime | None) -> bool:
    """Whether the current publication may hold a name that was erased since."""
    return previous is not None and erased_at is not None and retention.published_at(previous) < erased_at


def _write_anew(path: Path, blocks: compaction.Blocks, *, is_due: bool) -> None:
    """Write the database without its free blocks, where half of it is free: it began as a copy of the last one, and
    what is replaced leaves blocks. Without room for that it stays as it is, unless it `is_due`, because the blocks hold
    a name that was erased."""
    if not blocks.is_worth_it and not is_due:
        return
    try:
        disk_room.require(path.parent, blocks.used_bytes, f"writing {path.name} anew without its free blocks")
    except disk_room.TooLittleRoom as refusal:
        if is_due:
            raise
        logger.warning("%s", refusal)
        return
    compaction.compact(path, published_tables.STORAGE_VERSION)


def _start_from(previous: Path, before: Manifest, building: Path, now: datetime) -> Manifest:
    """Copy the database of the current publication; returns its manifest, which is another one where the database had
    to be written anew. What is copied is compared by its hash, since a damaged disk changes neither size nor time."""
    if publication_manifest.copied(previous / DATABASE, building / DATABASE) == before.database.sha256:
        return before
    before = restoring.restored(previous, suspects={DATABASE}, now=now)
    if publication_manifest.copied(previous / DATABASE, building / DATABASE) != before.database.sha256:
        raise OSError(f"{previous / DATABASE}: two readings differ. Is the disk failing?")
    return before


def held_back_dates(connection: duckdb.DuckDBPyConnection, of: str) -> dict[date, str]:
    """The dates that an attached database holds back, each with the invariants that it breaks."""
    if "held_back_dates" not in database.tables(connection, "marts", of):
        return {}
    rows = connection.execute(
        "select date, string_agg(distinct invariant, ', ' order by invariant)"
        f" from {of}.marts.held_back_dates group by date order by date"
    )
    return dict(rows.fetchall())


class PublicationConfig(dg.Config):
    """`force` publishes even if published figures change or disappear; this is recorded. It never publishes a date that
    is held back."""

    force: bool = False


def publication_asset(
    fleet: Fleet,
    marts: list[dg.AssetKey],
    pool: str,
    note_cost: Callable[[duckdb.DuckDBPyConnection, Fleet, str], object],
) -> dg.AssetsDefinition:
    """published/publication, after every mart and its blocking checks. `note_cost` notes in the warehouse what the run
    has taken so far, which the publication has, too."""

    key = asset_key(fleet, "published", "publication")

    @dg.asset(
        key=key,
        deps=marts,
        check_specs=[parts.spec(key)],
        group_name="published",
        kinds={"duckdb", "parquet"},
        pool=pool,
    )
    def publication(context: dg.AssetExecutionContext, config: PublicationConfig) -> Iterator[Any]:
        """The marts for readers: one read-only DuckDB file and Parquet files, replaced in one step."""
        metadata, made_parts = _published(fleet, config, lambda held: note_cost(held, fleet, context.run_id))
        yield dg.MaterializeResult(metadata=metadata)
        yield made_parts.result(key)

    return publication


def _published(
    fleet: Fleet, config: PublicationConfig, note_cost: Callable[[duckdb.DuckDBPyConnection], object]
) -> tuple[dict[str, Any], Parts]:
    """Publish what waits for it; what Dagster shows of it, and its parts."""
    with database.writing(fleet.warehouse, "publication"):
        with database.connect(fleet.warehouse) as connection:
            create_tables(connection)
            note_cost(connection)
            start, end = due_dates.dates_to_publish(connection, date.max, date.min)
            due = due_dates.due(connection, due_dates.PUBLICATION)
            own = due_dates.due(connection, due_dates.PUBLISHED)
            ahead = due_dates.due(connection, due_dates.AHEAD)
        try:
            folder = fleet.latest_publication
            if start >= end and folder is not None:
                restoring.checked(fleet.published, folder)
                return {"unchanged": str(folder)}, Parts()
            made = publish(fleet, start, end, due=due, own=own, ahead=ahead, force=config.force)
        except (history.HistoryWouldShrink, PublicationDamaged, ClosingsLost) as refusal:
            raise dg.Failure(str(refusal)) from None
        if made is None:
            return {"nothing_published": "every date is held back"}, Parts()
        with database.connect(fleet.warehouse) as connection:
            due_dates.published(connection, start, end)
            settings.published(connection, made.held_back)
    logger.info("published %s", made.publication_id)
    return _metadata(fleet, made), made.parts


def _metadata(fleet: Fleet, made: Publication) -> dict[str, Any]:
    return {
        "publication_id": made.publication_id,
        "dates": f"[{made.start_date}, {made.end_date})",
        "synthetic": made.is_synthetic,
        **({"held_back": {str(on): invariants for on, invariants in made.held_back.items()}} if made.held_back else {}),
        **({"forced": list(made.forced)} if made.forced else {}),
        "path": dg.MetadataValue.path(str(fleet.published / DATABASE)),
        "workbook": dg.MetadataValue.path(str(fleet.published / WORKBOOK)),
        "dagster/row_count": sum(made.rows.values()),
        "tables": dg.MarkdownMetadataValue(findings.markdown(["table", "rows"], made.rows.items())),
        "energy": dg.MarkdownMetadataValue(made.parts.picture("energy", lambda: _energy_picture(fleet, made))),
    }


def _energy_picture(fleet: Fleet, made: Publication) -> str:
    sums = ", ".join(f"sum({account})::double as {account}" for account in pictures.ACCOUNTS)
    with database.connect(fleet.published / DATABASE, read_only=True) as connection:
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
    last = made.end_date - timedelta(days=1)
    return pictures.energy_accounts(models, f"{fleet.fleet}, {made.start_date} to {last} ({fleet.telemetry})")


def _write_publication(connection: duckdb.DuckDBPyConnection, made: Publication) -> datetime | None:
    """Write the row of published.publication; returns when a tenant was erased last."""
    erased_at = tenant_names.erased_at(connection)
    row = {
        "publication_id varchar": made.publication_id,
        "published_at timestamptz": made.published_at,
        "start_date date": made.start_date,
        "end_date date": made.end_date,
        "fleet varchar": made.fleet,
        "is_synthetic boolean": made.is_synthetic,
        "code_version varchar": made.code_version,
        "previous_publication_id varchar": made.previous_publication_id,
        "held_back_dates varchar": ",".join(on.isoformat() for on in made.held_back) or None,
        "held_back_reasons varchar": "; ".join(f"{on}: {why}" for on, why in made.held_back.items()) or None,
        "is_forced boolean": bool(made.forced),
        "forced_reasons varchar": "; ".join(made.forced) or None,
        "tenant_erased_at timestamptz": erased_at,
    }
    connection.execute(f"create or replace table target.published.publication ({', '.join(row)})")
    values = ", ".join("?" for _ in row)
    connection.execute(f"insert into target.published.publication values ({values})", list(row.values()))
    return erased_at


def _link(at: Path, target: str) -> None:
    """Point `at` to `target` in one step: a reader always finds the old target or the new one."""
    fresh = at.with_name(f"{BUILDING}{at.name}")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target)
    fresh.replace(at)
    sync_folder(at.parent)
