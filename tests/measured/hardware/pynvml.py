"""A pynvml of one pretended board that draws 300 W: the real module but for the calls below.

tests/measured puts its folder first on the path of the processes that it starts. The counter is 300 W times the wall
clock, so that each process sees the same one. `PRETENDED_BOARDS=0`: a host without a driver.
"""

import importlib.util
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

_files = (Path(entry, "pynvml.py") for entry in sys.path)
_real = next(file for file in _files if file.is_file() and not file.samefile(__file__))
_spec = importlib.util.spec_from_file_location("pynvml", _real)
# What is in sys.modules when this module ends is what `import pynvml` gives.
nvml = sys.modules["pynvml"] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(nvml)

WATTS = 300


def start():
    if os.environ.get("PRETENDED_BOARDS") == "0":
        raise nvml.NVMLError(nvml.NVML_ERROR_LIBRARY_NOT_FOUND)


def field_values(_, fields):
    answers = {
        nvml.NVML_FI_DEV_POWER_INSTANT: (nvml.NVML_SUCCESS, WATTS * 1000),
        nvml.NVML_FI_DEV_POWER_AVERAGE: (nvml.NVML_ERROR_NOT_SUPPORTED, 0),
    }
    return [
        SimpleNamespace(nvmlReturn=status, value=SimpleNamespace(uiVal=value))
        for status, value in (answers[field] for field in fields)
    ]


ANSWERS = {
    "nvmlShutdown": None,
    "nvmlSystemGetDriverVersion": "580.126.09",
    "nvmlDeviceGetCount": 1,
    "nvmlDeviceGetHandleByIndex": 0,
    "nvmlDeviceGetUUID": "GPU-pretended",
    "nvmlDeviceGetName": "NVIDIA H100 80GB HBM3",
    "nvmlDeviceGetPciInfo": SimpleNamespace(busId="00000000:01:00.0"),
    "nvmlDeviceGetPowerUsage": WATTS * 1000,
    "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=97, memory=40),
    "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=1 << 34, total=80 << 30),
    "nvmlDeviceGetEnforcedPowerLimit": 700_000,
}
for _name, _answer in ANSWERS.items():
    setattr(nvml, _name, lambda *_, _answer=_answer, **__: _answer)
nvml.nvmlInit = start
nvml.nvmlDeviceGetFieldValues = field_values
# It changes every millisecond.
nvml.nvmlDeviceGetTotalEnergyConsumption = lambda _: int(time.time() * 1000) * WATTS
