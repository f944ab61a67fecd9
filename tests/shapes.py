"""Shapes: planted cases that share a book. Seventeen of them take 18 s of a core in one book, apart some 4 s each.

A shape is a site with sources of its own; no board, node, pod, model or engine in it has a name that another shape
uses. A test file registers its shape with `shape`; the shapes of the same dates are booked together, once for all
worker processes, and the fixture `shared_book` gives what their book has of this one: each table without the rows of
other shapes' sites, sources, meters and engines. Rows that name none of these, such as a fleet's, are seen by all, and
what the fleet file states of a type (`cost_rates`, `device_types`) holds for all.

Add here what all shapes need. Keep out cases that look at a whole fleet: its totals, idle floors and fits that are
pooled over boards, dates held back, orders of booking, projects that a test broke. They plant a fleet of their own.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from fnmatch import filter as matching
from functools import cache, cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

import duckdb

from pipelines.booking import invariants
from pipelines.fleet.fleet_file import Fleet
from pipelines.fleet.places import DBT_PROJECT
from pipelines.warehouse import database
from tests.books import Book, files_source
from tests.planted import DAY, Series, plant

SITE = {"zone": "US-CAL-CISO", "pue": 1.2, "tariff": [{"usd_per_kwh": 0.1}]}
# What is named by labels (the attributes of dbt_project/seeds/label_catalog.csv) and by keys of the fleet file.
NAMING_ATTRIBUTES = {"deployment", "device_uuid", "instance", "model", "node", "pdu", "pod", "rack", "workload_pod"}
NAMING_KEYS = ("device_uuid", "engine", "name", "window_id")
# Columns that show whose row it is.
OWNED_BY = ("site", "source", "meter", "engine", "entity")
# The data tests of a book that is made: the severity and the SQL of each.
DATA_TESTS = "data_tests.json"


@dataclass(frozen=True)
class Shape:
    """A case of a shared book; `entries` are keys of the fleet file."""

    site: str
    series: Callable[[], Iterable[Series] | Mapping[str, Iterable[Series]]]
    first: date
    days: int
    intervals: Mapping[str, float]
    files: Mapping[str, str]
    entries: Mapping[str, Any]

    @property
    def dates(self) -> tuple[date, int]:
        """What the shapes of a book have in common."""
        return self.first, self.days

    @cached_property
    def planted(self) -> dict[str, list[Series]]:
        """The series of each source; where no source is named, the only one has the site's name."""
        series = self.series()
        by_source = series if isinstance(series, Mapping) else {self.site: series}
        return {source: list(of_source) for source, of_source in by_source.items()}

    @property
    def sites(self) -> list[str]:
        return [site["name"] for site in self.entries["sites"]]

    @property
    def sources(self) -> list[str]:
        return [*self.planted, *(source["name"] for source in self.entries.get("sources", []))]

    @cached_property
    def names(self) -> set[str]:
        """What no other shape may name."""
        labels = [labels for series in self.planted.values() for _, labels, _ in series]
        names = {value for of in labels for label, value in of.items() if label in _naming_labels()}
        names |= {name.partition(":")[0] for name in names}  # an instance is `host:port`
        stated = {entry[key] for entry in _entries(self.entries) for key in NAMING_KEYS if key in entry}
        stated |= {name.rpartition("/")[2] for name in stated}  # an engine is `namespace/pod`
        return {self.site, *self.sources, *self.files, *names, *stated} - {""}


SHAPES: dict[str, Shape] = {}


def shape(
    site: str,
    series: Callable[[], Iterable[Series] | Mapping[str, Iterable[Series]]],
    *,
    first: date = DAY,
    days: int = 1,
    intervals: Mapping[str, float] | None = None,
    files: Mapping[str, str] | None = None,
    **entries: Any,
) -> Shape:
    """Register a case; `intervals` are the seconds between samples of a source where they are not 60, `files` the texts
    of files beside the fleet file, and `entries` more keys of it; `sources` among them read these files."""
    made = Shape(
        site, series, first, days, intervals or {}, files or {}, {"sites": [{"name": site, **SITE}], **entries}
    )
    # A test file that another one imports is loaded as two modules.
    if site in SHAPES and SHAPES[site].planted != made.planted:
        raise AssertionError(f"two files register a shape {site}: expected a name of its own")
    SHAPES[site] = made
    return made


