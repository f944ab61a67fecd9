"""GPU boards through NVML (`pynvml` of the package nvidia-ml-py): energy counter, power, activity, memory, limit.

Add a metric here when NVML itself measures it. Keep out what is computed from two readings, and other vendors.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any, NamedTuple

import pynvml

from collectors.readings import Reading, labels_json
from collectors.source_errors import SourceError

SOURCE_KIND = "nvml"
NO_LIBRARY = "no NVML library on this host: it comes with the NVIDIA driver; leave --nvml out where there is no GPU"


def _memory_used_bytes(nvml: ModuleType, handle: Any) -> float:
    # Version 1 counts the driver's own reserve as used, so that an empty board looks as if it held a model.
    try:
        return float(nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2).used)
    except nvml.NVMLError_FunctionNotFound:
        return float(nvml.nvmlDeviceGetMemoryInfo(handle).used)


# The counter is read first, because energy is the difference of two counter values and depends on their times.
READERS: Mapping[str, Callable[[ModuleType, Any], float]] = {
    "nvml_total_energy_millijoules": lambda nvml, handle: nvml.nvmlDeviceGetTotalEnergyConsumption(handle),
    "nvml_power_watts": lambda nvml, handle: nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
    "nvml_utilization_gpu_ratio": lambda nvml, handle: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100,
    "nvml_memory_used_bytes": _memory_used_bytes,
    "nvml_power_limit_watts": lambda nvml, handle: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000,
}


class Device(NamedTuple):
    """A board that answers: its labels, and the metrics it was found to support."""

    handle: Any
    labels: Mapping[str, str]
    labels_text: str
    metrics: tuple[str, ...]


class _Slot:
    """The place of one NVML index: a device, or the reason why there is none and when to look again."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.name = f"GPU {index}"
        self.device: Device | None = None
        self.problem = ""
        self.backoff = _Backoff()


class _Backoff:
    """When to ask again: at once after the first failure, then after 2, 6, 14 … seconds, up to a cap. Asking a lost GPU
    can block for a long time."""

    def __init__(self) -> None:
        self.failures = 0
        self.retry_at_seconds = 0.0

    def failed(self, now_seconds: float, cap_seconds: float) -> None:
        self.failures += 1
        self.retry_at_seconds = now_seconds + min(cap_seconds, 2.0 ** min(self.failures, 30) - 2)


class NvmlSampler:
    """Looks at every board of this host.

    `nvml` is the module to ask, `host` becomes the label `node`. A metric that a board does not support is absent. A
    board that is lost is left out, named in `problems` and tried again after at most `retry_seconds`, while the others
    go on. `look` raises SourceError when no board can be read at all.
    """

    url = "nvml"

    def __init__(
        self,
        nvml: ModuleType = pynvml,
        host: str | None = None,
        *,
        retry_seconds: float = 30.0,
        clock_ns: Callable[[], int] = time.time_ns,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._nvml = nvml
        self.host = host or socket.gethostname()
        self._retry_seconds = retry_seconds
        self._clock_ns = clock_ns
        self._monotonic = monotonic
        self.unknown: dict[str, int] = {}
        self.unknown_labels: dict[str, list[str]] = {}
        self._slots: list[_Slot] | None = None
        self._backoff = _Backoff()
        self._error: SourceError | None = None

    @property
    def problems(self) -> list[str]:
        """One line for each board that did not answer the last time it was asked."""
        return [f"{slot.name}: {slot.problem}" for slot in self._slots or () if slot.problem]

    @property
    def devices(self) -> list[Device]:
        """The boards that answer now, by NVML index."""
        return [slot.device for slot in self._slots or () if slot.device is not None]

    def driver_version(self) -> str:
        """The NVIDIA driver's version, e.g. 580.126.09; known after the first `look`."""
        return _text(self._nvml.nvmlSystemGetDriverVersion())

    def look(self) -> list[Reading]:
        """The readings of all boards, each board stamped with the time just before its energy counter was read."""
        nvml = self._nvml
        if self._slots is None:
            self._open(nvml)
        readings: list[Reading] = []
        for slot in self._slots or ():
            try:
                # Not extend(): readings from before a board fails are valid, and are kept.
                for reading in self._look_at(nvml, slot):
                    readings.append(reading)
            except (nvml.NVMLError_Uninitialized, nvml.NVMLError_DriverNotLoaded) as error:
                self._close(nvml)
                self._fail(f"the driver went away: {error}")
            except nvml.NVMLError as error:
                slot.device, slot.problem = None, str(error)
                slot.backoff.failed(self._monotonic(), self._retry_seconds)
        if self._slots and not self.devices:
            # After a reload of the driver only a fresh nvmlInit sees the boards again.
            reasons = "; ".join(self.problems)
            self._close(nvml)
            self._fail(f"no GPU answers: {reasons}")
        self._backoff.failures = 0
        return readings

    def _look_at(self, nvml: ModuleType, slot: _Slot) -> Iterator[Reading]:
        if slot.device is None:
            if self._monotonic() < slot.backoff.retry_at_seconds:
                return
            slot.device = self._probe(nvml, slot)
        device = slot.device
        observed_us = self._clock_ns() // 1000
        for metric in device.metrics:
            try:
                value = float(READERS[metric](nvml, device.handle))
            except nvml.NVMLError_NotSupported:
                continue  # e.g. the activity of a board that was just switched to MIG
            yield Reading(observed_us, SOURCE_KIND, metric, device.labels_text, value)
        slot.problem = ""
        slot.backoff.failures = 0

    def _probe(self, nvml: ModuleType, slot: _Slot) -> Device:
        handle = nvml.nvmlDeviceGetHandleByIndex(slot.index)
        uuid = _text(nvml.nvmlDeviceGetUUID(handle))
        slot.name = uuid
        labels = {"uuid": uuid, "node": self.host, "device_type": _text(nvml.nvmlDeviceGetName(handle))}
        absent = (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound, nvml.NVMLError_NoPermission)
        with contextlib.suppress(*absent):  # integrated GPUs have no PCI address
            labels["pci_bus_id"] = _text(nvml.nvmlDeviceGetPciInfo(handle).busId)
        supported = []
        for metric, read in READERS.items():
            try:
                read(nvml, handle)
            except absent:
                continue
            supported.append(metric)
        return Device(handle, labels, labels_json(labels), tuple(supported))

    def _open(self, nvml: ModuleType) -> None:
        if self._error is not None and self._monotonic() < self._backoff.retry_at_seconds:
            raise self._error
        try:
            nvml.nvmlInit()
            count = nvml.nvmlDeviceGetCount()
        except nvml.NVMLError_LibraryNotFound:
            self._fail(NO_LIBRARY)
        except nvml.NVMLError as error:
            self._fail(f"NVML does not start: {error}")
        if not count:
            nvml.nvmlShutdown()
            self._fail("NVML sees no GPU")
        self._slots = [_Slot(index) for index in range(count)]
        self._error = None

    def _close(self, nvml: ModuleType) -> None:
        self._slots = None
        with contextlib.suppress(nvml.NVMLError):  # it may fail without the driver; a later nvmlInit works
            nvml.nvmlShutdown()

    def _fail(self, reason: str) -> None:
        self._backoff.failed(self._monotonic(), self._retry_seconds)
        self._error = SourceError(self.url, None, reason)
        raise self._error


def _text(answer: bytes | str) -> str:
    return answer.decode() if isinstance(answer, bytes) else answer
