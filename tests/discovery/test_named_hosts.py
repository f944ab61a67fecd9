"""Hosts that labels name in two ways: what `discover` counts, doubts and asks, and their innocent twins."""

from __future__ import annotations

import pytest

from pipelines.discovery.doubts import doubts
from pipelines.discovery.questions import unknown
from pipelines.discovery.survey import Survey, survey
from tests.discovery.test_tenant_labels import Known

WATTS, TOKENS, IPMI = "DCGM_FI_DEV_POWER_USAGE", "sglang:generation_tokens_total", "ipmi_dcmi_power_consumption_watts"
ENGINE = {"model_name": "m", "instance": "10.0.0.13:30000"}
DARK = "1 of 1 engines have no metered board: 10.0.0.13:30000."


def found(*boards: tuple[str, str], meters: int = 0, **more: str) -> Survey:
    """Boards as (host name, address of their exporter), an engine on 10.0.0.13, and wall meters by their BMCs."""
    seen = [
        {"UUID": f"GPU-{n}", "modelName": "NVIDIA A100-SXM4-80GB", "Hostname": host, "instance": f"{address}:9400"}
        | more
        for n, (host, address) in enumerate(boards)
    ]
    walls = [{"instance": f"10.9.0.{n}"} for n in range(meters)]
    return survey(Known({WATTS: seen, TOKENS: [ENGINE]} | ({IPMI: walls} if walls else {})))


@pytest.mark.parametrize(
    ("boards", "nodes", "is_dark"),
    [
        # The exporter that is scraped at the engine's address names the host: the book gives it these tokens.
        ([("gpu-c", "10.0.0.13"), ("gpu-c", "10.0.0.13")], {"gpu-c"}, False),
        ([("10.0.0.13", "10.0.0.13")], {"10.0.0.13"}, False),
        # Another address, and one that names two hosts: an exporter for all of them.
        ([("gpu-c", "10.0.0.14")], {"gpu-c", "10.0.0.13"}, True),
        ([("gpu-b", "10.0.0.13"), ("gpu-c", "10.0.0.13")], {"gpu-b", "gpu-c", "10.0.0.13"}, True),
    ],
)
def test_an_engine_by_address_is_on_the_host_that_an_exporter_there_names(
    boards: list[tuple[str, str]], nodes: set[str], *, is_dark: bool
) -> None:
    seen = found(*boards)
    assert seen.nodes() == nodes
    assert any(doubt.line.startswith(DARK) for doubt in doubts(seen)) == is_dark


@pytest.mark.parametrize(
    ("host", "more", "is_doubted"),
    [
        ("3f2a9c1b77de", {}, True),
        ("3f2a9c1b77d", {}, False),
        ("gpu-c", {}, False),
        # The book takes the scraper's label for a container's number.
        ("3f2a9c1b77de", {"node": "gpu-c"}, False),
    ],
)
def test_a_container_that_took_its_number_for_the_hosts_name_is_doubted(
    host: str, more: dict[str, str], *, is_doubted: bool
) -> None:
    """Its boards and the host's wall meter were two nodes, and their watts were booked twice."""
    lines = [doubt.line for doubt in doubts(found((host, "10.0.0.13"), **more))]
    line = (
        f"1 nodes of boards are called as a container is: {host}. Did the exporter take its container's number for"
        f" the host's name? Then write the host: nodes: [{{name: HOST, aliases: [{host}]}}], or its wall meter is"
        " booked beside its boards."
    )
    assert lines == [line] * is_doubted


@pytest.mark.parametrize(("meters", "asked"), [(0, "the hosts"), (2, "1 of 3 hosts"), (3, None), (4, None)])
def test_hosts_without_a_wall_meter_are_asked_for(meters: int, asked: str | None) -> None:
    """Where one host had a meter, no other was asked for."""
    seen = found(*((f"gpu-{n}", f"10.0.0.1{n}") for n in (1, 2, 3)), meters=meters)
    line = f"watts of {asked} beside their boards (nodes[].host_watts): without them they are assumed"
    assert [one for one in unknown(seen) if "host_watts" in one] == [line] * (asked is not None)
