"""The charts of a report as PNG, for asset metadata: the same SVG, with the light colours of the page's stylesheet.

Add here what a chart needs outside the page. Keep out drawing: that is `charts`.
"""

from __future__ import annotations

import base64
import re
from functools import cache
from pathlib import Path

from pipelines.report.charts import WIDTH

ZOOM = 1.6  # pixels per unit of a chart: readable at the width that the Dagster UI gives it
TITLE, LEGEND_LINE, CHARACTER = 24, 17, 7.2  # heights of a line, and the width of a character, in units of a chart
MARGIN = 8

_SECTION = re.compile(r'<section id="([\w-]+)"[^>]*><h3[^>]*>([^<]*)</h3>(.*?)</section>', re.DOTALL)
_PICTURE = re.compile(
    r'(?:<h4>([^<]*)</h4>)?<div class="picture">(<ul class="legend">.*?</ul>)?'
    r'<svg class="chart" viewBox="0 0 \d+ (\d+)"[^>]*>(.*?)</svg></div>',
    re.DOTALL,
)
_SIGN = re.compile(r'<li><svg width="(\d+)"[^>]*>(.*?)</svg>([^<]*)</li>', re.DOTALL)
_OF_CHARTS = re.compile(r"^\.(?:chart|grid|axis|line|dot|part|today|s\d|d\d)\b.*$", re.MULTILINE)


def images(page: str, section: str) -> str:
    """Markdown images of the charts in a section of the report, by the name of its query; empty text without charts.

    Raises ValueError where a chart cannot be drawn.
    """
    drawn = [
        (panel or title, _drawn(panel or title, legend, height, chart))
        for name, title, contents in _SECTION.findall(page)
        if name == section.replace("_", "-")
        for panel, legend, height, chart in _PICTURE.findall(contents)
    ]
    return "\n\n".join(f"![{title}](data:image/png;base64,{base64.b64encode(png).decode()})" for title, png in drawn)


def _drawn(title: str, legend: str, height: str, chart: str) -> bytes:
    import resvg_py  # noqa: PLC0415 (only a report that is written needs it)

    signs, lines = _signs(legend)
    top = TITLE + lines * LEGEND_LINE
    whole = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox="{-MARGIN} {-MARGIN} {WIDTH + 2 * MARGIN}'
        f' {top + int(height) + 2 * MARGIN}"><text x="0" y="14" font-size="14" font-weight="bold">{title}</text>'
        f'<g transform="translate(0 {TITLE})">{signs}</g><g transform="translate(0 {top})">{chart}</g></svg>'
    )
    return resvg_py.svg_to_bytes(
        svg_string=whole,
        background="#ffffff",
        zoom=ZOOM,
        style_sheet=_style(),
        skip_system_fonts=True,
        font_files=_fonts(),
        sans_serif_family="DejaVu Sans",
    )


def _signs(legend: str) -> tuple[str, int]:
    """The legend as SVG, in lines as wide as a chart, and the number of its lines."""
    drawn, x, line = [], 0.0, 0
    for width, sign, name in _SIGN.findall(legend):
        needed = int(width) + 6 + CHARACTER * len(name)
        if x and x + needed > WIDTH:
            x, line = 0.0, line + 1
        drawn.append(
            f'<g transform="translate({x:.0f} {line * LEGEND_LINE})">{sign}<text x="{int(width) + 6}" y="10">{name}'
            "</text></g>"
        )
        x += needed + 14
    return "".join(drawn), line + 1 if drawn else 0


@cache
def _style() -> str:
    """The rules of page.css that charts use, in its light colours: the renderer knows no variables and no media."""
    light = (Path(__file__).parent / "page.css").read_text(encoding="utf-8").partition("@media (max-width")[0]
    colours = dict(re.findall(r"--(\w+): (#\w+);", light.partition("@media (prefers-color-scheme: dark)")[0]))
    return re.sub(r"var\(--(\w+)\)", lambda name: colours[name[1]], "\n".join(_OF_CHARTS.findall(light)))


@cache
def _fonts() -> list[str]:
    """The font that matplotlib brings: a server may have none."""
    import matplotlib as mpl  # noqa: PLC0415 (half a second that only a publication pays)

    folder = Path(mpl.get_data_path()) / "fonts/ttf"
    return [str(folder / name) for name in ("DejaVuSans.ttf", "DejaVuSans-Bold.ttf")]
