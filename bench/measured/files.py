"""The files of a run, eight at most: what was measured, and a fleet file that books it.

Add here what a file holds. Keep out what is measured, and when.

`results.json` has the windows of a run with a first look at joules; it and `fleet.yaml` are written anew after each
window. `requests.jsonl` is the log of requests, `spool.tar` what the agent left, `nvidia_smi.csv` what nvidia-smi
printed, `nvml_calls.json` what NVML answered and refused, `nvml_polled.csv` its changes, `log.txt` the messages.
"""

from __future__ import annotations

import json
import platform
import shutil
import tarfile
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

from bench.measured.load import MODEL, RULE, Counts
from bench.measured.plan import Plan, Stretch
from bench.measured.recorders import HOST, gauge_watts

PACKAGES = ("torch", "transformers", "nvidia-ml-py", "prometheus-client")


class Files:
    """A folder for the files of a run, and what is known so far of its windows."""

    def __init__(self, folder: Path, plan: Plan, engine: str, nvml: Mapping[str, Mapping[str, Any]]) -> None:
        self.folder, self.plan, self.engine = folder, plan, engine
        self.spool, self.log = folder / "spool", folder / "log.txt"
        self.smi, self.polled = folder / "nvidia_smi.csv", folder / "nvml_polled.csv"
        self.requests = folder / "requests.jsonl"
        self.uuid = nvml["uuid"].get("answer")
        self.windows: list[dict[str, Any]] = []
        self.facts: dict[str, Any] = {
            "rule": RULE,
            "started_at": text_of(datetime.now(UTC).timestamp()),
            "device": {name: nvml[name].get("answer") for name in ("name", "uuid", "driver", "memory_total_bytes")},
            "refused": [name for name, answer in nvml.items() if "refused" in answer],
            "versions": {"python": platform.python_version(), "linux": platform.release(), **_versions()},
            "plan": plan._asdict() | {"stretches": [stretch.name for stretch in plan.stretches]},
        }
        write_json(folder / "nvml_calls.json", nvml)

    def add(self, name: str, start: float, end: float, counter_watts: float | None, **more: Any) -> None:
        """A window, with the mean watts by the board's counter."""
        joules = None if counter_watts is None else counter_watts * (end - start)
        times = {"window_id": name, "start_at": text_of(start), "end_at": text_of(end), "seconds": end - start}
        self.windows.append({**times, "counter_joules": joules, **more})
        self.write()

    def add_stretch(self, stretch: Stretch, start: float, watts: float | None, counts: Counts, mode: str) -> None:
        """A stretch and what was counted in it."""
        seconds = self.plan.stretch_seconds
        firsts = counts.first_token_seconds
        counted = {name: value for name, value in vars(counts).items() if name != "first_token_seconds"}
        joules = None if watts is None else watts * seconds
        rates = {
            "output_tokens_per_second": counts.output_tokens / seconds,
            "input_tokens_per_second": (counts.input_tokens - counts.cached_input_tokens) / seconds,
            "first_token_seconds": median(firsts) if firsts else None,
            "joules_per_output_token": joules / counts.output_tokens if joules and counts.output_tokens else None,
        }
        shape = {"shape": stretch._asdict(), "mode": mode}
        self.add(stretch.name, start, start + seconds, watts, **shape, **counted, **rates)

    def write(self) -> None:
        """What is known so far."""
        write_json(self.folder / "results.json", {**self.facts, "windows": self.windows})
        write_json(self.folder / "fleet.yaml", self.fleet())

    def close(self, recorders: Mapping[str, str]) -> None:
        """The spool as one file, and the gauge's joules beside the counter's."""
        self.facts["recorders"] = dict(recorders)
        for window in self.windows:
            start, end = (datetime.fromisoformat(window[key]).timestamp() for key in ("start_at", "end_at"))
            watts = gauge_watts(self.smi, self.uuid, start, end)
            window["gauge_joules"] = None if watts is None else watts * (end - start)
        self.write()
        if self.spool.is_dir():
            with tarfile.open(self.folder / "spool.tar", "w") as archive:
                archive.add(self.spool, "spool")
            shutil.rmtree(self.spool)

    def fleet(self) -> dict[str, Any]:
        """The fleet file, as JSON, which is YAML too. Its spool is where it is unpacked: `data/measured/spool`."""
        started = datetime.fromisoformat(self.facts["started_at"])
        newest = max([started, *(datetime.fromisoformat(window["end_at"]) for window in self.windows)])
        loaded_at = self.facts.get("model", {}).get("loaded_at")
        claim = {"device_uuid": self.uuid, "engine": self.engine, "model": MODEL, "deployment": MODEL}
        places = {name: name for name in ("started_at", "ended_at", "ttft_seconds", "status", "tenant")}
        return {
            "fleet": "measured",
            "description": f"{self.facts['device']['name']}, driver {self.facts['device']['driver']}, {started.date()}:"
            " a model of random weights, stretch by stretch.",
            "grid_seconds": self.plan.stretch_seconds,
            "period": {"start": str(started.date()), "end": str(newest.date() + timedelta(days=1))},
            "sources": [{"name": "agents", "kind": "spool", "site": "bench"}],
            "requests": [
                {"name": "load", "kind": "access_log", "path": self.requests.name, "time_unit": "us", "columns": places}
                | {"engine": self.engine}
            ],
            # Where the accelerator is and what it costs there is not known: no CO2 and no dollars.
            "sites": [{"name": "bench", "zone": "unknown", "pue": 1.0, "tariff": []}],
            "nodes": [{"name": HOST, "site": "bench"}],
            "models": [{"name": MODEL}],
            "assignments": [{**claim, "start_at": loaded_at}] if loaded_at else [],
            "run_windows": {"inline": [self._run_window(window) for window in self.windows if "error" not in window]},
        }

    def _run_window(self, window: Mapping[str, Any]) -> dict[str, Any]:
        # Of bare idle no engine is known yet; an idle window has no token, which is known.
        of_what = {"node": HOST} if window["window_id"] == "bare_idle" else {"engine": self.engine}
        tokens = {
            "output_tokens": window.get("output_tokens", 0),
            "total_tokens": window.get("input_tokens", 0) + window.get("output_tokens", 0),
        }
        return {key: window[key] for key in ("window_id", "start_at", "end_at")} | of_what | tokens


def text_of(moment: float) -> str:
    """A moment (Unix seconds) as text, UTC."""
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="microseconds")


def write_json(path: Path, value: Any) -> None:
    """Write a file so that it is whole whenever the run is ended."""
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    unfinished.replace(path)


def _versions() -> dict[str, str]:
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions
