"""Cells of a drawn fleet: a world and how it was seen, drawn from one seed; many of them share a booking."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import yaml

from tests.books import Book, files_source, record
from tests.drawn.sightings import ENERGY, WATTS, Sighting
from tests.drawn.worlds import TOPOLOGIES, World
from tests.planted import DAY, moment


@dataclass(frozen=True)
class Cell:
    """A world, how it was seen, and the names of the genes that made it so."""

    world: World
    sighting: Sighting
    genes: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.world.name} ({', '.join(self.genes)})"


def drawn(seed: int, number: int, topology: str | None = None, event: str | None = None) -> Cell:
    """Cell `number` of a seed: the same seed and number give the same cell. `topology` and `event` are drawn where they
    are not given."""
    random = Random(f"{seed}/{number}")
    world = World(f"c{number}", random)
    topology = topology or random.choice(sorted(TOPOLOGIES))
    TOPOLOGIES[topology](world)
    sighting = Sighting(
        step_seconds=random.choice((15.0, 30.0, 60.0)),
        reads=random.choice(((ENERGY, WATTS), (ENERGY,), (WATTS,))),
        is_exported=random.random() < 0.5,
        jobs=random.choice((("engines",), ("engines",), ("engines", "annotations"))),
    )
    event = event or random.choice(sorted(EVENTS))
    EVENTS[event](sighting, random)
    seen = (
        f"every {sighting.step_seconds:g} s",
        "+".join("counter" if one == ENERGY else "gauge" for one in sighting.reads),
    )
    return Cell(world, sighting, (topology, event, *seen, "exported" if sighting.is_exported else "own labels"))


def _half(random: Random) -> float:
    return 60.0 * random.randint(100, 140)


def _nothing(sighting: Sighting, random: Random) -> None:
    pass


def _reset(sighting: Sighting, random: Random) -> None:
    sighting.reset_at = _half(random)


def _restart(sighting: Sighting, random: Random) -> None:
    sighting.restart_at = _half(random)


def _dark(sighting: Sighting, random: Random) -> None:
    sighting.dark_from = _half(random)
    sighting.faults.add("dark meter")


def _only_utilised(sighting: Sighting, random: Random) -> None:
    sighting.is_only_utilised = True
    sighting.faults.add("no power of a board")


def _engine_ends(sighting: Sighting, random: Random) -> None:
    sighting.engine_ends_at = _half(random) + 30.0
    sighting.faults.add("engine's samples end")


EVENTS = {
    "nothing": _nothing,
    "counter reset": _reset,
    "engine restart": _restart,
    "dark meter": _dark,
    "seen by utilisation alone": _only_utilised,
    "engine's samples end": _engine_ends,
}


def plant(folder: Path, cells: Sequence[Cell], *, marts: tuple[str, ...] = ()) -> Book:
    """Write what was seen of all cells, and their fleet file; nothing is landed."""
    record(_table(cells), folder / "recorded" / "cluster")
    stated = {
        "fleet": "drawn",
        "period": {"start": DAY, "end": DAY + timedelta(days=1)},
        "sources": [files_source("cluster", "recorded/cluster/*.parquet")],
        "sites": [{"name": "west", "zone": "US-CAL-CISO", "pue": 1.0, "tariff": [{"usd_per_kwh": 0.0}]}],
        "cost_rates": [
            {"device_type": name, "usd_per_gpu_hour": rate, "valid_from": DAY, "source": "drawn"}
            for name, rate in (("a100-sxm4-80gb", 1.0), ("h100-sxm5-80gb", 3.0))
        ],
    }
    (folder / "fleet.yaml").write_text(yaml.safe_dump(stated, sort_keys=False), encoding="utf-8")
    return Book.of(folder / "fleet.yaml", folder / "data", marts=marts)


def _table(cells: Sequence[Cell]) -> pa.Table:
    """Metric, labels (JSON), observed_at, value of all series."""
    series = [one for cell in cells for one in cell.sighting.series(cell.world) if len(one[2])]
    counts = [len(at) for _, _, at, _ in series]
    which = np.repeat(np.arange(len(series)), counts)
    observed = np.concatenate([np.round((moment(0) + at) * 1e6) for _, _, at, _ in series]).astype("int64")
    values = [moment(0) + value if metric == "process_start_time_seconds" else value for metric, _, _, value in series]
    names = pa.DictionaryArray.from_arrays(pa.array(which, pa.int32()), pa.array([metric for metric, *_ in series]))
    labels = pa.DictionaryArray.from_arrays(
        pa.array(which, pa.int32()), pa.array([json.dumps(of) for _, of, *_ in series])
    )
    return pa.table(
        {
            "metric": names.cast(pa.string()),
            "labels": labels.cast(pa.string()),
            "observed_at": pa.array(observed).view(pa.timestamp("us", "UTC")),
            "value": np.concatenate(values).astype(float),
        }
    )
