"""Draws the picture of docs/recommendations/efficiency_curves.md, as the asset efficiency_fit shows it in the UI.

`make run` first, then `.venv/bin/python docs/pictures/draw.py`. The other pictures of this folder are SVG, written by
hand, those of `draw_platforms`, and a screenshot of `make dev`.
"""

from __future__ import annotations

import base64
from contextlib import closing
from pathlib import Path

import duckdb

from pipelines.fleet.fleet_file import load_fleet
from pipelines.fleet.places import DEFAULT_FLEET
from pipelines.publishing import pictures, publication


def draw(folder: Path) -> None:
    """Write efficiency_curve.png from the published demo."""
    fleet = load_fleet(DEFAULT_FLEET)
    with closing(duckdb.connect(str(fleet.published / publication.DATABASE), read_only=True)) as reader:
        levels = reader.execute("select * from marts.efficiency_curve").df()
        fits = reader.execute("select * from marts.efficiency_fit").df()
    image = pictures.efficiency_curves(levels, fits, "J/token against load: demo, 28 dates to 2026-10-28 (synthetic)")
    (folder / "efficiency_curve.png").write_bytes(base64.b64decode(image.partition("base64,")[2].rstrip(")")))


if __name__ == "__main__":
    draw(Path(__file__).parent)
