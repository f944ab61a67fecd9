"""On which GPUs engines gather that are to share some: few moves, few nodes, and what must stay apart stays apart.

Add a rule here that concerns nodes. Keep out which engines share (`shared_groups`) and what an engine is (`packing`).
"""

from __future__ import annotations

from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from ortools.sat.python import cp_model

from pipelines.analysis.shared_groups import deterministic_solver

SECONDS = 4.0  # deterministic seconds of CP-SAT per site
THREADS = 2
# A GPU outweighs every move, a move every node.
GPU, MOVE = 10**9, 10**5

Literal = cp_model.IntVar | bool


def target_groups(engines: pd.DataFrame, groups: list[list[int]]) -> list[str | None]:
    """The `gpu_group` on which each group (rows of `engines`) gathers, one that an engine of it has now; None: it may
    gather nowhere, or has one engine, and all its engines stay.

    Models of one `keep_apart` share no node, and replicas keep `min_replicas` nodes, where that is so today.
    """
    found: list[str | None] = [None] * len(groups)
    sites = engines["site"].to_numpy()
    of_site = defaultdict(list)
    for number, group in enumerate(groups):
        if len(group) > 1:
            of_site[sites[group[0]]].append(number)
    with ThreadPoolExecutor(THREADS) as threads:
        chosen = threads.map(
            lambda site: _of_site(engines[sites == site], [groups[number] for number in of_site[site]]), of_site
        )
        for numbers, of_these in zip(of_site.values(), chosen, strict=True):
            for number, home in zip(numbers, of_these, strict=True):
                found[number] = home
    return found


@dataclass
class _Choice:
    """Where a group may gather, and `stay`: nowhere."""

    stay: cp_model.IntVar
    options: dict[str, cp_model.IntVar] = field(default_factory=dict)


def _of_site(engines: pd.DataFrame, groups: list[list[int]]) -> list[str | None]:
    model = cp_model.CpModel()
    facts = engines[["gpu_group", "node", "gpus", "deployment", "model", "keep_apart", "min_replicas"]].to_dict("index")
    moving = {row for group in groups for row in group}
    choices, cost = _choices(model, facts, groups)
    # Literals per engine and node where it may end up; an engine in no group stays where it is.
    at: dict[int, dict[str, list[Literal]]] = {row: {facts[row]["node"]: [True]} for row in facts if row not in moving}
    node_of = {one["gpu_group"]: one["node"] for one in facts.values()}
    for group, choice in zip(groups, choices, strict=True):
        for row in group:
            at[row] = defaultdict(list, {facts[row]["node"]: [choice.stay]})
            for home, chosen in choice.options.items():
                at[row][node_of[home]].append(chosen)
    found: dict[str, list[Literal]] = defaultdict(list)
    for places in at.values():
        for node, literals in places.items():
            found[node] += literals
    cost += [(1, _any(model, found[node])) for node in sorted(found)]
    _keep_apart(model, facts, at, moving)
    _keep_replicas(model, facts, at, moving)
    model.minimize(sum(weight * variable for weight, variable in cost))
    solver = deterministic_solver(SECONDS)
    if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return [None] * len(groups)
    return [
        next((home for home, chosen in choice.options.items() if solver.boolean_value(chosen)), None)
        for choice in choices
    ]


def _choices(
    model: cp_model.CpModel, facts: dict[int, dict[str, Any]], groups: list[list[int]]
) -> tuple[list[_Choice], list[tuple[int, Literal]]]:
    """A choice per group, and what it costs in GPUs and moves. No two groups take the same GPUs."""
    moving = {row for group in groups for row in group}
    taken = {facts[row]["gpu_group"] for row in facts if row not in moving}
    choices: list[_Choice] = []
    cost: list[tuple[int, Literal]] = []
    wanting: dict[str, list[tuple[int, cp_model.IntVar]]] = defaultdict(list)
    for number, group in enumerate(groups):
        choice = _Choice(model.new_bool_var(""))
        for home in dict.fromkeys(facts[row]["gpu_group"] for row in group):
            if home not in taken:
                choice.options[home] = model.new_bool_var("")
                wanting[home].append((number, choice.options[home]))
                moves = sum(facts[row]["gpu_group"] != home for row in group)
                cost.append((MOVE * moves, choice.options[home]))
        model.add_exactly_one([*choice.options.values(), choice.stay])
        cost.append((GPU * facts[group[0]]["gpus"] * (len(group) - 1), choice.stay))
        choices.append(choice)
    for home, several in wanting.items():
        model.add_at_most_one(chosen for _, chosen in several)
        # An engine that stays on these GPUs keeps them from the others.
        for number in {
            number for number, group in enumerate(groups) if any(facts[r]["gpu_group"] == home for r in group)
        }:
            for other, chosen in several:
                if other != number:
                    model.add_implication(choices[number].stay, ~chosen)
    return choices, cost


def _keep_apart(
    model: cp_model.CpModel, facts: dict[int, dict[str, Any]], at: dict[int, dict[str, list[Literal]]], moving: set[int]
) -> None:
    labelled: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for row, one in facts.items():
        if one["keep_apart"]:
            labelled[one["keep_apart"]][one["model"]].append(row)
    for models in labelled.values():
        rows = [row for of_model in models.values() for row in of_model]
        for node in sorted({node for row in rows for node in at[row]}):
            here = [[x for row in of_model for x in at[row].get(node, ())] for of_model in models.values()]
            now = sum(any(facts[row]["node"] == node for row in of_model) for of_model in models.values())
            if moving.intersection(rows):
                model.add(sum(_any(model, literals) for literals in here if literals) <= max(1, now))


def _keep_replicas(
    model: cp_model.CpModel, facts: dict[int, dict[str, Any]], at: dict[int, dict[str, list[Literal]]], moving: set[int]
) -> None:
    replicas: dict[str, list[int]] = defaultdict(list)
    for row, one in facts.items():
        replicas[one["deployment"]].append(row)
    for rows in replicas.values():
        needed = min(max(facts[row]["min_replicas"] for row in rows), len({facts[row]["node"] for row in rows}))
        if needed > 1 and moving.intersection(rows):
            nodes = sorted({node for row in rows for node in at[row]})
            model.add(sum(_any(model, [x for r in rows for x in at[r].get(node, ())]) for node in nodes) >= needed)


def _any(model: cp_model.CpModel, literals: list[Literal]) -> Literal:
    """True exactly if one of these is."""
    if any(x is True for x in literals):
        return True
    found = model.new_bool_var("")
    model.add_max_equality(found, literals)
    return found
