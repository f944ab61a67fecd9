"""Genes: the named properties that a seed sets in each cell, and how each changes what is seen of its world.

Add here a property with its values; the first is the ordinary one. Each is drawn by itself, so that setting one leaves
all others as they were. A gene that hides something names the figures that cannot be known then. Keep out what it does
to samples (`sightings`) and the shapes of clusters (`topologies`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from tests.drawn.exporters import EXPORTERS, GATEWAYS
from tests.drawn.sightings import Sighting
from tests.drawn.topologies import TOPOLOGIES
from tests.drawn.worlds import SPAN_SECONDS

# What cannot be known without a board's power, and without an engine's samples.
ENERGY = {"joules", "joules of the site", "idle joules", "joules of tenants", "USD of capacity"}
LIFE = {"idle joules", "output tokens", "input tokens"}
CRASH_SECONDS = 400.0  # a process that crashes lives for so long


def _about_the_middle(random: Random) -> float:
    return 60.0 * random.randint(100, 140)


def _read(*reads: str) -> Callable[[Sighting, Random], None]:
    def seen(sighting: Sighting, random: Random) -> None:
        sighting.reads = reads

    return seen


def _every(step_seconds: float) -> Callable[[Sighting, Random], None]:
    def seen(sighting: Sighting, random: Random) -> None:
        sighting.step_seconds = step_seconds

    return seen


def _at_any_second(sighting: Sighting, random: Random) -> None:
    sighting.phase_seconds = round(random.uniform(0.0, sighting.step_seconds), 3)


def _drops(sighting: Sighting, random: Random) -> None:
    sighting.dropped_ratio = 0.03


def _exporter(name: str) -> Callable[[Sighting, Random], None]:
    def seen(sighting: Sighting, random: Random) -> None:
        sighting.exporter = EXPORTERS[name]

    return seen


def _labels(style: str) -> Callable[[Sighting, Random], None]:
    def seen(sighting: Sighting, random: Random) -> None:
        sighting.labels = style

    return seen


def _two_clusters(sighting: Sighting, random: Random) -> None:
    sighting.is_of_two_clusters = True


def _stalls(sighting: Sighting, random: Random) -> None:
    sighting.stated_seconds = sighting.step_seconds
    sighting.step_seconds /= 4
    apart = SPAN_SECONDS / 8
    sighting.stalls_at = tuple(apart * n + random.uniform(0.0, apart / 2) for n in range(8))


def _twice(sighting: Sighting, random: Random) -> None:
    sighting.jobs = ("engines", "annotations")


def _node_meter(kind: str) -> Callable[[Sighting, Random], None]:
    def seen(sighting: Sighting, random: Random) -> None:
        sighting.node_meter = kind
        sighting.is_faulty = kind == "unplaced"

    return seen


def _reset(sighting: Sighting, random: Random) -> None:
    sighting.reset_at = _about_the_middle(random)


def _restart(sighting: Sighting, random: Random) -> None:
    sighting.restarts_at = (_about_the_middle(random),)


def _crashes(sighting: Sighting, random: Random) -> None:
    first = random.uniform(0.0, CRASH_SECONDS)
    sighting.restarts_at = tuple(first + CRASH_SECONDS * n for n in range(int(SPAN_SECONDS / CRASH_SECONDS) - 1))
    sighting.hidden |= {"output tokens", "input tokens", "J per output token"}


def _start_in_nanoseconds(sighting: Sighting, random: Random) -> None:
    sighting.start_unit = 1e9


def _node_renamed(sighting: Sighting, random: Random) -> None:
    """Its wall meter is renamed with it: under one of its names no board is there all date."""
    sighting.renamed_at = _about_the_middle(random)
    sighting.hidden |= {"joules of the site"} if sighting.node_meter == "placed" else set()


def _odd_samples(sighting: Sighting, random: Random) -> None:
    sighting.odd_samples = tuple((random.random(), value) for value in (float("nan"), -1.0, 1e30))
    sighting.is_faulty = True


def _requests_logged(sighting: Sighting, random: Random) -> None:
    sighting.tenants = {"acme": 2 / 3, "zeta": 1 / 3}


def _requests_counted(gateway: str) -> Callable[[Sighting, Random], None]:
    def seen(sighting: Sighting, random: Random) -> None:
        _requests_logged(sighting, random)
        sighting.gateway = gateway

    return seen


def _dark(sighting: Sighting, random: Random) -> None:
    sighting.dark_from = _about_the_middle(random)
    sighting.hidden |= ENERGY


def _only_utilised(sighting: Sighting, random: Random) -> None:
    sighting.is_only_utilised = True
    sighting.hidden |= ENERGY


def _engine_ends(sighting: Sighting, random: Random) -> None:
    sighting.engine_ends_at = _about_the_middle(random) + 30.0
    sighting.hidden |= LIFE


def _nothing(sighting: Sighting, random: Random) -> None:
    pass


Gene = Mapping[str, Callable[[Sighting, Random], None]]

# Name -> value -> what it does; the first value of each is the ordinary one.
SEEN: Mapping[str, Gene] = {
    "step": {"60 s": _every(60.0), "30 s": _every(30.0), "15 s": _every(15.0)},
    "phase": {"whole steps": _nothing, "any second": _at_any_second},
    "scrapes": {"all": _nothing, "some dropped": _drops, "stalls": _stalls},
    "exporter": {name: _exporter(name) for name in EXPORTERS},
    "reads": {"both": _read("counter", "gauge"), "counter": _read("counter"), "gauge": _read("gauge")},
    "labels": {name: _labels(name) for name in ("own", "exported", "one own")},
    "clusters": {"one": _nothing, "two behind one server": _two_clusters},
    "engines scraped": {"once": _nothing, "twice": _twice},
    "node meter": {"none": _nothing, "placed": _node_meter("placed"), "unplaced": _node_meter("unplaced")},
    "requests": {
        "unknown": _nothing,
        "logged": _requests_logged,
        **{f"counted by {name}": _requests_counted(name) for name in GATEWAYS},
    },
    "event": {
        "none": _nothing,
        "node renamed": _node_renamed,
        "odd samples": _odd_samples,
        "counter reset": _reset,
        "engine restart": _restart,
        "engine crashes": _crashes,
        "start in nanoseconds": _start_in_nanoseconds,
        "dark meter": _dark,
        "seen by utilisation alone": _only_utilised,
        "engine's samples end": _engine_ends,
    },
}
VALUES: Mapping[str, tuple[str, ...]] = {
    "topology": tuple(TOPOLOGIES),
    **{name: tuple(values) for name, values in SEEN.items()},
}
ORDINARY = {name: values[0] for name, values in VALUES.items()}

# Seconds of an interval of the ledger: a fleet file has one, so each booking has.
GRIDS = (300, 60, 900)


def grid_of(seed: int) -> int:
    """The grid of a seed's booking."""
    return Random(f"{seed}/grid").choice(GRIDS)


NVIDIA_ALONE = ("one_slice_of_seven", "two_slices", "repartitioned", "sharing_a_board")


def drawn_genes(seed: int, number: int, **stated: str) -> dict[str, str]:
    """The value of each gene of cell `number` of a seed; `stated` ones are not drawn. Half of each but the topology is
    ordinary, so that one odd thing shows by itself in some cells."""
    found = {}
    for name, values in VALUES.items():
        random = Random(f"{seed}/{number}/{name}")
        ordinary = () if name == "topology" else (values[0],) * (len(values) - 2)
        found[name] = random.choice((*values, *ordinary))
    if found["topology"] in NVIDIA_ALONE:
        found["exporter"] = "dcgm"
    return found | stated
