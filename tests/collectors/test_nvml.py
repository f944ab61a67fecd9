"""NVML sampling, on a dozen lines of pretended hardware: no test host is assumed to have a GPU."""

import json
from types import SimpleNamespace

import pynvml
import pytest

from collectors.devices.nvml import NO_LIBRARY, NvmlSampler
from collectors.samples import SourceError


class FakeNvml:
    """Boards as dicts of NVML's raw answers; an exception as an answer is raised. Anything else is pynvml's own."""

    def __init__(self, *boards, init_error=None):
        self.boards, self.init_error, self.inits = list(boards), init_error, 0

    def __getattr__(self, name):
        if not name.startswith("nvmlDeviceGet"):
            return getattr(pynvml, name)

        def answer(board, version=None):
            value = board[name.removeprefix("nvmlDeviceGet")]
            if isinstance(value, Exception):
                raise value
            return value

        return answer

    def nvmlInit(self):
        self.inits += 1
        if self.init_error:
            raise self.init_error

    def nvmlShutdown(self): ...

    def nvmlSystemGetDriverVersion(self):
        return b"580.126.09"

    def nvmlDeviceGetCount(self):
        return len(self.boards)

    def nvmlDeviceGetHandleByIndex(self, index):
        return self.boards[index]


def board(number, **answers):
    return {
        "UUID": f"GPU-{number}",
        "Name": "NVIDIA H200",
        "PciInfo": SimpleNamespace(busId=f"00000000:0{number}:00.0"),
        "TotalEnergyConsumption": 7_000_123 + number,
        "PowerUsage": 75_312,
        "UtilizationRates": SimpleNamespace(gpu=42, memory=3),
        "MemoryInfo": SimpleNamespace(used=1_073_741_824),
        "EnforcedPowerLimit": 700_000,
        **answers,
    }


def sampler_of(*boards, **options):
    options = {"host": "gpu-a", "clock_ns": lambda: 1_700_000_000_123_456_789, **options}
    return NvmlSampler(FakeNvml(*boards), **options)


def values(readings):
    return {(json.loads(reading.labels)["uuid"], reading.metric): reading.value for reading in readings}


NOT_SUPPORTED = pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
GPU_IS_LOST = pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)


def test_a_look_gives_native_units_and_ratios():
    readings = sampler_of(board(1)).look()
    assert {reading.metric: reading.value for reading in readings} == {
        "nvml_total_energy_millijoules": 7_000_124.0,
        "nvml_power_watts": 75.312,
        "nvml_utilization_gpu_ratio": 0.42,
        "nvml_memory_used_bytes": 1_073_741_824.0,
        "nvml_power_limit_watts": 700.0,
    }
    assert {reading.observed_us for reading in readings} == {1_700_000_000_123_456}
    assert {reading.labels for reading in readings} == {
        '{"device_type":"NVIDIA H200","node":"gpu-a","pci_bus_id":"00000000:01:00.0","uuid":"GPU-1"}'
    }


def test_bytes_and_text_answers_give_the_same_labels():
    as_bytes = board(1, UUID=b"GPU-1", Name=b"NVIDIA H200", PciInfo=SimpleNamespace(busId=b"00000000:01:00.0"))
    assert sampler_of(as_bytes).look() == sampler_of(board(1)).look()


def test_what_a_board_does_not_support_is_absent_never_zero():
    readings = sampler_of(board(1, TotalEnergyConsumption=NOT_SUPPORTED, PciInfo=NOT_SUPPORTED), board(2)).look()
    assert ("GPU-1", "nvml_total_energy_millijoules") not in values(readings)
    assert len(readings) == 4 + 5
    assert "pci_bus_id" not in json.loads(readings[0].labels)


def test_support_is_probed_once_per_device():
    old = board(1, TotalEnergyConsumption=NOT_SUPPORTED)
    sampler = sampler_of(old)
    sampler.look()
    old["TotalEnergyConsumption"] = 5
    assert len(sampler.look()) == 4


def test_old_drivers_without_the_second_memory_call_give_the_first_ones_answer():
    class OldNvml(FakeNvml):
        def nvmlDeviceGetMemoryInfo(self, board, version=None):
            if version is not None:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
            return SimpleNamespace(used=5)

    assert values(NvmlSampler(OldNvml(board(1))).look())["GPU-1", "nvml_memory_used_bytes"] == 5.0


def test_a_board_lost_in_mid_run_is_named_and_retried_while_the_others_go_on():
    now = [0.0]
    lost = board(1)
    sampler = sampler_of(lost, board(2), monotonic=lambda: now[0])
    assert len(sampler.look()) == 10
    lost["PowerUsage"] = GPU_IS_LOST
    readings = values(sampler.look())
    assert readings["GPU-1", "nvml_total_energy_millijoules"] == 7_000_124.0  # read before it failed
    assert [uuid for uuid, _ in readings].count("GPU-2") == 5
    assert sampler.problems == ["GPU-1: GPU is lost"]
    assert len(sampler.look()) == 5  # tried again at once, and still lost: now 2 s of patience
    lost["PowerUsage"] = 80_000
    assert len(sampler.look()) == 5
    now[0] = 2.0
    readings = values(sampler.look())
    assert readings["GPU-1", "nvml_power_watts"] == 80.0
    assert sampler.problems == []


def test_a_board_that_is_lost_from_the_start_does_not_hide_the_others():
    sampler = sampler_of(board(1, UUID=GPU_IS_LOST), board(2))
    assert {uuid for uuid, _ in values(sampler.look())} == {"GPU-2"}
    assert sampler.problems == ["GPU 0: GPU is lost"]


def test_a_driver_reload_opens_the_library_again():
    now = [0.0]
    fake = FakeNvml(board(1), board(2))
    sampler = NvmlSampler(fake, host="gpu-a", monotonic=lambda: now[0])
    sampler.look()
    fake.boards[0]["TotalEnergyConsumption"] = pynvml.NVMLError(pynvml.NVML_ERROR_UNINITIALIZED)
    with pytest.raises(SourceError, match="the driver went away: Uninitialized"):
        sampler.look()
    fake.init_error = pynvml.NVMLError(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
    with pytest.raises(SourceError, match="NVML does not start: Driver Not Loaded"):
        sampler.look()
    fake.init_error, fake.boards[0] = None, board(1, TotalEnergyConsumption=12)
    with pytest.raises(SourceError):  # patience: 2 s after the second failure
        sampler.look()
    assert fake.inits == 2
    now[0] = 2.0
    assert values(sampler.look())["GPU-1", "nvml_total_energy_millijoules"] == 12.0
    assert fake.inits == 3


def test_all_boards_lost_is_an_error_and_the_library_is_opened_again():
    fake = FakeNvml(board(1))
    sampler = NvmlSampler(fake, host="gpu-a")
    sampler.look()
    fake.boards[0]["TotalEnergyConsumption"] = GPU_IS_LOST
    with pytest.raises(SourceError, match="no GPU answers: GPU-1: GPU is lost"):
        sampler.look()
    fake.boards[0] = board(1)
    assert len(sampler.look()) == 5
    assert fake.inits == 2


def test_a_host_without_nvml_gets_one_clear_line():
    fake = FakeNvml(init_error=pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND))
    with pytest.raises(SourceError) as caught:
        NvmlSampler(fake).look()
    assert str(caught.value) == f"nvml: {NO_LIBRARY}"


def test_a_host_without_boards_says_so():
    with pytest.raises(SourceError, match="NVML sees no GPU"):
        sampler_of().look()
