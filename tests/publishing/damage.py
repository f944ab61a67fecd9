"""Damage to the files of a publication, of each kind that a disk or a person does, and what is wrong afterwards.

Add here a kind of damage. Keep out what a run makes of it: that is in the tests.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import duckdb

# Bytes of another date of the same table, or of another table, of the same publication; equal size, and equal size and
# time as a failing disk has it.
KINDS = ("deleted", "cut", "emptied", "swapped", "corrupted")


def damage(path: Path, kind: str) -> None:
    """Damage one file as a person or a disk does; files of other publications that share it (hard links) too, unless
    it is deleted or swapped."""
    path.parent.chmod(0o755)
    content = path.read_bytes()
    if kind == "deleted":
        path.unlink()
        return
    path.chmod(0o644)
    if kind == "cut":
        os.truncate(path, len(content) // 2)
    elif kind == "emptied":
        os.truncate(path, 0)
    elif kind == "swapped":
        other = next(one for one in _alike(path) if one.read_bytes() != content)
        path.unlink()
        shutil.copyfile(other, path)
    elif kind == "corrupted":
        path.write_bytes(corrupted(content))
    else:
        raise ValueError(kind)


def corrupted(content: bytes) -> bytes:
    """As many bytes, those in the middle inverted."""
    start, end = len(content) // 3, len(content) // 3 + max(1, len(content) // 10)
    return content[:start] + bytes(255 - one for one in content[start:end]) + content[end:]


def _alike(path: Path) -> list[Path]:
    """Files of the same publication that could be in the place of this one: other dates of its table, else others."""
    near = sorted(path.parent.glob(f"*{path.suffix}"))
    folder = next(one for one in path.parents if (one / "manifest.json").exists() or (one / "parquet").exists())
    return near + sorted(folder.rglob("*.parquet"))


def differing_files(folder: Path) -> list[str]:
    """The tables of a publication whose Parquet files have other rows than its DuckDB file, or that lack one."""
    found = []
    with closing(duckdb.connect(str(folder / "wattledger.duckdb"), read_only=True)) as connection:
        connection.execute("set TimeZone = 'UTC'")
        for schema, table in connection.execute("select schema_name, table_name from duckdb_tables()").fetchall():
            place = folder / "parquet" / schema / table
            files = [str(one) for one in sorted(place.glob("*.parquet"))] or [str(place.with_suffix(".parquet"))]
            names = connection.execute(
                "select column_name, data_type from duckdb_columns() where schema_name = ? and table_name = ?"
                " order by column_index",
                [schema, table],
            ).fetchall()
            typed = ", ".join(f'cast("{name}" as {kind}) as "{name}"' for name, kind in names)
            ours, theirs = f"from {schema}.{table}", f"select {typed} from read_parquet({json.dumps(files)})"
            if not place.is_dir() and not Path(files[0]).exists():
                ((rows,),) = connection.execute(f"select count(*) {ours}").fetchall()
                found += [f"{schema}.{table}"] if rows else []
                continue
            ((count,),) = connection.execute(
                f"select count(*) from (({ours} except all {theirs}) union all ({theirs} except all {ours}))"
            ).fetchall()
            found += [f"{schema}.{table}"] if count else []
    return found


def rows_of(path: Path) -> str:
    """A hash of the rows of a Parquet or CSV file, in whatever order they are."""
    read = f"read_csv('{path}', all_varchar = true)" if path.suffix == ".csv" else f"read_parquet('{path}')"
    with closing(duckdb.connect()) as connection:
        query = f"select format('{{}} {{}}', count(*), sum(cast(hash(t) as hugeint))) from {read} as t"
        ((found,),) = connection.execute(query).fetchall()
    return str(found)


def damaged_one_by_one(
    folder: Path, kinds_of: Callable[[int], Sequence[str]], restore: Callable[[], object]
) -> tuple[int, list[str]]:
    """Damage each file of a publication in turn, the n-th in the ways `kinds_of(n)`, and let `restore` restore it.

    Returns how many times a file was damaged, and each file and kind after which it had other rows than before.
    """
    paths = sorted(one for one in folder.rglob("*") if one.suffix in (".parquet", ".csv"))
    before = {path: rows_of(path) for path in paths}
    count, lost = 0, []
    for n, path in enumerate([*paths, folder / "wattledger.duckdb"]):
        for kind in kinds_of(n):
            damage(path, kind)
            restore()
            count += 1
            is_same = rows_of(path) == before[path] if path in before else differing_files(folder) == []
            if not is_same:
                lost.append(f"{path} {kind}")
    return count, lost + [str(path) for path in paths if rows_of(path) != before[path]]
