"""Exporters that the catalogue has learned: by other names, other labels, and only where the name is surely theirs.

One fleet from 10:00 to 14:00, a node per exporter; watts are constant, so joules are watts × 14,400 seconds.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.books import Book, files_source
from tests.planted import ENERGY, INPUT, OUTPUT, Series, board, plant, pod, rising, steady, vllm

START, END = 36_000, 50_400
SECONDS = END - START
AMD = {"card_series": "AMD Instinct MI300X OAM", "card_model": "102-G30211-0C"}
UUID = "df6e7a7c-7314-46f8-abc4-b88b36dcf3aa"
INTEL = {"pci_bdf": "0000:83:00.0", "node": "intel"}


def counts(metric: str, labels: dict[str, str], per_second: float) -> Series:
    return metric, labels, rising(per_second, START, END)


def shows(metric: str, labels: dict[str, str], value: float) -> Series:
    return metric, labels, steady(value, START, END)


def of_cluster() -> Iterator[Series]:
    # AMD's exporter as it is packaged: energy in µJ, names with its prefix.
    prefixed = {**AMD, "gpu_uuid": "amd-0", "serial_number": "PCB-0", "hostname": "amd", "gpu_partition_id": "0"}
    yield counts("amd_gpu_energy_consumed", prefixed, 500e6)
    yield shows("amd_gpu_package_power", prefixed, 500)
    # Labels in upper case; the pod of the workload beside the exporter's own.
    upper = {"GPU_UUID": "amd-1", "SERIAL_NUMBER": "PCB-1", "HOSTNAME": "upper", "CARD_SERIES": AMD["card_series"]}
    upper |= {
        "POD": "chat-0",
        "NAMESPACE": "llm",
        "CONTAINER": "engine",
        "pod": "amd-exporter-x",
        "namespace": "kube-amd",
    }
    yield shows("gpu_package_power", upper, 400)
    yield counts(INPUT, vllm("chat-0", "chat"), 20)
    yield counts(OUTPUT, vllm("chat-0", "chat"), 10)
    # Another program's name, and no label of AMD's.
    yield shows("amd_gpu_power_usage", {"gpu": "0", "hostname": "stranger"}, 90_000)
    # nvidia_gpu_exporter writes no GPU- and names the board elsewhere; dcgm-exporter sees the same board.
    yield shows("nvidia_smi_power_draw_watts", {"uuid": UUID, "instance": "smi:9835", "node": "smi"}, 250)
    yield shows("nvidia_smi_gpu_info", {"uuid": UUID, "name": "NVIDIA L40S", "index": "0", "node": "smi"}, 1)
    yield shows("nvidia_smi_power_draw_watts", {"uuid": UUID[:-1] + "b", "instance": "both:9835", "node": "both"}, 260)
    yield counts(ENERGY, board(f"GPU-{UUID[:-1]}b", "both"), 250_000)
    # Intel's: several sensors of one board.
    for location, watts in (("package", 150), ("card", 190), ("memory", 30)):
        yield shows("hw_power_watts", {**INTEL, "hw_sensor_location": location}, watts)
        yield counts("hw_energy_joules_total", {**INTEL, "hw_sensor_location": location}, watts)
    yield shows("kepler_platform_watts", {"node_name": "wall", "source": "redfish", "bmc_id": "b0"}, 700)
    # LMDeploy, and SGLang under Ray: its scheduler's series have another worker and no replica.
    yield shows("DCGM_FI_DEV_POWER_USAGE", {**board("GPU-lm", "lm"), **pod("lm-0")}, 300)
    yield counts("lmdeploy:prompt_tokens_total", {"model_name": "lm", "engine": "0", **pod("lm-0")}, 200)
    yield counts("lmdeploy:generation_tokens_total", {"model_name": "lm", "engine": "0", **pod("lm-0")}, 50)
    ray = {"model_name": "raysg", "instance": "10.1.1.1:8080"}
    yield counts("ray_sglang_generation_tokens_total", {**ray, "WorkerId": "a", "ReplicaId": "r1"}, 40)
    yield counts("ray_sglang_prompt_tokens_total", {**ray, "WorkerId": "a", "ReplicaId": "r1"}, 90)
    yield counts("ray_sglang_realtime_tokens_total", {**ray, "WorkerId": "b", "mode": "decode"}, 40)
    yield counts("ray_vllm_generation_tokens_total", {"model_name": "rayvllm", "ReplicaId": "r2"}, 7)
    yield counts("ray_vllm_prompt_tokens_total", {"model_name": "rayvllm", "ReplicaId": "r2"}, 9)


def of_acme() -> Iterator[Series]:
    # The fleet file states the prefix: no label of AMD's is needed.
    yield shows("acme_gpu_package_power", {"gpu_id": "3", "hostname": "acme"}, 350)


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Book:
    folder = tmp_path_factory.mktemp("exporters")
    book = plant(
        folder, {"cluster": of_cluster()},
        marts=("model_daily", "series_daily", "reconciliation_daily", "token_ledger"),
        more_sources=[files_source("acme", "recorded/acme/*.parquet", metric_prefix="acme_")],
    )  # fmt: skip
    plant(folder / "other", {"acme": of_acme()})
    (folder / "other/recorded/acme").rename(folder / "recorded/acme")
    book.run()
    return book


def test_joules_of_each_exporter(book: Book) -> None:
    rows = book.query(
        "select node, sum(energy_joules)::double, count(distinct meter), max(device_type), max(energy_source)"
        " from marts.energy_ledger group by 1 order by 1"
    )
    held = {node: (joules, meters, of_type) for node, joules, meters, of_type, _ in rows}
    assert held == {
        "amd": (pytest.approx(500 * SECONDS), 1, "mi300x-192gb"),
        "upper": (pytest.approx(400 * SECONDS), 1, "mi300x-192gb"),
        "acme": (pytest.approx(350 * SECONDS), 1, None),
        "smi": (pytest.approx(250 * SECONDS), 1, "l40s"),
        "both": (pytest.approx(250 * SECONDS), 1, "a100-sxm4-80gb"),
        "intel": (pytest.approx(150 * SECONDS), 1, None),
        "wall": (pytest.approx(700 * SECONDS), 1, None),
        "lm": (pytest.approx(300 * SECONDS), 1, "a100-sxm4-80gb"),
    }


def test_a_name_that_is_not_surely_the_exporters_has_an_outcome_and_no_joules(book: Book) -> None:
    rows = book.query("select outcome, reason from marts.series_daily where labels like '%stranger%'")
    assert rows == [("unused", "names_no_meter")]
    assert book.failed_tests("every_power_series_names_its_meter") == {"every_power_series_names_its_meter"}


def test_labels_in_upper_case_name_the_workload(book: Book) -> None:
    rows = book.query("select distinct engine, model from marts.energy_ledger where node = 'upper'")
    assert rows == [("llm/chat-0", "chat")]


def test_tokens_of_each_engine(book: Book) -> None:
    rows = book.query(
        "select model, engine, token_class, sum(tokens)::double from marts.token_ledger where model <> 'chat'"
        " group by all order by all"
    )
    assert rows == [
        ("lm", "llm/lm-0", "input", 200 * SECONDS),
        ("lm", "llm/lm-0", "output", 50 * SECONDS),
        ("raysg", "r1", "input", 90 * SECONDS),
        ("raysg", "r1", "output", 40 * SECONDS),
        ("rayvllm", "r2", "input", 9 * SECONDS),
        ("rayvllm", "r2", "output", 7 * SECONDS),
    ]


def test_both_balances_hold(book: Book) -> None:
    assert book.broken() == {}
    assert book.query("select meter from marts.reconciliation_daily where abs(difference_joules) > 1") == []
