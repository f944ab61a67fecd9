"""Whose labels a board carries, and which engine a pod without metrics works for.

One shape is planted for a day; each job and node is a case. Power is constant, so that joules are watts × seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.planted import (
    DAY_SECONDS,
    ENERGY,
    OUTPUT,
    WATTS,
    Samples,
    Series,
    board,
    pod,
    rising,
    steady,
    vllm,
)
from tests.shapes import Seen, Shape, shape

FREE, UNKNOWN = "__unallocated__", "__unknown__"
# Its container is in no seed: what shows that it is the exporter's is that it is seen beside `exported_pod`.
EXPORTER = {"namespace": "ops", "pod": "gpu-metrics-x7k2q", "container": "main"}
LWS, GROUP = "leaderworkerset_sigs_k8s_io_name", "leaderworkerset_sigs_k8s_io_group_index"
POD_LABELS = "kube_pod_labels"


def exported(name: str, container: str = "engine") -> dict[str, str]:
    """The workload's labels where the scraper's own have taken their names."""
    return {"exported_namespace": "llm", "exported_pod": name, "exported_container": container}


def joules(watts: float = 200) -> Samples:
    """The counter of a board, in millijoules."""
    return rising(1000 * watts, start=1e9)


def serves(name: str, per_second: float = 50, **labels: str) -> Series:
    """The tokens of a pod's vLLM."""
    return OUTPUT, vllm(name, f"model-{name}", **labels), rising(per_second)


def scrapers() -> Iterator[Series]:
    """Scrape jobs in which some series have the workload in `exported_pod`, and others in `pod`."""
    for uuid, node, labels in (
        # One job: the workload in exported_pod, in pod, and nowhere.
        ("GPU-mix-0", "m1", {"job": "mixed", **EXPORTER, **exported("mix-0")}),
        ("GPU-mix-1", "m1", {"job": "mixed", **pod("mix-1")}),
        ("GPU-mix-free", "m1", {"job": "mixed", **EXPORTER}),
        # A node without a workload: the exporter's pod is another of the same DaemonSet, without its container.
        ("GPU-mix-rest", "m2", {"job": "mixed", "namespace": "ops", "pod": "gpu-metrics-q2w4z"}),
        # A batch job holds a board beside the exporter's own pod.
        ("GPU-mix-batch", "m3", {"job": "mixed", **EXPORTER, "hpc_job": "4711"}),
        *((f"GPU-whole-{n}", "w1", {"job": "mixed", **pod("whole-0")}) for n in range(4)),
        # Clusters behind one server, whose jobs have one name: b's workload has a container called as a's exporter's.
        ("GPU-a", "a1", {"job": "gpus", "cluster": "a", **EXPORTER, **exported("a-0")}),
        ("GPU-b", "b1", {"job": "gpus", "cluster": "b", **pod("b-0"), "container": "main"}),
        # The exporter of cluster c maps no pods: the node decides.
        ("GPU-c", "c1", {"job": "gpus", "cluster": "c"}),
        # A relabelling copied the workload's names and did not remove them.
        ("GPU-copy-0", "y1", {"job": "copied", **pod("copy-0"), **exported("copy-0")}),
        ("GPU-copy-1", "y1", {"job": "copied", **pod("copy-1")}),
        ("GPU-copy-free", "y1", {"job": "copied", **EXPORTER, "container": "nvidia-dcgm-exporter"}),
        # Two jobs see one board; that of the better reading names no pod.
        ("GPU-two", "t1", {"job": "nameless"}),
        ("GPU-two-more", "t1", {"job": "nameless", **pod("more-0")}),
    ):
        yield ENERGY, board(uuid, node, **labels), joules()
    yield WATTS, board("GPU-two", "t1", job="named", **pod("two-0")), steady(200)
    for name in ("mix-0", "whole-0", "a-0", "b-0", "copy-0", "copy-1", "more-0", "two-0"):
        yield serves(name)
    yield serves("mix-1", 0)  # idle all day
    yield OUTPUT, {"model_name": "model-c", "engine": "0", "instance": "c1:8000"}, rising(2)


