"""The fewest groups of accelerators that hold a set of engines: vector bin packing with its lower bound.

Column generation: a linear program over ways to fill a group finds how few groups could do, and which fillings it
lacks; CP-SAT chooses among those found. Integers throughout, one thread, and a limit in CP-SAT's own deterministic
time, so that the same input gives the same groups. Keep out what an engine, a node or a week is (`packing`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
from ortools.linear_solver import pywraplp
from ortools.sat.python import cp_model

SEED = 20261101
ROUNDS = 200  # of column generation
LARGEST_FILLING = 8
POOL_ROWS = 8_000_000
POOL_BUCKETS = 64
POOL_LOOKS = 1500
CHOICE_SECONDS = 5.0  # CP-SAT's deterministic seconds
FIRST_BUCKETS = 48
NEW_BUCKETS = 24  # that a round may add to those it looks at
TINY = 1e-6

Filling = tuple[int, ...]  # the kinds of engine that share a group, ascending; each once


@dataclass(frozen=True)
class Kinds:
    """Engines by kind, and what a group holds. A kind's engines are alike and never share a group with each other.

    `memory` (kinds) and `load` (kinds × buckets) are integers, `copies` how many engines a kind has, `apart` a label
    (below 0: none) of which a group holds one kind at most. A group holds `memory_limit` and, in every bucket,
    `load_limit`; each kind fits alone.
    """

    memory: np.ndarray
    load: np.ndarray
    copies: np.ndarray
    apart: np.ndarray
    memory_limit: int
    load_limit: int

    def fits(self, filling: Sequence[int]) -> bool:
        """Whether these kinds may share a group, over all buckets."""
        kinds = list(filling)
        labels = self.apart[kinds]
        labels = labels[labels >= 0]
        return bool(
            len(set(kinds)) == len(kinds)
            and len(set(labels.tolist())) == len(labels)
            and self.memory[kinds].sum() <= self.memory_limit
            and (self.load[kinds].sum(axis=0) <= self.load_limit).all()
        )


def share(kinds: Kinds, present: Iterable[Filling] = ()) -> tuple[list[Filling], int]:
    """The groups, one filling each, and a lower bound on the number of groups.

    `present` are fillings as they are now: of equally few groups the ones with the fewest engines that leave `present`.
    """
    n = int(kinds.copies.sum())
    if n == 0:
        return [], 0
    orders = _orders(kinds)
    best = min((_first_fit(kinds, order) for order in orders), key=len)
    bound = _volume_bound(kinds)
    known = dict.fromkeys([*((k,) for k in range(len(kinds.copies))), *best])
    known |= dict.fromkeys(tuple(sorted(set(filling))) for filling in present if kinds.fits(sorted(set(filling))))
    if len(best) > bound:
        for order in orders:
            known |= dict.fromkeys(_first_fit(kinds, order))
        bound = max(bound, _generate(kinds, known, bound, len(best)))
    return _choose(kinds, list(known), best, bound, present), bound


def _orders(kinds: Kinds) -> list[np.ndarray]:
    """Kinds from hard to easy, by several meanings of hard."""
    memory = kinds.memory / kinds.memory_limit
    peak = kinds.load.max(axis=1, initial=0) / kinds.load_limit
    mean = kinds.load.mean(axis=1) / kinds.load_limit if kinds.load.shape[1] else np.zeros(len(memory))
    return [
        np.argsort(-size, kind="stable") for size in (np.maximum(memory, peak), memory + peak, memory, memory + mean)
    ]


def _first_fit(kinds: Kinds, order: np.ndarray) -> list[Filling]:
    """First fit: each engine into the first group that holds it."""
    n = int(kinds.copies.sum())
    buckets = _busiest(kinds)
    memory = np.zeros(n, dtype=np.int64)
    load = np.zeros((n, kinds.load.shape[1]), dtype=kinds.load.dtype)
    peaks = np.zeros((n, len(buckets)), dtype=kinds.load.dtype)
    labels: list[set[int]] = []
    groups: list[list[int]] = []
    for kind in order.tolist():
        own_peaks, label = kinds.load[kind, buckets], int(kinds.apart[kind])
        first = 0
        for _ in range(int(kinds.copies[kind])):
            used = len(groups)
            may = memory[first:used] + kinds.memory[kind] <= kinds.memory_limit
            may &= (peaks[first:used] + own_peaks <= kinds.load_limit).all(axis=1)
            for group in (first + np.flatnonzero(may)).tolist():
                if label >= 0 and label in labels[group]:
                    continue
                if (load[group] + kinds.load[kind] <= kinds.load_limit).all():
                    break
            else:
                group = used
                groups.append([])
                labels.append(set())
            groups[group].append(kind)
            labels[group].add(label)
            memory[group] += kinds.memory[kind]
            load[group] += kinds.load[kind]
            peaks[group] += own_peaks
            first = group + 1  # an engine alike goes to another group
    return [tuple(sorted(group)) for group in groups]


def _volume_bound(kinds: Kinds) -> int:
    """Memory and each bucket's load, as if engines could be poured; and the engines that are pairwise too big."""
    poured = [int(kinds.copies.max()), ceil(int(kinds.copies @ kinds.memory) / kinds.memory_limit)]
    if kinds.load.shape[1]:
        poured.append(ceil(int((kinds.copies @ kinds.load).max()) / kinds.load_limit))
        poured.append(int((kinds.copies @ (2 * kinds.load > kinds.load_limit)).max()))
    poured.append(int(kinds.copies @ (2 * kinds.memory > kinds.memory_limit)))
    return max(poured)


