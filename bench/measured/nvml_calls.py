"""What NVML answers here: each call once, and a few of them as fast as they answer.

`python -m bench.measured.nvml_calls PART SECONDS FILE` appends to FILE a line for each change of a reading, so that its
period and what a gauge averages can be seen. It runs in a process of its own, because it keeps a core busy. Add a call
when it shows energy, power or what limits them. Keep out calls that change a setting.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pynvml

POLLED_COLUMNS = "part,time_ns,name,value"


def _plain(name: str) -> Callable[[Any], Any]:
    def read(board: Any) -> Any:
        # By name and only now: an older pynvml lacks some.
        return getattr(pynvml, f"nvmlDeviceGet{name}")(board)

    return read


def _of_field(name: str) -> Callable[[Any], int]:
    def read(board: Any) -> int:
        (answer,) = pynvml.nvmlDeviceGetFieldValues(board, [getattr(pynvml, f"NVML_FI_DEV_{name}")])
        if answer.nvmlReturn:
            raise pynvml.NVMLError(answer.nvmlReturn)
        return int(answer.value.uiVal)

    return read


def _samples(board: Any) -> dict[str, int]:
    """NVML's own buffer of power: how many samples, and over how many microseconds."""
    _, samples = pynvml.nvmlDeviceGetSamples(board, pynvml.NVML_TOTAL_POWER_SAMPLES, 0)
    times = [sample.timeStamp for sample in samples]
    return {"samples": len(times), "microseconds": max(times) - min(times) if times else 0}


POLLED: Mapping[str, Callable[[Any], Any]] = {
    "energy_millijoules": _plain("TotalEnergyConsumption"),
    "power_milliwatts": _plain("PowerUsage"),
    "power_instant_milliwatts": _of_field("POWER_INSTANT"),
    "power_average_milliwatts": _of_field("POWER_AVERAGE"),
    "utilization_gpu_percent": lambda board: pynvml.nvmlDeviceGetUtilizationRates(board).gpu,
    "clock_sm_mhz": lambda board: pynvml.nvmlDeviceGetClockInfo(board, pynvml.NVML_CLOCK_SM),
}
CALLS: Mapping[str, Callable[[Any], Any]] = {
    **POLLED,
    "power_samples": _samples,
    "name": _plain("Name"),
    "uuid": _plain("UUID"),
    "memory_used_bytes": lambda board: int(pynvml.nvmlDeviceGetMemoryInfo(board).used),
    "memory_total_bytes": lambda board: int(pynvml.nvmlDeviceGetMemoryInfo(board).total),
    "power_limit_enforced_milliwatts": _plain("EnforcedPowerLimit"),
    "power_limit_default_milliwatts": _plain("PowerManagementDefaultLimit"),
    "power_limit_range_milliwatts": lambda board: list(pynvml.nvmlDeviceGetPowerManagementLimitConstraints(board)),
    "clock_sm_most_mhz": lambda board: pynvml.nvmlDeviceGetMaxClockInfo(board, pynvml.NVML_CLOCK_SM),
    "clocks_event_reasons": _plain("CurrentClocksEventReasons"),
    "temperature_celsius": lambda board: pynvml.nvmlDeviceGetTemperature(board, pynvml.NVML_TEMPERATURE_GPU),
    "performance_state": _plain("PerformanceState"),
    "persistence_mode": _plain("PersistenceMode"),
    "mig_mode": lambda board: list(pynvml.nvmlDeviceGetMigMode(board)),
    "ecc_mode": lambda board: list(pynvml.nvmlDeviceGetEccMode(board)),
    "driver": lambda _: pynvml.nvmlSystemGetDriverVersion(),
    "nvml": lambda _: pynvml.nvmlSystemGetNVMLVersion(),
    "cuda_driver": lambda _: pynvml.nvmlSystemGetCudaDriverVersion(),
}


def board() -> Any:
    """The first board, once NVML is started. pynvml.NVMLError where there is none."""
    pynvml.nvmlInit()
    return pynvml.nvmlDeviceGetHandleByIndex(0)


def answers() -> dict[str, dict[str, Any]]:
    """Of each call its `answer`, or why it was `refused`."""
    asked = board()
    calls: dict[str, dict[str, Any]] = {}
    for name, call in CALLS.items():
        try:
            answer = call(asked)
            calls[name] = {"answer": answer.decode() if isinstance(answer, bytes) else answer}
        except (pynvml.NVMLError, AttributeError) as error:  # an older pynvml or driver lacks a call
            calls[name] = {"refused": str(error)}
    return calls


def poll(part: str, seconds: float, out: Path) -> None:
    """Append each change of a reading with the time at which it was first seen."""
    asked = board()
    newest: dict[str, Any] = {}
    reads = dict(POLLED)
    with out.open("a", encoding="utf-8") as file:
        if not file.tell():
            file.write(POLLED_COLUMNS + "\n")
        ends_at = time.monotonic() + seconds
        while time.monotonic() < ends_at:
            for name in list(reads):
                try:
                    value = reads[name](asked)
                except (pynvml.NVMLError, AttributeError):
                    del reads[name]
                    continue
                if value != newest.get(name):
                    newest[name] = value
                    file.write(f"{part},{time.time_ns()},{name},{value}\n")


if __name__ == "__main__":
    poll(sys.argv[1], float(sys.argv[2]), Path(sys.argv[3]))
