"""Screenshots of a fleet report: on a desktop, on a phone, in the dark, and printed (`make report-shots`), and the top
of it for README (`make report-picture`).

    python -m tests.report.screenshots fleets/demo.yaml data/report-shots
    python -m tests.report.screenshots fleets/demo.yaml docs/pictures/fleet_report.png

Add here another way to look at the page. Keep out what it shows.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image

from pipelines.fleet.fleet_file import load_fleet
from pipelines.publishing.publication_manifest import REPORT
from tests import browser, optional

PAPER = 695  # CSS pixels between the margins of A4
LOOKS = {
    "desktop": {"width": 1280},
    "phone": {"width": 390, "height": 844, "is_phone": True},
    "dark": {"width": 1280, "is_dark": True},
    "print": {"width": PAPER, "is_print": True},
}
TOP = "#headline .tiles"  # the last thing that the picture of README shows


def photograph(report: Path, folder: Path) -> list[Path]:
    """Write desktop.png, phone.png, dark.png, print.png and print.pdf to `folder`; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    with _opened() as page:
        for name, look in LOOKS.items():
            page.look(**look)
            page.open(report.resolve().as_uri())
            made.append(folder / f"{name}.png")
            page.photograph(made[-1])
        page.look(width=PAPER, is_print=True)
        made.append(folder / "print.pdf")
        page.printed(made[-1])
    return made


def photograph_top(report: Path, at: Path) -> Path:
    """Write what the page begins with, down to the headline, to the PNG `at`; returns it."""
    with _opened() as page:
        page.look(width=1185)
        page.open(report.resolve().as_uri())
        page.photograph(at, above=TOP)
    # Few colours, so a palette has them all, in a quarter of the bytes.
    with Image.open(at) as picture:
        picture.convert("RGB").quantize(64).save(at, optimize=True)
    return at


@contextmanager
def _opened() -> Iterator[browser.Page]:
    with tempfile.TemporaryDirectory() as profile, browser.browsing(Path(profile)) as page:
        yield page


if __name__ == "__main__":
    given = Path(sys.argv[1])
    report = given if given.suffix == ".html" else load_fleet(given).published / REPORT
    if not report.exists():
        raise SystemExit(f"no report at {report}: run `make run` first")
    at = Path(sys.argv[2])
    try:
        made = [photograph_top(report, at)] if at.suffix == ".png" else photograph(report, at)
    except optional.NotInstalled as missing:
        sys.exit(str(missing))
    for path in made:
        print(path)
