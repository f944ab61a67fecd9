"""Whether a build on Spark can start at all: pyspark, Java, a master that answers, a lake that can be written.

Add here what would otherwise fail minutes later. Keep out the build itself (`driver`).
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path

from pipelines.fleet.fleet_errors import FleetError
from pipelines.fleet.fleet_file import Fleet

JAVA_AT_LEAST = 17


class SparkError(Exception):
    """The build cannot start, or failed; the message gives the reason. The committed marts are unchanged.

    `statuses` is what dbt had done until then, as in a `Build`.
    """

    def __init__(self, message: str, statuses: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.statuses = dict(statuses or {})


def master() -> str:
    """Where Spark runs: WATTLEDGER_SPARK_MASTER, else all cores of this machine."""
    return os.environ.get("WATTLEDGER_SPARK_MASTER") or "local[*]"


def validate(fleet: Fleet) -> None:
    """FleetError where `check` refuses, as of the fleet file's key."""
    try:
        check(Path(fleet.landing.lake_path))
    except SparkError as refusal:
        raise FleetError(fleet.path, [f"landing.engine: {refusal}"]) from refusal


def check(lake: Path) -> None:
    """Raise one SparkError for what would fail minutes later: no pyspark, no Java, no master, a lake without rights."""
    try:
        import pyspark  # noqa: F401, PLC0415 (an optional group)
    except ModuleNotFoundError as missing:
        raise SparkError("pyspark is not installed: pip install 'wattledger[spark]'") from missing
    _check_java()
    _check_master()
    for folder in ("marts", "runs"):
        probe = lake / folder / f".writable-{uuid.uuid4().hex}"
        try:
            probe.parent.mkdir(parents=True, exist_ok=True)
            probe.touch()
            probe.unlink()
        except OSError as refusal:
            raise SparkError(f"the lake {lake} cannot be written: {refusal}") from refusal


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else "java"
    expected = f"Spark needs Java {JAVA_AT_LEAST} or newer (Debian: openjdk-17-jre-headless; JAVA_HOME names another)"
    try:
        printed = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr  # noqa: S603 (the user's own Java)
    except (OSError, subprocess.CalledProcessError) as missing:
        raise SparkError(f"{expected}; {java} does not run: {missing}") from missing
    found = re.search(r'version "(\d+)', printed)
    if found is None or int(found[1]) < JAVA_AT_LEAST:
        raise SparkError(f"{expected}; {java} is {printed.splitlines()[0] if printed else 'unknown'}")


def _check_master() -> None:
    """A standalone master that does not answer makes Spark try again for minutes."""
    named = re.fullmatch(r"spark://(.+)", master())
    if named is None:
        return
    refusals = []
    for place in named[1].split(","):
        host, _, port = place.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
            return
        except (OSError, ValueError) as refusal:
            refusals.append(f"{place}: {refusal}")
    raise SparkError(f"the Spark master {master()} cannot be reached ({'; '.join(refusals)})")
