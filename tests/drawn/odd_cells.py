"""Cells of a drawn fleet: a board and an engine of their own, each with one thing odd, beside cells that are healthy.

A cell's names are its own (node, pod, model, scrape job), so what is odd in it is nothing to the others. What its
exporters report comes from the two catalogues: every metric and every label of them can be the odd one. Keep out what
the book should show of a cell: that is `findings`.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from random import Random

from hypothesis import HealthCheck, Phase, given, seed, settings

from pipelines.fleet.catalog import SEEDS
from tests.drawn.odd_values import OddNumbers, numbers, texts
from tests.planted import A100, HOURS, Samples, Series, moment, rising, steady

STEP_SECONDS = 120
BUSY_SECONDS, LAST_SECOND = HOURS, 2.5 * HOURS  # active for an hour, then parked for one and a half
BUSY_WATTS, PARKED_WATTS = 250.0, 80.0
OUTPUT_TOKENS_PER_SECOND, INPUT_TOKENS_PER_SECOND = 10.0, 30.0
BUCKETS = ({"le": "0.1"}, {"le": "0.5"}, {"le": "+Inf"})

Row = dict[str, str]


@dataclass(frozen=True)
class Oddity:
    """One odd thing of an exporter: a label with an odd text, or a metric with odd samples."""

    source_kind: str
    label: str | None = None
    text: str = ""
    metric: str | None = None
    samples: OddNumbers | None = None

    def __str__(self) -> str:
        shown = repr(self.text if len(self.text) < 60 else f"{self.text[:40]}… ({len(self.text)} characters)")
        what = f"{self.label}={shown}" if self.label is not None else f"{self.metric}: {self.samples}"
        return f"{self.source_kind} {what}"


@dataclass(frozen=True)
class Cell:
    """A board and an engine that holds it; `board` and `engine` are what is odd about each, if anything."""

    name: str
    board: Oddity | None = None
    engine: Oddity | None = None

    def series(self) -> Iterator[Series]:
        """All that the cell's exporters report."""
        yield from self._series("power", self.board or Oddity("dcgm_exporter"))
        yield from self._series("tokens", self.engine or Oddity("vllm"))

    def __str__(self) -> str:
        return f"{self.name} ({'; '.join(str(one) for one in (self.board, self.engine) if one) or 'healthy'})"

    def _series(self, stream: str, odd: Oddity) -> Iterator[Series]:
        labels = self._labels(stream, odd)
        for row in _reported(stream, odd):
            matched = {row["match_label"]: row["match_value"]} if row["match_label"] else {}
            samples = _samples(row)
            if odd.metric == row["metric"] and odd.samples is not None:
                samples = odd.samples.in_(samples)
            for bucket in (
                ({"le": "0.1"}, {"le": "0.5"}, {"le": "+Inf"}) if row["quantity"].endswith("_bucket") else ({},)
            ):
                yield row["metric"], {**bucket, **labels, **matched}, samples

    def _labels(self, stream: str, odd: Oddity) -> dict[str, str]:
        values = self._attributes(stream)
        named: dict[str, tuple[int, str]] = {}
        for row in _rows("label_catalog"):
            if row["source_kind"] == odd.source_kind and row["attribute"] in values:
                named[row["attribute"]] = min(named.get(row["attribute"], (1000, "")), (int(row["rank"]), row["label"]))
        labels = {label: values[attribute] for attribute, (_, label) in named.items()}
        labels |= {"job": f"job-{self.name}"}
        return labels if odd.label is None else {**labels, odd.label: odd.text}

    def _attributes(self, stream: str) -> dict[str, str]:
        shared = {
            "node": f"n-{self.name}",
            "namespace": "llm",
            "pod": self.name,
            "container": "engine",
        }
        of_board = {
            "device_uuid": f"GPU-{self.name}",
            "device_index": "0",
            "device_type": A100,
            "module": f"module-{self.name}",
            "rack": f"rack-{self.name}",
            "pdu": f"pdu-{self.name}",
            "pdu_input": "1",
            "facility": f"hall-{self.name}",
        }
        of_engine = {"model": f"model-{self.name}", "instance": f"{self.name}:8000"}
        return {**shared, **(of_board if stream == "power" else of_engine)}


