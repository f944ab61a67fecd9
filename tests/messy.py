"""An ordinary cluster with its ordinary defects, for two days, and what its book must show, worked out by hand.

Two scrape jobs for one engine, free boards under the exporter's own pod, boards without a UUID on two hosts, a counter
that dies while its gauge lives on, a board exporter that dies beside a wall meter, a pod with another model after
noon, and an engine whose scrapes fail for two hours. Add a mess here with the watts and tokens that it was given:
expectations follow from those alone. Keep out assertions. Hours count from the first midnight; samples are a minute
apart and begin an hour before it; power is constant.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import yaml

from tests.planted import (
    DAY,
    ENERGY,
    HOURS,
    INPUT,
    OUTPUT,
    WATTS,
    Samples,
    Series,
    board,
    pod,
    rising,
    steady,
    vllm,
    without,
)

DAYS = 2
PERIOD_SECONDS = DAYS * 24 * HOURS
EXPORTER = {"namespace": "gpu-operator", "pod": "dcgm-exporter-7x2kq", "container": "nvidia-dcgm-exporter"}

DEAD_COUNTER = (13 * HOURS, 30 * HOURS)  # silent in between
DEAD_EXPORTER = 36 * HOURS
SWAP = 12 * HOURS
OUTAGE = (20 * HOURS, 22 * HOURS)

# (model, meter scope) -> joules.
JOULES = {
    ("alpha", "board"): 300 * PERIOD_SECONDS,
    ("__unallocated__", "board"): 60 * PERIOD_SECONDS,
    # Index 0 of two hosts: two boards.
    ("gamma", "board"): (200 + 300) * PERIOD_SECONDS,
    # The counter goes on as if nothing had been; the gauge, which reads 190 W for 200, only shapes the silence.
    ("delta", "board"): 200 * PERIOD_SECONDS,
    # Two boards until their exporter dies; from then on the wall meter of their node.
    ("zeta", "board"): 2 * 250 * DEAD_EXPORTER,
    ("zeta", "node"): 700 * (PERIOD_SECONDS - DEAD_EXPORTER),
    ("beta", "board"): 400 * SWAP,
    ("epsilon", "board"): 400 * (PERIOD_SECONDS - SWAP),
    ("eta", "board"): 250 * PERIOD_SECONDS,
}
# The wall meter over two boards of 250 W, while they report.
ZETA_HOST_JOULES = (700 - 500) * DEAD_EXPORTER
TOKENS = {
    # Scraped by three jobs.
    ("alpha", "input"): 20 * PERIOD_SECONDS,
    ("alpha", "output"): 10 * PERIOD_SECONDS,
    ("gamma", "output"): (4 + 6) * PERIOD_SECONDS,
    ("delta", "output"): 7 * PERIOD_SECONDS,
    ("zeta", "output"): 8 * PERIOD_SECONDS,
    ("beta", "output"): 5 * SWAP,
    ("epsilon", "output"): 3 * (PERIOD_SECONDS - SWAP),
    ("eta", "output"): 2 * PERIOD_SECONDS,
}


def fleet(folder: Path, *sources: dict[str, object]) -> Path:
    """The fleet file: little more than where to look."""
    contents = {
        "fleet": "messy",
        "period": {"start": DAY, "end": DAY + timedelta(days=DAYS)},
        "sources": list(sources),
        "sites": [{"name": "west", "zone": "US-CAL-CISO", "pue": 1.2, "tariff": [{"usd_per_kwh": 0.1}]}],
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "fleet.yaml"
    path.write_text(yaml.safe_dump(contents, sort_keys=False), encoding="utf-8")
    return path


def series() -> list[Series]:
    """Every series of the cluster, those of one metric together."""
    return sorted((*_boards(), *_engines()), key=lambda one: (one[0], sorted(one[1].items())))


def _rising(per_second: float, first: float = -HOURS, last: float = PERIOD_SECONDS + HOURS, **more: float) -> Samples:
    return rising(per_second, first, last, **more)


def _steady(value: float, first: float = -HOURS, last: float = PERIOD_SECONDS + HOURS) -> Samples:
    return steady(value, first, last)


def _held(name: str) -> dict[str, str]:
    """honor_labels: false: the workload is in exported labels, the exporter in the plain ones."""
    return {"exported_namespace": "llm", "exported_pod": name, "exported_container": "engine", **EXPORTER}


def _boards() -> Iterator[Series]:
    job = {"job": "gpu-metrics"}
    for uuid, node, watts, labels in (
        ("GPU-alpha", "n1", 300, _held("alpha-0")),
        ("GPU-free", "n1", 60, EXPORTER),
        ("GPU-swap", "n2", 400, _held("swap-0")),
        ("GPU-eta", "n2", 250, _held("eta-0")),
    ):
        yield ENERGY, board(uuid, node, **labels, **job), _rising(watts * 1000)
        yield WATTS, board(uuid, node, **labels, **job), _steady(watts)
    delta = board("GPU-delta", "n2", **_held("delta-0"), **job)
    yield ENERGY, delta, without(_rising(200_000), *DEAD_COUNTER)
    yield WATTS, delta, _steady(190)
    for uuid in ("GPU-zeta-0", "GPU-zeta-1"):
        yield ENERGY, board(uuid, "n3", **_held("zeta-0"), **job), _rising(250_000, last=DEAD_EXPORTER)
    yield "ipmi_dcmi_power_consumption_watts", {"nodename": "n3"}, _steady(700)
    # An exporter of boards whose serial number is not reported.
    for node, watts in (("h1", 200), ("h2", 300)):
        labels = {"gpu_id": "0", "hostname": node, "card_model": "AMD Instinct MI300X", **pod(f"gamma-{node}")}
        yield "gpu_package_power", labels, _steady(watts)


def _engines() -> Iterator[Series]:
    # A ServiceMonitor, annotation discovery 7 s later, and a managed PodMonitoring that knows the pod by its port.
    for job, instance, offset in (
        ("llm/vllm", "10.0.0.1:8000", 0.0),
        ("kubernetes-pods", "10.0.0.1:8000", 7.0),
        ("managed", "alpha-0:8000", 20.0),
    ):
        labels = vllm("alpha-0", "alpha", job=job, instance=instance)
        for metric, rate in ((INPUT, 20), (OUTPUT, 10)):
            yield metric, labels, _later(_rising(rate), offset, rate)
    for name, model, rate in (
        ("gamma-h1", "gamma", 4),
        ("gamma-h2", "gamma", 6),
        ("delta-0", "delta", 7),
        ("zeta-0", "zeta", 8),
    ):
        node = {"node": "n3"} if model == "zeta" else {}
        yield OUTPUT, vllm(name, model, **node), _rising(rate)
    yield OUTPUT, vllm("swap-0", "beta"), _rising(5, last=SWAP)
    yield OUTPUT, vllm("swap-0", "epsilon"), _rising(3, SWAP, start=0)
    yield OUTPUT, vllm("eta-0", "eta"), without(_rising(2), *OUTAGE)


def _later(samples: Samples, seconds: float, per_second: float) -> Samples:
    """The same counter, read so many seconds later."""
    return [(at + seconds, value + per_second * seconds) for at, value in samples]
