"""A booking that runs out of memory is built once more with most of the machine's, unless a limit is stated."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest

from pipelines.booking import dbt_run

FINE = SimpleNamespace(status="success", message="OK")
# As a run of 62 dates of 100 boards without tokens ended; the sizes are examples.
OUT = SimpleNamespace(
    status="error",
    message="Runtime Error in model int_attributed_energy (models/attribution/steps/int_attributed_energy.sql)\n"
    "  Out of Memory Error: failed to pin block of size 256.0 KiB (2.7 GiB/2.7 GiB used)",
)
WRONG = SimpleNamespace(status="error", message="Binder Error: no such column")


def built(*results: list[Any]) -> tuple[list[Any], list[Mapping[str, str]]]:
    """What a build returns that yields these results in turn, and what it got to set each time."""
    set_of: list[Mapping[str, str]] = []
    left = list(results)

    def build(more: Mapping[str, str]) -> list[Any]:
        set_of.append(more)
        return left.pop(0)

    return dbt_run.with_memory_enough(build), set_of


def test_models_that_run_out_of_memory_get_most_of_the_machines(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("WATTLEDGER_MEMORY_LIMIT", raising=False)
    with caplog.at_level(logging.WARNING):
        found = built([FINE, OUT], [FINE, FINE])
    assert found == ([FINE, FINE], [{}, {"WATTLEDGER_MEMORY_LIMIT": "80%"}])
    assert caplog.messages == [
        "models need more than 3 GB of memory for these dates: built once more with up to 80% of the machine's."
        " WATTLEDGER_MEMORY_LIMIT sets a limit; fewer dates at once need less"
    ]


@pytest.mark.parametrize("results", [[FINE], [WRONG], [SimpleNamespace(status="warn", message=OUT.message)]])
def test_what_memory_does_not_mend_is_built_once(monkeypatch: pytest.MonkeyPatch, results: list[Any]) -> None:
    monkeypatch.delenv("WATTLEDGER_MEMORY_LIMIT", raising=False)
    assert built(results) == (results, [{}])


def test_a_stated_limit_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATTLEDGER_MEMORY_LIMIT", "2GB")
    assert built([OUT]) == ([OUT], [{}])


def test_the_words_and_the_limit_are_duckdbs() -> None:
    with duckdb.connect() as connection:
        connection.execute("set temp_directory = ''; set memory_limit = '20MB'")
        with pytest.raises(duckdb.OutOfMemoryException, match=dbt_run.OUT_OF_MEMORY):
            connection.execute(
                "select count(*) from (select distinct i::varchar || repeat('x', 99) from range(3000000) as t (i))"
            )
        connection.execute(f"set memory_limit = '{dbt_run.MOST_MEMORY}'")
        ((limit,),) = connection.execute("select current_setting('memory_limit')").fetchall()
    assert limit.endswith("GiB")
