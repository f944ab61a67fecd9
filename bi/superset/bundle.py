"""The Superset bundle as a zip file: `bi/superset` with the address of the database that its charts read.

    python bi/superset/bundle.py --database duckdb:////srv/published/wattledger.duckdb --output superset.zip

Add here what differs between two installations of the same dashboards. Keep out what the dashboards show: that is in
the YAML files. It needs nothing but Python.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import zipfile
from pathlib import Path

BUNDLE = Path(__file__).parent
# What a reader of the snapshot asks for: no write, and hours of UTC whatever the machine's time zone is.
OPTIONS = {
    "duckdb": {"access_mode": "READ_ONLY", "timezone": "UTC"},
    "postgresql": {"options": "-c%20timezone%3DUTC"},
}


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
    for path in sorted(BUNDLE.rglob("*.yaml")):
        name, text = path.relative_to(BUNDLE).as_posix(), path.read_text(encoding="utf-8")
        if name.startswith("databases/"):
            # A JSON string is a YAML string too, whatever the password has in it.
            uri = json.dumps(address(database))
            text = re.sub(
                r"^sqlalchemy_uri: .*$", lambda _, uri=uri: f"sqlalchemy_uri: {uri}", text, flags=re.MULTILINE
            )
        elif name.startswith("datasets/"):
            text = re.sub(r"^schema: (\w+)$", rf"schema: {schema_prefix}\1", text, flags=re.MULTILINE)
        found[name] = text
    return found


def write(output: Path, database: str, schema_prefix: str = "") -> None:
    """Write the bundle as a zip file that Superset imports."""
    output.parent.mkdir(parents=True, exist_ok=True)
    output.unlink(missing_ok=True)
    output.touch(mode=0o600)  # the URI may have a password
    with zipfile.ZipFile(output, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, text in files(database, schema_prefix).items():
            bundle.writestr(f"wattledger/{name}", text)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Write bi/superset as a zip file that Superset imports.")
    parser.add_argument(
        "--database",
        default=os.environ.get("DATABASE"),
        help="path of wattledger.duckdb, or a duckdb:/// or postgresql:// URI; by default the environment's DATABASE,"
        " which keeps a password out of the list of processes",
    )
    parser.add_argument("--schema-prefix", default="", help="publication.postgresql.schema_prefix of the fleet file")
    parser.add_argument("--output", type=Path, required=True, help="the zip file; it has the password of the URI")
    given = parser.parse_args()
    if not given.database:
        sys.exit("no database: expected DATABASE=path/of/wattledger.duckdb, or DATABASE=postgresql://…")
    if "://" not in given.database and not Path(given.database).exists():
        sys.exit(
            f"no snapshot at {given.database}: run `make run` first, or give its path on another machine as"
            " DATABASE=duckdb:////path/of/wattledger.duckdb"
        )
    try:
        write(given.output, given.database, given.schema_prefix)
    except ValueError as error:
        parser.error(str(error))
    print(f"wrote {given.output}: import it with `superset import-dashboards -p {given.output} -u admin`")


if __name__ == "__main__":
    main()
