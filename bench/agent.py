"""The agent's share of a core: eight boards at 1 Hz and two /metrics pages at 15 s, for a minute.

`python -m bench.agent --spool FOLDER --seconds 60 --page URL …` runs the agent on fake boards (a bench host need not
have GPUs) and prints its processor time without its start. The pages are served by another process.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from bench import children

BOARDS = 8
PAGES = 2
SERIES_PER_PAGE = 500
STARTED_SECONDS = 5.0


class PretendedBoards:
    """A fake pynvml with boards whose counters run; everything else is as in the real module."""

    def __getattr__(self, name: str) -> Any:
        return getattr(pynvml, name)

    def nvmlInit(self) -> None:
        self.began = time.monotonic()

    def nvmlShutdown(self) -> None:
        """Nothing was opened."""

    def nvmlDeviceGetCount(self) -> int:
        return BOARDS

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetUUID(self, board: int) -> str:
        return f"GPU-{board:08x}"

    def nvmlDeviceGetName(self, _: int) -> str:
        return "NVIDIA H200"

    def nvmlDeviceGetPciInfo(self, board: int) -> SimpleNamespace:
        return SimpleNamespace(busId=f"00000000:{board:02x}:00.0")

    def nvmlDeviceGetTotalEnergyConsumption(self, board: int) -> int:
        return int((time.monotonic() - self.began) * 400_000) + board

    def nvmlDeviceGetPowerUsage(self, board: int) -> int:
        return 400_000 + board

    def nvmlDeviceGetUtilizationRates(self, _: int) -> SimpleNamespace:
        return SimpleNamespace(gpu=97, memory=40)

    def nvmlDeviceGetMemoryInfo(self, _: int, version: int | None = None) -> SimpleNamespace:
        return SimpleNamespace(used=1 << 36)

    def nvmlDeviceGetEnforcedPowerLimit(self, _: int) -> int:
        return 700_000


@contextmanager
def pages() -> Iterator[list[str]]:
    """The URLs of PAGES pages of SERIES_PER_PAGE series each, as an engine shows them: mostly buckets."""
    servers = [start_http_server(0, "127.0.0.1", _engine(f"bench/model-{number}")) for number in range(PAGES)]
    try:
        yield [f"http://127.0.0.1:{server.server_address[1]}/metrics" for server, _ in servers]
    finally:
        for server, thread in servers:
            server.shutdown()
            thread.join()


def _engine(model: str) -> CollectorRegistry:
    registry = CollectorRegistry()
    labels = {"model_name": model, "engine": "0"}
    for name in ("vllm:prompt_tokens", "vllm:generation_tokens", "vllm:request_success"):
        Counter(name, "tokens", labels, registry=registry).labels(**labels).inc(12345)
    for name in ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"):
        Gauge(name, "requests", labels, registry=registry).labels(**labels).set(7)
    steps = [0.001 * 1.4**n for n in range(27)]
    number = 0
    while sum(len(family.samples) for family in registry.collect()) < SERIES_PER_PAGE:
        name = "vllm:time_to_first_token_seconds" if number == 0 else f"vllm:request_part_{number}_seconds"
        Histogram(name, "seconds", labels, buckets=steps, registry=registry).labels(**labels).observe(0.02)
        number += 1
    return registry


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.agent", description=__doc__.partition("\n")[0])
    parser.add_argument("--spool", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--page", action="append", default=[])
    options = parser.parse_args()

    # As `wattledger-agent agent` does, with fake boards.
    from collectors.devices.agent import Watch, families_to_keep, run_agent  # noqa: PLC0415 (its start is no part of the figure)
    from collectors.devices.nvml import NvmlSampler  # noqa: PLC0415
    from collectors.devices.spool import Spool  # noqa: PLC0415
    from collectors.devices.spool_writer import SpoolWriter  # noqa: PLC0415
    from collectors.protocols.exposition import ExpositionPage  # noqa: PLC0415

    families = families_to_keep(None)
    watches = [Watch(NvmlSampler(PretendedBoards(), host="bench"), 1.0)]
    watches += [Watch(ExpositionPage(url, families, host="bench"), 15.0) for url in options.page]
    started: list[tuple[float, float]] = []

    def stop_after() -> None:
        time.sleep(STARTED_SECONDS)
        started.append((time.monotonic(), time.process_time()))
        time.sleep(options.seconds)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop_after, daemon=True).start()
    writer = SpoolWriter(Spool(str(options.spool)), "bench")
    status = run_agent(watches, writer)
    seconds, cpu_seconds = time.monotonic() - started[0][0], time.process_time() - started[0][1]
    figures = {"rows": writer.written_rows, "core_share": cpu_seconds / seconds, "peak_mib": children.own_peak_mib()}
    print(json.dumps({"status": status, **figures}))


if __name__ == "__main__":
    main()
