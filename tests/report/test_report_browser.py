"""The fleet report in a real browser without a network: nothing runs, nothing is asked for, nothing overflows."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from pipelines.report.page import page
from tests import browser
from tests.report import publications
from tests.report.publications import NEWEST, advice, cost, fleet_day, model_day
from tests.report.test_report import NAMES

MEGABYTES = 1e6


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """100 models and 28 days, some of the models with hostile names."""
    models = [*NAMES, *(f"model-{n}" for n in range(100 - len(NAMES)))]
    days = [NEWEST - timedelta(days=days) for days in range(28)]
    folder = tmp_path_factory.mktemp("hostile")
    made = publications.write(
        folder,
        marts_fleet_daily=[fleet_day(on) for on in days],
        marts_model_daily=[model_day(on, name) for on in days for name in models],
        marts_cost_daily=[cost(on, name, 3) for on in days for name in models],
        published_right_sizing=[advice(name, "spin_down", confidence="high") for name in models],
    )
    report = folder / "report.html"
    report.write_text(page(made), encoding="utf-8")
    return report


def test_the_page_of_a_big_fleet_is_small(hostile: Path) -> None:
    assert hostile.stat().st_size < 3 * MEGABYTES


def test_nothing_runs_and_nothing_leaves_the_page(hostile: Path, tmp_path: Path) -> None:
    with browser.browsing(browser.required(), tmp_path) as opened:
        opened.look(width=1280)
        opened.open(hostile.as_uri())
        assert opened.messages == []
        assert {url for url in opened.requests if not url.startswith("data:")} == {hostile.as_uri()}
        assert opened.value("document.scripts.length") == 0
        # Neither a desktop nor a phone scrolls sideways: a wide table does so by itself.
        for width in (1280, 390):
            opened.look(width=width, is_phone=width < 500)
            assert opened.value("document.documentElement.scrollWidth") <= width
        light = opened.value("getComputedStyle(document.body).backgroundColor")
        opened.look(width=1280, is_dark=True)
        assert opened.value("getComputedStyle(document.body).backgroundColor") != light
        # Every picture has a name for a screen reader, and its numbers as a table in the same section.
        assert opened.value(
            "[...document.querySelectorAll('svg.chart')].every(svg => svg.getAttribute('role') === 'img'"
            " && svg.getAttribute('aria-label') && svg.closest('section').querySelector('table'))"
        )
        # What a key should reach is reached by it: links, queries, wide tables.
        assert opened.value("[...document.querySelectorAll('a, summary, .scroll')].every(one => one.tabIndex === 0)")
