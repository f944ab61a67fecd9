"""How many accelerators a node has, metered or not, as the fleet file states it.

Add a fact about the accelerators that are in a node here. Keep out what one of them costs (`cost_rates`) and how many
of them a meter or a claim shows: SQL.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import date
from itertools import combinations
from typing import Annotated

from pydantic import Field

from pipelines.fleet.values import Dated, Name


class NodeGpus(Dated):
    """So many accelerators of a type are in the node on local dates [valid_from, valid_to) of its site."""

    device_type: Name
    count: Annotated[int, Field(strict=True, gt=0)]

    def counts_with(self, other: NodeGpus) -> bool:
        """Whether both count the same type on one date."""
        return self.device_type == other.device_type and max(self.valid_from, other.valid_from) < min(
            self.valid_to or date.max, other.valid_to or date.max
        )


def miscounted_gpus(
    nodes: Iterable[tuple[str, str | None, Sequence[NodeGpus]]], sites: Collection[str]
) -> Iterator[str]:
    """What is wrong with the GPUs of nodes, each with its name and its site: a line each."""
    for node, site, gpus in nodes:
        if gpus and site is None and len(sites) != 1:
            yield (
                f"nodes[{node}].site: expected one of the sites {sorted(sites)} because the node has gpus, which are"
                " priced at their site"
            )
        yield from _double_counts(node, gpus)


def _double_counts(node: str, gpus: Sequence[NodeGpus]) -> Iterator[str]:
    for (n, earlier), (m, later) in combinations(enumerate(gpus), 2):
        if earlier.counts_with(later):
            yield (
                f"nodes[{node}].gpus[{m}] (from {later.valid_from}): counts {later.device_type} on dates that gpus[{n}]"
                f" (from {earlier.valid_from}) counts already, expected one count per device type and date: keep one of"
                " them, or end the earlier one (valid_to is the first date on which it does not hold)"
            )
