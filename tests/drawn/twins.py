"""What a book has of operated worlds beside what it has of their plain twins: each figure is right, or its row is
marked for it.

Add here how a figure is compared and marked. Keep out which worlds are drawn (`operated`), and what is true of a world
(`verdicts` compares with that).
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.books import Book
from tests.drawn.cells import Cell, plant
from tests.drawn.genes import ORDINARY
from tests.drawn.operated import harmed, is_assessed, twin

MARTS = ("model_daily", "fleet_daily")
ALLOWED = 0.01
# Figure -> what it is in model_daily, and the figures of `doubt_reasons` that mark it.
FIGURES: Mapping[str, tuple[str, frozenset[str]]] = {
    "joules": ("sum(energy_joules)", frozenset({"energy"})),
    "idle joules": ("sum(idle_joules)", frozenset({"energy", "tokens"})),
    "output tokens": ("sum(output_tokens)", frozenset({"tokens"})),
    "input tokens": ("sum(input_tokens)", frozenset({"tokens"})),
    "USD of capacity": ("sum(capacity_cost_usd)", frozenset({"energy", "money"})),
    "J per output token": (
        "sum(matched_joules) / nullif(sum(matched_output_tokens), 0)",
        frozenset({"energy", "tokens"}),
    ),
}
OF_THE_SITE = "joules of the site"
ROUNDS = 12
OF_ACCOUNTS = ("requests", "engines scraped")
ALL_AT_ONCE = 6  # series of an operator that are tried one by one; of more, halves


@dataclass(frozen=True)
class Row:
    """The figures of a model, or of a site, and its reasons of doubt with the figure of each."""

    figures: Mapping[str, float | None]
    marks: frozenset[tuple[str, str]]


@dataclass(frozen=True)
class Wrong:
    """A figure that is not the twin's; `row` is the model, or the site, without the cell's name."""

    row: str
    figure: str
    found: float | None
    right: float

    def __str__(self) -> str:
        times = f"{self.found / self.right:.3g} times " if self.found is not None and self.right else ""
        return f"{self.row} has {self.found} {self.figure}, {times}what is right: {self.right}"


@dataclass(frozen=True)
class Comparison:
    """An operated world: what is wrong and unmarked, what is wrong and marked, and how many rows are unharmed, and of
    them marked."""

    cell: Cell
    wrong: tuple[Wrong, ...]
    marked: tuple[Wrong, ...]
    unharmed: int = 0
    falsely_marked: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.cell}: {'; '.join(map(str, self.wrong))}"

    def shape(self) -> str:
        """The world, its operators and the figures that are wrong and unmarked."""
        kinds = ", ".join(operator.kind for operator in self.cell.operators)
        return f"{self.cell.name}: {kinds}: {', '.join(sorted({one.figure for one in self.wrong}))}"


def compared(cells: Sequence[Cell], grid_seconds: int) -> list[Comparison]:
    """Book these worlds and a twin of each plain world together, and compare them."""
    with tempfile.TemporaryDirectory() as folder:
        twins: dict[str, Cell] = {}
        for cell in cells:
            twins.setdefault(_plain(cell), twin(cell, len(twins)))
        book = plant(Path(folder), [*cells, *twins.values()], marts=MARTS, grid_seconds=grid_seconds)
        book.run()
        rows = _rows(book)
    of_twins = {name: _own(rows, of) for name, of in twins.items()}
    found = [_compared(cell, _own(rows, cell), of_twins[_plain(cell)]) for cell in cells]
    return found + [_alone(of, of_twins[name]) for name, of in twins.items()]


def counted(found: Sequence[Comparison]) -> str:
    """How many worlds are right, marked and wrong, and how many of unharmed rows are marked."""
    operated = [one for one in found if one.cell.operators]
    wrong = sum(bool(one.wrong) for one in operated)
    marked = sum(bool(one.marked) and not one.wrong for one in operated)
    rows, false = sum(one.unharmed for one in found), sum(len(one.falsely_marked) for one in found)
    return (
        f"{len(operated)} operated worlds: {len(operated) - wrong - marked} right, {marked} marked, {wrong} wrong and"
        f" unmarked; of {rows} unharmed rows {false} are marked or NULL"
    )


def by_operator(found: Sequence[Comparison]) -> Iterator[str]:
    """Of worlds that are wrong: operator and metric, figure, how many worlds, and how many times what is right."""
    times: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for one in found:
        of = " + ".join(f"{operator.kind} of {', '.join(operator.metrics())}" for operator in one.cell.operators)
        for wrong in one.wrong:
            factor = f"{wrong.found / wrong.right:.3g}" if wrong.found is not None and wrong.right else str(wrong.found)
            times[of, wrong.figure][one.cell.name] = factor
    for (of, figure), factors in sorted(times.items(), key=lambda one: (-len(one[1]), one[0])):
        yield f"{of}: {figure}: {len(factors)} worlds, times what is right: {', '.join(sorted(factors.values()))}"


def _plain(cell: Cell) -> str:
    return f"{cell.seed}/{cell.number}/{sorted(cell.genes.items())}"


def _rows(book: Book) -> dict[str, Row]:
    """Model or site -> its row."""
    of_reason = dict(book.query("select reason, figure from reference.doubt_reasons"))
    found: dict[str, Row] = {}
    asked = {
        "model": ("model_daily", {name: sql for name, (sql, _) in FIGURES.items()}),
        "site": ("fleet_daily", {OF_THE_SITE: "sum(energy_joules)"}),
    }
    for name, (table, figures) in asked.items():
        columns = ", ".join(f"cast({sql} as double)" for sql in figures.values())
        query = f"select {name}, string_agg(doubt_reasons, ','), {columns} from marts.{table} group by {name}"
        for entity, reasons, *values in book.query(query):
            marks = frozenset((one, of_reason[one]) for one in (reasons or "").split(",") if one)
            found[entity] = Row(dict(zip(figures, values, strict=True)), marks)
    return found


def _own(rows: Mapping[str, Row], cell: Cell) -> dict[str, Row]:
    """The rows of a cell, without its name."""
    return {
        name.removeprefix(f"{cell.name}-"): rows[name]
        for name in (*cell.world.truths(), f"{cell.name}-site")
        if name in rows
    }


def compared_rows(found: Mapping[str, Row], right: Mapping[str, Row]) -> tuple[list[Wrong], list[Wrong]]:
    """The figures that are not the twin's: those that are not marked, and those that are."""
    wrong: list[Wrong] = []
    marked: list[Wrong] = []
    for name, row in right.items():
        has = found.get(name)
        for figure, value in row.figures.items():
            shown = has.figures[figure] if has else None
            if value is None or (shown is not None and abs(shown - value) <= ALLOWED * abs(value)):
                continue
            marking = FIGURES[figure][1] if figure in FIGURES else {"energy"}
            # A row that is missing marks nothing, nor does a doubt that the twin has as well.
            is_marked = has is not None and (shown is None or any(of in marking for _, of in has.marks - row.marks))
            (marked if is_marked else wrong).append(Wrong(name, figure, shown, value))
    return wrong, marked


