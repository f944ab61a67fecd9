"""Ten nights of a fleet on a real VictoriaMetrics: what a night adds to each layer of its data does not grow."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from bench import nights
from tests import commands
from tests.books import environment

# In the warehouse a night may take, or free, a block of 256 KiB or two more than another.
BLOCKS_BYTES = {layer: 2 << 18 for layer in ("raw", "intermediate", "marts", "free in the warehouse")}


def loaded(words: Sequence[str], variables: Mapping[str, str]) -> tuple[float, int, str]:
    """The command in a process that has its packages loaded."""
    began = time.monotonic()
    done = commands.run(words, environment(Path(variables["WATTLEDGER_DATA"]), **variables), timeout=900)
    return time.monotonic() - began, done.returncode, done.stdout + done.stderr


@pytest.mark.rest
@pytest.mark.needs("victoria-metrics")
def test_what_a_night_adds_to_each_layer_does_not_grow(tmp_path: Path) -> None:
    found = list(nights.nights_of(tmp_path, nights=10, history=28, seed=1, command=loaded))
    print("\n".join(nights.lines(found)))
    print("seconds:", " ".join(f"{night.seconds:.1f}" for night in found))
    assert [night.number for night in found] == list(range(11))
    assert found[0].status == found[10].status == 0
    first, last = nights.added(found[:6]), nights.added(found[5:])
    assert {"raw", "intermediate", "marts", "free in the warehouse", "publications", "history"} <= first.keys()
    assert {
        layer: (first[layer], last[layer])
        for layer in last
        if last[layer] > 1.1 * first[layer] + BLOCKS_BYTES.get(layer, 0)
    } == {}
