"""Screenshots of a fleet report: on a desktop, on a phone, in the dark, and printed (`make report-shots`).

    python -m tests.report.screenshots fleets/demo.yaml data/report-shots

Add here another way to look at the page. Keep out what it shows.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from pipelines.fleet.fleet_file import load_fleet
from pipelines.publishing.publication import REPORT
from tests import browser

LOOKS = {
    "desktop": {"width": 1280},
    "phone": {"width": 390, "height": 844, "is_phone": True},
    "dark": {"width": 1280, "is_dark": True},
    "print": {"width": 794, "is_print": True},
}


def photograph(report: Path, folder: Path) -> list[Path]:
    """Write desktop.png, phone.png, dark.png, print.png and print.pdf to `folder`; returns their paths."""
    program = browser.found()
    if program is None:
        raise SystemExit(f"no browser on the PATH: expected one of {', '.join(browser.BROWSERS)}")
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    with tempfile.TemporaryDirectory() as profile, browser.browsing(program, Path(profile)) as page:
        for name, look in LOOKS.items():
            page.look(**look)
            page.open(report.resolve().as_uri())
            made.append(folder / f"{name}.png")
            page.photograph(made[-1])
        page.look(width=794, is_print=True)
        made.append(folder / "print.pdf")
        page.printed(made[-1])
    return made


if __name__ == "__main__":
    given = Path(sys.argv[1])
    report = given if given.suffix == ".html" else load_fleet(given).published / REPORT
    if not report.exists():
        raise SystemExit(f"no report at {report}: run `make run` first")
    for path in photograph(report, Path(sys.argv[2])):
        print(path)
