"""Charts and table cells of the report: what is thin is seen, a model keeps its colour, and no line ends in a unit."""

from __future__ import annotations

import re

from pipelines.report.axes import Axis
from pipelines.report.charts import Bar, Line, bars, lines
from pipelines.report.markup import cell, table, unbroken

AXIS = Axis(0, 10, 0, 100, ())


def widths(picture: str) -> list[float]:
    return [
        float(width) for width in re.findall(r'<rect class="part s\d" x="[\d.]+" y="\d+" width="([\d.]+)"', picture)
    ]


def test_a_thin_part_is_seen_and_its_bar_keeps_its_length() -> None:
    drawn = bars(
        [Bar("a", [(0, 1, "1 USD"), (1, 999, "999 USD")]), Bar("b", [(1, 1000, "1,000 USD")])],
        ("electricity", "GPU hours", "nothing"), unit="USD", description="Bars.",
    )  # fmt: skip
    # The axis has 1,000 USD on 332 units: 1 USD would be 0.3 wide.
    assert widths(drawn) == [3.0, 329.0, 332.0]
    legend = drawn.partition("<svg class")[0]
    # A series of which no bar has a part is no promise of a colour.
    assert "electricity" in legend and "GPU hours" in legend and "nothing" not in legend


def test_names_are_above_their_bars() -> None:
    drawn = bars([Bar("llm-research/MiniMax-M2.5", [(0, 1, "1")], "1", "(of 2)")], ("x",), unit="", description="Bars.")
    assert '<text class="name" x="4"' in drawn
    assert "llm-research/MiniMax-M2.5\u2069 (of 2)</text>" in drawn


def test_a_line_keeps_the_colour_of_its_name_and_others_take_a_free_one() -> None:
    drawn = lines(
        [Line("known", [(1, 1, "1"), (2, 2, "2")], series=1), Line("new", [(1, 2, "2"), (2, 1, "1")])],
        AXIS, AXIS, x_title="", y_title="", description="Lines.",
    )  # fmt: skip
    assert re.findall(r'<path class="line (s\d d\d)" d="M\d', drawn.partition("</ul>")[2]) == ["s1 d1", "s0 d0"]


def test_a_number_keeps_its_unit_and_a_date_its_hyphens() -> None:
    assert unbroken("<p>4 USD on 2026-10-28, ▲ +0.4 %</p>") == (
        "<p>4\u00a0USD on <time>2026-10-28</time>, ▲\u00a0+0.4\u00a0%</p>"
    )
    # Neither a query nor what a pointer or a screen reader gets is changed.
    query = '<pre>where date = 2026-10-28 -- 4 USD</pre><svg aria-label="4 USD"><title>4 USD</title></svg>'
    assert unbroken(query) == query


def test_what_does_not_apply_is_a_dash_and_unknown_is_unknown() -> None:
    assert cell("", 2) == '<abbr title="does not apply">–</abbr>'
    assert "unknown" in cell(None, 2)


def test_a_cell_has_the_name_of_its_column_for_a_phone() -> None:
    assert '<td data-label="USD &quot;a&quot;" class="n">2</td>' in table("T", {"model": -2, 'USD "a"': 0}, [("m", 2)])
