"""A figure as a tree: each amount with the amounts that add up to it, down to what was stated or metered.

Add here how a tree is printed. Keep out what a figure is made of (`explanation`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

Amount = Decimal | float | None
SHOWN = 12  # branches of one amount; the others are one line
DIGITS = {"g per kWh": 1, "USD": 2, "kWh": 3, "kg": 3, "J": 0, "tokens": 0, "ratio": 4, "litres": 0}


@dataclass(frozen=True)
class Node:
    """An amount and why it is that. The amounts of `children` add up to it; those of `terms` (above and below the line)
    do not."""

    name: str
    amount: Amount
    unit: str
    note: str = ""
    children: Sequence[Node] = ()
    terms: Sequence[Node] = ()


def gathered(nodes: Sequence[Node], unit: str) -> tuple[Node, ...]:
    """The largest of them, and one for all others."""
    ranked = sorted(nodes, key=lambda node: (-abs(float(node.amount or 0)), node.name))
    if len(ranked) <= SHOWN:
        return tuple(ranked)
    others = ranked[SHOWN - 1 :]
    return (*ranked[: SHOWN - 1], Node(f"{len(others):,} more", total(others), unit))


def total(nodes: Sequence[Node]) -> Amount:
    """Their sum; None where none is known."""
    known = [node.amount for node in nodes if node.amount is not None]
    return sum(known[1:], known[0]) if known else None


def lines(root: Node) -> Iterator[str]:
    """The tree as text, a line per amount."""
    rows = list(_rows(root, "", ""))
    name_width, amount_width = (max(len(row[place]) for row in rows) for place in (0, 1))
    for name, amount, note in rows:
        yield f"{name.ljust(name_width)}  {amount.rjust(amount_width)}  {note}".rstrip()


def _rows(node: Node, first: str, rest: str) -> Iterator[tuple[str, str, str]]:
    yield first + node.name, shown(node), node.note
    below = [*node.children, *node.terms]
    for place, child in enumerate(below):
        is_last = place == len(below) - 1
        yield from _rows(child, rest + ("└ " if is_last else "├ "), rest + ("  " if is_last else "│ "))


def shown(node: Node) -> str:
    """The amount with its unit."""
    if node.amount is None:
        return "not known"
    return f"{node.amount:,.{DIGITS.get(node.unit, 4)}f} {'' if node.unit == 'ratio' else node.unit}".rstrip()


def as_json(node: Node) -> dict[str, Any]:
    """The tree for programs; amounts as text, with all digits."""
    found: dict[str, Any] = {
        "name": node.name,
        "amount": None if node.amount is None else str(node.amount),
        "unit": node.unit,
    }
    if node.note:
        found["note"] = node.note
    for key, below in (("children", node.children), ("terms", node.terms)):
        if below:
            found[key] = [as_json(child) for child in below]
    return found