def groups() -> Iterator[Series]:
    """Engines over two nodes, of which only the leader has metrics."""
    # LWS's labels: two groups of one set.
    for group in ("0", "1"):
        labels = {LWS: "big", GROUP: group}
        yield ENERGY, board(f"GPU-big-{group}", f"g{group}", **pod(f"big-{group}"), **labels), joules()
        yield ENERGY, board(f"GPU-big-{group}-1", f"g{group}w", **pod(f"big-{group}-1"), **labels), joules()
        yield serves(f"big-{group}", **labels)
    # The same by kube-state-metrics: the names alone show nothing.
    yield ENERGY, board("GPU-odd-a", "k1", **pod("odd-a")), joules()
    yield ENERGY, board("GPU-odd-b", "k2", **pod("odd-b")), joules()
    for name in ("odd-a", "odd-b"):
        labels = {f"label_{LWS}": "odd", f"label_{GROUP}": "0", "namespace": "llm", "pod": name}
        yield POD_LABELS, labels, steady(1)
    yield serves("odd-a")
    # A group of two engines, and a pod of neither.
    for name in ("pair-0", "pair-0-1", "pair-0-2"):
        labels = {LWS: "pair", GROUP: "0"}
        yield ENERGY, board(f"GPU-{name}", f"n-{name}", **pod(name), **labels), joules()
        if name != "pair-0-2":
            yield serves(name, **labels)
    # Names alone.
    yield from (
        (ENERGY, board(f"GPU-{name}", f"n-{name}", **pod(name)), joules())
        for name in ("lone-0", "lone-0-1", "mpi-worker-0", "mpi-worker-1", "app", "app-1", "old-0-1", "solo-worker-0")
    )
    yield from (serves(name) for name in ("lone-0", "mpi-launcher-x7k2q", "app", "app-1"))
    # The same name in another namespace, and in another cluster.
    yield ENERGY, board("GPU-lab", "l1", **pod("lone-0-1", "lab")), joules()
    yield ENERGY, board("GPU-far-0", "f1", **pod("far-0"), cluster="a"), joules()
    yield ENERGY, board("GPU-far-0-1", "f2", **pod("far-0-1"), cluster="b"), joules()
    yield serves("far-0", cluster="a")


def free() -> Iterator[Series]:
    """Free boards beside an engine without joules: on an accelerator (site `doubting`), on a CPU (`sure`)."""
    for site, name in (("doubting", "ghost-0"), ("sure", "cpu-0")):
        yield ENERGY, board(f"GPU-{site}", site, **pod(f"{site}-0")), joules()
        yield ENERGY, board(f"GPU-{site}-free", site), joules(60)
        yield serves(f"{site}-0")
        yield serves(name, 0, Hostname=site)


def series() -> Iterator[Series]:
    yield from (*scrapers(), *groups(), *free())


COMMON = {"zone": "US-CAL-CISO", "pue": 1.0, "tariff": [{"usd_per_kwh": 0.1}]}
SCRAPERS = shape(
    "scrapers",
    series,
    sites=[{"name": name, **COMMON} for name in ("scrapers", "doubting", "sure")],
    nodes=[{"name": name, "site": name} for name in ("doubting", "sure")],
    engines=[{"engine": "llm/cpu-*", "accelerators": False}],
    cost_rates=[{"device_type": "a100-sxm4-80gb", "usd_per_gpu_hour": 2.0, "source": "contract"}],
)


@pytest.fixture(scope="module")
def book(shared_book: Callable[[Shape], Seen]) -> Seen:
    return shared_book(SCRAPERS)


def engines(book: Seen, uuid: str) -> list[tuple]:
    return book.query(
        "select engine, sum(covered_seconds)::integer from marts.energy_ledger where device_uuid = ? group by engine",
        [uuid],
    )


