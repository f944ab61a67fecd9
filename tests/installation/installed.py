"""Wattledger as a wheel, unpacked where nothing can be written, and run from elsewhere: what a user has who never saw a
checkout. Of the environment that runs the tests it uses the packages, but none of the project's files."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.optional import PROJECT

LIMIT_SECONDS = 300


def built_wheel(project: Path, folder: Path) -> Path:
    """The wheel that a project's own build makes, in `folder`."""
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(project)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = folder.glob("*.whl")
    return wheel


@dataclass(frozen=True)
class Installed:
    """An unpacked wheel, and a person's home folder."""

    packages: Path
    home: Path

    def run(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        """A command of `wattledger`, from the folder `/`, as cron would run it."""
        return self.python(str(self.packages / "bin" / "wattledger"), *words, **more)

    def python(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Python with the wheel's packages before all others."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("WATTLEDGER_", "DAGSTER_"))}
        ours = {"HOME": str(self.home), "PYTHONPATH": str(self.packages), "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run(
            [sys.executable, *words],
            env={**kept, "XDG_DATA_HOME": "", **ours, **more},
            cwd="/",
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )


@contextmanager
def installed(wheel: Path, home: Path) -> Iterator[Installed]:
    """The wheel on a disk that is mounted for reading alone: root, too, can write nothing there."""
    with tempfile.TemporaryDirectory() as folder:
        packages = Path(folder)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--target", folder]
        subprocess.run([*pip, str(wheel)], check=True, capture_output=True, cwd=PROJECT)
        subprocess.run(["mount", "--bind", folder, folder], check=True)
        try:
            subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)
            yield Installed(packages, home)
        finally:
            subprocess.run(["umount", folder], check=True)
