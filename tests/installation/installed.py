"""Wattledger, or its agent, as a wheel, unpacked where nothing can be written, and run from elsewhere: what a user has
who never saw a checkout. Of the environment that runs the tests it uses the packages, but none of the project's files.
"""

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

LIMIT_SECONDS = 600


def built_wheel(project: Path, folder: Path) -> Path:
    """The wheel that a project's own build makes, in `folder`."""
    return _built("wheel", project, folder, "*.whl")


def built_sdist(project: Path, folder: Path) -> Path:
    """The source distribution that a project's own build makes, in `folder`."""
    return _built("sdist", project, folder, "*.tar.gz")


def _built(kind: str, project: Path, folder: Path, pattern: str) -> Path:
    command = [sys.executable, "-m", "build", f"--{kind}", "--no-isolation", "--outdir", str(folder), str(project)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = folder.glob(pattern)
    return built


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
        return subprocess.run(
            [sys.executable, *words],
            env=self.environment(**more),
            cwd="/",
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )

    def environment(self, **more: str) -> dict[str, str]:
        """What the process of a command finds in its environment."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("WATTLEDGER_", "DAGSTER_"))}
        ours = {"HOME": str(self.home), "PYTHONPATH": str(self.packages), "PYTHONDONTWRITEBYTECODE": "1"}
        return {**kept, "XDG_DATA_HOME": "", **ours, **more}


@contextmanager
def installed(home: Path, *wheels: Path) -> Iterator[Installed]:
    """The wheels on a disk that is mounted for reading alone: root, too, can write nothing there."""
    with tempfile.TemporaryDirectory() as folder:
        packages = Path(folder)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--target", folder]
        subprocess.run([*pip, *map(str, wheels)], check=True, capture_output=True, cwd=PROJECT)
        subprocess.run(["mount", "--bind", folder, folder], check=True)
        try:
            subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)
            yield Installed(packages, home)
        finally:
            subprocess.run(["umount", folder], check=True)
