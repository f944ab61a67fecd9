"""What is wrong with the book of odd cells beside healthy ones: a list of sentences, empty where all is well.

Healthy cells are booked twice, alone and among the odd ones, and every digit of theirs must be the same. What is odd
must not end the run, must hold back no date, and must be listed where it cannot be read. Add here a property that every
fleet must have, whatever is drawn. Keep out what is drawn (`odd_cells`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests import books, planted
from tests.books import Book
from tests.drawn import odd_values
from tests.drawn.odd_cells import Cell, Oddity

HEALTHY_CELLS = 3
RATES = [{"device_type": "a100-sxm4-80gb", "usd_per_gpu_hour": 2.0, "valid_from": planted.DAY, "source": "a contract"}]

# Table -> the rows of it that are a healthy cell's own. No column of them is a share of a remainder.
OWN_ROWS = {
    "energy_ledger": "engine like 'llm/healthy-%' or device_uuid like 'GPU-healthy-%'",
    "token_ledger": "engine like 'llm/healthy-%'",
    "series_daily": "labels like '%\"job-healthy-%'",
    "reconciliation_daily": "meter like 'GPU-healthy-%'",
    "token_reconciliation_daily": "engine like 'llm/healthy-%'",
}
OWN_FIGURES = (
    "date, model, energy_joules, productive_joules, idle_joules, unknown_joules, output_tokens, input_tokens,"
    " matched_ratio, joules_per_output_token, joules_per_total_token, idle_energy_ratio, idle_time_ratio,"
    " coverage_ratio, location_gco2e, energy_cost_usd, capacity_cost_usd, compute_cost_usd"
)

# Texts of which no rank, bound or profile can be read, and what a rank is.
NO_VALUE = frozenset(filter(None, (*odd_values.WORDS, *odd_values.STRANGE, *odd_values.TIMES_AS_TEXT))) - {"0 "}
PLAIN_RANK = re.compile(r"[0-9]{1,9}")
RANKS, VALUES = ("tp_rank", "pp_rank"), ("GPU_I_PROFILE", "le")


@dataclass(frozen=True)
class Booked:
    """One booking of cells, as a user runs it. `failure` is what the run wrote where it did not end well."""

    book: Book
    failure: str = ""


def booked(folder: Path, cells: Sequence[Cell]) -> Booked:
    """Book all cells at once with the command line."""
    book = planted.plant(folder, [one for cell in cells for one in cell.series()], cost_rates=RATES)
    done = books.later_command(folder / "fleet.yaml", folder / "data")
    return Booked(book, "" if done.returncode == 0 else f"{done.stdout}\n{done.stderr}")


def healthy(folder: Path) -> Booked:
    """The healthy cells alone, with which every booking is compared."""
    return booked(folder, _healthy_cells())


def findings(folder: Path, alone: Booked, odd: Sequence[Cell]) -> Iterator[str]:
    """Book the odd cells beside the healthy ones; a sentence for each thing that is wrong."""
    among = booked(folder, [*_healthy_cells(), *odd])
    for which, one in (("the healthy cells alone", alone), ("the odd cells", among)):
        if one.failure:
            yield f"the run of {which} did not end with 0: {one.failure}"
            return
    yield from _changed(alone.book, among.book)
    yield from (f"{name} holds back {rows[0]}" for name, rows in among.book.broken().items())
    yield from _unlisted(among.book, odd)


def _healthy_cells() -> list[Cell]:
    return [Cell(f"healthy-{number}") for number in range(HEALTHY_CELLS)]


def _changed(alone: Book, among: Book) -> Iterator[str]:
    """Rows of healthy cells that are not the same in both books."""
    questions = {table: f"select * from marts.{table} where {where}" for table, where in OWN_ROWS.items()}
    questions["model_daily"] = f"select {OWN_FIGURES} from marts.model_daily where model like 'model-healthy-%'"
    for table, question in questions.items():
        before, after = ({tuple(map(str, row)) for row in book.query(question)} for book in (alone, among))
        yield from (f"{table}: a row of a healthy cell is gone or changed: {row}" for row in sorted(before - after)[:3])
        yield from (f"{table}: a row of a healthy cell is new or changed: {row}" for row in sorted(after - before)[:3])
        if not before:
            yield f"{table}: there is no row of a healthy cell to compare"


def _unlisted(book: Book, odd: Sequence[Cell]) -> Iterator[str]:
    """What cannot be read and is not in `unreadable_values`."""
    rows = book.query(
        "select distinct series.labels, listed.metric, listed.label"
        " from marts.unreadable_values as listed inner join raw.series as series using (series_id)"
    )
    listed = {(json.loads(labels)["job"], metric, label) for labels, metric, label in rows}
    for cell in odd:
        for one in (cell.board, cell.engine):
            if one is None or not _is_unreadable(one):
                continue
            job = f"job-{cell.name}"
            if not any(of == job and (label == one.label or metric == one.metric) for of, metric, label in listed):
                yield f"marts.unreadable_values has no row of {cell.name}: {one}"


def _is_unreadable(one: Oddity) -> bool:
    """Whether no value can be read from it: worked out from the text or number alone."""
    if one.samples is not None and one.metric is not None:
        value = one.samples.value
        return value is not None and not 0 <= value < 9.2e18
    if one.label in RANKS:
        return one.text != "" and not PLAIN_RANK.fullmatch(one.text)
    return one.label in VALUES and one.text in NO_VALUE
