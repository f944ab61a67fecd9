"""What several tests share: an empty warehouse, and the four weeks of the bundled demo."""

from __future__ import annotations

import gc
import os
import random
import shutil
import tempfile
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest
from filelock import FileLock

from pipelines.fleet.places import DEFAULT_FLEET
from pipelines.warehouse import database
from pipelines.warehouse.asset_keys import SHARED_INSTANCE
from pipelines.warehouse.raw_tables import create_tables
from tests import books, composed, optional, planted, servers, templates
from tests.books import Book, at, command, demo_fleet, on
from tests.servers import openmetrics, prometheus_with_history

# Dagster and dbt make millions of objects that live as long as the process (`pipelines/__main__.py`).
gc.set_threshold(50_000, 20, 100)


templates.compile_once()

# Names of tests are known here alone, not to a proxy of this machine.
for _name in ("http_proxy", "https_proxy", "no_proxy"):
    os.environ.pop(_name, None)
    os.environ.pop(_name.upper(), None)

# Of a booking a quarter is waiting for the disk: the folders of tests are in memory where it is enough for all of them.
IN_MEMORY = Path("/dev/shm")
GIB = 2**30
if (
    IN_MEMORY.is_dir()
    and shutil.disk_usage(IN_MEMORY).free > 10 * GIB
    and os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") > 20 * GIB
):
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(IN_MEMORY))

# A file that can book a fleet, run the command line or start a server takes seconds to minutes.
SLOW = (
    books.Book,
    books.command,
    books.advice_models,
    books.create_advice_models,
    planted.plant,
    servers.Postgresql,
    servers.postgresql,
    servers.prometheus_scraping,
    servers.prometheus_with_history,
    servers.running,
    servers.s3_bucket,
    servers.victoria_metrics_scraping,
    servers.victoria_metrics_with_history,
)
# The optional parts that a test needs by asking for one of these fixtures; a file lists its own ones in the same way.
NEEDED_BY = {"composed_book": ("prometheus",), "spark_cluster": ("pyspark", "java")}

# After this second of the clock (`date +%s`) no test begins: of the long ones, CI leaves to its next run what its time
# is too short for. Then slow files come in another order each time, so that it is never the same ones.
BEGIN_UNTIL = "WATTLEDGER_TESTS_BEGIN_UNTIL"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as `rest` all cases of a `sampled` test but its first, and as `slow` each test of a file that imports one of
    SLOW; put slow files first.

    xdist hands files to its workers in this order. The longest are in warehouse, publishing and ledger, so slow files
    go from the last to the first; quick files at the end keep both workers busy until the last second.
    """
    sampled = set[str]()
    for item in items:
        if item.get_closest_marker("sampled"):
            test = item.nodeid.partition("[")[0]
            if test in sampled:
                item.add_marker(pytest.mark.rest)
            sampled.add(test)
        if any(value is one for value in vars(item.module).values() for one in SLOW):
            item.add_marker(pytest.mark.slow)
        for fixture, parts in {**NEEDED_BY, **getattr(item.module, "NEEDED_BY", {})}.items():
            if fixture in item.fixturenames:
                item.add_marker(pytest.mark.needs(*parts))
    slow_files = sorted({item.path for item in items if item.get_closest_marker("slow")}, reverse=True)
    if until := os.environ.get(BEGIN_UNTIL):
        random.Random(until).shuffle(slow_files)
    places = {path: place for place, path in enumerate(slow_files)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that needs a part which is not on this machine, before any of its fixtures; fail it where CI=true.
    Skip all tests once it is too late for them."""
    if time.time() > float(os.environ.get(BEGIN_UNTIL, "inf")):
        pytest.skip(f"not begun: it was later than {BEGIN_UNTIL}")
    parts = frozenset(part for mark in item.iter_markers("needs") for part in mark.args)
    optional.declared = parts
    if missing := optional.missing(*sorted(parts)):
        if os.environ.get("CI") == "true":
            pytest.fail(missing, pytrace=False)
        pytest.skip(missing)


def pytest_runtest_teardown() -> None:
    optional.declared = None


# A book is 30 to 100 MB, and the folders are in memory: all of them were 4 GB. Those of a file's own fixtures go with
# it, unless one of its tests failed.
failed_files = set[str]()
folders_of = dict[pytest.FixtureDef[Any], set[Path]]()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        failed_files.add(report.fspath)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Note the folders that a fixture of a file makes; those of the session stay."""
    if fixturedef.scope != "module":
        return (yield)
    base = request.getfixturevalue("tmp_path_factory").getbasetemp()
    before = set(base.iterdir())
    try:
        return (yield)
    finally:
        folders_of.setdefault(fixturedef, set()).update(set(base.iterdir()) - before)


def pytest_fixture_post_finalizer(fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> None:
    for folder in folders_of.pop(fixturedef, ()):
        if request.node.nodeid not in failed_files:
            shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(autouse=True)
def own_instance() -> Iterator[None]:
    """A test that calls the command line in its own process leaves no choice of Dagster's instance to the next ones."""
    names = ("DAGSTER_HOME", SHARED_INSTANCE)
    before = {name: os.environ.get(name) for name in names}
    yield
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@pytest.fixture
def held(tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """An open warehouse with empty tables."""
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
