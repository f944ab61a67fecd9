"""A Delta log over the files of a table: one commit takes the old ones out and the new ones in.

The files are those of the manifest, so a table has no copy of its own for Delta. Add here what the log holds. Keep out
what is in the files (`table_files`).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from pipelines.publishing.object_store.manifests import Column, File, StoredTable
from pipelines.publishing.object_store.place import ObjectStoreError, Place

LOG = "_delta_log"
_TYPES = {
    "BIGINT": "long",
    "BLOB": "binary",
    "BOOLEAN": "boolean",
    "DATE": "date",
    "DOUBLE": "double",
    "FLOAT": "float",
    "INTEGER": "integer",
    "SMALLINT": "short",
    "TIMESTAMP WITH TIME ZONE": "timestamp",
    "TINYINT": "byte",
    "VARCHAR": "string",
}


def check_installed() -> None:
    """ObjectStoreError where the package deltalake is missing."""
    try:
        import deltalake  # noqa: F401, PLC0415 (50 MB that only this target needs)
    except ImportError:
        raise ObjectStoreError(
            "the package deltalake is not installed. Install it (pip install 'wattledger[object-store]'), or set"
            " publication.object_store.tables: parquet"
        ) from None


def commit(place: Place, table: StoredTable, publication_id: str, keep_days: float) -> int:
    """Bring the table's log to exactly these files and columns, in at most one commit; returns the version."""
    from deltalake import DeltaTable  # noqa: PLC0415
    from deltalake.exceptions import CommitFailedError, TableNotFoundError  # noqa: PLC0415
    from deltalake.transaction import (  # noqa: PLC0415
        AddAction,
        CommitProperties,
        RemoveAction,
        create_table_with_add_actions,
    )

    # As a URL, a folder may have any character in its name.
    url = Path(place.path(table.folder)).as_uri() if place.is_local else f"{place.url}/{table.folder}"
    options = storage_options()
    now = int(time.time() * 1000)
    wanted = {file.name: file for file in table.files}
    schema = _schema(table)
    configuration = _configuration(keep_days)
    with place.refusals(f"the Delta table {table.folder} cannot be written"):
        try:
            held: DeltaTable | None = DeltaTable(url, storage_options=options)
        except TableNotFoundError:
            held = None
        properties = CommitProperties(custom_metadata={"publication_id": publication_id}, max_commit_retries=0)
        try:
            if held is None or not _is_same(held, schema, table, configuration):
                create_table_with_add_actions(
                    url,
                    schema,
                    [AddAction(**_added(file, now)) for file in table.files],
                    mode="error" if held is None else "overwrite",
                    name=f"{table.schema}.{table.name}",
                    description=table.comment,
                    configuration=configuration,
                    storage_options=options,
                    commit_properties=properties,
                )
                held = DeltaTable(url, storage_options=options)
            else:
                present = {unquote(uri.rpartition("/")[2]) for uri in held.file_uris()}
                actions: list[Any] = [AddAction(**_added(wanted[name], now)) for name in wanted.keys() - present]
                actions += [RemoveAction(name, True, now) for name in present - wanted.keys()]
                if not actions:
                    return held.version()
                held.create_write_transaction(actions, "append", schema, commit_properties=properties)
                held.update_incremental()
        except CommitFailedError:
            raise ObjectStoreError(
                f"{place.shown}: {table.folder} was changed by another program at the same moment. Run again"
            ) from None
        if place.is_local:
            place.sync(f"{table.folder}/{LOG}/{held.version():020}.json")
        return held.version()


def storage_options() -> dict[str, str]:
    """What deltalake does not take from the environment by itself: whether an endpoint without TLS is meant."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    return {"allow_http": "true"} if endpoint.startswith("http://") else {}


def _schema(table: StoredTable) -> Any:
    from deltalake import Schema  # noqa: PLC0415

    fields = [
        {"name": name, "type": _type(one), "nullable": True, "metadata": _described(table, one)}
        for name, one in table.columns.items()
    ]
    return Schema.from_json(json.dumps({"type": "struct", "fields": fields}))


def _type(column: Column) -> str:
    return _TYPES.get(column.type) or column.type.lower()  # decimal(28,6)


def _described(table: StoredTable, column: Column) -> dict[str, str]:
    if column.deprecated_in is not None:
        return {
            "comment": f"Deprecated: {table.name} has no such column since version {column.deprecated_in}; NULL. The"
            " next minor version drops it (docs/versions.md)."
        }
    return {"comment": column.comment} if column.comment else {}


def _configuration(keep_days: float) -> dict[str, str | None]:
    """What other programs may clean up: no file or version of a publication that is kept."""
    days = int(keep_days) + 2
    return {
        "delta.deletedFileRetentionDuration": f"interval {days} days",
        "delta.logRetentionDuration": f"interval {days} days",
    }


def _is_same(held: Any, schema: Any, table: StoredTable, configuration: Mapping[str, str | None]) -> bool:
    metadata = held.metadata()
    return (
        json.loads(held.schema().to_json()) == json.loads(schema.to_json())
        and metadata.description == table.comment
        and dict(metadata.configuration) == configuration
    )


def _added(file: File, now: int) -> dict[str, Any]:
    stats: dict[str, Any] = {"numRecords": file.rows}
    if file.first_date is not None:
        stats |= {"minValues": {"date": file.first_date}, "maxValues": {"date": file.last_date}}
    return {
        "path": file.name,
        "size": file.bytes,
        "partition_values": {},
        "modification_time": now,
        "data_change": True,
        "stats": json.dumps(stats),
    }
