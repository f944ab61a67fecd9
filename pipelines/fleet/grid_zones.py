"""Which grid zones are known, and which one a mistyped name was probably meant to be.

Add here what has to hold between the zones of sites and the sources that serve them. Keep out the factors themselves
(dbt_project/seeds/grid_factors.csv) and which of them an hour takes (int_carbon_factors).
"""

from __future__ import annotations

import csv
import difflib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from pipelines.fleet.catalog import SEEDS
from pipelines.fleet.grid_sources import GridIntensity

# The zone of a site whose grid is unknown: it has no CO2, and no warning.
UNKNOWN_ZONE = "unknown"
NEAREST = 3
# A name less similar than this (1 is equal) is no typing error: for `Germany` all zones are shown, with DE.
SIMILAR = 0.5


def unserved_sites(zones: Mapping[str, str], grid: GridIntensity, seeds: Path = SEEDS) -> Iterator[str]:
    """A line for each site (name to zone) whose zone neither the seeds nor a grid source knows."""
    known = _seeded(seeds) | {zone for _, zone in _served(grid)} | {UNKNOWN_ZONE}
    for site, zone in zones.items():
        if zone not in known:
            yield (
                f"sites[{site}].zone: got {zone!r}, expected a zone of the seeds grid_factors and grid_zones or of a"
                f" source under grid_intensity, or {UNKNOWN_ZONE} (no CO2); {nearest(zone, known)}"
            )


def unused_sources(zones: Mapping[str, str], grid: GridIntensity) -> Iterator[str]:
    """A line for each grid source whose zone no site has: it may be mistyped, and the sites keep their yearly factors.

    It may also be right: a site may open later.
    """
    if not zones:
        return
    for key, zone in _served(grid):
        if zone not in zones.values():
            near = nearest(zone, zones.values())
            yield f"{key}.zone: got {zone!r}, which no site has: its hours are not used; {near}"


def _served(grid: GridIntensity) -> Iterator[tuple[str, str]]:
    """Each grid source of the fleet file, by its key, and its zone."""
    for source in grid.sources:
        yield f"grid_intensity.sources[{source.name}]", source.zone
    for number, file in enumerate(grid.files):
        yield f"grid_intensity.files[{number}]", file.zone


def known_zones(seeds: Path = SEEDS) -> list[str]:
    """The zones that the seeds have a factor of."""
    return sorted(_seeded(seeds))


def _seeded(seeds: Path) -> set[str]:
    found: set[str] = set()
    for seed in ("grid_factors", "grid_zones"):
        with (seeds / f"{seed}.csv").open(newline="", encoding="utf-8") as lines:
            found |= {row["zone"] for row in csv.DictReader(lines)}
    return found


def nearest(name: str, known: Iterable[str]) -> str:
    """The most similar known names, best first, or all where none is similar. Upper and lower case are the same."""
    by_folded = {name.casefold(): name for name in sorted(known)}
    asked = name.casefold()
    if not difflib.get_close_matches(asked, by_folded, cutoff=SIMILAR):
        return f"known: {', '.join(by_folded.values()) or 'none'}"
    near = difflib.get_close_matches(asked, by_folded, n=NEAREST, cutoff=0)
    return f"nearest: {', '.join(by_folded[name] for name in near)}"
