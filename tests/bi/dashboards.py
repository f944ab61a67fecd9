"""Photographs of the dashboards in a Superset, by a real browser.

    python -m tests.bi.dashboards fleets/demo.yaml data/bi-shots

starts a Superset of its own on the newest snapshot of a fleet (`make bi-shots`). Add here another way to look at a
dashboard. Keep out what it shows.
"""

from __future__ import annotations

import base64
import json
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipelines.fleet.fleet_file import load_fleet
from pipelines.publishing.dashboards import files as bi
from tests import browser, optional
from tests.bi import superset_server
from tests.bi.answers import BOARDS

WIDTH = 1440
READY_SECONDS = 90
# A chart is drawn where its container is there and no chart of the page still turns its wheel.
DRAWN = "document.querySelectorAll('.slice_container').length"
LOADING = "document.querySelectorAll('.loading, [data-test=loading-indicator]').length"
BOTTOM = """Math.max(...[...document.querySelectorAll('.dashboard-component-chart-holder')]
    .map(one => one.getBoundingClientRect().bottom))"""


def photograph(page: browser.Page, url: str, board: str, charts: int, to: Path) -> str:
    """Open a dashboard, write it as PNG or WebP once its charts are drawn, and return its text.

    AssertionError where they are not all there in READY_SECONDS.
    """
    # Superset loads the charts that are in the window: the window is as high as the longest dashboard.
    page.look(width=WIDTH, height=4400)
    page.open(f"{url}/superset/dashboard/wattledger-{board}/?standalone=1")
    deadline = time.monotonic() + READY_SECONDS
    while (drawn := page.value(DRAWN)) != charts or page.value(LOADING):
        assert time.monotonic() < deadline, f"{board}: {drawn} of {charts} charts after {READY_SECONDS} s"
        time.sleep(0.3)
    time.sleep(1.5)  # the pictures are drawn in motion
    part = {"x": 0, "y": 0, "width": WIDTH, "height": page.value(BOTTOM) + 16, "scale": 1}
    shot = page.ask("Page.captureScreenshot", format=to.suffix[1:], clip=part)
    to.write_bytes(base64.b64decode(shot["data"]))
    return page.value("document.body.innerText")


def asked(page: browser.Page) -> list[Mapping[str, Any]]:
    """The queries that the page has sent to Superset for its charts, in order."""
    return [json.loads(body) for url, body in page.posted if "/api/v1/chart/data" in url]


def main(fleet: str, folder: Path) -> None:
    """Write superset_operator.webp and those of the other dashboards, on a fleet's newest snapshot, to `folder`."""
    snapshot = load_fleet(Path(fleet)).snapshot
    if not snapshot.exists():
        raise SystemExit(f"no snapshot at {snapshot}: run `make run` first")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        (zipped,) = bi.write(Path(name), bi.superset(str(snapshot)))
        with (
            superset_server.started(Path(name), zipped) as server,
            browser.browsing(Path(name) / "profile", reaches="127.0.0.1") as page,
        ):
            for board, charts in BOARDS.items():
                photograph(page, server.url, board, len(charts), folder / f"superset_{board}.webp")
                print(folder / f"superset_{board}.webp")


if __name__ == "__main__":
    try:
        main(sys.argv[1], Path(sys.argv[2]))
    except optional.NotInstalled as missing:
        sys.exit(str(missing))
