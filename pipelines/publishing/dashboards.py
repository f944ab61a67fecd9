"""The dashboards of `bi/` as files to import: for a Grafana on PostgreSQL and on Prometheus, and for Superset.

Add here what differs between two installations of the same dashboards. Keep out what the dashboards show: that is in
the files of `bi/`.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from contextlib import suppress
from pathlib import Path

from collectors.durable_files import write_whole
from pipelines.fleet.places import PROJECT
from pipelines.warehouse.refusals import QuestionError

BI = PROJECT / "bi"
BUNDLE = BI / "superset"
ZIPPED = "wattledger.zip"
# What a reader of the snapshot asks for: no write, and hours of UTC whatever the machine's time zone is.
OPTIONS = {
    "duckdb": {"access_mode": "READ_ONLY", "timezone": "UTC"},
    "postgresql": {"options": "-c%20timezone%3DUTC"},
}


def grafana(schema_prefix: str = "") -> dict[str, bytes]:
    """Name -> content of each dashboard: three on PostgreSQL, with the prefix of its schemas, and `today.json` on a
    Prometheus that scrapes `wattledger serve`, with its alert rules."""
    found = {}
    for path in sorted((BI / "grafana").glob("*.json")):
        board = json.loads(path.read_text(encoding="utf-8"))
        for variable in board["templating"]["list"]:
            if variable["name"] == "schema_prefix":
                value = {"selected": True, "text": schema_prefix, "value": schema_prefix}
                variable |= {"query": schema_prefix, "current": value, "options": [value]}
        found[path.name] = (json.dumps(board, indent=2, ensure_ascii=False) + "\n").encode()
    return found | {path.name: path.read_bytes() for path in sorted((BI / "prometheus").glob("*.*"))}


def superset(database: str, schema_prefix: str = "") -> dict[str, bytes]:
    """Name -> content of the one file that Superset imports. ValueError for another kind of database."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, text in files(database, schema_prefix).items():
            bundle.writestr(f"wattledger/{name}", text)
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


def files(database: str, schema_prefix: str = "") -> dict[str, str]:
    """Name -> text of each file of the bundle, with this database and `<schema_prefix>marts` for `marts`."""
    found = {}
    # A JSON string is a YAML string too, whatever the password has in it.
    uri = f"sqlalchemy_uri: {json.dumps(address(database))}"
    for path in sorted(BUNDLE.rglob("*.yaml")):
        name, text = path.relative_to(BUNDLE).as_posix(), path.read_text(encoding="utf-8")
        if name.startswith("databases/"):
            text = re.sub(r"^sqlalchemy_uri: .*$", lambda _: uri, text, flags=re.MULTILINE)
        elif name.startswith("datasets/"):
            text = re.sub(r"^schema: (\w+)$", rf"schema: {schema_prefix}\1", text, flags=re.MULTILINE)
        found[name] = text
    return found