def _busiest(kinds: Kinds) -> np.ndarray:
    """Some buckets that best show whether a filling fits: the busiest of all, and the peaks of single kinds."""
    total = kinds.copies @ kinds.load
    peak_buckets = kinds.load.argmax(axis=1) if kinds.load.shape[1] else np.empty(0, dtype=np.int64)
    peaks, often = np.unique(peak_buckets, return_counts=True)
    tops = np.argsort(-total, kind="stable")[: FIRST_BUCKETS // 2].tolist()
    own = [int(peaks[n]) for n in np.argsort(-often, kind="stable")]
    return np.array(list(dict.fromkeys([*tops, *own]))[:FIRST_BUCKETS], dtype=np.int64)


def _generate(kinds: Kinds, known: dict[Filling, None], bound: int, best: int) -> int:
    """Add fillings to `known` until the linear program over them cannot improve; returns the bound that it proves."""
    master = pywraplp.Solver.CreateSolver("GLOP")
    rows = [master.Constraint(float(copies), master.infinity()) for copies in kinds.copies]
    master.Objective().SetMinimization()

    def add(fillings: Iterable[Filling]) -> None:
        for filling in fillings:
            known[filling] = None
            column = master.NumVar(0, master.infinity(), "")
            master.Objective().SetCoefficient(column, 1)
            for kind in filling:
                rows[kind].SetCoefficient(column, 1)

    add(list(known))
    may_meet, buckets = _may_meet(kinds), _busiest(kinds)
    pool, is_greedy = None, True
    for number in range(ROUNDS):
        master.Solve()
        least = master.Objective().Value()
        if bound >= min(best, ceil(least - TINY)):
            break
        prices = np.maximum(np.array([row.dual_value() for row in rows]), 0)
        fresh: list[Filling] = []
        if is_greedy:
            found, buckets = _greedy_fillings(kinds, prices, may_meet, buckets, number)
            fresh = [f for f in found if f not in known and prices[list(f)].sum() > 1 + TINY]
            is_greedy = bool(fresh)
        if not is_greedy:
            if pool is None:
                pool = Pool.of(kinds, may_meet, buckets[:POOL_BUCKETS])
                if pool is None:
                    break
            found, most = pool.best(prices)
            # However a group is filled, it is worth `most` at these prices: so many groups it takes.
            bound = max(bound, ceil(float(kinds.copies @ prices) / max(1.0, most) - TINY))
            fresh = [f for f in found if f not in known]
            if not fresh:
                break
        add(fresh)
    return bound


@dataclass
class Pool:
    """Every filling of two kinds or more that some buckets allow, as rows of kinds; `n` means none. Fillings
    that other buckets forbid are removed when they are asked for."""

    kinds: Kinds
    fillings: np.ndarray

    @classmethod
    def of(cls, kinds: Kinds, may_meet: np.ndarray, buckets: np.ndarray) -> Pool | None:
        """None where there are more than POOL_ROWS, or larger ones than LARGEST_FILLING."""
        n, blocks, count = len(may_meet), [], 0
        later = np.triu(may_meet, 1)
        # A kind's load is within the limit: small integers, of which twice as many are compared at a time.
        load = np.ascontiguousarray(kinds.load[:, buckets], dtype=np.int16 if kinds.load_limit < 2**15 else np.int32)
        for first in range(n):
            near = np.flatnonzero(later[first])
            near_memory, near_load, near_later = kinds.memory[near], load[near], later[np.ix_(near, near)]
            fillings = np.column_stack([np.full(len(near), first), near]).astype(np.int16)
            memory, left = kinds.memory_limit - kinds.memory[first] - near_memory, kinds.load_limit - load[first]
            left, may = (left - near_load).astype(load.dtype), near_later
            while len(fillings):
                count += len(fillings)
                if count > POOL_ROWS or fillings.shape[1] == LARGEST_FILLING:
                    return None
                wide = np.full((len(fillings), LARGEST_FILLING), n, dtype=np.int16)
                wide[:, : fillings.shape[1]] = fillings
                blocks.append(wide)
                row, kind = np.nonzero(may & (near_memory <= memory[:, None]))
                for some in (slice(0, 12), slice(12, None)):  # most that do not fit are seen at once
                    fits = (near_load[kind, some] <= left[row, some]).all(axis=1)
                    row, kind = row[fits], kind[fits]
                fillings = np.column_stack([fillings[row], near[kind].astype(np.int16)])
                memory, left = memory[row] - near_memory[kind], left[row] - near_load[kind]
                may = may[row] & near_later[kind]
        return cls(kinds, np.concatenate(blocks) if blocks else np.empty((0, LARGEST_FILLING), dtype=np.int16))

    def best(self, prices: np.ndarray) -> tuple[list[Filling], float]:
        """The fillings worth most at these prices, and what none is worth more than."""
        padded = np.append(prices, 0.0)
        worth = padded[self.fillings[:, 0]]
        for column in range(1, LARGEST_FILLING):
            worth += padded[self.fillings[:, column]]
        rows = np.flatnonzero(worth > 1 + TINY)
        rows, gone = rows[np.argsort(-worth[rows], kind="stable")], []
        while len(rows):
            found: list[Filling] = []
            over: dict[int, None] = {}
            for row in self.fillings[rows[:POOL_LOOKS]].tolist():
                filling = tuple(kind for kind in row if kind < len(prices))
                load = self.kinds.load[list(filling)].sum(axis=0)
                if load.max(initial=0) <= self.kinds.load_limit:
                    found.append(filling)
                else:
                    over[int(load.argmax())] = None
            if found:
                break
            for bucket in list(over)[:NEW_BUCKETS]:
                load = np.append(self.kinds.load[:, bucket], 0)
                fits = load[self.fillings[rows]].sum(axis=1) <= self.kinds.load_limit
                gone.append(rows[~fits])
                rows = rows[fits]
        most = max(1.0, float(worth[rows[0]])) if len(rows) else 1.0
        if gone:
            self.fillings = np.delete(self.fillings, np.concatenate(gone), axis=0)
        return found if len(rows) else [], most


def _may_meet(kinds: Kinds) -> np.ndarray:
    """Which two kinds fit into one group, over all buckets (kinds × kinds)."""
    may: np.ndarray = kinds.memory[:, None] + kinds.memory[None, :] <= kinds.memory_limit
    may &= (kinds.apart[:, None] != kinds.apart[None, :]) | (kinds.apart[:, None] < 0)
    np.fill_diagonal(may, False)
    for kind, row in enumerate(may):
        others = np.flatnonzero(row[:kind])
        row[others] = may[others, kind] = (kinds.load[others] + kinds.load[kind] <= kinds.load_limit).all(axis=1)
    return may


def _greedy_fillings(
    kinds: Kinds, prices: np.ndarray, may_meet: np.ndarray, buckets: np.ndarray, number: int
) -> tuple[list[Filling], np.ndarray]:
    """A filling around each kind, by what the others are worth; and the buckets to look at from now on."""
    n = len(prices)
    size = kinds.memory / kinds.memory_limit + kinds.load[:, buckets].mean(axis=1) / kinds.load_limit
    worth = prices / size ** (0.0, 1.0, 0.5)[number % 3]
    if number >= 3:
        worth = worth * np.random.default_rng(SEED + number).uniform(0.7, 1.3, n)
    memory, load = kinds.memory_limit - kinds.memory, kinds.load_limit - kinds.load[:, buckets]
    is_open = may_meet & (prices > TINY)
    fillings = [[kind] for kind in range(n)]
    while True:
        is_open = is_open & (kinds.memory[None, :] <= memory[:, None])
        for column, bucket in enumerate(buckets):
            is_open &= kinds.load[None, :, bucket] <= load[:, column, None]
        rows = np.flatnonzero(is_open.any(axis=1))
        if not len(rows):
            break
        taking = np.where(is_open[rows], worth, -1).argmax(axis=1)
        for row, kind in zip(rows.tolist(), taking.tolist(), strict=True):
            fillings[row].append(kind)
        is_open[rows] &= may_meet[taking]
        memory[rows] -= kinds.memory[taking]
        load[rows] -= kinds.load[taking][:, buckets]
    seen: dict[Filling, None] = {}
    over = np.zeros(kinds.load.shape[1], dtype=np.int64)
    for filling in fillings:
        kept: list[int] = []
        for kind in filling:
            if kinds.fits([*kept, kind]):
                kept.append(kind)
            elif kinds.load.shape[1]:
                over[(kinds.load[[*kept, kind]].sum(axis=0)).argmax()] += 1
        seen[tuple(sorted(kept))] = None
    # And the ones in which most fillings went over.
    most = [b for b in np.argsort(-over, kind="stable")[:NEW_BUCKETS].tolist() if over[b]]
    return list(seen), np.array(list(dict.fromkeys([*buckets.tolist(), *most])), dtype=np.int64)


def _choose(
    kinds: Kinds, known: list[Filling], best: list[Filling], bound: int, present: Iterable[Filling]
) -> list[Filling]:
    """Of the known fillings the fewest that hold every engine, then the ones that move the fewest."""
    now = [set(filling) for filling in present if len(filling) > 1]
    if len(best) == bound and not now:
        return best
    moved = [len(f) - max([len(together & set(f)) for together in now], default=1) for f in known]
    model = cp_model.CpModel()
    most = int(kinds.copies.max())
    times = [model.new_int_var(0, most, "") for _ in known]
    covering: list[list[cp_model.IntVar]] = [[] for _ in kinds.copies]
    for variable, filling in zip(times, known, strict=True):
        for kind in filling:
            covering[kind].append(variable)
    for kind, variables in enumerate(covering):
        model.add(sum(variables) >= int(kinds.copies[kind]))
    model.add(sum(times) >= bound)
    weight = int(kinds.copies.sum()) + 1
    model.minimize(cp_model.LinearExpr.weighted_sum(times, [weight + max(0, m) for m in moved]))
    used = {filling: 0 for filling in known}
    for filling in best:
        used[filling] += 1
    for variable, filling in zip(times, known, strict=True):
        model.add_hint(variable, used[filling])
    solver = deterministic_solver(CHOICE_SECONDS)
    if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return best
    chosen = [f for f, variable in zip(known, times, strict=True) for _ in range(solver.value(variable))]
    return _without_surplus(kinds, chosen) if len(chosen) <= len(best) else best


def _without_surplus(kinds: Kinds, chosen: list[Filling]) -> list[Filling]:
    """Each kind as often as it has engines: a filling stays one when an engine is taken out."""
    surplus = -kinds.copies.astype(np.int64)
    for filling in chosen:
        surplus[list(filling)] += 1
    trimmed = []
    for filling in sorted(chosen, key=lambda f: (-len(f), f)):
        kept = []
        for kind in filling:
            if surplus[kind] > 0:
                surplus[kind] -= 1
            else:
                kept.append(kind)
        if kept:
            trimmed.append(tuple(kept))
    return trimmed


def deterministic_solver(deterministic_seconds: float) -> cp_model.CpSolver:
    """A solver that gives the same answer to the same question, whatever the machine."""
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.linearization_level = 2  # covering is what linear programs are good at
    solver.parameters.random_seed = SEED
    solver.parameters.max_deterministic_time = deterministic_seconds
    return solver
