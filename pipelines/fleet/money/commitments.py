"""What is doubtful about commitments, and what a new one would cost by an offer of the fleet file.

Add here what a contract of accelerators may get wrong. Keep out what a commitment is (`cost_rates`), what it costs and
how far it is used: SQL.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import date
from itertools import combinations
from typing import Annotated

from pydantic import Field

from pipelines.fleet.money.cost_rates import Commitment
from pipelines.fleet.node_gpus import NodeGpus
from pipelines.fleet.values import Dated, GivenName, Name, NonNegative, Part


class CommitmentOffer(Part):
    """What committing to one more GPU of a type at a site would cost for `term_months`. It is compared with what is
    paid, and costs nothing itself."""

    site: GivenName
    device_type: Name
    term_months: Annotated[int, Field(strict=True, gt=0)]
    usd_per_gpu_hour: NonNegative
    provider: Name | None = None


def offers_of_unknown_sites(offers: Sequence[CommitmentOffer], sites: Collection[str]) -> Iterator[str]:
    """A line per offer of a site that the fleet does not have."""
    for n, offer in enumerate(offers):
        if offer.site not in sites:
            yield f"commitment_offers[{n}].site: got {offer.site!r}, expected one of the sites {sorted(sites)}"


def doubtful_commitments(
    commitments: Sequence[Commitment], nodes: Sequence[tuple[str | None, Sequence[NodeGpus]]]
) -> Iterator[str]:
    """Contracts that were perhaps entered twice, cover more GPUs than there are, or split a month: a line each.
    `nodes`: the site of each node, and the GPUs that the fleet file states for it."""
    yield from _entered_twice(commitments)
    yield from _more_than_there_are(commitments, nodes)
    for commitment in commitments:
        yield from _split_months(commitment)


def _entered_twice(commitments: Sequence[Commitment]) -> Iterator[str]:
    for one, other in combinations(commitments, 2):
        terms = [(c.site, c.device_type, c.gpus, c.usd_per_gpu_hour, c.valid_from) for c in (one, other)]
        if terms[0] == terms[1]:
            yield (
                f"commitments[{other.commitment}]: has the site, device_type, gpus ({other.gpus:g}), usd_per_gpu_hour"
                f" ({other.usd_per_gpu_hour:g}) and valid_from ({other.valid_from}) of commitments[{one.commitment}],"
                f" and both are paid: {one.gpus + other.gpus:g} {one.device_type} at {one.site}. Expected one entry per"
                " contract: remove one if it was entered twice"
            )


def _more_than_there_are(
    commitments: Sequence[Commitment], nodes: Sequence[tuple[str | None, Sequence[NodeGpus]]]
) -> Iterator[str]:
    """On the date on which most of the committed GPUs are in no node; nothing where no node states GPUs of the type."""
    for site, device_type in sorted({(c.site, c.device_type) for c in commitments}):
        ours = [c for c in commitments if (c.site, c.device_type) == (site, device_type)]
        stated = [
            gpus for place, several in nodes if place == site for gpus in several if gpus.device_type == device_type
        ]
        if not stated:
            continue
        changes = [*(part.valid_from for part in (*ours, *stated)), *(gpus.valid_to for gpus in stated)]
        missing = [
            (sum(c.gpus for c in ours if _holds(c, on)) - sum(g.count for g in stated if _holds(g, on)), on)
            for on in sorted({on for on in changes if on is not None})
        ]
        most, on = max(missing, key=lambda found: found[0])
        if most > 0:
            there = [c for c in ours if _holds(c, on)]
            committed = sum(c.gpus for c in there)
            yield (
                f"{', '.join(f'commitments[{c.commitment}]' for c in there)}: {committed:g} {device_type} are committed"
                f" at {site} from {on}, where nodes[].gpus has {committed - most:g}: {most:g} are paid and cannot be"
                " used. Correct gpus or the dates, or add the nodes"
            )


def _holds(part: Dated, on: date) -> bool:
    return part.valid_from <= on < (part.valid_to or date.max)


def _split_months(commitment: Commitment) -> Iterator[str]:
    edges = {"begins": commitment.valid_from, "ends": commitment.valid_to}
    within = [f"{word} on {on}" for word, on in edges.items() if on is not None and on.day != 1]
    if within:
        yield (
            f"commitments[{commitment.commitment}]: {' and '.join(within)}, within a month: it is paid for the hours of"
            " a part of that month. Right if the contract has it so"
        )
