"""`make drawn`: odd files and odd cells of a fresh seed are read and booked; prints the seed and what is wrong."""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
from pathlib import Path

from tests.drawn import odd_files
from tests.drawn.cells import EVENTS, plant
from tests.drawn.cells import drawn as draw_world
from tests.drawn.findings import findings, healthy
from tests.drawn.odd_cells import drawn
from tests.drawn.verdicts import wrong_figures
from tests.drawn.worlds import TOPOLOGIES


def main() -> int:
    """0 where nothing is wrong with the book, 1 where something is."""
    parser = argparse.ArgumentParser(prog="make drawn", description=__doc__)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6), help="repeats what an earlier run drew")
    parser.add_argument("--cells", type=int, default=300, help="how many cells one booking has (300)")
    parser.add_argument("--files", type=int, default=30, help="how many odd files each reader reads (30)")
    parser.add_argument("--worlds", action="store_true", help="book worlds of all genes instead, and compare the truth")
    chosen = parser.parse_args()
    if chosen.worlds:
        return _worlds(chosen.seed)
    print(
        f"seed {chosen.seed}: {chosen.files} odd files of each of {len(odd_files.ALL)} kinds, and {chosen.cells} cells,"
        " each with an odd board and an odd engine",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as folder:
        found = list(odd_files.findings(chosen.seed, chosen.files, Path(folder)))
        alone = healthy(Path(folder, "alone"))
        found += list(findings(Path(folder, "among"), alone, drawn(chosen.seed, chosen.cells)))
    for finding in found:
        print(f"- {finding}")
    again = f"make drawn SEED={chosen.seed} ARGS='--cells {chosen.cells} --files {chosen.files}'"
    print(f"{len(found)} findings; the same again: {again}" if found else "nothing wrong was found")
    return 1 if found else 0


def _worlds(seed: int) -> int:
    """One world of each topology and event, and which of their figures are wrong."""
    genes = [(topology, event) for topology in TOPOLOGIES for event in EVENTS]
    worlds = [draw_world(seed, number, *of_world) for number, of_world in enumerate(genes)]
    print(f"seed {seed}: {len(worlds)} worlds, one of each topology and event", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        book = plant(Path(folder), worlds, marts=("model_daily",))
        book.run()
        found = list(wrong_figures(book, worlds))
    for finding in found:
        print(f"- {finding}")
    print(f"{len(found)} figures are wrong; the same again: make drawn SEED={seed} ARGS=--worlds")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
