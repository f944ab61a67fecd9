"""What several tests share: an empty warehouse, and the four weeks of the bundled demo.

Each process of a test run imports this file, the one that only hands tests to the others too: what is heavy, the books
with Dagster and dbt, is imported in the fixtures that need it.
"""

from __future__ import annotations

import gc
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from filelock import FileLock

from tests import metered, optional
from tests.metered import pytest_configure  # noqa: F401

if TYPE_CHECKING:
    import duckdb

    from tests.books import Book
    from tests.shapes import Seen, Shape, SharedBook

# Dagster and dbt make millions of objects that live as long as the process (`pipelines/__main__.py`).
gc.set_threshold(50_000, 20, 100)

# Names of tests are known here alone, not to a proxy of this machine.
for _name in ("http_proxy", "https_proxy", "no_proxy"):
    os.environ.pop(_name, None)
    os.environ.pop(_name.upper(), None)

# A file that can book a fleet, run the command line or start a server takes seconds to minutes.
SLOW = {
    "tests.books": ("Book", "command", "advice_models", "create_advice_models"),
    "tests.planted": ("plant",),
    "tests.shapes": ("shape",),
    "tests.servers": (
        "Postgresql",
        "postgresql",
        "prometheus_scraping",
        "prometheus_with_history",
        "running",
        "s3_bucket",
        "victoria_metrics_scraping",
        "victoria_metrics_with_history",
    ),
}
# The optional parts that a test needs by asking for one of these fixtures; a file lists its own ones in the same way.
NEEDED_BY = {"composed_book": ("prometheus",), "spark_cluster": ("pyspark", "java")}


def pytest_addoption(parser: pytest.Parser) -> None:
    metered.pytest_addoption(parser)
    parser.addoption("--part", metavar="N/OF", help="only every OF-th file, from the N-th on")


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Mark as `rest` what is `long` and all cases of a `sampled` test but its first, and as `slow` each test of a file
    that imports one of SLOW; put slow files first; keep the files of `--part`, of those that `-m` and `-k` leave.

    xdist hands files to its workers in this order. The longest are in warehouse, publishing and ledger, so slow files
    go from the last to the first; quick files at the end keep both workers busy until the last second.
    """
    slow = [
        getattr(sys.modules[module], name) for module, names in SLOW.items() if module in sys.modules for name in names
    ]
    sampled = set[str]()
    for item in items:
        if item.get_closest_marker("sampled"):
            test = item.nodeid.partition("[")[0]
            if test in sampled:
                item.add_marker(pytest.mark.rest)
            sampled.add(test)
        if item.get_closest_marker("long"):
            item.add_marker(pytest.mark.rest)
        if any(value is one for value in vars(item.module).values() for one in slow):
            item.add_marker(pytest.mark.slow)
        for fixture, parts in {**NEEDED_BY, **getattr(item.module, "NEEDED_BY", {})}.items():
            if fixture in item.fixturenames:
                item.add_marker(pytest.mark.needs(*parts))
    slow_files = sorted({item.path for item in items if item.get_closest_marker("slow")}, reverse=True)
    places = {path: place for place, path in enumerate(slow_files)}
    items.sort(key=lambda item: places.get(item.path, len(places)))

    yield
    if part := config.getoption("part"):
        number, of = map(int, part.split("/"))
        files = sorted({item.path for item in items})[number - 1 :: of]
        others = [item for item in items if item.path not in files]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item.path in files]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that needs a part which is not on this machine, before any of its fixtures; fail it where CI=true."""
    parts = frozenset(part for mark in item.iter_markers("needs") for part in mark.args)
    optional.declared = parts
    if missing := optional.missing(*sorted(parts)):
        if os.environ.get("CI") == "true":
            pytest.fail(missing, pytrace=False)
        pytest.skip(missing)


def pytest_runtest_teardown() -> None:
    optional.declared = None


@pytest.fixture(autouse=True)
def own_environment() -> Iterator[None]:
    """A test that calls the command line in its own process leaves nothing in the environment to the next ones: no
    choice of Dagster's instance."""
    before = dict(os.environ)
    yield
    for name in os.environ.keys() - before:
        del os.environ[name]
    os.environ.update(before)


