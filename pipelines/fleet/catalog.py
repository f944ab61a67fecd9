"""The metric and label catalogues as Python needs them: which families to ask for, which labels identify a device.

Their meaning (unit, factor, rank) is read by SQL alone; add a column here only when a collector or the booking needs
it.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

from collectors.catalogue import SPELLINGS, spelled
from collectors.samples import Family, Stream
from pipelines.fleet.places import DBT_PROJECT

SEEDS = DBT_PROJECT / "seeds"
STREAMS = ("power", "tokens")


def families(seeds: Path = SEEDS, *, prefix: str | None = None) -> Mapping[str, Family]:
    """Metric name -> Family, by every name that a source may write; with `prefix`, also by those that begin with it.

    ValueError where rows of one metric disagree: a collector has only the metric's name.
    """
    found: dict[str, Family] = {}
    for row in spelled(_rows(seeds / "metric_catalog.csv"), seeds / SPELLINGS):
        if row["stream"] not in STREAMS:
            raise ValueError(f"metric_catalog.csv: {row['metric']} has stream {row['stream']!r}, expected {STREAMS}")
        # A match of any value: the server is asked for no other series of the family.
        label = row["match_label"] if row["match_value"] == "*" else None
        family = Family(row["metric"], cast("Stream", row["stream"]), row["source_kind"], label)
        if found.setdefault(row["metric"], family) != family:
            raise ValueError(f"metric_catalog.csv: {row['metric']} is both {found[row['metric']]} and {family}")
    if prefix is not None:
        prefixed = {prefix + metric: replace(family, metric=prefix + metric) for metric, family in found.items()}
        found = prefixed | found
    return found


def device_labels(seeds: Path = SEEDS) -> list[tuple[str, str, int, str]]:
    """(source kind, label, rank, attribute) of every label that identifies a device: by its UUID, or by its index and
    its node."""
    rows = _rows(seeds / "label_catalog.csv")
    kinds = {row["source_kind"] for row in rows if row["attribute"] in ("device_uuid", "device_index")}
    return [
        (row["source_kind"], row["label"], int(row["rank"]), row["attribute"])
        for row in rows
        if row["source_kind"] in kinds and row["attribute"] in ("device_uuid", "device_index", "node")
    ]


def metrics(seeds: Path = SEEDS, **having: str) -> list[str]:
    """Names of the metrics whose rows have these values, such as quantity="energy"."""
    rows = spelled(_rows(seeds / "metric_catalog.csv"), seeds / SPELLINGS)
    return sorted({row["metric"] for row in rows if all(row[key] == value for key, value in having.items())})


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))
