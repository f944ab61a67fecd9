"""Cases that share a book do not change each other's figures."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests import shapes
from tests.planted import ENERGY, WATTS, Series, board, pod, rising, steady
from tests.shapes import OWNED_BY, Seen, Shape, SharedBook, plant_shapes


def unregistered(site: str, series: list[Series], **more: object) -> Shape:
    """A shape that is in no shared book."""
    before = dict(shapes.SHAPES)
    made = shapes.shape(site, lambda: series, **more)
    shapes.SHAPES.clear()
    shapes.SHAPES.update(before)
    return made


@pytest.mark.parametrize(
    ("name", "series", "entries"),
    [
        ("GPU-first", (WATTS, board("GPU-first", "n-other"), steady(100)), {}),
        ("n-first", ("wall_power_watts", {"node": "n-first"}, steady(100)), {}),
        ("first-0", (ENERGY, board("GPU-other", "n-other", **pod("first-0")), rising(1)), {}),
        ("first-0", (WATTS, board("GPU-other", "n-other"), steady(1)), {"engines": [{"engine": "llm/first-*"}]}),
    ],
    ids=["board", "node", "pod", "glob"],
)
def test_a_name_that_another_shape_has_is_refused(
    tmp_path: Path, name: str, series: Series, entries: dict[str, object]
) -> None:
    first = unregistered("first", [(ENERGY, board("GPU-first", "n-first", **pod("first-0")), rising(300_000))])
    other = unregistered("other", [series], **entries)
    with pytest.raises(AssertionError, match=re.escape(f"shapes first and other both name {name}")):
        plant_shapes(tmp_path, [first, other])


@pytest.mark.long
def test_half_of_the_shapes_have_the_figures_that_they_have_in_their_book(
    shared_book: Callable[[Shape], Seen], tmp_path: Path
) -> None:
    """Of each shared book that this run has, booked again without the series of every second shape."""
    assert shapes.SHAPES, "no file of this run has a shape: expected all of tests/ledger"
    for dates in sorted({shape.dates for shape in shapes.SHAPES.values()}):
        together = sorted(
            (shape for shape in shapes.SHAPES.values() if shape.dates == dates), key=lambda shape: shape.site
        )
        for first in (0, 1):
            half = together[first::2]
            silent = [replace(shape, series=dict) for shape in together if shape not in half]
            book = SharedBook(tmp_path / f"{dates[0]}_{dates[1]}_{first}", [*half, *silent])
            differing = {shape.site for shape in half if figures(Seen(book, shape)) != figures(shared_book(shape))}
            book.close()
            assert differing == set()


def figures(book: Seen) -> dict[str, tuple]:
    """Mart -> the number of the shape's own rows and a hash of them."""
    marts = book.query(
        "select table_name, list(column_name order by column_name) from duckdb_columns()"
        " where database_name = 'warehouse' and schema_name = 'marts' and list_contains(?, column_name) group by 1",
        [list(OWNED_BY)],
    )
    hashes = {}
    for mart, columns in marts:
        names = "select name from temp.owners where shape = getvariable('shape') and named"
        is_own = " or ".join(f"{column} in ({names} = '{column}')" for column in columns)
        figures = "bit_xor(hash(*columns(lambda name: name <> 'tenant')))"  # the key of a tenant is random
        hashes[mart] = book.query(f"select count(*), {figures} from marts.{mart} where {is_own}")[0]
    assert any(rows for rows, _ in hashes.values())
    return hashes