def plant_shapes(folder: Path, shapes: Iterable[Shape]) -> Book:
    """The book of shapes that have the same dates; nothing is landed."""
    shapes = sorted(shapes, key=lambda shape: shape.site)
    for shape, other in combinations(shapes, 2):
        if shared := _shared_names(shape.names, other.names):
            listed = ", ".join(sorted(shared))
            raise AssertionError(f"shapes {shape.site} and {other.site} both name {listed}: expected other names")
    folder.mkdir(parents=True, exist_ok=True)
    sources = []
    for shape in shapes:
        for name, text in shape.files.items():
            (folder / name).write_text(text, encoding="utf-8")
        for source in shape.planted:
            site = source if source in shape.sites else shape.site
            seconds = shape.intervals.get(source, 60)
            sources.append(files_source(source, f"recorded/{source}/*.parquet", site=site, interval_seconds=seconds))
    entries = _merged([{"sources": sources}, *(shape.entries for shape in shapes)])
    first, days = shapes[0].dates
    period = {"start": first, "end": first + timedelta(days=days)}
    by_source = {source: series for shape in shapes for source, series in shape.planted.items()}
    return plant(folder, by_source, **entries, period=period)


def book_shapes(folder: Path, shapes: Iterable[Shape]) -> None:
    """Plant and book them. What would change other shapes' figures, or hide rows of its own shape, is refused."""
    book = plant_shapes(folder, shapes)
    assert book.run() == (book.fleet.period.start, book.fleet.period.end)
    assert book.broken() == {}, "a date that is held back is so for all shapes of a book"
    pooled = "select distinct site, meter from marts.energy_ledger where idle_basis = 'parked_p10_of_fleet'"
    assert book.query(pooled) == [], "idle floors are pooled over all shapes of a book"
    nowhere = "select distinct deployment from marts.model_hourly where site = '__unknown__'"
    assert book.query(nowhere) == [], "a row without a site is in no shape"
    compiled = book.dbt("compile", "--select", *(path.stem for path in DBT_PROJECT.glob("tests/*.sql")))
    data_tests = {test.node.name: (test.node.config.severity, test.node.compiled_code) for test in compiled}
    (folder / DATA_TESTS).write_text(json.dumps(data_tests), encoding="utf-8")


class SharedBook:
    """A book of shapes, made where it is not there yet, and views that leave out what other shapes own."""

    def __init__(self, folder: Path, shapes: Iterable[Shape]) -> None:
        shapes = list(shapes)
        if not (folder / DATA_TESTS).exists():
            book_shapes(folder, shapes)
        self.whole = Book.of(folder / "fleet.yaml", folder / "data")
        self.data_tests: dict[str, tuple[str, str]] = json.loads((folder / DATA_TESTS).read_text(encoding="utf-8"))
        self._connection = database.connect(":memory:")
        self._create_views(shapes)

    def seen_by(self, shape: Shape) -> duckdb.DuckDBPyConnection:
        """The warehouse as this shape sees it, until another one is asked for."""
        self._connection.execute(f"set variable shape = '{shape.site}'")
        return self._connection

    def close(self) -> None:
        self._connection.close()

    def _create_views(self, shapes: list[Shape]) -> None:
        execute = self._connection.execute
        execute(f"attach '{self.whole.fleet.warehouse}' as whole (read_only)")
        execute("attach ':memory:' as warehouse")
        execute("use warehouse")
        execute("create temp table owners (shape varchar, named varchar, name varchar)")
        owned = [(shape.site, "site", site) for shape in shapes for site in shape.sites]
        owned += [(shape.site, "source", source) for shape in shapes for source in shape.sources]
        self._connection.executemany("insert into owners values (?, ?, ?)", owned)
        for name in ("meter", "engine"):
            execute(
                f"insert into owners select distinct shape, '{name}', {name} from whole.staging.stg_series as series"
                f" join owners on owners.named = 'source' and owners.name = series.source where {name} is not null"
            )
        # What is in doubt is an entity of any kind.
        execute("insert into owners select distinct shape, 'entity', name from owners")
        tables = execute(
            "select schema_name, table_name, list(column_name) from duckdb_columns()"
            " where database_name = 'whole' and not internal group by all"
        ).fetchall()
        for schema in {schema for schema, *_ in tables}:
            execute(f"create schema if not exists warehouse.{schema}")
        for schema, table, columns in tables:
            others = " or ".join(
                f"coalesce({name} in (select name from temp.owners where named = '{name}'"
                " and shape <> getvariable('shape')), false)"
                for name in set(OWNED_BY).intersection(columns)
            )
            # An alarm separates the rows of raw.unknown_devices by their number, which a view does not have.
            selected = "rowid, *" if schema == "raw" else "*"
            execute(
                f'create view warehouse.{schema}."{table}" as select {selected} from whole.{schema}."{table}"'
                f" where not ({others or 'false'})"
            )


