"""The Dagster UI opens on this code location: in a real browser, with the asset graph and without a load error."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from pipelines.command_line import instance
from pipelines.fleet.places import PROJECT
from tests import optional
from tests.servers import free_port, running, wait_until


@pytest.mark.rest
@pytest.mark.needs("chromium")
def test_the_asset_graph_opens_without_a_load_error(tmp_path: Path) -> None:
    (browser,) = optional.required("chromium")
    home, profile = tmp_path / "home", tmp_path / "profile"
    home.mkdir()
    shutil.copy(instance.CONFIGURATION, home)
    port = free_port()
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("WATTLEDGER_", "DAGSTER_"))}
    command = [sys.executable, "-m", "dagster_webserver", "-w", "workspace.yaml", "-h", "127.0.0.1", "-p", str(port)]
    log = tmp_path / "webserver.log"
    with (
        log.open("w") as output,
        running(
            command,
            cwd=PROJECT,
            env={**environ, "DAGSTER_HOME": str(home), "WATTLEDGER_DATA": str(tmp_path / "data")},
            stdout=output,
            stderr=subprocess.STDOUT,
        ) as server,
    ):
        wait_until(lambda: is_answering(f"http://127.0.0.1:{port}/server_info"), server, log)
        pages = {
            page: subprocess.run(
                [
                    *(browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"),
                    *("--virtual-time-budget=30000", "--window-size=1600,1200", "--dump-dom"),
                    f"http://127.0.0.1:{port}/{page}",
                ],
                capture_output=True,
                text=True,
                timeout=120,
                check=True,
            ).stdout
            for page in ("asset-groups", "deployment/locations")
        }
    for group in (
        "fleet",
        "raw",
        "reference",
        "balance",
        "attribution",
        "usage",
        "carbon",
        "cost",
        "published",
    ):
        assert f">{group}<" in pages["asset-groups"], group
    assert "wattledger" in pages["deployment/locations"]
    assert ">Loaded<" in pages["deployment/locations"]
    for page in pages.values():
        assert "load error" not in page.lower()
        assert "failed to load" not in page.lower()


def is_answering(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=5).close()
    except OSError:
        return False
    return True