def _compared(cell: Cell, found: Mapping[str, Row], right: Mapping[str, Row]) -> Comparison:
    wrong, marked = compared_rows(found, right)
    unharmed = {model.removeprefix(f"{cell.name}-") for model in set(cell.world.truths()) - harmed(cell)}
    of_twin = {name: row for name, row in right.items() if name in unharmed}
    return Comparison(cell, tuple(wrong), tuple(marked), len(of_twin), _falsely_marked(found, of_twin))


def _alone(cell: Cell, found: Mapping[str, Row]) -> Comparison:
    """A twin: where it is harmless, no row of its models may be marked."""
    models = [model.removeprefix(f"{cell.name}-") for model in cell.world.truths()] if cell.is_harmless else []
    clean = Row(dict.fromkeys(FIGURES, 1.0), frozenset())
    return Comparison(cell, (), (), len(models), _falsely_marked(found, dict.fromkeys(models, clean)))


def _falsely_marked(found: Mapping[str, Row], expected: Mapping[str, Row]) -> tuple[str, ...]:
    """The rows that are missing, or NULL or marked where it is not expected."""
    lines = []
    for name, right in sorted(expected.items()):
        row = found.get(name)
        marks = sorted(reason for reason, _ in row.marks - right.marks) if row else ["no row"]
        nulls = [
            figure
            for figure, value in right.figures.items()
            if value is not None and row and row.figures[figure] is None
        ]
        if marks or nulls:
            lines.append(f"{name}: {', '.join((*marks, *(f'no {figure}' for figure in nulls)))}")
    return tuple(lines)


# --- reduction --------------------------------------------------------------------------------------------------------


def reduced(found: Sequence[Comparison], grid_seconds: int) -> list[Comparison]:
    """Each wrong world with as few operators, series and odd genes as leave one of its figures wrong and unmarked.

    In each round everything that could be left out of each world is left out by itself, all in one booking; the first
    that is still wrong goes on.
    """
    left = list(found)
    for _ in range(ROUNDS):
        tried = [(place, cell) for place, one in enumerate(left) for cell in _smaller(one.cell)]
        named = [cell.with_genes(10_000 + number) for number, (_, cell) in enumerate(tried)]
        better: dict[int, Comparison] = {}
        for (place, _), one in zip(tried, compared(named, grid_seconds) if named else (), strict=False):
            if place not in better and {wrong.figure for wrong in one.wrong} & {w.figure for w in left[place].wrong}:
                better[place] = one
        if not better:
            break
        left = [better.get(place, one) for place, one in enumerate(left)]
    return left


def _smaller(cell: Cell) -> list[Cell]:
    """The same world with all genes ordinary but those of its accounts, or with one operator, some series or one odd
    gene less."""
    operators = cell.operators
    odd = {
        gene: ORDINARY[gene]
        for gene, value in cell.genes.items()
        if gene not in OF_ACCOUNTS and value != ORDINARY[gene]
    }
    found = [cell.with_genes(cell.number, **odd)] if len(odd) > 1 else []
    for place, operator in enumerate(operators):
        before, after = operators[:place], operators[place + 1 :]
        if before or after:
            found.append(replace(cell, operators=before + after))
        keys = sorted(operator.chosen)
        half = len(keys) // 2
        parts = [[key] for key in keys] if len(keys) <= ALL_AT_ONCE else [keys[:half], keys[half:]]
        for part in parts if len(keys) > 1 else ():
            found.append(replace(cell, operators=(*before, replace(operator, chosen=frozenset(part)), *after)))
    found += [cell.with_genes(cell.number, **{gene: value}) for gene, value in odd.items()]
    return [one for one in found if is_assessed(one)]
