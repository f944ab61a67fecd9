"""Every engine's and exporter's page through the product's own path: looked at twice, spooled, landed, booked.

`pages/<source>_before.prom` and `…_after.prom` are what one host served at 22:00 and at 22:05. A page's first line
names the program that it was recorded from, or the definitions. All hosts are one fleet, booked once.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
import yaml

from collectors.devices.agent import BUNDLED_CATALOGUE, read_families
from collectors.devices.nvml import NvmlSampler
from collectors.devices.spool import Spool
from collectors.devices.spool_writer import SpoolWriter
from collectors.protocols.exposition import ExpositionPage
from pipelines.booking.alarms import ALARMS, ask
from tests.books import Book
from tests.collectors.test_nvml import FakeNvml, board
from tests.servers import http_server, reply

PAGES = Path(__file__).parent / "pages"
LOOKS = {"before": datetime(2026, 11, 20, 22, 0, tzinfo=UTC), "after": datetime(2026, 11, 20, 22, 5, tzinfo=UTC)}
HOSTS = sorted(path.name.removesuffix("_before.prom") for path in PAGES.glob("*_before.prom"))

# Host -> tokens by class, over its engines. A class that a page does not have is absent: unknown, not 0.
TOKENS = {
    # The client's own totals: 60 completions of 182 prompt and 42 generated tokens.
    "vllm": {"input": 10920, "cached_input": 7552, "computed_input": 3368, "output": 2520},
    "vllm_0_10": {"input": 8000 + 4000, "output": 1500 + 500},
    "vllm_ray": {"input": 6000 + 3000, "cached_input": 1500, "computed_input": 4500 + 3000, "output": 900 + 300},
    # As batches ran, once though two ranks report it; the requests that have finished account for less.
    "sglang": {"input": 4000 + 1000, "cached_input": 1000, "computed_input": 4000, "output": 2000},
    "tgi": {"input": 10000, "output": 3200},
    "trtllm": {"input": 80000, "cached_input": 20000, "output": 8000},
    "triton": {"input": 12000, "output": 3600},
    # A prompt is input where it was computed, output is what the decoder wrote; the handed-over rest is neither.
    "dynamo_prefill": {"input": 12000, "cached_input": 2000, "computed_input": 10000},
    # It computed the last token of each of 40 prompts itself, which is its own input.
    "dynamo_decode": {"input": 40, "computed_input": 40, "output": 2960},
    "nim": {"input": 24000, "output": 6000},
    # The client's own totals: 6 prompts of 75 tokens, of which it computed 75 + 5 × 1 and had the rest.
    "llamacpp": {"cached_input": 370, "computed_input": 80, "output": 192},
    "litellm": {"input": 7000, "cached_input": 1024, "output": 1500},
}

# (scope, meter) -> joules in 300 s.
ENERGY = {
    ("board", "GPU-11111111-aaaa-4000-8000-000000000001"): 90_000,  # mJ
    ("board", "GPU-11111111-aaaa-4000-8000-000000000002"): 60_000,  # two MIG instances repeat their board
    ("board", "GPU-11111111-aaaa-4000-8000-000000000003"): 18_000,
    ("board", "GPU-11111111-aaaa-4000-8000-000000000004"): 33_000,  # blank energy: (100 + 120) / 2 W
    ("board", "GPU-22222222-bbbb-4000-8000-000000000001"): 45_000,  # two pods repeat their board
    ("board", "GPU-22222222-bbbb-4000-8000-000000000002"): 105_000,
    ("board", "GPU-22222222-bbbb-4000-8000-000000000003"): 24_000,
    ("board", "692251001"): 75_000,  # µJ; its second partition reports 0
    ("board", "692251002"): 90_000,
    ("board", "GPU-33333333-cccc-4000-8000-000000000001"): 36_000,  # J, of Kepler
    ("board", "GPU-7c9e6679-7425-40de-944b-e07fc1f90ae7"): 60_000,  # J, of Triton
    ("board", "GPU-9"): 21_000,  # mJ, of the NVML agent
    ("node", "ipmi_exporter"): 159_000,  # (520 + 540) / 2 W
    ("node", "redfish-1"): 180_000,
    ("node", "idrac-1"): 123_000,
    # RAPL, of a node that nothing else meters: two sockets and one's memory.
    ("module", "node_exporter//sys/class/powercap/intel-rapl:0"): 60,
    ("module", "node_exporter//sys/class/powercap/intel-rapl:1"): 45,
    ("module", "node_exporter//sys/class/powercap/intel-rapl:0:0"): 12,
    # Racks whose nodes have no finer meter; a feed of -1 W is none.
    ("rack", "r1/pdu-a/1"): 1_800_000,
    ("rack", "r1/pdu-b/1"): 1_200_000,
    ("rack", "r2/pdu-d/1"): 270_000,
}
POWER_PAGES = {
    "dcgm_exporter",
    "dcgm_exporter_2026",
    "amd_exporter",
    "kepler",
    "ipmi_exporter",
    "redfish_exporter",
    "node_exporter",
    "snmp_exporter",
}


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Book:
    """The fleet of all pages, booked."""
    folder = tmp_path_factory.mktemp("pages")
    fleet = {
        "fleet": "pages",
        "period": {"start": date(2026, 11, 20), "end": date(2026, 11, 21)},
        "sources": [{"name": "agents", "kind": "spool", "path": "spool/"}],
        "sites": [{"name": "hall", "zone": "unknown", "pue": 1.2}],
        "engines": [{"engine": "tgi:*", "model": "mistral-7b"}, {"engine": "llamacpp:*", "model": "qwen3-4b"}],
    }
    (folder / "fleet.yaml").write_text(yaml.safe_dump(fleet), encoding="utf-8")
    made = Book.of(folder / "fleet.yaml", folder / "data", marts=("energy_ledger", "token_ledger"))
    spool, families = Spool(made.fleet.root / "spool"), read_families(BUNDLED_CATALOGUE)
    when = "before"

    def answer(asked: BaseHTTPRequestHandler) -> None:
        reply(asked, 200, (PAGES / f"{asked.path[1:]}_{when}.prom").read_bytes(), "text/plain")

    with http_server(answer) as base:
        for when, at in LOOKS.items():
            clock_ns = partial(int, at.timestamp() * 1e9)
            samplers = {
                host: ExpositionPage(f"{base}/{host}", families, host=host, clock_ns=clock_ns) for host in HOSTS
            }
            energy = {"before": 7_000_000, "after": 28_000_000}[when]
            samplers["nvml"] = NvmlSampler(FakeNvml(board(9, TotalEnergyConsumption=energy)), "nvml", clock_ns=clock_ns)
            for host, sampler in samplers.items():
                writer = SpoolWriter(spool, host)
                writer.add(sampler.look(), sampler.unknown, sampler.unknown_labels)
                assert writer.flush()
    made.run()
    return made


def test_every_page_says_where_it_is_from_and_is_asserted() -> None:
    assert set(HOSTS) == set(TOKENS) | {"dynamo_frontend", "vllm_asleep"} | set(POWER_PAGES) | {"prometheus"}
    for path in PAGES.glob("*.prom"):
        first = path.read_text(encoding="utf-8").partition("\n")[0]
        assert first.startswith(("# Recorded ", "# Written ")) and "2026" in first, path.name


@pytest.mark.parametrize("host", TOKENS)
def test_tokens_by_class(book: Book, host: str) -> None:
    held = book.query(
        """
        select token_class, sum(tokens) from marts.token_ledger
        where coalesce(node, split_part(engine, ':', 1)) = ? group by token_class
        """,
        [host],
    )
    assert dict(held) == TOKENS[host]


def test_an_engine_without_a_model_label_has_the_fleet_files(book: Book) -> None:
    models = "select distinct split_part(engine, ':', 1), model from marts.token_ledger where model in (?, ?)"
    held = book.query(models, ["mistral-7b", "qwen3-4b"])
    assert sorted(held) == [("llamacpp", "qwen3-4b"), ("tgi", "mistral-7b")]


def test_a_frontend_is_not_added_to_its_workers(book: Book) -> None:
    engines = "select distinct engine from marts.token_ledger where model = 'disagg-8b' order by 1"
    assert [engine.partition(":")[0] for (engine,) in book.query(engines)] == ["dynamo_decode", "dynamo_prefill"]


def test_a_sleeping_engine_takes_its_boards_joules_as_asleep(book: Book) -> None:
    asleep = "select distinct state, model from marts.energy_ledger where node = 'kepler-1' and meter_scope = 'board'"
    assert book.query(asleep) == [("asleep", "sleepy-7b")]
    joules = "select sum(asleep_joules), sum(energy_joules) from marts.energy_ledger where model = 'sleepy-7b'"
    assert book.query(joules) == [(36_000, 36_000)]


def test_joules_by_meter(book: Book) -> None:
    held = book.query("select meter_scope, meter, sum(energy_joules) from marts.energy_ledger group by all")
    assert {(scope, meter): float(joules) for scope, meter, joules in held} == ENERGY


def test_a_full_cache_is_known_by_each_engines_own_name(book: Book) -> None:
    query = "select distinct source_kind, metric from staging.stg_series where quantity = 'kv_cache_usage'"
    assert {
        ("nim", "gpu_cache_usage_perc"),
        ("vllm", "vllm:gpu_cache_usage_perc"),
        ("vllm", "vllm:kv_cache_usage_perc"),
    } == set(book.query(query))


def test_families_that_the_catalogue_does_not_know_are_counted(book: Book) -> None:
    unknown = {metric for (metric,) in book.query("select metric from raw.unknown_families")}
    assert {"vllm:prefix_cache_queries_total", "node_load1", "ifOperStatus", "prometheus_build_info"} <= unknown
    assert not unknown & read_families(BUNDLED_CATALOGUE).keys()


def test_unknown_families_of_real_exporters_are_about_boards_that_are_booked(book: Book) -> None:
    (alarm,) = [alarm for alarm in ALARMS if alarm.name == "devices_of_unknown_families_are_booked"]
    with book.connection(read_only=True) as connection:
        assert ask(connection, alarm, "test")[1] == []
