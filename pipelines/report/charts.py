"""Charts as SVG inside the page: lines and stacked bars, in colours that the page's stylesheet gives to light, dark and
print. No script draws or moves anything.

Add here a form that a figure needs. Keep out what it shows. A form differs by dash and marker as well as by colour.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate

from pipelines.report.axes import Axis, numeric
from pipelines.report.markup import BAR_CHARACTERS, NAME_CHARACTERS, label, shortened, text

WIDTH, HEIGHT = 460, 250
LEFT, RIGHT, TOP, BOTTOM = 62, 22, 10, 40
NAME, BAR, GAP = 17, 15, 9  # heights of a bar's name, of the bar below it, and of the space to the next one
VALUES = 124  # width of what is written after bars
SLIVER = 3  # the least width of a part: one that is there is seen
SERIES = 7


@dataclass(frozen=True)
class Line:
    """Points (x, y) with the text that a pointer shows; y is None where it is unknown, and the line is interrupted.

    `series` is the number of its colour and form, where the page has one for its name; else the chart chooses.
    """

    name: str
    points: Sequence[tuple[float, float | None, str]]
    is_emphasised: bool = False
    is_dotted: bool = False  # points alone, no line between them
    has_markers: bool = True
    is_staircase: bool = False  # down at a point, level to the next: nothing was measured between the two
    series: int | None = None


@dataclass(frozen=True)
class Mark:
    """A single point that the reader should see first; `series` is the place of its line among the lines drawn."""

    x: float
    y: float
    series: int
    text: str


@dataclass(frozen=True)
class Bar:
    """A bar of several parts: amounts by the number of their series, with the text that a pointer shows.

    `note` follows the name above the bar, `total` the bar.
    """

    name: str
    parts: Sequence[tuple[int, float, str]]
    total: str = ""
    note: str = ""


def lines(drawn: Sequence[Line], x: Axis, y: Axis, *, x_title: str, y_title: str, description: str,
          marks: Sequence[Mark] = ()) -> str:  # fmt: skip
    """A chart of lines, with a legend where there are several. `description` is plain text for a screen reader."""
    body = [_frame(x, y, x_title, y_title)]
    chosen = _series(drawn)
    for series, line in zip(chosen, drawn, strict=True):
        style = f"s{series % SERIES}" + (" strong" if line.is_emphasised else "")
        pieces: list[list[tuple[float, float]]] = [[]]
        dots = []
        for at, value, shown in line.points:
            if value is None or not (y.holds(value) and x.holds(at)):
                pieces.append([])
                continue
            point = (x.place(at), y.place(value))
            pieces[-1].append(point)
            if line.has_markers:
                dots.append(_marker(series, *point, _shown(line.name, shown), style))
        if not line.is_dotted:
            paths = "".join(_path(piece, line.is_staircase) for piece in pieces if len(piece) > 1)
            body.append(f'<path class="line {style} d{series % SERIES}" d="{paths}"/>' if paths else "")
        body.append("".join(dots))
    for mark in marks:
        if x.holds(mark.x) and y.holds(mark.y):
            body.append(
                f'<circle class="today s{chosen[mark.series] % SERIES}" cx="{x.place(mark.x):.1f}"'
                f' cy="{y.place(mark.y):.1f}" r="6.5"><title>{text(mark.text)}</title></circle>'
            )
    legend = (
        _legend([(series, line.name) for series, line in zip(chosen, drawn, strict=True)], is_lines=True)
        if len(drawn) > 1
        else ""
    )
    return _picture(legend, "".join(body), HEIGHT, description)


def bars(drawn: Sequence[Bar], series: Sequence[str], *, unit: str, description: str) -> str:
    """Horizontal bars from zero, one below the other, each below its name and with its total at the end.

    A series of which no bar has a part is not in the legend.
    """
    left, right = 4, WIDTH - VALUES
    height = TOP + len(drawn) * (NAME + BAR + GAP) + BOTTOM
    totals = [sum(max(amount, 0) for _, amount, _ in bar.parts) for bar in drawn]
    x = numeric(totals, left, right, may_be_log=False, ticks=5)
    body = _ruled(x, height)
    for row, bar in enumerate(drawn):
        y = TOP + row * (NAME + BAR + GAP) + NAME
        note = f" {escape(bar.note)}" if bar.note else ""
        body.append(f'<text class="name" x="{left}" y="{y - 4}">{label(bar.name, BAR_CHARACTERS)}{note}</text>')
        parts = [(number, amount, shown) for number, amount, shown in bar.parts if amount > 0]
        at = float(left)
        for (number, _, shown), width in zip(parts, _widths([part[1] for part in parts], x), strict=True):
            body.append(
                f'<rect class="part s{number % SERIES}" x="{at:.1f}" y="{y}" width="{width:.1f}" height="{BAR}">'
                f"<title>{text(_shown(f'{bar.name}, {series[number]}', shown))}</title></rect>"
            )
            at += width
        body.append(f'<text class="total" x="{at + 6:.1f}" y="{y + BAR * 0.78:.1f}">{escape(bar.total)}</text>')
    body.append(
        f'<text class="title" x="{(left + right) / 2:.0f}" y="{height - 6}" text-anchor="middle">{escape(unit)}</text>'
    )
    seen = {number for bar in drawn for number, amount, _ in bar.parts if amount > 0}
    named = [(number, name) for number, name in enumerate(series) if number in seen]
    return _picture(_legend(named, is_lines=False) if len(series) > 1 else "", "".join(body), height, description)


def waterfall(steps: Sequence[tuple[str, float]], *, unit: str, description: str) -> str:
    """Bars one below the other, each from where the one above it ends: what a total changed by. The last bar is the
    change itself."""
    left, right = 4, WIDTH - VALUES
    height = TOP + (len(steps) + 1) * (NAME + BAR + GAP) + BOTTOM
    ends = list(accumulate(amount for _, amount in steps))
    x = numeric([0, *ends], left, right, may_be_log=False, ticks=5)
    body = _ruled(x, height)
    rows = [(name, start, end) for (name, _), start, end in zip(steps, [0.0, *ends], ends, strict=False)]
    rows.append(("all together", 0.0, ends[-1] if ends else 0.0))
    for row, (name, start, end) in enumerate(rows):
        y = TOP + row * (NAME + BAR + GAP) + NAME
        low, high = sorted((x.place(start), x.place(end)))
        series = 0 if row == len(rows) - 1 else 1 if end >= start else 2
        shown = f"{end - start:+,.2f}"
        body.append(
            f'<text class="name" x="{left}" y="{y - 4}">{label(name, BAR_CHARACTERS)}</text>'
            f'<rect class="part s{series}" x="{low:.1f}" y="{y}" width="{max(high - low, SLIVER):.1f}" height="{BAR}">'
            f"<title>{text(_shown(name, f'{shown} {unit}'))}</title></rect>"
            f'<text class="total" x="{max(high, low + SLIVER) + 6:.1f}" y="{y + BAR * 0.78:.1f}">{shown}</text>'
        )
    body.append(
        f'<text class="title" x="{(left + right) / 2:.0f}" y="{height - 6}" text-anchor="middle">{escape(unit)}</text>'
    )
    return _picture("", "".join(body), height, description)


def _ruled(x: Axis, height: float) -> list[str]:
    """The lines of horizontal bars' marks, with the marks below them."""
    return [
        f'<line class="grid" x1="{x.place(at):.1f}" x2="{x.place(at):.1f}" y1="{TOP}" y2="{height - BOTTOM}"/>'
        f'<text class="tick" x="{x.place(at):.1f}" y="{height - BOTTOM + 16}"'
        f' text-anchor="{"middle" if x.place(at) > x.start else "start"}">{tick}</text>'
        for at, tick in x.ticks
    ]


