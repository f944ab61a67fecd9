"""`make drawn`: files, cells and worlds of a fresh seed, read and booked; prints the seed and what is wrong."""

from __future__ import annotations

import argparse
import re
import secrets
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, count, islice
from pathlib import Path

from tests.drawn import known_logs, odd_files, twins
from tests.drawn.cells import Cell
from tests.drawn.cells import drawn as draw_world
from tests.drawn.findings import findings, healthy
from tests.drawn.genes import GRIDS, grid_of
from tests.drawn.mutations import not_found
from tests.drawn.odd_cells import drawn
from tests.drawn.operated import operated_worlds
from tests.drawn.reduction import booked, reduced
from tests.drawn.verdicts import counted


def main() -> int:
    """0 where nothing is wrong with the book, 1 where something is."""
    parser = argparse.ArgumentParser(prog="make drawn", description=__doc__)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6), help="repeats what an earlier run drew")
    parser.add_argument("--files", type=int, default=30, help="how many odd files each reader reads (30)")
    parser.add_argument("--cells", type=int, default=300, help="how many odd cells one booking has (300)")
    parser.add_argument("--worlds", type=int, default=100, help="how many worlds another booking has (100)")
    parser.add_argument("--harmless", action="store_true", help="draw only worlds that no row may be marked of")
    parser.add_argument("--genes", default="", help="of every world: pages=two workers,server=one (all else drawn)")
    parser.add_argument("--reduce", action="store_true", help="find the fewest genes of each world that is wrong")
    parser.add_argument("--grid", type=int, choices=GRIDS, help="seconds of an interval of the ledger (drawn)")
    parser.add_argument("--mutations", action="store_true", help="book the worlds by each broken rule, too")
    parser.add_argument("--operators", action="store_true", help="only worlds in which operators act, and their twins")
    chosen = parser.parse_args()
    grid_seconds = chosen.grid or grid_of(chosen.seed)
    if chosen.operators:
        print(f"seed {chosen.seed}: {chosen.worlds} operated worlds in intervals of {grid_seconds} s", flush=True)
        return _ended(chosen.seed, _operated(chosen.seed, chosen.worlds, grid_seconds, is_reduced=chosen.reduce))
    print(
        f"seed {chosen.seed}: {chosen.files} odd files of each of {len(odd_files.ALL)} kinds and logs of each of"
        f" {len(known_logs.ALL)}, {chosen.cells} cells,"
        f" each with an odd board and an odd engine, and {chosen.worlds} worlds in intervals of {grid_seconds} s",
        flush=True,
    )
    worlds = _worlds(
        list(islice(_drawn(chosen.seed, _genes(chosen.genes), is_harmless=chosen.harmless), chosen.worlds)),
        grid_seconds,
        is_reduced=chosen.reduce,
        is_mutated=chosen.mutations,
    )
    return _ended(chosen.seed, chain(_odd(chosen.seed, chosen.files, chosen.cells), worlds))


def _ended(seed: int, findings: Iterator[str]) -> int:
    """Print the findings; 1 where there is one."""
    found = 0
    for finding in findings:
        print(f"- {finding}", flush=True)
        found += 1
    again = f"make drawn SEED={seed} ARGS='{' '.join(sys.argv[1:])}'"
    print(f"{found} findings; the same again: {again}" if found else "nothing wrong was found")
    return 1 if found else 0


def _operated(seed: int, worlds: int, grid_seconds: int, *, is_reduced: bool) -> Iterator[str]:
    """Which operated worlds are neither right nor marked, and which rows are marked that no operator touched."""
    found = twins.compared(operated_worlds(seed, worlds), grid_seconds)
    failing = [one for one in found if one.wrong]
    print(twins.counted(found), *twins.by_operator(failing), sep="\n", flush=True)
    yield from map(str, failing)
    yield from (f"falsely marked: {one.cell}: {', '.join(one.falsely_marked)}" for one in found if one.falsely_marked)
    if is_reduced:
        yield from (f"reduced to {one}" for one in twins.reduced(failing, grid_seconds))


def _odd(seed: int, files: int, cells: int) -> Iterator[str]:
    """What is wrong with the readers of odd files, and with healthy cells beside odd ones."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as logs:
        yield from map(str, odd_files.findings(seed, files, Path(folder)) if files else ())
        yield from known_logs.findings(seed, files, Path(logs)) if files else ()
        if cells:
            alone = healthy(Path(folder, "alone"))
            yield from map(str, findings(Path(folder, "among"), alone, drawn(seed, cells)))


def _drawn(seed: int, genes: Mapping[str, str], *, is_harmless: bool) -> Iterator[Cell]:
    worlds = (draw_world(seed, number, **genes) for number in count())
    return filter(lambda world: world.is_harmless or not is_harmless, worlds)


def _genes(text: str) -> dict[str, str]:
    """Gene -> value."""
    return dict(one.split("=", 1) for one in re.split(r",(?=[a-z ]+=)", text) if one)


def _worlds(worlds: Sequence[Cell], grid_seconds: int, *, is_reduced: bool, is_mutated: bool) -> Iterator[str]:
    """Which worlds the book has wrong without a check that names them, or named without a reason; and which broken
    rules none of them shows."""
    found = booked(worlds, grid_seconds)
    failing = [verdict for verdict in found if verdict.kind in ("wrong", "false alarm")]
    print(f"worlds: {counted(found)}", flush=True)
    yield from map(str, failing)
    if is_reduced:
        for genes, verdict in {one.cell.odd(): one for one in reduced(failing, grid_seconds)}.items():
            yield f"reduced to {genes}: {verdict}"
    if is_mutated:
        yield from not_found(found, grid_seconds)


if __name__ == "__main__":
    sys.exit(main())
