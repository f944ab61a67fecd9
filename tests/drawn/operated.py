"""Operated worlds: drawn worlds in which one to three operators act, each beside its plain twin, which has none.

An operator can be assessed where a second account remains: of each board a counter or a gauge that none touches, and of
each model an engine's page, a gateway or a log. Add here on what operators act, and what an account is. Keep out what
an operator does (`operators`), and what a book has of it (`twins`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count, islice
from random import Random

import numpy as np

from tests.drawn.cells import Cell, made
from tests.drawn.genes import ORDINARY, VALUES, drawn_genes
from tests.drawn.operators import (
    AMOUNTS,
    KINDS,
    LEAVES_ITS_ACCOUNT,
    NEW_LABELS,
    OF_LABELS,
    OTHER_NAMES,
    SUMS,
    Keyed,
    Operator,
    Series,
)
from tests.drawn.retellings import OUTPUT, PROMPTS, is_boards, is_engines
from tests.drawn.worlds import SPAN_SECONDS
from tests.planted import moment

# Genes that leave the second account to the operators; the others are drawn as in all worlds.
STATED = {
    "reads": "both",
    **{gene: ORDINARY[gene] for gene in ("event", "pages", "names", "board", "tokens", "server")},
}
REQUESTS = tuple(VALUES["requests"])
OF_A_PLAIN_WORLD = 3  # operated worlds that share a twin
TWINS_FROM = 20_000  # the numbers of twins


def operated(seed: int, number: int) -> Cell:
    """Operated world `number` of a seed, always the same."""
    random = Random(f"{seed}/{number}/operators")
    plain = number // OF_A_PLAIN_WORLD
    requests = Random(f"{seed}/{plain}/accounts").choice(REQUESTS)
    genes = drawn_genes(seed, plain, **STATED, requests=requests)
    if requests == "unknown":
        genes["engines scraped"] = "twice"
    # A meter that nothing places has all energy in doubt, whatever an operator does.
    if genes["node meter"] == "unplaced":
        genes["node meter"] = "none"
    world = made(seed, plain, genes, name=f"c{number}")
    series = world.keyed()
    # Each kind in turn comes first, so that some 40 worlds have all of them.
    others = random.choice((0, 0, 0, 1, 1, 2))
    kinds = (KINDS[number % len(KINDS)], *(random.choice(KINDS) for _ in range(others)))
    while True:
        drawn = replace(world, operators=tuple(_operator(random, kind, series) for kind in kinds))
        if is_assessed(drawn) and all(_changes(one, series) for one in drawn.operators):
            return drawn


def operated_worlds(seed: int, worlds: int) -> list[Cell]:
    """The first operated worlds of a seed."""
    return list(islice((operated(seed, number) for number in count()), worlds))


def twin(cell: Cell, number: int) -> Cell:
    """The same world without operators, under another name."""
    return made(cell.seed, cell.number, cell.genes, name=f"c{TWINS_FROM + number}")


def is_assessed(cell: Cell) -> bool:
    """Whether an account of each board's power and of each model's tokens remains that no operator touched.

    Another serial number is another board: a fleet that has both, of which each is read by one of the two meters, has
    the same samples and other joules. So it is not assessed.
    """
    if any(one.kind in OTHER_NAMES and one.label == cell.sighting.exporter.uuid for one in cell.operators):
        return False
    plain = replace(cell, operators=()).keyed()
    touched = {key for operator in cell.operators if operator.kind not in LEAVES_ITS_ACCOUNT for key in operator.chosen}
    accounts = {(entity, account): True for entity, account in _logged(cell)}
    for key, one in plain:
        for entity in _entities(cell, one):
            if account := _account(cell, one):
                accounts[entity, account] = accounts.get((entity, account), True) and key not in touched
    intact = {entity for (entity, _), is_intact in accounts.items() if is_intact}
    return intact >= {*cell.world.boards, *cell.world.truths()}


def harmed(cell: Cell) -> set[str]:
    """The models of whose boards, nodes, engines or requests an operator touched a series."""
    touched = {key for operator in cell.operators for key in operator.chosen}
    series = replace(cell, operators=()).keyed()
    entities = {entity for key, one in series if key in touched for entity in _entities(cell, one)}
    held = {
        model
        for model in cell.world.truths()
        for one in cell.world.holdings
        if cell.world.engines[one.engine].model == model and one.board in entities
    }
    return held | (entities & set(cell.world.truths()))


def _operator(random: Random, kind: str, series: list[Keyed]) -> Operator:
    """An operator on one series, on all of its metric, or on all that have one of its labels."""
    metric = random.choice(sorted({one[0] for _, one in series}))
    key, (_, labels, *_) = random.choice([one for one in series if one[1][0] == metric])
    name = random.choice(sorted(labels))
    alike = {other: of for other, of in series if of[1].get(name) == labels[name]}
    of_metric = {other for other, (called, *_) in series if called == metric}
    chosen = random.choice(({key}, of_metric, set(alike), of_metric & set(alike)))
    if kind in SUMS:
        chosen = of_metric
    start = 600.0 * random.randint(1, 16)
    first, last = random.choice(
        ((-3600.0, SPAN_SECONDS + 3600.0), (start, SPAN_SECONDS + 60.0), (start, start + 600.0 * random.randint(1, 6)))
    )
    label = random.choice(sorted(labels)) if kind in OF_LABELS else ""
    return Operator(
        kind,
        frozenset(chosen),
        moment(first),
        moment(SPAN_SECONDS + 60.0 if kind == "hold" else last),
        random.choice(AMOUNTS.get(kind, (0.0,))),
        random.choice(NEW_LABELS) if kind == "copy" else label,
    )


def _changes(operator: Operator, series: list[Keyed]) -> bool:
    """Whether anything is other than before."""
    before, after = series, operator.applied(series)
    return len(before) != len(after) or any(
        one[:2] != other[:2] or not all(map(np.array_equal, one[2:], other[2:]))
        for (_, one), (_, other) in zip(before, after, strict=True)
    )


def _entities(cell: Cell, one: Series) -> set[str]:
    """The boards, or the models, that a series is of."""
    _, labels, *_ = one
    texts = set(labels.values())
    boards, models = cell.world.boards, set(cell.world.truths())
    if is_boards(labels):
        return texts & set(boards)
    if is_engines(labels):
        return {engine.model for engine in cell.world.engines.values() if engine.pod == labels["pod"]}
    of_node = {uuid for uuid, board in boards.items() if board.node in texts}
    return (texts & models) or of_node or {*boards, *models}


def _account(cell: Cell, one: Series) -> str:
    """Which count of its entity's watts or tokens a series is of; of others none."""
    metric, labels, *_ = one
    exporter = cell.sighting.exporter
    if is_boards(labels):
        return {exporter.energy: "counter", exporter.watts: "gauge"}.get(metric, "")
    if is_engines(labels):
        return f"page {labels['job']}" if metric in (PROMPTS, OUTPUT) else ""
    return "gateway" if set(labels.values()) & set(cell.world.truths()) else ""


def _logged(cell: Cell) -> Iterator[tuple[str, str]]:
    if cell.sighting.tenants and cell.sighting.gateway is None:
        yield from ((model, "log") for model in cell.world.truths())
