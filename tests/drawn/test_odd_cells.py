"""Odd labels and samples, hundreds in one booking, spoil nothing but themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.drawn.findings import Booked, findings, healthy
from tests.drawn.odd_cells import Cell, Oddity, drawn
from tests.drawn.odd_values import OddNumbers

SEED, CELLS = 1, 300

# What once stopped a run or changed a healthy row, each a cell of its own: grown by each failure.
FOUND = [
    Cell("found-0", Oddity("dcgm_exporter", label="GPU_I_PROFILE", text="1c.3g.40gb")),
    Cell("found-1", Oddity("dcgm_exporter", label="GPU_I_PROFILE", text="N/A")),
    Cell("found-2", engine=Oddity("sglang", label="tp_rank", text="tp0")),
    Cell("found-3", engine=Oddity("sglang", label="pp_rank", text="stage1")),
    Cell("found-4", engine=Oddity("vllm", metric="process_start_time_seconds", samples=OddNumbers("every", 1.79e18))),
    Cell("found-5", Oddity("snmp_exporter", label="infeedIndex", text="true")),  # a second label of the same rank
    # Without its pod the engine claimed every board whose container had the same name.
    Cell("found-6", engine=Oddity("llamacpp", label="pod", text="")),
    # A host with a name of ours, which the book keeps: the balance wrote it in quotes.
    Cell("found-7", Oddity("ipmi_exporter", label="nodename", text="__unknown__")),
    Cell("found-8", Oddity("node_exporter", label="nodename", text="__unknown__")),
]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Booked:
    return healthy(tmp_path_factory.mktemp("alone"))


def test_the_same_seed_draws_the_same_cells_and_300_have_every_label_and_metric() -> None:
    cells = drawn(SEED, CELLS)
    assert list(map(str, cells)) == list(map(str, drawn(SEED, CELLS)))
    assert len({str(cell.board).partition("=")[0].partition(":")[0] for cell in cells}) > 100


@pytest.mark.long
def test_odd_cells_neither_stop_the_run_nor_change_a_digit_of_healthy_ones(alone: Booked, tmp_path: Path) -> None:
    assert list(findings(tmp_path, alone, [*FOUND, *drawn(SEED, CELLS)])) == []
