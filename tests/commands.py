"""Wattledger's command line in a process that was forked from one with its packages loaded.

Loading Dagster, dbt and Great Expectations is a quarter of a small run's processor time, and tests run the command line
a hundred times. Everything after that is as in `python -m pipelines …`: arguments, environment, standard output and
error, exit status. Tests of how Python itself starts, of signals and of a killed run start Python instead.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.machinery import ModuleSpec
from multiprocessing.context import ForkServerContext
from pathlib import Path

from tests import metered

# Where it is installed (`make test-spark`), pyspark takes this process, like xdist's workers, for its own doctests and
# ends it.
if sys.modules["__main__"].__spec__ is None:
    sys.modules["__main__"].__spec__ = ModuleSpec("__main__", None)

PROJECT = Path(__file__).parents[1]


def run(
    arguments: Sequence[str], environment: Mapping[str, str], timeout: float, program: str = ""
) -> subprocess.CompletedProcess[str]:
    """`python -m pipelines` with these arguments, in the project's folder; TimeoutExpired after `timeout` seconds.
    `program` is run before, in the same process: it may patch what the command does."""
    with tempfile.TemporaryDirectory() as folder:
        out, err, used = (Path(folder) / name for name in ("out", "err", "used"))
        files = (str(out), str(err), str(used))
        process = _context().Process(target=_run, args=(list(arguments), dict(environment), files, program))
        metered.counts["commands"] += 1
        process.start()
        process.join(timeout)
        if used.exists():
            metered.seconds_elsewhere.append(float(used.read_text()))
        if process.is_alive():
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(list(arguments), timeout, out.read_bytes(), err.read_bytes())
        return subprocess.CompletedProcess(
            list(arguments), process.exitcode or 0, out.read_text(encoding="utf-8"), err.read_text(encoding="utf-8")
        )


@cache
def _context() -> ForkServerContext:
    """The server's context. It looks for what it loads in the folder of the process that starts it."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.commands", "tests.loaded"])
    return context


def _run(arguments: list[str], environment: dict[str, str], files: tuple[str, str, str], program: str) -> None:
    """In the forked process: become `python -m pipelines`, and end as it does. Only it knows its processor seconds: the
    process that waits for it is the server's."""
    out, err, used = files
    for number, path in ((1, out), (2, err)):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, number)
        os.close(file)
    os.chdir(PROJECT)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["pipelines", *arguments]
    status: object = 0
    try:
        exec(program, {})
        runpy.run_module("pipelines", run_name="__main__", alter_sys=True)
    except SystemExit as exit:
        status = exit.code
    except BaseException:
        traceback.print_exc()
        status = 1
    if isinstance(status, str):
        print(status, file=sys.stderr)
        status = 1
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    Path(used).write_text(str(metered.core_seconds()))
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(int(status or 0))  # type: ignore[call-overload]
