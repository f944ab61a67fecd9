"""What records beside the load, each in a process of its own: the agent, nvidia-smi, a poll of NVML.

Add a recorder here. Keep out what it records (`nvml_calls`) and when it runs (`run`).
"""

from __future__ import annotations

import csv
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

PROJECT = Path(__file__).parents[2]
HOST = "measured"
RUNS = "ran to the end"
# A board's counter and gauges change every 20 to 100 ms; the page whenever a step ends.
NVML_SECONDS = 0.05
PAGE_SECONDS = 0.25
SMI_MILLISECONDS = 100
AGENT_START_SECONDS = 15
SMI_FIELDS = (
    "timestamp", "index", "uuid", "name", "power.draw", "power.draw.instant", "power.draw.average", "utilization.gpu",
    "memory.used", "clocks.sm", "temperature.gpu", "pstate",
)  # fmt: skip


@contextmanager
def running(command: list[str], output: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process until the block is left, then ended by SIGTERM; what it prints is appended to `output`, its messages to
    `log`. Times that it prints are UTC."""
    with output.open("ab") as out, log.open("ab") as messages:
        process = subprocess.Popen(command, cwd=PROJECT, stdout=out, stderr=messages, env={**os.environ, "TZ": "UTC"})
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def agent_and_smi(page: str, spool: Path, smi_csv: Path, log: Path) -> Iterator[dict[str, str]]:
    """Both for a block, and what became of each, which is complete after it: RUNS, or why not."""
    agent = [
        sys.executable, "-m", "collectors", "agent", "--nvml", "--page", page, "--spool", str(spool), "--host", HOST,
        "--nvml-interval", str(NVML_SECONDS), "--page-interval", str(PAGE_SECONDS), "--rotate", "30",
    ]  # fmt: skip
    states: dict[str, str] = {}
    with ExitStack() as stack:
        processes = {"agent": stack.enter_context(running(agent, log, log))}
        if program := shutil.which("nvidia-smi"):
            query = f"--query-gpu={','.join(smi_fields(program))}"
            smi = [program, query, "--format=csv", f"--loop-ms={SMI_MILLISECONDS}"]
            processes["nvidia-smi"] = stack.enter_context(running(smi, smi_csv, log))
        else:
            states["nvidia-smi"] = "is not on the PATH"
        _wait_until_it_looks(processes["agent"], log)
        yield states
        for name, process in processes.items():
            ended = process.poll()
            states[name] = RUNS if ended is None else f"ended early, with status {ended}"


def _wait_until_it_looks(agent: subprocess.Popen[bytes], log: Path) -> None:
    """Wait for the agent's message about its first look: a window needs samples before it."""
    ends_at = time.monotonic() + AGENT_START_SECONDS
    while b"nvml: answers" not in log.read_bytes():
        if agent.poll() is not None or time.monotonic() > ends_at:
            raise RuntimeError(
                f"the agent has not looked at NVML within {AGENT_START_SECONDS} s; {log} has its messages"
            )
        time.sleep(0.05)


def smi_fields(program: str) -> list[str]:
    """Those of SMI_FIELDS that this nvidia-smi knows: it refuses a query with one that it does not know."""
    help_text = subprocess.run([program, "--help-query-gpu"], capture_output=True, text=True, check=False).stdout
    known = set(re.findall(r'"([\w.]+)"', help_text))
    return [name for name in SMI_FIELDS if not known or name in known]


def poll(part: str, seconds: float, out: Path, log: Path) -> subprocess.Popen[bytes]:
    """Poll NVML for some seconds, beside what goes on."""
    command = [sys.executable, "-m", "bench.measured.nvml_calls", part, str(seconds), str(out)]
    with log.open("ab") as messages:
        return subprocess.Popen(command, cwd=PROJECT, stdout=messages, stderr=messages)


def gauge_watts(smi_csv: Path, uuid: str, start: float, end: float) -> float | None:
    """The mean of nvidia-smi's power.draw of a board between two moments (Unix seconds); None without a reading."""
    if not smi_csv.exists():
        return None
    with smi_csv.open(encoding="utf-8", errors="replace", newline="") as file:
        rows = csv.DictReader(file, skipinitialspace=True)
        watts = [
            float(row["power.draw [W]"].split()[0])
            for row in rows
            if row.get("uuid") == uuid and re.match(r"[\d.]+ W", row.get("power.draw [W]") or "")
            if start <= _smi_time(row["timestamp"]) < end
        ]
    return sum(watts) / len(watts) if watts else None


def _smi_time(text: str) -> float:
    return datetime.strptime(text, "%Y/%m/%d %H:%M:%S.%f").replace(tzinfo=UTC).timestamp()
