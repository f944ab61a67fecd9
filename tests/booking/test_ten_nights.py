"""Ten nights of a fleet on a real VictoriaMetrics: what a night adds to each layer of its data does not grow."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from bench import nights
from tests import commands
from tests.books import environment

# In the warehouse a night may take, or free, a block of 256 KiB or two more than another; in a folder one of 4 KiB.
BLOCKS_BYTES = dict.fromkeys(("raw", "intermediate", "marts", "free in the warehouse"), 2 << 18)
BLOCK_BYTES = 1 << 12


def loaded(words: Sequence[str], variables: Mapping[str, str]) -> tuple[float, int, str]:
    """The command in a process that has its packages loaded."""
    began = time.monotonic()
    done = commands.run(words, environment(Path(variables["WATTLEDGER_DATA"]), **variables), timeout=900)
    return time.monotonic() - began, done.returncode, done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.needs("victoria-metrics")
def test_what_a_night_adds_to_each_layer_does_not_grow(tmp_path: Path) -> None:
    found = list(nights.nights_of(tmp_path, nights=10, history=28, seed=1, command=loaded))
    print("\n".join(nights.lines(found)))
    print("seconds:", " ".join(f"{night.seconds:.1f}" for night in found))
    assert [night.number for night in found] == list(range(11))
    assert found[0].status == found[10].status == 0
    first, last = nights.added(found[:6]), nights.added(found[5:])
    assert {"raw", "intermediate", "marts", "free in the warehouse", "publications", "history"} <= first.keys()
    assert grown(first, last) == {}
    assert [path for path in places_of_others(tmp_path / "data") if "published" not in path.parts] == []
    (report,) = tmp_path.rglob("published/report.html")
    assert {report.resolve(), report.with_name("wattledger.duckdb").resolve()} <= set(places_of_others(tmp_path))


def places_of_others(folder: Path) -> list[Path]:
    """What other users of the host can list or read."""
    return [path for path in folder.rglob("*") if not path.is_symlink() and path.stat().st_mode & 0o044]


def grown(first: Mapping[str, float], last: Mapping[str, float]) -> dict[str, tuple[float, float]]:
    """The layers to which the later nights add more than the first ones did."""
    return {
        layer: (first[layer], bytes_added)
        for layer, bytes_added in last.items()
        if bytes_added > 1.1 * max(first[layer], 0) + BLOCKS_BYTES.get(layer, BLOCK_BYTES)
    }


def test_a_layer_that_grows_faster_is_found_and_one_that_grows_as_before_is_none() -> None:
    first = {"history": 4e6, "marts": 0.0, "other": -90_000.0, "publications": 5e7}
    assert grown(first, {"history": 4.39e6, "marts": 5e5, "other": 0.0, "publications": 3e5}) == {}
    worse = {"history": 4.5e6, "marts": 6e5, "other": 9e4, "publications": 6e7}
    assert grown(first, worse).keys() == first.keys()
