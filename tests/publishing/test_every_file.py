"""Every file of the demo's publication, damaged one after the other: none costs a figure in any copy."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import duckdb
import pytest

from pipelines.fleet.targets.publication_targets import ObjectStoreTarget
from pipelines.publishing import publication, restoring
from pipelines.publishing.object_store import storing as object_store
from tests.books import Book, on
from tests.publishing.damage import KINDS, damage, damaged_one_by_one, differing_files


@pytest.mark.long
def test_no_file_of_the_demo_costs_a_figure(three_days: Book, tmp_path: Path) -> None:
    """Each file once, in turn in each way. Then one of each table at once, between two runs, with a copy."""
    reached = ObjectStoreTarget.model_construct(url=str(tmp_path / "store"), tables="parquet", keep_days=10)
    book = three_days.copy(tmp_path, is_published=False)
    targets = book.fleet.publication.model_copy(update={"object_store": reached})
    fleet = book.fleet.model_copy(update={"publication": targets})
    assert publication.publish(fleet, on("10-06"), on("10-09")) is not None
    folder = (fleet.published / "latest").resolve()
    count, lost = damaged_one_by_one(
        folder, lambda n: [KINDS[n % len(KINDS)]], lambda: restoring.checked(fleet.published, folder)
    )
    print(f"{count} files damaged, {len(lost)} figures lost")
    assert lost == []
    assert count > 80

    with closing(duckdb.connect(str(folder / "wattledger.duckdb"), read_only=True)) as reader:
        tables = [f"{schema}.{table}" for schema, table in reader.execute(
            "select schema_name, table_name from duckdb_tables() order by all").fetchall()]  # fmt: skip
    for n, name in enumerate(tables):
        place = folder / "parquet" / name.replace(".", "/")
        files = [*sorted(place.glob("*.parquet")), place.with_suffix(".parquet")]
        # A table by date that has no rows has no file.
        for file in [file for file in files if file.exists()][:1]:
            damage(file, KINDS[n % len(KINDS)])
    # The next run books the last date alone.
    assert publication.publish(fleet, on("10-08"), on("10-09")) is not None
    assert differing_files((fleet.published / "latest").resolve()) == []
    done = object_store.publish(fleet, reached)
    assert done is not None
    with closing(duckdb.connect(str(fleet.snapshot), read_only=True)) as reader:
        rows = {name: reader.execute(f"select count(*) from {name}").fetchall()[0][0] for name in tables}
    copied = {name: count for name, count in done.rows.items() if count}
    assert copied == {name: count for name, count in rows.items() if count}
