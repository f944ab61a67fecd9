"""Genes: the named properties that a seed sets in each cell, and how each changes what is seen of its world.

Add here a property with its values; the first is the ordinary one. Each is drawn by itself, so that setting one leaves
all others as they were. A gene that hides something names the figures that cannot be known then. Keep out what it does
to samples (`sightings`) and the shapes of clusters (`topologies`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from random import Random

from tests.drawn import retellings
from tests.drawn.exporters import EXPORTERS, GATEWAYS
from tests.drawn.retellings import Page, Retelling
from tests.drawn.sightings import Sighting
from tests.drawn.topologies import TOPOLOGIES
from tests.drawn.worlds import SPAN_SECONDS

# What cannot be known without a board's power, and without an engine's samples.
ENERGY = {"joules", "joules of the site", "idle joules", "joules of tenants", "USD of capacity"}
LIFE = {"idle joules", "output tokens", "input tokens"}
TOKENS = {"output tokens", "input tokens", "J per output token"}
UNCOUNTED = TOKENS | {"idle joules", "tokens of tenants", "joules of tenants"}
HELD = ENERGY | {"J per output token"}
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


def _in_place(
    sighting: Sighting, *, hides: set[str] | None = None, unseen_steps: float = 0.0, is_faulty: bool = False
) -> None:
    """What is unknown, or lost at more ends than usual, and whether a check may name it."""
    sighting.unknown |= hides or set()
    sighting.is_faulty |= is_faulty
    sighting.unseen_steps = max(sighting.unseen_steps, unseen_steps)


def _workers(*, has_start: bool) -> Callable[[Sighting, Random], None]:
    def seen(sighting: Sighting, random: Random) -> None:
        sighting.page = retellings.workers(sighting.step_seconds, has_start=has_start)
        _in_place(sighting, hides=set() if has_start else TOKENS, unseen_steps=4)

    return seen


def _paged(page: Callable[[float], Page], unseen_steps: float) -> Callable[[Sighting, Random], None]:
    """A page that changes in the middle."""

    def seen(sighting: Sighting, random: Random) -> None:
        sighting.page = page(_about_the_middle(random) + 30.0)
        _in_place(sighting, unseen_steps=unseen_steps, is_faulty=True)

    return seen


def _deltas(*, is_stated: bool) -> Callable[[Sighting, Random], None]:
    def seen(sighting: Sighting, random: Random) -> None:
        sighting.page = retellings.deltas(random, is_stated=is_stated)
        _in_place(sighting, hides=set() if is_stated else UNCOUNTED)

    return seen


def _retold(
    retelling: Callable[[Sighting, Random], Retelling], **more: float | set[str] | bool
) -> Callable[[Sighting, Random], None]:
    def seen(sighting: Sighting, random: Random) -> None:
        sighting.retellings += (retelling(sighting, random),)
        _in_place(sighting, **more)

    return seen


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
    "pages": {
        "of one process": _nothing,
        "two workers": _workers(has_start=True),
        "two workers without a start": _workers(has_start=False),
        "a sum whose part restarts": _paged(retellings.sum_of_three, 2),
        "a sum whose part is away": _paged(retellings.part_away, 4 + retellings.AWAY_SECONDS / 60),
        "another kind of engine": _paged(partial(retellings.sglang_from, is_upgrade=False), 2),
        "renamed counters": _paged(partial(retellings.sglang_from, is_upgrade=True), 2),
        "deltas": _deltas(is_stated=False),
        "deltas, stated": _deltas(is_stated=True),
    },
    "names": {
        "of their own": _nothing,
        "regions": _retold(lambda sighting, random: retellings.of_one_name("regions")),
        "one region": _retold(lambda sighting, random: retellings.of_one_name("one region")),
        "containers": _retold(lambda sighting, random: retellings.of_one_name("containers")),
        "bare host": _retold(lambda sighting, random: retellings.bare_host(), is_faulty=True),
        "an address before both": _retold(
            lambda sighting, random: retellings.service_address(sighting.step_seconds), unseen_steps=4
        ),
    },
    "board": {
        "whole": _nothing,
        "slices with UUIDs": _retold(lambda sighting, random: retellings.slices_with_uuids()),
        "one of two pods named": _retold(lambda sighting, random: retellings.one_pod_named()),
        "pods named in turn": _retold(lambda sighting, random: retellings.pods_named_in_turn()),
        "partitions": _retold(lambda sighting, random: retellings.partitions(), is_faulty=True),
        "exporter's pod as host": _retold(
            lambda sighting, random: retellings.host_is_the_exporter(_about_the_middle(random))
        ),
        "CPU packages beside": _retold(lambda sighting, random: retellings.packages_beside(sighting.step_seconds)),
        "shown late": _retold(lambda sighting, random: retellings.held_for_two(sighting.step_seconds), unseen_steps=1),
        "read more slowly": _retold(
            lambda sighting, random: retellings.slower_from(_about_the_middle(random), sighting.step_seconds),
            unseen_steps=4,
            is_faulty=True,
        ),
    },
    "tokens": {
        "of engines": _nothing,
        "of a gateway": _retold(lambda sighting, random: retellings.no_pages(), hides=HELD),
        "of gateways in line": _retold(lambda sighting, random: retellings.gateways_in_line(), hides=HELD),
        "of a gateway and a part behind it": _retold(
            lambda sighting, random: retellings.gateways_in_line(("acme",)), hides=HELD
        ),
    },
    "server": {
        "one": _nothing,
        "another from the middle": _retold(
            lambda sighting, random: retellings.other_server_from(_about_the_middle(random)), unseen_steps=1
        ),
    },
}
VALUES: Mapping[str, tuple[str, ...]] = {
    "topology": tuple(TOPOLOGIES),
    **{name: tuple(values) for name, values in SEEN.items()},
}
ORDINARY = {name: values[0] for name, values in VALUES.items()}

# What is set by itself only: beside others it makes figures that cannot be known, such as a part of a gateway that an
# engine of half an hour uses.
BY_ITSELF = {"a sum whose part is away", "one region", "pods named in turn", "of a gateway and a part behind it"}

# Seconds of an interval of the ledger: a fleet file has one, so each booking has.
GRIDS = (300, 60, 900)


def grid_of(seed: int) -> int:
    """The grid of a seed's booking."""
    return Random(f"{seed}/grid").choice(GRIDS)


