"""The metric and label catalogues as Python needs them: which families to ask for, which labels identify a device.

Their meaning (unit, factor, rank) is read by SQL alone; add a column here only when a collector or the booking needs
it.
"""

from __future__ import annotations

import csv
import difflib
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationInfo

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


# --- which column of a file is which metric ---------------------------------------------------------------------------


def by_metric(values: Mapping[str, str], known: Collection[str], info: ValidationInfo) -> dict[str, str]:
    """`values` as metric -> column, or ValueError. `known` are the names that may mean a metric.

    Up to 0.1 the key was the column. An entry that only makes sense that way is turned around, and noted in the
    context's `notices`; one that makes sense both ways or neither is refused.
    """
    found: dict[str, str] = {}
    turned: dict[str, str] = {}
    for key, value in values.items():
        if key in known and value in known and key != value:
            raise ValueError(
                f"{{{key}: {value}}} names two metrics, expected {{metric: column}}."
                " It is unclear which is the column: rename the column in the file"
            )
        if key not in known and value not in known:
            near = difflib.get_close_matches(key, known, n=1) or difflib.get_close_matches(value, known, n=1)
            of = ", ".join(sorted(known)) if len(known) < 5 else "those of dbt_project/seeds/metric_catalog.csv"
            hint = f"; did you mean {near[0]!r}?" if near else f" with a metric of {of}"
            raise ValueError(f"{{{key}: {value}}} names no known metric, expected {{metric: column}}{hint}")
        metric, column = (key, value) if key in known else (value, key)
        if key != metric:
            turned[metric] = column
        if metric in found:
            raise ValueError(f"{metric!r} is in two columns, expected one; add a second entry under `files`")
        found[metric] = column
    if turned:
        shown = ", ".join(f"{metric}: {column}" for metric, column in turned.items())
        where = info.data.get("path", "a file")
        context: dict[str, Any] = info.context if info.context is not None else {}
        context.setdefault("notices", []).append(
            f"{where}: values are written {{column: metric}}, which is deprecated and will be refused after 0.1."
            f" Write values: {{{shown}}}"
        )
    return found


@cache
def known_metrics() -> frozenset[str]:
    """The metrics of the catalogue, by each name that a source may write."""
    return frozenset(families())


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))
