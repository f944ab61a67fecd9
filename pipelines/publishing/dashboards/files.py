"""The dashboards as files to import: for a Grafana on PostgreSQL and on Prometheus, and for Superset.

Add here what differs between two installations of the same dashboards, and where the files go.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from contextlib import suppress
from pathlib import Path

import yaml

from collectors.durable_files import write_whole
from pipelines.fleet.places import PROJECT
from pipelines.publishing.dashboards import grafana as of_grafana
from pipelines.publishing.dashboards import superset as of_superset
from pipelines.warehouse.refusals import QuestionError

RULES = PROJECT / "bi" / "prometheus"
ZIPPED = "wattledger.zip"
# What a reader of the snapshot asks for: no write, and hours of UTC whatever the machine's time zone is.
OPTIONS = {
    "duckdb": {"access_mode": "READ_ONLY", "timezone": "UTC"},
    "postgresql": {"options": "-c%20timezone%3DUTC"},
}


def grafana(schema_prefix: str = "") -> dict[str, bytes]:
    """Name -> content of each dashboard: three on PostgreSQL, with the prefix of its schemas, and `today.json` on a
    Prometheus that scrapes `wattledger serve`, with its alert rules."""
    found = {
        f"{name}.json": (json.dumps(board, indent=2, ensure_ascii=False) + "\n").encode()
        for name, board in of_grafana.boards(schema_prefix).items()
    }
    return found | {path.name: path.read_bytes() for path in sorted(RULES.glob("*.yml"))}


def superset(database: str, schema_prefix: str = "") -> dict[str, bytes]:
    """Name -> content of the one file that Superset imports. ValueError for another kind of database."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, content in of_superset.bundle(address(database), schema_prefix).items():
            bundle.writestr(f"wattledger/{name}", yaml.safe_dump(content, sort_keys=False, allow_unicode=True))
    return {ZIPPED: packed.getvalue()}


def write(folder: Path, contents: dict[str, bytes]) -> list[Path]:
    """Write files that only this user may read: a database's address may have a password. QuestionError, before any is
    written, where one of them is there and is not of Wattledger."""
    for name in contents:
        if (folder / name).exists() and not _is_ours(folder / name):
            raise QuestionError(
                f"{folder / name} is there, and is none of Wattledger's: name another folder, or move it"
            )
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        write_whole(folder / name, content)
    return [folder / name for name in contents]


def _is_ours(path: Path) -> bool:
    content = path.read_bytes()
    if path.suffix == ".zip":
        with suppress(zipfile.BadZipFile):
            return "wattledger/metadata.yaml" in zipfile.ZipFile(io.BytesIO(content)).namelist()
        return False
    if path.suffix == ".json":
        with suppress(ValueError):
            board = json.loads(content)
            return isinstance(board, dict) and str(board.get("uid")).startswith("wattledger-")
        return False
    return b"\n  - name: wattledger" in content


def address(database: str) -> str:
    """The URI for SQLAlchemy of a snapshot's path, or of a `duckdb:` or `postgresql:` URI; UTC, read-only for DuckDB.

    Raises ValueError for another kind of database.
    """
    if "://" not in database:
        database = f"duckdb:///{Path(database).absolute()}"
    kind = re.split(r"[:+]", database, maxsplit=1)[0]
    if kind == "postgres":
        kind, database = "postgresql", database.replace("postgres", "postgresql", 1)
    if kind not in OPTIONS:
        raise ValueError(f"database {kind}: expected the path of wattledger.duckdb, duckdb:///… or postgresql://…")
    has = set(re.findall(r"[?&](\w+)=", database))
    more = "&".join(f"{name}={value}" for name, value in OPTIONS[kind].items() if name not in has)
    return f"{database}{'&' if has else '?'}{more}" if more else database