NVIDIA_ALONE = ("one_slice_of_seven", "two_slices", "repartitioned")
PAIRS = ("two_models_of_a_node", "replicas")
CALM = ("none", "node renamed", "odd samples", "counter reset", "dark meter", "seen by utilisation alone")
SIMPLE = tuple(name for name in TOPOLOGIES if name not in ("prefill_and_decode", "scorers_and_chat"))

# Gene and value -> the values that other genes have where it fits; where one has another value, it is ordinary.
FITS: Mapping[tuple[str, str], Mapping[str, tuple[str, ...]]] = {
    ("pages", "a sum whose part restarts"): {"event": CALM},
    # What begins while the part is away shows no fall before it comes back.
    ("pages", "a sum whose part is away"): {
        "event": CALM,
        "topology": (*PAIRS, "single", "tensor_parallel"),
        "server": ("one",),
    },
    ("pages", "another kind of engine"): {"event": CALM, "topology": SIMPLE},
    ("pages", "renamed counters"): {"event": CALM, "topology": SIMPLE},
    ("pages", "deltas"): {"event": ("none",), "engines scraped": ("once",)},
    ("pages", "deltas, stated"): {"event": ("none",), "engines scraped": ("once",)},
    ("names", "regions"): {"topology": PAIRS, "clusters": ("one",), "node meter": ("none",)},
    ("names", "one region"): {"topology": PAIRS, "clusters": ("one",), "node meter": ("none",)},
    ("names", "containers"): {"topology": PAIRS, "clusters": ("one",)},
    # Without a process start two jobs of one page are two engines there, which the row shows.
    ("names", "bare host"): {
        "topology": (*PAIRS, "single", "tensor_parallel"),
        "clusters": ("one",),
        "engines scraped": ("once",),
    },
    ("names", "an address before both"): {
        "topology": ("replicas",),
        "clusters": ("one",),
        "scrapes": ("all",),
        "event": CALM,
        "pages": ("of one process",),
    },
    ("board", "slices with UUIDs"): {"topology": ("sharing_a_board",), "exporter": ("dcgm",)},
    ("board", "one of two pods named"): {"topology": ("sharing_a_board",), "clusters": ("one",)},
    ("board", "pods named in turn"): {"topology": ("sharing_a_board",), "clusters": ("one",)},
    ("board", "partitions"): {"topology": ("sharing_a_board",), "exporter": ("amd", "amd in upper case")},
    ("board", "exporter's pod as host"): {
        "exporter": ("dcgm",),
        "node meter": ("placed", "none"),
        "event": tuple(name for name in SEEN["event"] if name != "node renamed"),
    },
    ("board", "shown late"): {"step": ("15 s", "30 s")},
    # A gauge alone is then in doubt, in all its figures: tests/ledger/meters/test_sampling_gaps.py.
    ("board", "read more slowly"): {"step": ("15 s", "30 s"), "reads": ("both", "counter")},
    ("tokens", "of a gateway"): {
        "requests": tuple(f"counted by {name}" for name in GATEWAYS),
        "topology": SIMPLE,
        "names": ("of their own",),
    },
    ("tokens", "of gateways in line"): {
        "requests": ("counted by litellm",),
        "topology": SIMPLE,
        "names": ("of their own",),
    },
    ("tokens", "of a gateway and a part behind it"): {
        "requests": ("counted by litellm",),
        "topology": SIMPLE,
        "names": ("of their own",),
    },
    # Found, and not marked in the row: a tenant's tokens within a hundredth or two of an hour that two servers share,
    # slices that are cut anew while monitoring moves, an engine whose samples end before it does. A check has what a
    # node's meter shows on the other server.
    ("server", "another from the middle"): {
        "requests": ("unknown", "logged"),
        "node meter": ("none", "unplaced"),
        "topology": tuple(name for name in TOPOLOGIES if name != "repartitioned"),
        "event": tuple(name for name in SEEN["event"] if name != "engine's samples end"),
    },
}


def fitted(genes: Mapping[str, str]) -> dict[str, str]:
    """The genes, ordinary where they do not fit the others."""
    found = dict(genes)
    for (name, value), others in FITS.items():
        if found[name] == value and any(found[other] not in fitting for other, fitting in others.items()):
            found[name] = ORDINARY[name]
    return found


def drawn_genes(seed: int, number: int, **stated: str) -> dict[str, str]:
    """The value of each gene of cell `number` of a seed; `stated` ones are not drawn. Half of each but the topology is
    ordinary, so that one odd thing shows by itself in some cells."""
    found = {}
    for name, named in VALUES.items():
        values = tuple(value for value in named if value not in BY_ITSELF)
        random = Random(f"{seed}/{number}/{name}")
        ordinary = () if name == "topology" else (values[0],) * (len(values) - 2)
        found[name] = random.choice((*values, *ordinary))
    if found["topology"] in (*NVIDIA_ALONE, *(() if found["board"] == "partitions" else ("sharing_a_board",))):
        found["exporter"] = "dcgm"
    return found | stated