@pytest.mark.parametrize(
    ("uuid", "engine"),
    [
        ("GPU-mix-0", "llm/mix-0"),
        ("GPU-mix-1", "llm/mix-1"),
        ("GPU-mix-free", FREE),
        ("GPU-mix-rest", FREE),
        ("GPU-mix-batch", UNKNOWN),
        ("GPU-whole-0", "llm/whole-0"),
        ("GPU-whole-3", "llm/whole-0"),
        ("GPU-a", "llm/a-0"),
        ("GPU-b", "llm/b-0"),
        ("GPU-c", "c1:8000"),
        ("GPU-copy-0", "llm/copy-0"),
        ("GPU-copy-1", "llm/copy-1"),
        ("GPU-copy-free", FREE),
        ("GPU-two", "llm/two-0"),
        ("GPU-two-more", "llm/more-0"),
    ],
)
def test_a_pod_beside_exported_pods_is_a_workload_unless_it_is_the_exporter(book: Seen, uuid: str, engine: str) -> None:
    assert engines(book, uuid) == [(engine, DAY_SECONDS)]


@pytest.mark.parametrize(
    ("uuid", "engine"),
    [
        ("GPU-big-0-1", "llm/big-0"),
        ("GPU-big-1-1", "llm/big-1"),
        ("GPU-odd-b", "llm/odd-a"),
        ("GPU-pair-0", "llm/pair-0"),
        ("GPU-pair-0-1", "llm/pair-0-1"),
        ("GPU-pair-0-2", UNKNOWN),
        ("GPU-lone-0-1", "llm/lone-0"),
        ("GPU-mpi-worker-0", "llm/mpi-launcher-x7k2q"),
        ("GPU-mpi-worker-1", "llm/mpi-launcher-x7k2q"),
        ("GPU-app", "llm/app"),
        ("GPU-app-1", "llm/app-1"),
        ("GPU-old-0-1", UNKNOWN),
        ("GPU-solo-worker-0", UNKNOWN),
        ("GPU-lab", UNKNOWN),
        ("GPU-far-0-1", UNKNOWN),
    ],
)
def test_a_pod_without_metrics_works_for_its_groups_only_engine(book: Seen, uuid: str, engine: str) -> None:
    assert engines(book, uuid) == [(engine, DAY_SECONDS)]


@pytest.mark.parametrize(
    ("uuid", "confidence"),
    [("GPU-big-0", "high"), ("GPU-big-0-1", "high"), ("GPU-lone-0", "high"), ("GPU-lone-0-1", "low")],
)
def test_a_group_by_name_alone_has_low_confidence(book: Seen, uuid: str, confidence: str) -> None:
    query = "select distinct attribution_confidence from marts.energy_ledger where device_uuid = ?"
    assert book.query(query, [uuid]) == [(confidence,)]


@pytest.mark.parametrize("model", ["model-big-0", "model-big-1", "model-odd-a", "model-lone-0"])
def test_an_engine_over_two_nodes_has_the_joules_of_both(book: Seen, model: str) -> None:
    """Two boards of 200 W, 50 tokens a second."""
    query = (
        "select sum(energy_joules)::double / sum(output_tokens)::double, sum(energy_joules)::double"
        " from marts.model_daily where model = ?"
    )
    assert book.query(query, [model]) == [(pytest.approx(8.0), pytest.approx(400 * DAY_SECONDS))]


def test_no_board_is_advised_as_free_beside_an_engine_without_joules(book: Seen) -> None:
    """A month of a free board is 730 h × 2 USD. A CPU has no board to look for."""
    rows = book.query(
        "select site, gpus_now, reason_code, saving_usd_month_if_released::integer from marts.free_boards"
        " where site <> 'scrapers' order by site"
    )
    assert rows == [("doubting", 1, "engine_without_energy", None), ("sure", 1, "unallocated", 1460)]
