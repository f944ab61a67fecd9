"""Which deployments free a larger node by starting on a smaller one that is empty once other advice is followed.

A site that rents whole nodes hands back none while one engine is on it. A smaller node that another deployment leaves
may hold that engine: then the larger node is handed back instead. Add here a rule of such a move. Keep out who leaves
a node (`right_sizing`, `consolidation`) and what it is worth (`avoidable`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import pandas as pd

LEAST_GPUS = 1e-6
COLUMNS = ["move_to_node", "move_frees_node", "move_frees_gpus", "move_after"]


@dataclass(frozen=True)
class Unit:
    """What is handed back together, its accelerators and who holds some of them."""

    name: str
    site: str
    device_type: str
    gpus: float
    holders: frozenset[str]


def found(movers: pd.DataFrame, leavers: Collection[str], boards: pd.DataFrame) -> pd.DataFrame:
    """COLUMNS of each row of `movers` that frees a larger node by moving, by its index.

    `movers`: `holder`, `gpus_then` (what it needs) and `rank`: of two that want one node the lower rank has it, then
    the one that frees more. `leavers` hold nothing then. `boards` as int_advised_boards: where a site rents by the
    board, each is a unit of its own, and no move frees more than it takes.

    All engines of the mover are on one unit that none but leavers shares with it; the other one has its device type,
    holds nothing but leavers, and is smaller.
    """
    units, gone = _units(boards), set(leavers)
    possible = []
    for index, mover in movers.iterrows():
        own = [unit for unit in units if mover["holder"] in unit.holders]
        if len(own) != 1 or not own[0].holders <= gone | {mover["holder"]} or not mover["gpus_then"] > 0:
            continue
        possible += [
            (mover["rank"], unit.gpus - own[0].gpus, mover["holder"], unit.name, index, own[0], unit)
            for unit in units
            if unit.holders <= gone
            and (unit.site, unit.device_type) == (own[0].site, own[0].device_type)
            and mover["gpus_then"] <= unit.gpus + LEAST_GPUS < own[0].gpus
        ]
    made, taken = {}, set()
    for _, more, _, name, index, left, unit in sorted(possible, key=lambda one: one[:4]):
        if index not in made and name not in taken:
            made[index] = (name, left.name, -more, ", ".join(sorted(unit.holders)) or None)
            taken.add(name)
    return pd.DataFrame.from_dict(made, orient="index", columns=COLUMNS)


def _units(boards: pd.DataFrame) -> list[Unit]:
    """The units with accelerators of one type, by name. What is on no named unit is in none."""
    return [
        Unit(
            str(name),
            there["site"].iloc[0],
            there["device_type"].iloc[0],
            float(there["gpus"].sum()),
            frozenset(there["holder"].dropna()),
        )
        for name, there in boards.groupby("unit", sort=True)
        if there["device_type"].nunique() == 1
    ]