@pytest.fixture
def held(tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """An open warehouse with empty tables."""
    from pipelines.warehouse import database
    from pipelines.warehouse.raw_tables import create_tables

    connection = database.connect(tmp_path / "warehouse.duckdb")
    create_tables(connection)
    yield connection
    connection.close()


@contextmanager
def made_once(factory: pytest.TempPathFactory, name: str) -> Iterator[Path]:
    """A folder that all worker processes share; one of them is in it at a time."""
    base = factory.getbasetemp()
    folder = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / name
    folder.mkdir(exist_ok=True)
    with FileLock(folder / "lock"):
        yield folder


@pytest.fixture(scope="session")
def four_weeks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Book, str]:
    """The bundled demo, run once as a user runs it; with what the run printed."""
    from pipelines.fleet.places import DEFAULT_FLEET
    from tests.books import Book, command

    with made_once(tmp_path_factory, "four_weeks") as folder:
        printed = folder / "printed.txt"
        if not printed.exists():
            done = command(DEFAULT_FLEET, folder / "data")
            assert done.returncode == 0, done.stdout + done.stderr
            printed.write_text(done.stdout, encoding="utf-8")
    return Book.of(DEFAULT_FLEET, folder / "data"), printed.read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def composed_book(tmp_path_factory: pytest.TempPathFactory) -> Book:
    """The composed cluster's book, from a real Prometheus that is gone by now; a copy of each process's own."""
    from tests import composed
    from tests.books import Book
    from tests.servers import openmetrics, prometheus_with_history

    with made_once(tmp_path_factory, "composed") as folder:
        booked = folder / "booked"
        if not booked.exists():
            server = Path(tempfile.mkdtemp(dir=folder))
            with prometheus_with_history(server, openmetrics(composed.series())) as url:
                Book.of(composed.fleet(folder, url=url), folder / "data").run()
            booked.touch()
        return Book.of(folder / "fleet.yaml", folder / "data").copy(tmp_path_factory.mktemp("composed_copy"))


@pytest.fixture(scope="session")
def three_days(tmp_path_factory: pytest.TempPathFactory) -> Book:
    """The demo from 6 to 8 October, which nothing breaks; a copy of each process's own.

    It has an engine's restart (10-06 16:11), eight counters that begin anew (10-08 08:00), and a window in the night
    from 7 to 8 October.
    """
    from tests.books import Book, at, demo_fleet, on

    windows = [
        {"window_id": name, "model": "gpt-oss-120b", "start_at": at(start_at), "end_at": at(end_at)}
        for name, start_at, end_at in (
            ("night", "10-07 23:00", "10-08 01:00"),
            ("morning", "10-08 06:00", "10-08 07:00"),
        )
    ]
    with made_once(tmp_path_factory, "three_days") as folder:
        fleet, booked = folder / "fleet.yaml", folder / "booked"
        if not booked.exists():
            demo_fleet(folder, on("10-06"), on("10-09"), run_windows={"inline": windows})
            book = Book.of(fleet, folder / "data")
            book.run()
            assert book.failed_tests() == set()
            booked.touch()
        return Book.of(fleet, folder / "data").copy(tmp_path_factory.mktemp("three_days_copy"))


@pytest.fixture(scope="session")
def shared_book(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Shape], Seen]]:
    """What the book of a shape's dates has of this shape; the first worker that asks for a book makes it."""
    from tests.shapes import SHAPES, Seen, SharedBook

    books: dict[tuple[date, int], SharedBook] = {}

    def seen(shape: Shape) -> Seen:
        if shape.dates not in books:
            together = [other for other in SHAPES.values() if other.dates == shape.dates]
            with made_once(tmp_path_factory, f"shapes_{shape.first}_{shape.days}") as folder:
                books[shape.dates] = SharedBook(folder, together)
        return Seen(books[shape.dates], shape)

    yield seen
    for book in books.values():
        book.close()