def _widths(amounts: Sequence[float], x: Axis) -> list[float]:
    """The pixels of a bar's parts: none is too thin to be seen, and the widest gives way to that."""
    exact = [x.place(amount) - x.place(0) for amount in amounts]
    widths = [max(width, SLIVER) for width in exact]
    if widths:
        widest = widths.index(max(widths))
        widths[widest] = max(widths[widest] - (sum(widths) - sum(exact)), SLIVER)
    return widths


def _series(drawn: Sequence[Line]) -> list[int]:
    """The number of each line's colour and form: its own, else the lowest that no line has."""
    taken = {line.series % SERIES for line in drawn if line.series is not None}
    free = [number for number in range(SERIES) if number not in taken] or list(range(SERIES))
    others = iter(free * len(drawn))
    return [next(others) if line.series is None else line.series for line in drawn]


def plot(height: int = HEIGHT) -> tuple[tuple[float, float], tuple[float, float]]:
    """The pixels between which x and y are drawn; y grows upwards."""
    return (LEFT, WIDTH - RIGHT), (height - BOTTOM, TOP)


def _frame(x: Axis, y: Axis, x_title: str, y_title: str) -> str:
    body = [
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y.place(at):.1f}" y2="{y.place(at):.1f}"/>'
        f'<text class="tick" x="{LEFT - 6}" y="{y.place(at) + 4:.1f}" text-anchor="end">{tick}</text>'
        for at, tick in y.ticks
    ]
    body += [
        f'<line class="axis" x1="{x.place(at):.1f}" x2="{x.place(at):.1f}" y1="{HEIGHT - BOTTOM}"'
        f' y2="{HEIGHT - BOTTOM + 4}"/>'
        f'<text class="tick" x="{x.place(at):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{tick}</text>'
        for at, tick in x.ticks
    ]
    body.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM}"/>')
    middle = (TOP + HEIGHT - BOTTOM) / 2
    body.append(
        f'<text class="title" x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 6}" text-anchor="middle">'
        f'{escape(x_title)}</text><text class="title" transform="translate(11 {middle:.0f}) rotate(-90)"'
        f' text-anchor="middle">{escape(y_title)}</text>'
    )
    return "".join(body)


