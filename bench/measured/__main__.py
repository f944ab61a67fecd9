"""`make measure`, in a checkout `python -m bench.measured`: what is missing, then a smoke run, then the run.

Add here options, and what a host must have. Keep out what a run does (`run`).
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.measured.run import MakeEngine

PROJECT = Path(__file__).parents[2]
# What `make measure-wheels` has left here, for a host without a network.
WHEELS = PROJECT / "data" / "wheels"
SMOKE_LIMIT_SECONDS = 60


def main() -> int:
    """The exit status: 0 measured, 1 something failed, 2 this host cannot measure."""
    started_at = time.time()
    options = _options()
    add_wheels()
    reason = why_not()
    if not reason and options.out.is_dir() and any(options.out.iterdir()):
        reason = f"{options.out} is not empty. Name another folder for the files: --out FOLDER"
    if reason:
        print(f"measure: {reason}", file=sys.stderr)
        return 2
    # Ended early, it still leaves its files whole.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
    if not options.smoke and not smoke_run():
        return 1
    from bench.measured import plan  # noqa: PLC0415 (may be missing until here)
    from bench.measured.run import run  # noqa: PLC0415

    status = run(plan.SMOKE if options.smoke else plan.FULL, load_maker, options.out, started_at)
    print(f"measure: {sum(1 for _ in options.out.iterdir())} files in {options.out}, {time.time() - started_at:.0f} s")
    return status


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.measured", description=__doc__.partition("\n")[0])
    new = PROJECT / "data" / "measured" / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    parser.add_argument("--smoke", action="store_true", help="a small model and short stretches, 40 s in all")
    parser.add_argument("--out", type=Path, default=new, help="a folder for the files; default: data/measured/<time>")
    return parser.parse_args()


def load_maker() -> MakeEngine:
    """What makes the model. Importing it takes seconds."""
    from bench.measured.llama import LlamaEngine  # noqa: PLC0415

    return LlamaEngine


def agent_packages() -> list[str]:
    """What the agent needs, as pip is asked for it."""
    stated = tomllib.loads((PROJECT / "agent" / "pyproject.toml").read_text(encoding="utf-8"))
    return stated["project"]["dependencies"]


def missing() -> list[str]:
    """Packages that this Python lacks."""
    lacking = []
    for requirement in ("torch", *agent_packages()):
        name = re.split("[^A-Za-z0-9-]", requirement)[0]
        try:
            version(name)
        except PackageNotFoundError:
            lacking.append(name)
    return lacking


def add_wheels() -> None:
    """Install what was carried here beside it, for this process and those that it starts."""
    wheels = sorted(map(str, WHEELS.glob("*.whl")))
    if not wheels or not set(missing()) - {"torch"}:
        return
    installed = WHEELS / f"installed-{sys.version_info.major}.{sys.version_info.minor}"
    if not installed.is_dir():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", str(installed)]
        # Of another Python's wheels the packages stay missing, which `why_not` has in one line.
        subprocess.run([*pip, *wheels], capture_output=True, check=False)
    sys.path.append(str(installed))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(installed)]))


def why_not() -> str | None:
    """Why this host cannot measure, in one line; None where it can."""
    lacking = missing()
    if "nvidia-ml-py" not in lacking:
        from bench.measured import nvml_calls  # noqa: PLC0415

        try:
            nvml_calls.board()
        except nvml_calls.pynvml.NVMLError as error:
            return f"no NVIDIA accelerator here ({error}). Run it on a host that has one and its driver."
    if not lacking:
        return None
    return (
        f"{sys.executable} lacks {', '.join(lacking)}. Name a Python that has PyTorch: make measure"
        " MEASURE_PYTHON=/path/to/python. `make measure-wheels` fetches the agent's packages, to be carried."
    )


def smoke_run() -> bool:
    """All of it on a small model, in a process of its own: its CUDA context is gone before the board idles."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "bench.measured", "--smoke", "--out", f"{folder}/smoke"]
        try:
            ended = subprocess.run(command, cwd=PROJECT, timeout=SMOKE_LIMIT_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            print(f"measure: the smoke run was not over after {SMOKE_LIMIT_SECONDS} s.", file=sys.stderr)
            return False
        log = Path(folder, "smoke", "log.txt")
        if ended.returncode and log.exists():
            print(log.read_text(encoding="utf-8", errors="replace")[-8000:], file=sys.stderr)
        return ended.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