def drawn(number: int, count: int) -> list[Cell]:
    """So many cells of one seed, each with an odd board and an odd engine; the same seed gives the same cells.

    Labels and metrics take turns, so that 300 cells have each of them; Hypothesis draws what is odd about it.
    """
    boards, engines = (_shuffled(number, _targets(stream)) for stream in ("power", "tokens"))
    cells: list[Cell] = []

    @seed(number)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(texts(), numbers(), texts(), numbers())
    def draw(text: str, samples: OddNumbers, other_text: str, other_samples: OddNumbers) -> None:
        board, engine = boards[len(cells) % len(boards)], engines[len(cells) % len(engines)]
        cells.append(Cell(f"odd-{len(cells)}", _odd(board, text, samples), _odd(engine, other_text, other_samples)))

    draw()
    return cells


def _odd(target: Oddity, text: str, samples: OddNumbers) -> Oddity:
    """The label or metric with what was drawn for it."""
    return replace(target, text=text) if target.label is not None else replace(target, samples=samples)


def _targets(stream: str) -> list[Oddity]:
    """Every label and every metric of the exporters of a stream."""
    metrics = sorted({(row["source_kind"], row["metric"]) for row in _of_stream(stream)})
    kinds = {kind for kind, _ in metrics}
    labels = sorted(
        {(row["source_kind"], row["label"]) for row in _rows("label_catalog") if row["source_kind"] in kinds}
    )
    return [Oddity(kind, label=label) for kind, label in labels] + [Oddity(kind, metric=name) for kind, name in metrics]


def _shuffled(number: int, targets: list[Oddity]) -> list[Oddity]:
    return Random(number).sample(targets, len(targets))


def _reported(stream: str, odd: Oddity) -> list[Row]:
    """The catalogue's rows that an exporter reports: one per quantity and token class, and the odd metric."""
    chosen: dict[tuple[str, str], Row] = {}
    for row in _of_stream(stream):
        if row["source_kind"] != odd.source_kind:
            continue
        key = (row["quantity"], row["token_class"])
        if row["metric"] == odd.metric or key not in chosen:
            if key in chosen and chosen[key]["metric"] == odd.metric:
                continue
            chosen[key] = row
    return list({(row["metric"], row["match_value"]): row for row in chosen.values()}.values())


def _samples(row: Row) -> Samples:
    """What a healthy exporter reports of a catalogue's row: busy for an hour, then parked."""
    factor = float(row["factor"])
    busy, parked = {
        "energy": (BUSY_WATTS, PARKED_WATTS),
        "power": (BUSY_WATTS, PARKED_WATTS),
        "cooling_energy": (20.0, 20.0),
        "cooling_power": (20.0, 20.0),
        "power_limit": (400.0, 400.0),
        "activity": (0.5, 0.0),
        "memory_used": (4e10, 4e10),
        "requests_running": (1.0, 0.0),
        "requests_waiting": (0.0, 0.0),
        "kv_cache_usage": (0.3, 0.0),
        "awake": (1.0, 1.0),
        "preemptions": (0.0, 0.0),
        "process_start": (moment(-HOURS), moment(-HOURS)),
        "tokens": (OUTPUT_TOKENS_PER_SECOND if row["token_class"] == "output" else INPUT_TOKENS_PER_SECOND, 0.0),
    }.get(row["quantity"], (1.0, 0.0))
    if row["kind"] == "gauge":
        first = steady(busy / factor, 0, BUSY_SECONDS - STEP_SECONDS, step=STEP_SECONDS)
        return first + steady(parked / factor, BUSY_SECONDS, LAST_SECOND, step=STEP_SECONDS)
    first = rising(busy / factor, 0, BUSY_SECONDS, step=STEP_SECONDS)
    second = rising(parked / factor, BUSY_SECONDS, LAST_SECOND, start=first[-1][1], step=STEP_SECONDS)
    return first + second[1:]


def _of_stream(stream: str) -> list[Row]:
    return [row for row in _rows("metric_catalog") if row["stream"] == stream]


@cache
def _rows(seed_file: str) -> list[Row]:
    with (SEEDS / f"{seed_file}.csv").open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))