@dataclass(frozen=True)
class Seen:
    """What a shared book has of one shape. Writing is for a copy of the whole book: `seen.whole.copy(…)`."""

    shared: SharedBook
    shape: Shape

    @property
    def whole(self) -> Book:
        return self.shared.whole

    @property
    def fleet(self) -> Fleet:
        return self.whole.fleet

    @contextmanager
    def connection(self, read_only: bool = True) -> Iterator[duckdb.DuckDBPyConnection]:
        """The warehouse, to be read."""
        yield self.shared.seen_by(self.shape)

    def query(self, sql: str, parameters: Iterable[object] = ()) -> list[tuple]:
        """Rows of the warehouse."""
        return self.shared.seen_by(self.shape).execute(sql, list(parameters)).fetchall()

    def data_test(self, name: str, columns: str = "*") -> tuple[str, list[tuple]]:
        """The severity of a data test, and the rows that it finds."""
        severity, sql = self.shared.data_tests[name]
        return severity, self.query(f"select {columns} from ({sql})")

    def failed_tests(self, *names: str) -> set[str]:
        """As `Book.failed_tests`, of this shape's rows."""
        rules = {path.stem for path in DBT_PROJECT.glob("models/balance/invariants/*.sql")}
        if unknown := set(names) - rules - self.shared.data_tests.keys():
            raise AssertionError(f"no data test or invariant: {', '.join(sorted(unknown))}")
        failed = {name for name in self.shared.data_tests if not names or name in names if self.data_test(name)[1]}
        broken = set(self.broken())
        return failed | (broken.intersection(names) if names else broken)

    def broken(self) -> dict[str, list[invariants.Broken]]:
        """The rows that break an invariant, by its name."""
        with self.connection() as connection:
            return invariants.broken(connection, "")


@cache
def _naming_labels() -> set[str]:
    with (DBT_PROJECT / "seeds" / "label_catalog.csv").open(encoding="utf-8") as file:
        return {row["label"] for row in csv.DictReader(file) if row["attribute"] in NAMING_ATTRIBUTES}


def _shared_names(names: set[str], others: set[str]) -> set[str]:
    """Names of both, also by a glob of the fleet file."""
    shared = names & others
    for globs, named in ((names, others), (others, names)):
        shared |= {name for glob in globs if "*" in glob for name in matching(named, glob)}
    return shared


def _entries(value: object) -> Iterator[Mapping[str, Any]]:
    """All entries of lists in a part of a fleet file."""
    if isinstance(value, Mapping):
        for part in value.values():
            yield from _entries(part)
    elif isinstance(value, list):
        yield from (entry for entry in value if isinstance(entry, Mapping))


def _merged(parts: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Parts of a fleet file as one: lists one after the other, an entry that two have alike once."""
    merged: dict[str, Any] = {}
    for key in dict.fromkeys(key for part in parts for key in part):
        values = [part[key] for part in parts if key in part]
        if isinstance(values[0], Mapping):
            merged[key] = _merged(values)
        else:
            merged[key] = []
            for entry in (entry for value in values for entry in value):
                if entry not in merged[key]:
                    merged[key].append(entry)
    return merged
