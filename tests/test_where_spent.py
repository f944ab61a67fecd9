"""The bench's table of where a run's seconds go: which part a thread is at, by the functions that it is in."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

import pytest

from bench.where_spent import DBT, EVENTS, IMPORTS, OTHER, REPORT, STATEMENTS, part_of

STEP = "/lib/dagster/_core/execution/plan/execute_step.py"
PAGE = "/project/pipelines/report/page.py"
RENDERING = "/lib/dbt/clients/jinja.py"


def frame_within(paths: tuple[str, ...]) -> FrameType:
    """The innermost of functions that call each other, each of a file of this name."""

    def innermost() -> FrameType:
        return sys._getframe(1)

    call: Callable[[], FrameType] = innermost
    for path in reversed(paths):
        scope = {"call": call}
        exec(compile("def outer(call=call): return call()", path, "exec"), scope)
        call = scope["outer"]
    return call()


@pytest.mark.parametrize(
    ("paths", "part"),
    [
        ((STEP, PAGE), REPORT),
        ((STEP, PAGE, "/lib/json/decoder.py"), REPORT),
        ((STEP, PAGE, "/lib/dagster/_core/storage/sql.py"), EVENTS),
        ((STEP, RENDERING, "<template>"), DBT),
        ((STEP, RENDERING, "/lib/dbt/adapters/duckdb/environments/local.py"), STATEMENTS),
        ((STEP, "<frozen importlib._bootstrap>", PAGE), IMPORTS),
        (("/lib/threading.py",), OTHER),
    ],
)
def test_the_innermost_known_function_decides_and_an_import_is_an_import(paths: tuple[str, ...], part: str) -> None:
    assert part_of(frame_within(paths)) == part
