"""A book that a model cannot make of one label or sample: the series is left out on both sides, and all else is booked.

Staging reads both safely by now, so a copy of the dbt project casts them unsafely.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pipelines.booking import refused_series
from tests.books import LEDGER, Book, broken_project
from tests.planted import DAY, ENERGY, INPUT, OUTPUT, WATTS, Series, board, plant, pod, rising, steady, vllm

NEXT = DAY + timedelta(days=1)
LABEL = (
    "models/staging/stg_series.sql",
    "        described.container,\n",
    "        cast(cast(described.container as integer) as varchar) as container,\n",
)
SAMPLE = (
    "models/staging/stg_series_days.sql",
    "        chunks.rejects,\n",
    "        case when cast(chunks.last_value * 1e6 as bigint) >= 0 then chunks.rejects end as rejects,\n",
)


def engine(name: str, container: str, tokens: float) -> list[Series]:
    """A board at 300 W with an engine, of which every label is sound but perhaps its container's."""
    labels = pod(name, container=container)
    return [
        (ENERGY, board(f"GPU-{name}", "n1", **labels), rising(300_000)),
        *((metric, vllm(name, name, container=container), rising(tokens)) for metric in (INPUT, OUTPUT)),
    ]


HEALTHY = engine("a", "1", 10) + engine("b", "2", 20)
ODD_LABELS = engine("odd", "tp0", 30) + engine("odder", "stage1", 40)
# A gauge in nanowatts beside the board's own counter.
ODD_SAMPLE = [(WATTS, board("GPU-a", "n1", **pod("a", container="1")), steady(3e14))]


def built(book: Book) -> tuple[list[Any], int]:
    """Land and build as the asset does; dbt's results of the last build, and how many builds there were."""
    book.land(DAY, NEXT)
    book.dbt("seed")
    builds = []

    def build() -> list[Any]:
        builds.append("run")
        return book.dbt("run", "--select", *(f"+{mart}" for mart in LEDGER), dates=(DAY, NEXT), is_expected=False)

    return refused_series.built(book.fleet.warehouse, DAY, NEXT, "test", build), len(builds)


def rows(book: Book, where: str) -> list[tuple]:
    ledgers = [
        f"select date, meter, model, interval_start_at, energy_joules, productive_joules from marts.energy_ledger"
        f" where {where}",
        f"select date, engine, model, interval_start_at, token_class, tokens from marts.token_ledger where {where}",
    ]
    return [row for query in ledgers for row in book.query(f"{query} order by all")]


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Book:
    folder = tmp_path_factory.mktemp("healthy")
    book = replace(plant(folder, HEALTHY, marts=LEDGER), project=broken_project(folder, *LABEL))
    results, builds = built(book)
    # The innocent twin: nothing fails, so nothing is built twice and nothing is refused.
    assert ({str(one.status) for one in results}, builds) == ({"success"}, 1)
    assert book.query("from raw.refused_series") == []
    return book


@pytest.mark.rest
@pytest.mark.parametrize(
    ("odd", "plan", "refused"),
    [
        (
            ODD_LABELS,
            LABEL,
            [(metric, "container", value) for value in ("stage1", "tp0") for metric in sorted((ENERGY, INPUT, OUTPUT))],
        ),
        (ODD_SAMPLE, SAMPLE, [(WATTS, None, "300000000000000.0")]),
    ],
    ids=["two labels", "a sample"],
)
def test_what_a_model_cannot_take_is_left_out_and_all_else_is_booked(
    tmp_path: Path, healthy: Book, odd: Sequence[Series], plan: tuple[str, str, str], refused: list[tuple]
) -> None:
    book = replace(plant(tmp_path, [*HEALTHY, *odd], marts=LEDGER), project=broken_project(tmp_path, *plan))
    results, builds = built(book)
    assert ({str(one.status) for one in results}, builds) == ({"success"}, 1 + len({value for *_, value in refused}))
    assert book.query("select metric, label, value from raw.refused_series order by value, metric") == refused
    assert set(book.query("select model, run_id from raw.refused_series")) == {(Path(plan[0]).stem, "test")}
    # Neither side of the balance has them, and no healthy row has another digit.
    for balance, column in (("reconciliation_daily", "booked_joules"), ("token_reconciliation_daily", "booked_tokens")):
        difference = column.replace("booked", "difference")
        assert book.query(
            f"select count({column}) > 0, count({column}) = count(*), max(abs({difference})) < 1e-3"
            f" from marts.{balance}"
        ) == [(True, True, True)]
    assert book.query("select count(*) from marts.energy_ledger where device_uuid like '%odd%'") == [(0,)]
    assert rows(book, "model in ('a', 'b')") == rows(healthy, "model in ('a', 'b')") != []


def test_a_value_of_no_series_is_built_once_and_reported(tmp_path: Path) -> None:
    project = broken_project(
        tmp_path, LABEL[0], LABEL[1], "        cast(cast('priceless' as integer) as varchar) as container,\n"
    )
    book = replace(plant(tmp_path, HEALTHY, marts=LEDGER), project=project)
    results, builds = built(book)
    failed = {one.node.name: one.message for one in results if str(one.status) == "error"}
    assert (list(failed), builds) == (["stg_series"], 1)
    assert "Could not convert string 'priceless' to INT32" in failed["stg_series"]
