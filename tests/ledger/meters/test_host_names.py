"""Names of a node that are not its own: the exporter's pod or container, and the address that is scraped.

A board draws 300 W, a node's meter reads 500 W, the packages of a CPU draw 100 W.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.planted import DAY_SECONDS, ENERGY, HOURS, Series, board, pod, rising, steady
from tests.shapes import Seen, Shape, shape

NOON = 12 * HOURS
RAPL, NODE_WATTS = "node_rapl_package_joules_total", "ipmi_dcmi_power_consumption_watts"
ZONE = "/sys/class/powercap/intel-rapl:0"


def powered(uuid: str, host: str, first: float = 0, last: float = DAY_SECONDS, **labels: str) -> Series:
    seen = {**board(f"GPU-{uuid}", host, gpu="0"), **pod(f"{uuid}-0"), **labels}
    return ENERGY, seen, rising(300_000, first, last, start=1e9 + 300_000 * first)


def metered(node: str) -> Series:
    return NODE_WATTS, {"node": node, "instance": f"bmc-{node}", "job": "ipmi"}, steady(500)


def packages(instance: str, **labels: str) -> Series:
    return RAPL, {"path": ZONE, "index": "0", "instance": instance, **labels}, rising(100)


def series() -> list[Series]:
    return [
        # dcgm-exporter's pod, of which there is another one from noon on.
        powered("h-pod", "dcgm-exporter-aaaaa", 0, NOON - 60, node="h-pod", instance="10.9.0.1:9400"),
        powered("h-pod", "dcgm-exporter-bbbbb", NOON, node="h-pod", instance="10.9.0.1:9400"),
        metered("h-pod"),
        # A container, which the address alone shows to be on the node of another exporter.
        powered("h-docker", "f3a9c1d2e4b5", instance="10.9.0.2:9400"),
        packages("10.9.0.2:9100", nodename="h-docker"),
        metered("h-docker"),
        # An exporter without a node's name.
        powered("h-named", "h-named", instance="10.9.0.3:9400"),
        packages("10.9.0.3:9100"),
        # The address of a host that kube-state-metrics names.
        powered("h-kube", "h-kube", instance="10.244.0.5:9400"),
        ("kube_node_info", {"node": "h-kube", "internal_ip": "10.9.0.5", "instance": "10.244.0.9:8080"}, steady(1)),
        packages("10.9.0.5:9100"),
        # The address of a pod, of which kube-state-metrics has the node and the node's address.
        powered("h-inside", "dcgm-exporter-ccccc", instance="10.244.3.7:9400"),
        (
            "kube_pod_info",
            {
                "pod": "dcgm-exporter-ccccc",
                "namespace": "gpu",
                "node": "h-inside",
                "created_by_kind": "DaemonSet",
                "pod_ip": "10.244.3.7",
                "host_ip": "10.9.0.6",
                "instance": "10.244.0.9:8080",
            },
            steady(1),
        ),
        packages("10.9.0.6:9100"),
        # The same host with its domain, by its label and its address; the boards of another one have the domain.
        powered("h-short", "h-short"),
        metered("h-short.example.com"),
        powered("h-scraped", "h-scraped", instance="h-scraped:9400"),
        (NODE_WATTS, {"instance": "h-scraped.example.com:9290", "job": "ipmi"}, steady(500)),
        powered("h-long", "h-long.example.com"),
        metered("h-long"),
        # Twins. Two domains have the name.
        powered("h-twice", "h-twice"),
        metered("h-twice.one.example.com"),
        metered("h-twice.two.example.com"),
        # Hosts of a pool, whose names end as a pod's.
        powered("h-pool-1", "h-pool-ab12c", node="h-pool"),
        powered("h-pool-2", "h-pool-de34f", node="h-pool"),
        # A host's own name beside the cluster's.
        powered("h-own", "h-own.example.com", node="h-cluster"),
        # One address for several hosts.
        powered("h-many-1", "h-many-1", instance="10.9.0.4:9400"),
        powered("h-many-2", "h-many-2", instance="10.9.0.4:9400"),
        packages("10.9.0.4:9100"),
    ]


HOSTS = shape("host_names", series)


@pytest.fixture(scope="module")
def book(shared_book: Callable[[Shape], Seen]) -> Seen:
    return shared_book(HOSTS)


@pytest.mark.parametrize(
    ("name", "nodes"),
    [
        ("h-pod", [("h-pod", 300, 200)]),
        ("h-docker", [("h-docker", 300, 200)]),
        ("h-named", [("h-named", 300, 149)]),  # 0.2 × 400 W + 0.23 × 300 W
        ("h-kube", [("h-kube", 300, 149)]),
        ("h-inside", [("h-inside", 300, 149)]),
        ("h-short", [("h-short", 300, 200)]),
        ("h-scraped", [("h-scraped", 300, 200)]),
        ("h-long", [("h-long", 300, 200)]),
        ("h-twice", [("h-twice", 300, 149)]),
        ("h-pool-1", [("h-pool-ab12c", 300, 149)]),
        ("h-pool-2", [("h-pool-de34f", 300, 149)]),
        ("h-own", [("h-own.example.com", 300, 149)]),
        ("h-many-1", [("h-many-1", 300, 149)]),
    ],
)
def test_a_board_is_on_its_node_with_the_nodes_meter(book: Seen, name: str, nodes: list[tuple]) -> None:
    rows = book.query(
        f"select node, round(sum(energy_joules)::double / {DAY_SECONDS}),"
        f" round(sum(host_overhead_joules)::double / {DAY_SECONDS})"
        " from marts.energy_ledger where device_uuid = ? group by 1",
        [f"GPU-{name}"],
    )
    assert rows == nodes


@pytest.mark.parametrize("address", ["10.9.0.2", "10.9.0.3", "10.9.0.5", "10.9.0.6"])
def test_packages_of_a_node_with_boards_are_not_booked_beside_them(book: Seen, address: str) -> None:
    assert (
        book.query(
            f"select * from marts.energy_ledger where meter like '%{address}%'"
            " or (meter_scope = 'node' and meter not like 'h-twice.%')"
        )
        == []
    )


def test_packages_of_a_cpu_are_no_accelerator_with_a_host_on_top(book: Seen) -> None:
    assert book.query(
        f"select node, host_basis, round(sum(energy_joules)::double / {DAY_SECONDS}), sum(host_overhead_joules)::double"
        " from marts.energy_ledger where meter_scope = 'module' group by all"
    ) == [("10.9.0.4", "module_meter", 100, 0)]


def test_the_balance_holds(book: Seen) -> None:
    assert book.query("select * from marts.reconciliation_daily where difference_joules <> 0") == []
    assert book.broken() == {}
