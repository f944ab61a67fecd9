"""Cells of a drawn fleet: a world and how it was seen, drawn from one seed; many of them share a booking.

A cell has a site and names of its own, so that nothing of it is another's. Keep out what genes there are (`genes`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import yaml

from tests.books import Book, files_source, record
from tests.drawn.exporters import TENANT_LABELS
from tests.drawn.genes import ENERGY, GRIDS, ORDINARY, SEEN, drawn_genes, fitted
from tests.drawn.operators import Keyed, Operator
from tests.drawn.retellings import SERVER, SERVERS, Seen
from tests.drawn.sightings import Sighting
from tests.drawn.topologies import TOPOLOGIES
from tests.drawn.worlds import SPAN_SECONDS, World
from tests.planted import DAY, Series, moment

# What `verdicts` and `flags` read.
MARTS = (
    "model_daily",
    "fleet_daily",
    "energy_ledger",
    "token_ledger",
    "series_daily",
    "reconciliation_daily",
    "token_reconciliation_daily",
    "scrape_copies_daily",
    "unmetered_devices",
    "unreadable_values",
    "held_back_dates",
    "tenant_usage_daily",
    "doubts",
)


COLUMNS = {"duration_seconds": "seconds", "status": "status", "tenant": "tenant"}


@dataclass(frozen=True)
class Cell:
    """A world, how it was seen, the genes that made it so, and what was done then to its samples and labels."""

    seed: int
    number: int
    genes: Mapping[str, str]
    world: World
    sighting: Sighting
    operators: tuple[Operator, ...] = ()

    @property
    def name(self) -> str:
        """That all of the cell's names begin with."""
        return self.world.name

    @property
    def is_harmless(self) -> bool:
        """Whether all can be known of it, and nothing is amiss."""
        return not (self.sighting.hidden or self.sighting.unknown or self.sighting.is_faulty)

    def with_genes(self, number: int, **changed: str) -> Cell:
        """The same cell under another number's name, with other values of these genes."""
        cell = made(self.seed, self.number, {**self.genes, **changed}, name=f"c{number}")
        return replace(cell, operators=self.operators)

    def keyed(self) -> list[Keyed]:
        """Each series as the operators leave it, with the metric and labels, but for the cell's name, of the one that
        it came of."""
        parts: dict[str, list[Seen]] = {}
        for one in _of_genes(self):
            named = json.dumps(dict(sorted(one[1].items())))
            parts.setdefault(one[0] + re.sub(rf"\b{self.name}\b", "", named), []).append(one)
        series = [(key, _joined(of)) for key, of in parts.items()]
        for operator in self.operators:
            series = operator.applied(series)
        return series

    def stated(self) -> dict[str, list[dict[str, object]]]:
        """The rows of the fleet file without which its figures are not knowable."""
        found: dict[str, list[dict[str, object]]] = {}
        for retelling in self.sighting.retellings:
            for key, rows in retelling.stated(self.world).items():
                found.setdefault(key, []).extend(rows)
        return found

    def odd(self) -> str:
        """The genes that are not ordinary."""
        return ", ".join(value for name, value in self.genes.items() if value != ORDINARY[name]) or "ordinary"

    def __str__(self) -> str:
        return f"{self.name} ({'; '.join((self.odd(), *map(str, self.operators)))})"


def drawn(seed: int, number: int, **stated: str) -> Cell:
    """Cell `number` of a seed, always the same; with `stated` genes all else is equal."""
    return made(seed, number, drawn_genes(seed, number, **stated))


def made(seed: int, number: int, genes: Mapping[str, str], *, name: str = "") -> Cell:
    """The cell of these genes; its rates and moments are those of the seed's cell of this number."""
    genes = fitted(genes)
    world = World(name or f"c{number}", Random(f"{seed}/{number}"))
    TOPOLOGIES[genes["topology"]](world)
    sighting = Sighting()
    for gene, values in SEEN.items():
        values[genes[gene]](sighting, Random(f"{seed}/{number}/{gene} as seen"))
    # A check may name the step that no sample shows before a process ends; pools whose prompts are as many; work
    # that nothing names; and what a node's meter books in a hole of its board's samples.
    ends = any(engine.alive != (0.0, SPAN_SECONDS) for engine in world.engines.values())
    if (
        ends
        or genes["topology"] in ("scorers_and_chat", "beside_a_training_job")
        or sighting.restarts_at
        or (sighting.dropped_ratio and sighting.node_meter)
    ):
        sighting.is_faulty = True
    if sighting.host_watts(world):
        sighting.hidden -= ENERGY - {"idle joules"}
    return Cell(seed, number, genes, world, sighting)


