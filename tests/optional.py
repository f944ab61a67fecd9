"""What some tests and targets need beside Python and make: how each part is found, and the command that installs it.

A test that needs a part is marked, `@pytest.mark.needs("prometheus")`, and gets it by `required`. Without the part it
is skipped with that command, and fails where CI=true (`tests/conftest.py`); `pytest -m needs` selects all of them. As a
program (`python -m tests.optional java chromium`, which the Makefile runs) it prints what is missing and exits 1.

Add here a further part. Keep out how it is used.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
ENVIRONMENTS = PROJECT / ".venv"
JAVA_AT_LEAST = 17


class NotInstalled(Exception):
    """A part is not on this machine; the message names it and the command that installs it."""


@dataclass(frozen=True)
class Part:
    """Something optional. `find` returns its paths, none where it is not there; `install` is a command."""

    name: str
    install: str
    find: Callable[[], list[Path]]


def validation_data() -> Path:
    """Where the folder of real recordings is, if it is there."""
    return Path(os.environ.get("WATTLEDGER_VALIDATION_DATA", PROJECT / "../shared/data")).resolve()


def _programs(*names: str) -> Callable[[], list[Path]]:
    """All of these programs, or none."""

    def find() -> list[Path]:
        found = [path for name in names if (path := shutil.which(name, path=_path()))]
        return list(map(Path, found)) if len(found) == len(names) else []

    return find


def _path() -> str:
    # Debian keeps PostgreSQL's own programs out of the PATH.
    servers = os.environ.get("WATTLEDGER_POSTGRESQL", "/usr/lib/postgresql")
    return os.pathsep.join([os.environ.get("PATH", ""), *map(str, sorted(Path(servers).glob("*/bin")))])


def _any_of(*names: str) -> Callable[[], list[Path]]:
    """The first of these programs that is there."""
    return lambda: [Path(path) for name in names if (path := shutil.which(name))][:1]


def _file(path: Path) -> Callable[[], list[Path]]:
    return lambda: [path] if path.exists() else []


def _module(name: str) -> Callable[[], list[Path]]:
    def find() -> list[Path]:
        spec = find_spec(name)
        return [Path(spec.origin)] if spec is not None and spec.origin else []

    return find


def _java() -> list[Path]:
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else Path(shutil.which("java") or "java")
    try:
        printed = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
    except (OSError, subprocess.CalledProcessError):
        return []
    version = re.search(r'version "(\d+)', printed)
    return [java] if version is not None and int(version[1]) >= JAVA_AT_LEAST else []


def _mount() -> list[Path]:
    """The program `mount`, where this user may mount a disk."""
    mount = shutil.which("mount")
    if mount is None:
        return []
    with tempfile.TemporaryDirectory() as disk:
        if subprocess.run(
            [mount, "-t", "tmpfs", "-o", "size=1m", "none", disk], capture_output=True, check=False
        ).returncode:
            return []
        subprocess.run(["umount", disk], check=True)
    return [Path(mount)]


def _git() -> list[Path]:
    return _programs("git")() if (PROJECT / ".git").exists() else []


def _grafana() -> list[Path]:
    ready = ENVIRONMENTS / "grafana" / "ready"
    return [ready.parent] if ready.exists() and shutil.which("node") else []


PARTS = {
    "alertmanager": Part(
        "Alertmanager", "apt-get install prometheus-alertmanager", _any_of("prometheus-alertmanager", "alertmanager")
    ),
    "buildah": Part("buildah", "apt-get install buildah", _programs("buildah")),
    "chromium": Part("Chromium", "apt-get install chromium", _any_of("chromium", "chromium-browser", "google-chrome")),
    "focus": Part(
        "the validator of FOCUS files", "make focus", _file(ENVIRONMENTS / "focus" / "bin" / "focus-validator")
    ),
    "git": Part("a clone by git", "apt-get install git", _git),
    "grafana": Part("Grafana's published types", "apt-get install npm; make test-bi", _grafana),
    "java": Part(f"Java {JAVA_AT_LEAST} or newer", "apt-get install openjdk-17-jre-headless", _java),
    "kubernetes": Part(
        "the schemas of Kubernetes",
        "make kubernetes",
        _file(ENVIRONMENTS / "kubernetes" / "bin" / "kubernetes-validate"),
    ),
    "libreoffice": Part("LibreOffice", "apt-get install libreoffice-calc-nogui", _any_of("soffice", "libreoffice")),
    "metricflow": Part("MetricFlow", "make metrics", _module("dbt_metricflow")),
    "mmdebstrap": Part("mmdebstrap", "apt-get install mmdebstrap", _programs("mmdebstrap")),
    "npm": Part("npm", "apt-get install npm", _programs("npm", "node")),
    "openssl": Part("openssl", "apt-get install openssl", _programs("openssl")),
    "postgresql": Part(
        "PostgreSQL (in another folder than /usr/lib/postgresql: WATTLEDGER_POSTGRESQL)",
        "apt-get install postgresql",
        _programs("initdb", "postgres"),
    ),
    "prometheus": Part("Prometheus", "apt-get install prometheus", _programs("prometheus", "promtool")),
    "pyspark": Part("pyspark", "make test-spark", _module("pyspark")),
    "root": Part("the right to mount a small disk", "sudo make test", _mount),
    "superset": Part("Superset", "make superset", _file(ENVIRONMENTS / "superset" / "bin" / "superset")),
    "systemd": Part("systemd-analyze", "apt-get install systemd", _programs("systemd-analyze")),
    "validation-data": Part(
        "the folder of real recordings, which is not part of the project",
        "export WATTLEDGER_VALIDATION_DATA=/path/of/it",
        lambda: [validation_data()] if validation_data().is_dir() else [],
    ),
    "victoria-metrics": Part("VictoriaMetrics", "apt-get install victoria-metrics", _programs("victoria-metrics")),
}

# The parts that the running test is marked with; None outside of a test.
declared: frozenset[str] | None = None


@cache
def found(part: str) -> tuple[Path, ...]:
    """The paths of a part; none where it is not there."""
    return tuple(PARTS[part].find())


def missing(*parts: str) -> str:
    """Which of these parts are not there and what installs them, in one line; empty where all are there."""
    lacking = [PARTS[part] for part in parts if not found(part)]
    return f"needs {', and '.join(f'{one.name}: {one.install}' for one in lacking)}" if lacking else ""


def required(part: str) -> tuple[Path, ...]:
    """The paths of a part; NotInstalled where it is not there, AssertionError in a test that is not marked."""
    if declared is not None and part not in declared:
        raise AssertionError(f'the test uses {part} and is not marked: @pytest.mark.needs("{part}")')
    if line := missing(part):
        raise NotInstalled(line)
    return found(part)


if __name__ == "__main__":
    sys.exit(missing(*sys.argv[1:]) or None)
