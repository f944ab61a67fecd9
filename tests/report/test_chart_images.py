"""The charts of a report as PNG: the page's own drawing, in its light colours, with its text."""

from __future__ import annotations

import base64
import io
import re
from datetime import timedelta

import numpy as np
import pytest
from matplotlib.image import imread

from pipelines.publishing.parts import Parts
from pipelines.report import fleet_report, page
from pipelines.report.chart_images import images
from tests.report import publications
from tests.report.publications import NEWEST, advice, cost, fleet_day, model_day
from tests.report.test_report import NAMES

ORANGE, BLUE = (0xD9, 0x71, 0x1F), (0x1F, 0x4E, 0x79)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Advice for models with hostile names: 10 kWh for 1 USD at once, and 3 USD once handed back."""
    saves = {"saving_kwh_month": 10, "saving_energy_usd_month": 1, "avoidable_now_usd_month": 3}
    saves["saving_now_usd_month"] = 4
    days = [NEWEST - timedelta(days=days) for days in range(3)]
    made = publications.write(
        tmp_path_factory.mktemp("pictured"),
        marts_fleet_daily=[fleet_day(on) for on in days],
        marts_model_daily=[model_day(on, name) for on in days for name in NAMES],
        marts_cost_daily=[cost(on, name, 3) for on in days for name in NAMES],
        published_right_sizing=[advice(name, "spin_down", confidence="high", **saves) for name in NAMES],
    )
    return page.page(made)


def drawn(markdown: str) -> list[tuple[str, np.ndarray]]:
    """Title and pixels (rows × columns × red, green, blue from 0 to 255) of each image."""
    found = re.findall(r"!\[(.*?)\]\(data:image/png;base64,(.+?)\)", markdown)
    images = [(title, imread(io.BytesIO(base64.b64decode(image)), format="png")) for title, image in found]
    return [(title, np.rint(255 * pixels[:, :, :3]).astype(int)) for title, pixels in images]


def of(colour: tuple[int, int, int], pixels: np.ndarray) -> int:
    return int((pixels == colour).all(axis=2).sum())


def test_a_chart_has_the_colours_the_sizes_and_the_text_of_the_page(report: str) -> None:
    ((title, pixels),) = drawn(images(report, "advice"))
    assert title == "Advice with savings and next steps"
    assert pixels.shape[1] == round(1.6 * (460 + 16))
    # Electricity is a quarter of each bar, so its colour has about a third of the pixels of the other.
    assert of(ORANGE, pixels) / of(BLUE, pixels) == pytest.approx(3, rel=0.1)
    # Names are left of the bars: dark pixels on white.
    assert of((0x1B, 0x1F, 0x24), pixels[:, :300]) > 300


def test_two_charts_of_a_section_are_two_pictures(report: str) -> None:
    titles = [title for title, _ in drawn(images(report, "cost_and_energy_over_time"))]
    assert titles == ["Cost per million output tokens, with what served none", "Energy per million output tokens"]


def test_a_section_without_a_chart_has_no_picture(report: str) -> None:
    assert images(report, "headline") == ""
    assert images(report, "no_such_section") == ""


def test_what_the_asset_shows_are_sections_of_the_page() -> None:
    queries = {figure.query for section in page.SECTIONS.values() for figure in section}
    assert set(fleet_report.PICTURED) <= queries


def test_a_chart_that_cannot_be_drawn_is_named(report: str) -> None:
    parts = Parts()
    shown = fleet_report._pictures(report.replace('class="name" x="', 'class="name" <x="'), parts)
    assert shown["advice"].md_str.startswith("picture advice could not be made: ValueError")
    assert [line.partition(":")[0] for line in parts.failed] == ["picture advice could not be made"]
    assert "data:image/png" in shown["cost_and_energy_over_time"].md_str


def test_every_chart_of_the_page_can_be_a_picture(report: str) -> None:
    names = {figure.query for section in page.SECTIONS.values() for figure in section}
    charts = sum(len(drawn(images(report, name))) for name in names)
    assert charts == report.count('<svg class="chart"') > 3