def _marker(series: int, x: float, y: float, shown: str, style: str) -> str:
    """A small mark whose form differs by series, with the text that a pointer shows."""
    forms = (
        f"M{x - 2.5:.1f} {y:.1f}a2.5 2.5 0 1 0 5 0a2.5 2.5 0 1 0-5 0",
        f"M{x - 2.4:.1f} {y - 2.4:.1f}h4.8v4.8h-4.8z",
        f"M{x:.1f} {y - 3.2:.1f}l3 5.4h-6z",
        f"M{x:.1f} {y - 3.4:.1f}l3.4 3.4l-3.4 3.4l-3.4-3.4z",
        f"M{x:.1f} {y + 3.2:.1f}l-3-5.4h6z",
        f"M{x - 3:.1f} {y - 1:.1f}h6v2h-6z",
        f"M{x - 1:.1f} {y - 3:.1f}h2v6h-2z",
    )
    return f'<path class="dot {style}" d="{forms[series % SERIES]}"><title>{text(shown)}</title></path>'


def _path(points: Sequence[tuple[float, float]], is_staircase: bool) -> str:
    (x, y), *rest = points
    steps = (f"V{b:.1f}H{a:.1f}" if is_staircase else f"L{a:.1f} {b:.1f}" for a, b in rest)
    return f"M{x:.1f} {y:.1f}{''.join(steps)}"


def _shown(name: str, value: str) -> str:
    return f"{shortened(name, NAME_CHARACTERS)}: {value}"


def _legend(names: Sequence[tuple[int, str]], *, is_lines: bool) -> str:
    """A sign and a name for each series, by its number."""
    items = []
    for series, name in names:
        style = f"s{series % SERIES}"
        dot = _marker(series, 11, 6, shortened(name, NAME_CHARACTERS), style)
        sign = f'<path class="line {style} d{series % SERIES}" d="M0 6H22"/>{dot}'
        if not is_lines:
            sign = f'<rect class="part {style}" width="14" height="12"/>'
        width = 22 if is_lines else 14
        items.append(f'<li><svg width="{width}" height="12" aria-hidden="true">{sign}</svg> {label(name, 48)}</li>')
    return f'<ul class="legend">{"".join(items)}</ul>'


def _picture(legend: str, body: str, height: float, description: str) -> str:
    box = f'viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{text(description)}"'
    return f'<div class="picture">{legend}<svg class="chart" {box}>{body}</svg></div>'
