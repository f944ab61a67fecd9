"""A real Superset with an empty past: its own metadata in SQLite, the bundle imported, its server on loopback.

Add here what a test asks of Superset's own interface. Keep out what a chart should show.
"""

from __future__ import annotations

import json
import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests import optional
from tests.servers import free_port, running, wait_until

# Whoever opens it on loopback is an administrator, and a power cut may lose its metadata: it serves one test.
CONFIGURATION = """
import sqlite3

from sqlalchemy import event
from sqlalchemy.engine import Engine

SECRET_KEY = "of one test, for nothing else: 0123456789abcdef0123"
SQLALCHEMY_DATABASE_URI = "sqlite:///{metadata}"
AUTH_ROLE_PUBLIC = "Admin"
WTF_CSRF_ENABLED = False


@event.listens_for(Engine, "connect")
def forget_on_a_power_cut(connection, record):
    if isinstance(connection, sqlite3.Connection):
        connection.execute("pragma synchronous = off")
"""


@dataclass
class Superset:
    """A running Superset. Its answers are those of its REST API, which its own pages ask too."""

    url: str
    log: Path
    surroundings: Mapping[str, str]

    def ask(self, path: str, body: object = None, method: str = "") -> dict[str, Any]:
        """The answer to a request; AssertionError with Superset's own words where it refuses."""
        data = None if body is None else json.dumps(body).encode()
        headers = {} if data is None else {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}/api/v1/{path}", data, headers)
        request.method = method or ("GET" if data is None else "POST")
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as refusal:
            raise AssertionError(f"{path}: {refusal.code} {refusal.read().decode()[:2000]}") from None

    def charts(self) -> dict[str, int]:
        """Title -> number of each chart."""
        listed = self.ask(f"chart/?q={quote('(page_size:100)')}")
        return {one["slice_name"]: one["id"] for one in listed["result"]}

    def query_context(self, chart: int) -> dict[str, Any]:
        """The queries that are saved with a chart."""
        return json.loads(self.ask(f"chart/{chart}")["result"]["query_context"])

    def data(self, chart: int) -> dict[str, Any]:
        """What a chart's saved query returns now: its `data`, and the SQL as `query`."""
        return self.ask(f"chart/{chart}/data/?force=true")["result"][0]

    def read_from(self, address: str) -> None:
        """Point the bundle's database at another address."""
        self.run("set-database-uri", "--database_name", "Wattledger", "--uri", address)

    def run(self, *command: str) -> None:
        """A command of Superset; AssertionError with its log where it fails."""
        (superset,) = optional.required("superset")
        with self.log.open("ab") as output:
            done = subprocess.run(
                [superset, *command],
                env=self.surroundings, stdout=output, stderr=output, timeout=300, check=False,
            )  # fmt: skip
        assert done.returncode == 0, f"superset {command[0]}:\n{self.log.read_text()[-4000:]}"


@contextmanager
def started(folder: Path, bundle: Path) -> Iterator[Superset]:
    """A fresh Superset with the bundle, by the commands of bi/README.md, and its server."""
    (superset,) = optional.required("superset")
    configuration = folder / "superset_config.py"
    configuration.write_text(CONFIGURATION.format(metadata=folder / "superset.db"), encoding="utf-8")
    surroundings = {name: value for name, value in os.environ.items() if not name.startswith(("SUPERSET", "FLASK"))}
    # A time zone that is not UTC, so that a time which depends on the machine is seen.
    surroundings |= {"SUPERSET_CONFIG_PATH": str(configuration), "SUPERSET_HOME": str(folder), "TZ": "America/New_York"}
    found = Superset(f"http://127.0.0.1:{free_port()}", folder / "superset.log", surroundings)
    found.run("db", "upgrade")
    admin = [
        "--username",
        "admin",
        "--firstname",
        "A",
        "--lastname",
        "B",
        "--email",
        "a@example.com",
        "--password",
        "admin",
    ]
    found.run("fab", "create-admin", *admin)
    found.run("init")
    found.run("import-dashboards", "-p", str(bundle), "-u", "admin")
    server = [
        *(superset.parent / "gunicorn", "--workers", "1", "--threads", "4", "--timeout", "120"),
        *("--bind", found.url.removeprefix("http://"), "superset.app:create_app()"),
    ]
    with found.log.open("ab") as output, running(server, env=surroundings, stdout=output, stderr=output) as process:
        wait_until(lambda: is_up(found.url), process, found.log)
        yield found


def is_up(url: str) -> bool:
    """Whether the server answers."""
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=2) as answer:
            return answer.status == 200
    except OSError:
        return False
