"""The fleet report in a real browser without a network: nothing runs, nothing is asked for, nothing overflows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
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


@pytest.mark.rest
def test_the_page_of_a_big_fleet_is_small(hostile: Path) -> None:
    assert hostile.stat().st_size < 3 * MEGABYTES


@pytest.mark.rest
@pytest.mark.needs("chromium")
def test_nothing_runs_and_nothing_leaves_the_page(hostile: Path, tmp_path: Path) -> None:
    with browser.browsing(tmp_path) as opened:
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
        assert opened.value(
            "[...document.querySelectorAll('a, summary, .scroll, pre')].every(one => one.tabIndex === 0)"
        )


def read_out(opened: browser.Page) -> list[tuple[str, str, dict]]:
    """What a screen reader has of the page, in its order: role, name and properties of each element with a role."""
    nodes = opened.ask("Accessibility.getFullAXTree")["nodes"]
    by_id = {node["nodeId"]: node for node in nodes}

    def walk(node: dict) -> Iterator[dict]:
        if not node["ignored"]:
            yield node
        for child in node.get("childIds", ()):
            yield from walk(by_id[child])

    return [
        (
            node["role"]["value"],
            node.get("name", {}).get("value", ""),
            {one["name"]: one["value"].get("value") for one in node.get("properties", ())},
        )
        for node in walk(nodes[0])
    ]


@pytest.mark.rest
@pytest.mark.needs("chromium")
def test_a_screen_reader_gets_headings_in_order_and_each_chart_with_its_table(hostile: Path, tmp_path: Path) -> None:
    with browser.browsing(tmp_path) as opened:
        opened.look(width=1280)
        opened.open(hostile.as_uri())
        opened.value("document.querySelectorAll('details').forEach(one => { one.open = true })")
        found = read_out(opened)
    levels = [properties["level"] for role, _, properties in found if role == "heading"]
    assert levels[0] == 1 and levels.count(1) == 1
    # One level deeper at a time, whatever way back up.
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels)), levels
    by_role: dict[str, list[str]] = {}
    for role, name, _ in found:
        by_role.setdefault(role, []).append(name)
    assert by_role["main"] and by_role["navigation"] == ["Sections"] and by_role["contentinfo"]
    charts = [place for place, (role, _, _) in enumerate(found) if role in ("image", "img")]
    assert len(charts) >= 3
    assert all(found[place][1].endswith("The table has the same numbers.") for place in charts)
    # After each chart, before the next figure's region, there is a table with a name.
    regions = [place for place, (role, name, _) in enumerate(found) if role == "region" and ": " not in name]
    for place in charts:
        end = next((region for region in regions if region > place), len(found))
        assert any(role == "table" and name for role, name, _ in found[place:end])
    # No two regions are called alike, and none has no name.
    assert len(set(by_role["region"])) == len(by_role["region"]) and all(by_role["region"])
    assert all(by_role["table"]) and all(by_role["link"])


@pytest.mark.rest
@pytest.mark.needs("chromium")
def test_the_keyboard_reaches_everything_in_the_order_of_the_page(hostile: Path, tmp_path: Path) -> None:
    with browser.browsing(tmp_path) as opened:
        opened.look(width=1280)
        opened.open(hostile.as_uri())
        opened.value(
            "window.stops = [...document.querySelectorAll('a, summary, .scroll, pre')]"
            ".filter(one => one.matches('summary') || !one.closest('details'))"
        )
        expected = opened.value("stops.length")
        assert expected > 15
        reached = []
        for _ in range(expected):
            opened.press("Tab")
            reached.append(opened.value("stops.indexOf(document.activeElement)"))
        assert reached == list(range(expected))
        # The first stop is visible once it is reached, and leads to what to do.
        opened.value("stops[0].focus()")
        assert opened.value("stops[0].getBoundingClientRect().left") >= 0
        opened.press("Enter")
        assert opened.value("location.hash") == "#next"
        # A query opens by the keyboard, and its text can be scrolled by it.
        opened.value("document.querySelector('#headline summary').focus()")
        opened.press("Enter")
        assert opened.value("document.querySelector('#headline details').open")
        opened.press("Tab")
        assert opened.value("document.activeElement.closest('#headline details') !== null")


@pytest.mark.rest
@pytest.mark.needs("chromium")
def test_a_phone_gets_a_card_per_row_that_a_screen_reader_still_reads_as_a_table(hostile: Path, tmp_path: Path) -> None:
    with browser.browsing(tmp_path) as opened:
        opened.look(width=390, is_phone=True)
        opened.open(hostile.as_uri())
        assert opened.value("getComputedStyle(document.querySelector('#advice tbody tr')).display") == "block"
        # Nothing of a card is outside the screen.
        assert opened.value(
            "[...document.querySelectorAll('#advice tbody *, #advice caption, svg.chart text')]"
            ".every(one => one.getBoundingClientRect().right <= 390 && one.getBoundingClientRect().left >= 0)"
        )
        roles = {role for role, _, _ in read_out(opened)}
    assert {"table", "row", "cell", "columnheader", "rowheader"} <= roles


@pytest.mark.rest
@pytest.mark.needs("chromium")
def test_paper_is_as_wide_as_the_page_and_names_where_the_queries_are(hostile: Path, tmp_path: Path) -> None:
    with browser.browsing(tmp_path) as opened:
        opened.look(width=695, is_print=True)
        opened.open(hostile.as_uri())
        assert opened.value("document.documentElement.scrollWidth") <= 695
        foot = opened.value("document.querySelector('footer').innerText")
    assert "are on the screen page, report.html" in foot and "Every figure has the query" not in foot