def plant(folder: Path, cells: Sequence[Cell], *, marts: tuple[str, ...] = MARTS, grid_seconds: int = GRIDS[0]) -> Book:
    """Write what was seen of all cells, and their fleet file; nothing is landed."""
    recorded: list[tuple[Cell, str]] = []
    for cell in cells:
        of_servers: dict[str, list[Seen]] = {}
        for metric, labels, at, values in _seen(cell):
            named = {name: text for name, text in labels.items() if name != SERVER}
            of_servers.setdefault(labels.get(SERVER, ""), []).append((metric, named, at, values))
        for server, series in of_servers.items():
            record(_table(series), folder / "recorded" / f"{cell.name}{server}")
            recorded.append((cell, server))
    lines = [json.dumps(one) for cell in cells for one in _requests(cell)]
    (folder / "requests.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    stated: dict[str, Any] = {
        "fleet": "drawn",
        "grid_seconds": grid_seconds,
        "period": {"start": DAY, "end": DAY + timedelta(days=1)},
        "sources": [
            files_source(
                f"{cell.name}_{server}".rstrip("_"),
                f"recorded/{cell.name}{server}/*.parquet",
                site=f"{cell.name}-site",
                interval_seconds=cell.sighting.stated_seconds or cell.sighting.step_seconds,
                tenant_labels=list(TENANT_LABELS) if cell.sighting.gateway else [],
                **SERVERS[server],
            )
            for cell, server in recorded
        ],
        "requests": [{"name": "edge", "kind": "access_log", "path": "requests.jsonl", "columns": COLUMNS}]
        if lines
        else [],
        "sites": [
            {"name": f"{cell.name}-site", "zone": "US-CAL-CISO", "pue": 1.0, "tariff": [{"usd_per_kwh": 0.0}]}
            for cell in cells
        ],
        "cost_rates": [
            {"device_type": name, "usd_per_gpu_hour": rate, "valid_from": DAY, "source": "drawn"}
            for name, rate in (("a100-sxm4-80gb", 1.0), ("h100-sxm5-80gb", 3.0))
        ],
    }
    for cell in cells:
        for key, rows in cell.stated().items():
            stated.setdefault(key, []).extend(rows)
    (folder / "fleet.yaml").write_text(yaml.safe_dump(stated, sort_keys=False), encoding="utf-8")
    return Book.of(folder / "fleet.yaml", folder / "data", marts=marts)


def _requests(cell: Cell) -> Iterator[dict[str, object]]:
    for number, (model, tenant, second, tokens) in enumerate(cell.sighting.requests(cell.world)):
        yield {
            "id": f"{cell.name}-{number}",
            "created": datetime.fromtimestamp(moment(second), UTC).isoformat(),
            "seconds": 60,
            "status": 200,
            "model": model,
            "tenant": f"{cell.name}-{tenant}",
            "usage": {"prompt_tokens": 3 * round(tokens), "completion_tokens": round(tokens)},
        }


def planted(cell: Cell) -> Iterator[Series]:
    """What was seen of the cell, to be planted among other fleets."""
    for metric, labels, at, values in _seen(cell):
        yield metric, labels, list(zip(at.tolist(), values.tolist(), strict=True))


def _seen(cell: Cell) -> Iterator[Seen]:
    """All series with their samples' Unix seconds, as the operators leave them."""
    return (one for _, one in cell.keyed()) if cell.operators else _of_genes(cell)


def _joined(parts: Sequence[Seen]) -> Seen:
    """One series of its parts."""
    metric, labels = parts[0][:2]
    at, values = (np.concatenate([part[place] for part in parts]) for place in (2, 3))
    order = np.argsort(at, kind="stable")
    return metric, labels, at[order], values[order]


def _of_genes(cell: Cell) -> Iterator[Seen]:
    """All series with their samples' Unix seconds."""
    for metric, labels, at, values in cell.sighting.series(cell.world):
        is_start = metric == "process_start_time_seconds"
        shown = (moment(0) + values) * cell.sighting.start_unit if is_start else values
        if len(at):
            yield metric, labels, moment(0) + at, shown


def _table(series: Sequence[Seen]) -> pa.Table:
    """Metric, labels (JSON), observed_at, value of all series."""
    counts = [len(at) for _, _, at, _ in series]
    which = pa.array(np.repeat(np.arange(len(series)), counts), pa.int32())
    observed = np.concatenate([np.round(at * 1e6) for _, _, at, _ in series]).astype("int64")
    texts = ([metric for metric, *_ in series], [json.dumps(labels) for _, labels, *_ in series])
    metrics, labels = (pa.DictionaryArray.from_arrays(which, pa.array(text)).cast(pa.string()) for text in texts)
    return pa.table(
        {
            "metric": metrics,
            "labels": labels,
            "observed_at": pa.array(observed).view(pa.timestamp("us", "UTC")),
            "value": np.concatenate([values for *_, values in series]).astype(float),
        }
    )
