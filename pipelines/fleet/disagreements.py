"""What cannot be right between parts of a fleet file that are each right.

Add a rule here that takes several parts, or today's date. Keep out what one part alone shows (its model refuses it) and
what may be right (`plausibility`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import date
from itertools import pairwise
from typing import TYPE_CHECKING

from pipelines.fleet import grid_zones
from pipelines.fleet.landing_targets import unbookable_landings
from pipelines.fleet.money.bills import bills_of_unknown_sites
from pipelines.fleet.money.budgets import double_budgets
from pipelines.fleet.money.commitments import offers_of_unknown_sites
from pipelines.fleet.money.cost_rates import double_rates, stated_rates, wrong_capacity_prices
from pipelines.fleet.money.energy_contracts import double_residual_mixes, wrong_contracts
from pipelines.fleet.money.focus_exports import wrong_exports
from pipelines.fleet.money.site_charges import double_charges
from pipelines.fleet.money.tariffs import double_tariffs
from pipelines.fleet.node_gpus import miscounted_gpus
from pipelines.fleet.plausibility import aliases_for_types

if TYPE_CHECKING:
    from pipelines.fleet.fleet_keys import Assignment, Fleet


def disagreements(fleet: Fleet, today: date) -> Iterator[str]:
    """A line for each, by its key; `today` is the UTC date."""
    if fleet.period.start > today:
        yield (
            f"period.start: got {fleet.period.start}, expected at most today, which is {today} in UTC: no day of it"
            " has passed. Start with the first day of which the sources have samples"
        )
    if not (fleet.sources or fleet.requests or fleet.benchmarks):
        yield "sources: got none, expected at least one of sources, requests and benchmarks"
    if 3600 % fleet.grid_seconds:
        yield f"grid_seconds: got {fleet.grid_seconds}, expected a divisor of 3600"
    if not fleet.synthetic and any(source.kind == "synthetic" for source in fleet.sources):
        yield "synthetic: got false, expected true because a source is of kind synthetic: readers must see it"
    for key, names in (
        ("sources", [source.name for source in (*fleet.sources, *fleet.grid_intensity.sources)]),
        ("requests", [source.name for source in fleet.requests]),
        ("benchmarks", [benchmark.name for benchmark in fleet.benchmarks]),
        ("sites", [site.name for site in fleet.sites]),
        ("nodes", [name for node in fleet.nodes for name in (node.name, *node.aliases)]),
        ("devices", [device.device_uuid for device in fleet.devices]),
        ("engines[].targets", [target for engine in fleet.engines for target in engine.targets]),
        ("device_types", [name for kind in fleet.device_types for name in {kind.name, *kind.aliases}]),
        ("models", [name for model in fleet.models for name in (model.name, *model.aliases)]),
        ("commitments", [commitment.commitment for commitment in fleet.commitments]),
        ("prices.files", [f"{file.source} from {file.valid_from}" for file in fleet.prices.files]),
        ("run_windows.inline", [window.window_id for window in fleet.run_windows.inline]),
    ):
        for name in sorted(name for name, count in Counter(names).items() if count > 1):
            yield f"{key}: {name!r} is there more than once, expected unique names"
    yield from unbookable_landings(fleet.landing)
    if fleet.receipts.keep and fleet.landing.engine == "spark":
        yield "receipts.keep: got true, expected false because landing.engine is spark: only DuckDB makes receipts"
    sites = {site.name for site in fleet.sites}
    for key, part in [("sources", s) for s in fleet.sources] + [("nodes", n) for n in fleet.nodes]:
        if part.site is not None and part.site not in sites:
            yield f"{key}[{part.name}].site: got {part.site!r}, expected one of the sites {sorted(sites)}"
    yield from miscounted_gpus([(node.name, node.site, node.gpus) for node in fleet.nodes], sites)
    yield from wrong_capacity_prices(fleet.commitments, fleet.spot_rates, sites)
    yield from offers_of_unknown_sites(fleet.commitment_offers, sites)
    lists = {file.source for file in fleet.prices.files}
    for model in fleet.models:
        if model.list_price is not None and model.list_price.source not in lists:
            yield (
                f"models[{model.name}].list_price.source: got {model.list_price.source!r}, expected one of the sources"
                f" under prices.files {sorted(lists)}"
            )
    yield from bills_of_unknown_sites(fleet.bills, sites)
    yield from wrong_exports(fleet.focus_exports, sites, stated_rates(fleet.cost_rates, fleet.cost_rate_files))
    yield from wrong_contracts(fleet.energy_contracts, sites)
    yield from double_budgets(fleet.budgets)
    yield from grid_zones.unserved_sites(fleet.zones(), fleet.grid_intensity)
    for site in fleet.sites:
        yield from double_tariffs(site.name, site.tariff)
        yield from double_charges(site.name, site.charges)
        yield from double_residual_mixes(site.name, site.residual_mixes)
    yield from double_rates(fleet.cost_rates, fleet.cost_rate_files)
    yield from _double_assignments(fleet)
    yield from aliases_for_types(fleet)


def _double_assignments(fleet: Fleet) -> Iterator[str]:
    by_place: dict[tuple[str | None, str | None], list[Assignment]] = {}
    for assignment in fleet.assignments:
        by_place.setdefault((assignment.device_uuid, assignment.node), []).append(assignment)
    for (device_uuid, node), held in by_place.items():
        if device_uuid is None:
            continue  # several models may share a node; a device has one user at a time
        held.sort(key=lambda assignment: assignment.start_at)
        for earlier, later in pairwise(held):
            if earlier.end_at is None or later.start_at < earlier.end_at:
                yield f"assignments: {device_uuid or node} is assigned twice from {later.start_at.isoformat()}"
