"""dbt in this process: the project is parsed once and run as often as a run needs.

A process of its own pays for Python, dbt's imports and the parsed project each time, three seconds before the first
model (docs/bench.md). Add here what every call of dbt needs. Keep out which models are built when (`ledger`).
"""

from __future__ import annotations

import atexit
import gc
import json
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pipelines.booking.dbt_results import is_error
from pipelines.fleet.places import DBT_PROJECT
from pipelines.warehouse import progress

if TYPE_CHECKING:
    from dbt.artifacts.schemas.run import RunExecutionResult
    from dbt.contracts.graph.manifest import Manifest

# Two models at a time: while one waits for DuckDB, dbt prepares the other.
THREADS = 2
# What the profile reads of the environment while the project is parsed. After a change of its values dbt parses
# every file anew, for seven seconds; of what is parsed they are only the name of the file, without its folder.
PARSED_WITH = {"WATTLEDGER_WAREHOUSE": "warehouse.duckdb", "WATTLEDGER_THREADS": "1", "WATTLEDGER_MEMORY_LIMIT": "1GB"}


# DuckDB's words, and the variable for the memory that models have. Without it they have the profile's 3 GB, and where
# that is too little, in a second build, what DuckDB takes of a machine by itself.
OUT_OF_MEMORY = "Out of Memory Error"
MEMORY_LIMIT = "WATTLEDGER_MEMORY_LIMIT"
MOST_MEMORY = "80%"

logger = logging.getLogger(__name__)


class DbtError(Exception):
    """dbt could not run at all; the message is dbt's own."""


def with_memory_enough(build: Callable[[Mapping[str, str]], list[Any]]) -> list[Any]:
    """The results of `build`, which gets what to set in the environment; of a second build with most of the machine's
    memory where the first ran out of it. Who states a limit has stated it."""
    results = build({})
    is_out = any(is_error(one) and OUT_OF_MEMORY in (one.message or "") for one in results)
    if not is_out or os.environ.get(MEMORY_LIMIT):
        return results
    logger.warning(
        "models need more than 3 GB of memory for these dates: built once more with up to %s of the machine's. %s sets"
        " a limit; fewer dates at once need less",
        MOST_MEMORY,
        MEMORY_LIMIT,
    )
    return build({MEMORY_LIMIT: MOST_MEMORY})


def run_dbt(
    words: Sequence[str],
    variables: Mapping[str, Any],
    environment: Mapping[str, str],
    target: Path,
    *,
    project: Path = DBT_PROJECT,
    parsed: Path | None = None,
    threads: int = THREADS,
    on_event: Callable[[Any], None] | None = None,
) -> list[Any]:
    """Run one dbt command; returns dbt's result of each node that it reached, in the order in which they ended.

    `environment` is set for the length of the run; `target` is the folder for compiled SQL, and
    `parsed` that of what dbt keeps of the parsed project (by default the project's own `target`); `on_event` is called
    with each of dbt's events. DbtError when dbt cannot begin; a node that fails is a result with its status and
    message. No connection stays open.
    """
    from dbt.adapters.duckdb.connections import DuckDBConnectionManager  # noqa: PLC0415 (dbt takes a second)
    from dbt.cli.main import dbtRunner  # noqa: PLC0415

    manifest = _parsed(project, parsed or project / "target")
    nodes: Iterable[Any] = manifest.nodes.values()
    for node in nodes:
        # dbt keeps compiled code on the manifest, and would not compile the node again in the next run.
        if getattr(node, "compiled", False):
            node.compiled, node.extra_ctes_injected, node.extra_ctes = False, False, []
    # What fails is in dbt's results; DBT_LOG_LEVEL_FILE=debug brings dbt.log back.
    level = "debug" if on_event else os.environ.get("DBT_LOG_LEVEL_FILE", "none")
    arguments = ["--no-write-json", "--log-level", "none", "--log-level-file", level, *words]
    arguments += ["--threads", str(threads), "--vars", json.dumps(variables), *_folders(project, target)]
    try:
        with _set(environment), _interrupts_as_dbt_knows_them():
            done = dbtRunner(manifest=manifest, callbacks=[on_event or progress.of_dbt]).invoke(arguments)
    finally:
        DuckDBConnectionManager.close_all_connections()  # type: ignore[no-untyped-call]  # dbt-duckdb's own has no types
        gc.collect()  # the file stays locked for other processes while a handle lives
    if isinstance(done.exception, Exception):
        raise DbtError(f"dbt did not run: {done.exception}") from done.exception
    if done.exception is not None:
        raise done.exception
    return list(cast("RunExecutionResult", done.result).results)


def parse(project: Path, parsed: Path, *options: str) -> Manifest:
    """Parse the project, of which an unchanged file is read from what an earlier parse left in the folder `parsed`;
    writes manifest.json there."""
    from dbt.cli.main import dbtRunner  # noqa: PLC0415

    with _set(PARSED_WITH):
        done = dbtRunner().invoke(["--quiet", *options, "parse", *_folders(project, parsed)])
    if not done.success:
        raise DbtError(f"the dbt project in {project} does not parse: {done.exception}")
    return cast("Manifest", done.result)


@cache
def _parsed(project: Path, parsed: Path) -> Manifest:
    """The project as dbt has parsed it, once per process.

    Its millions of objects stay, so the collection of garbage after each run need not look at them again.
    """
    manifest = parse(project, parsed, "--no-write-json")
    gc.collect()
    gc.freeze()
    # What is frozen when Python ends is never freed, and DuckDB's binding calls that a leak.
    atexit.register(gc.unfreeze)
    return manifest


def _folders(project: Path, target: Path) -> list[str]:
    folders = {"--project-dir": project, "--profiles-dir": project, "--target-path": target, "--log-path": target}
    return [word for option, folder in folders.items() for word in (option, os.fspath(folder))]


@contextmanager
def _set(environment: Mapping[str, str]) -> Iterator[None]:
    """These variables, and afterwards what was there before."""
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _interrupts_as_dbt_knows_them() -> Iterator[None]:
    """Ctrl-C and a termination raise KeyboardInterrupt: on Dagster's own exception dbt's threads go on."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(one, signal.default_int_handler) for one in signals]
    try:
        yield
    finally:
        for one, handler in zip(signals, before, strict=True):
            signal.signal(one, handler)
