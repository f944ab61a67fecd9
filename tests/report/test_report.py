"""The fleet report of publications written by hand: its sentences, what it does with names, NULLs and empty tables."""

from __future__ import annotations

import re
from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path

import pytest

from pipelines.command_line import advice_headline
from pipelines.report import advice_figures, figures, page
from tests.report import publications
from tests.report.publications import NEWEST, advice, cost, fleet_day, model_day

# Names as a hostile or careless label may hold them.
SCRIPT = "<script>alert(1)</script>"
FORMULA = '=HYPERLINK("http://127.0.0.1:9/?x=1","open")'
LONG = "long-" + "x" * 295
RIGHT_TO_LEFT = "נמוך \u202e gpt"
EMOJI = "llama 🦙 \U0001f468\u200d\U0001f469\u200d\U0001f467"
QUOTES = "\"' onload=alert(1) x='\""
NAMES = (SCRIPT, FORMULA, LONG, RIGHT_TO_LEFT, EMOJI, QUOTES)


# Elements whose text is apart from the text before them.
BLOCKS = ("caption", "h1", "h2", "h3", "h4", "li", "p", "pre", "small", "span", "summary", "td", "text", "th", "title")


class Reader(HTMLParser):
    """What a browser makes of the page: elements with their attributes, and text."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in BLOCKS:
            self.texts.append(" ")

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.texts).split())


def section(source: str, name: str) -> str:
    """The text of a section, by its anchor."""
    (found,) = re.findall(rf'<section[^>]* id="{name}".*?</section>', source, re.DOTALL)
    return Reader(found).text


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two models: one serves 200,000 output tokens a day for 4 USD (a week ago 5, the day before 2), one none."""
    usd = {NEWEST: 4.0, NEWEST - timedelta(days=1): 2.0, NEWEST - timedelta(days=7): 5.0}
    path = publications.write(
        tmp_path_factory.mktemp("small"),
        marts_fleet_daily=[fleet_day(on) for on in usd],
        marts_model_daily=[model_day(on, "busy") for on in usd]
        + [model_day(NEWEST, "silent", output_tokens=0, matched_output_tokens=0, matched_joules=0)],
        marts_cost_daily=[cost(on, "busy", value) for on, value in usd.items()] + [cost(NEWEST, "silent", 1.0)],
        published_right_sizing=[
            advice("silent", "spin_down", confidence="high", reason_code="no_tokens_served", saving_kwh_month=100,
                saving_kgco2e_month=20, saving_energy_usd_month=15, saving_usd_month_if_released=985),
            advice("busy", "fewer_gpus", confidence="low", reason_code="demand_fits", recommended_gpus=4, freed_gpus=4,
                saving_kwh_month=50, saving_kgco2e_month=10, saving_energy_usd_month=10,
                saving_usd_month_if_released=990),
        ],
    )  # fmt: skip
    return page.page(path)


def test_the_headline_is_compared_with_the_day_and_the_week_before(small: str) -> None:
    # (4 + 1) USD over 0.2 million tokens are 25 USD; the day before 2 / 0.2 = 10, a week before 5 / 0.2 = 25.
    assert (
        "On 2026-10-28 the fleet cost 5.00 USD and served 0.200 million output tokens: 25.00 USD per million,"
        " 150 % more than the day before and the same as a week before; 50.0 % of the accelerators' energy was idle."
    ) in section(small, "headline")
    assert "Cost of the day 5.00 USD day before: ▲ +150 % week before: same" in section(small, "headline")


def test_the_headline_names_what_of_the_cost_make_run_prints(tmp_path: Path) -> None:
    def headline(*costs: dict) -> str:
        made = publications.write(
            tmp_path / str(len(costs)), marts_fleet_daily=[fleet_day(NEWEST)], marts_cost_daily=costs
        )
        return section(page.page(made), "headline")

    own = [cost(NEWEST, "busy", 3), cost(NEWEST, "busy", 1, "energy"), cost(NEWEST, "busy", 0.5, "cooling")]
    assert "the fleet cost 4.50 USD and served" in headline(*own)
    hosting = cost(NEWEST, "busy", 2, "hosting")
    assert "cost 6.50 USD (4.50 USD of it for accelerators and their electricity) and served" in headline(*own, hosting)


def test_the_top_names_what_to_do_and_what_it_saves_the_surest_first(small: str) -> None:
    top = section(small, "next")
    # 15 + 10 USD of electricity; 985 + 990 USD for 8 + 4 GPUs, of which the first is of high confidence.
    # 5 USD × 730 / 24 hours.
    assert (
        "Handing back 12 freed GPUs saves 1,975 USD a month; the whole fleet costs 152 USD in a month like the newest"
        " date; 985 USD of it with at least medium confidence: begin there. At once 2 changes would save 25 USD of"
        " electricity a month (150 kWh, 30 kg CO2e). Of hosting and operations nothing is counted as saved."
    ) in top
    assert (
        "Stop llm/silent (now 8 × a6000): saves 100 kWh (15 USD) a month, and 985 USD more once the 8 freed GPUs are"
        " handed back. It served no token from 2026-10-01 to 2026-10-28. Confidence: high. Do it now."
    ) in top
    assert top.index("llm/silent") < top.index("Run llm/busy on 4 GPUs instead of 8")


def test_the_only_engine_is_not_tried_on_and_a_computed_size_is_named(tmp_path: Path) -> None:
    """56 kWh, between 0 and 114, and 1,130 instead of them with the emptied node off."""
    steps = {"current_replicas": 1, "confidence": "low", "recommended_gpus": 4, "freed_gpus": 4}
    theory = advice(
        "busy", "fewer_gpus", **steps, evidence_basis="bandwidth_floor", saving_kwh_month=56, saving_low=0,
        saving_high=114, saving_energy_usd_month=8, saving_kwh_month_if_nodes_off=1130,
    )  # fmt: skip
    seen = advice("seen", "fewer_gpus", **steps | {"current_replicas": 2}, evidence_basis="highest_observed")
    top = section(page.page(publications.write(tmp_path, published_right_sizing=[theory, seen])), "next")
    assert (
        "(56 kWh, unknown kg CO2e), none of it with at least medium confidence. Switching off the nodes that become"
        " empty as well makes it 1,130 kWh."
    ) in top
    assert (
        "Run llm/busy on 4 GPUs instead of 8 (now 1 engine, 8 × a6000): saves 56 kWh (8 USD) a month, likely 0 to 114"
        " kWh. Fewer GPUs per engine carry all demand seen from 2026-10-01 to 2026-10-28: computed from their memory"
        " bandwidth, not measured. Confidence: low. Try it before you rely on it. It is the only engine: start the new"
        " one beside it and compare with its SLO."
    ) in top
    assert (
        "carry all demand seen from 2026-10-01 to 2026-10-28. Confidence: low. Try it before you rely on it: run" in top
    )


def test_a_budget_that_the_forecast_exceeds_is_an_alarm_and_one_that_it_keeps_is_none(tmp_path: Path) -> None:
    def budget(name: str, forecast_usd: float, **changes: object) -> dict[str, object]:
        return {
            "as_of_date": NEWEST, "billing_month": NEWEST.replace(day=1), "budget": name, "scope": "team",
            "scope_name": "a", "basis": "allocation", "budget_usd": 20000, "forecast_usd": forecast_usd,
            "expected_overrun_usd": max(forecast_usd - 20000, 0), "is_in_progress": True, **changes,
        }  # fmt: skip

    kept, over = budget("kept", 19999), budget("research", 20807.25)
    past = budget("past", 30000, is_in_progress=False, billing_month=NEWEST.replace(month=9, day=1))
    days = {"marts_fleet_daily": [fleet_day(NEWEST)]}
    made = page.page(publications.write(tmp_path / "over", **days, marts_budget_monthly=[kept, over, past]))
    assert (
        "In the last 28 dates: 1 × budget will be exceeded; the newest is of 2026-10-28: research (team a), 20,807.25"
        " USD expected in October 2026 instead of 20,000.00 USD."
    ) in section(made, "alarms")
    assert (
        "1 alarm, the newest: budget will be exceeded, research (team a): 20,807.25 USD expected in October 2026"
        " instead of 20,000.00 USD (alarms)."
    ) in section(made, "next")
    made = page.page(publications.write(tmp_path / "kept", **days, marts_budget_monthly=[kept, past]))
    assert "No alarm in the last 28 dates" in section(made, "alarms")
    assert "alarm" not in section(made, "next")


def test_a_model_without_tokens_has_a_cost_and_no_price(small: str) -> None:
    assert (
        "In the last 28 dates the fleet cost 12 USD, the largest part for busy (11 USD); 1 model served no token and"
        " cost 1 USD, 8.3 % of all."
    ) in section(small, "models")
    assert "silent 1.00 – 0.000 0.500 – 50.0 %" in section(small, "models")


def test_every_figure_has_its_sentence_its_boundary_and_its_query(small: str) -> None:
    for figure in (figure for contents in page.SECTIONS.values() for figure in contents):
        shown = section(small, figure.query.replace("_", "-"))
        assert figure.title in shown
        assert figure.empty in shown or (figure.boundary in shown and "SQL query" in shown), figure.query
    assert Reader(figures.text_of("advice")).text.startswith("-- One row per deployment")


def test_every_kind_of_advice_has_its_words() -> None:
    assert set(advice_figures.WHAT_TO_DO) == set(advice_headline._KINDS)


def test_an_empty_publication_gives_a_page_of_reasons(tmp_path: Path) -> None:
    made = page.page(publications.write(tmp_path))
    assert "No date is published yet." in section(made, "headline")
    assert "No advice: no deployment was booked in the last 28 dates." in section(made, "advice")
    assert "every check of the book passed" in section(made, "held-back")
    assert "nan" not in Reader(made).text.lower().split()


def test_unknown_is_never_shown_as_zero(tmp_path: Path) -> None:
    unknown = dict.fromkeys(("output_tokens", "matched_output_tokens", "facility_energy_kwh", "location_gco2e"))
    made = page.page(
        publications.write(
            tmp_path,
            marts_fleet_daily=[fleet_day(NEWEST, **unknown, is_carbon_complete=False)],
            marts_model_daily=[model_day(NEWEST, "busy", **unknown)],
            marts_cost_daily=[cost(NEWEST, "busy", None)],
            published_right_sizing=[advice("busy", "spin_down", confidence=None)],
        )
    )
    shown = section(made, "headline")
    assert "the fleet cost unknown USD and served unknown million output tokens: unknown USD per million" in shown
    assert "Electricity unknown kWh" in shown
    assert "Stop llm/busy (now 8 × a6000): what it saves is unknown." in section(made, "next")


def test_servers_without_prices_have_energy_and_no_dollars(tmp_path: Path) -> None:
    """A fleet that is metered by node, without prices, grid factors and enough data for advice."""
    of_node = {"meter_scope": "node"}
    no_carbon = {"location_gco2e": None, "is_carbon_complete": False}
    made = page.page(
        publications.write(
            tmp_path,
            marts_fleet_daily=[fleet_day(NEWEST, **of_node, **no_carbon, facility_energy_kwh=4)],
            marts_model_daily=[model_day(NEWEST, "busy", **of_node, location_gco2e=None)],
            marts_cost_daily=[cost(NEWEST, "busy", None, **of_node), cost(NEWEST, "__remainder__", None, **of_node)],
            marts_idle_power=[{"date": NEWEST, "model": "busy", "account": "parked", "idle_facility_kwh": 2}],
            marts_model_hourly=[
                {"date": NEWEST, "hour_start_at": f"{NEWEST} 00:00:00+00:00", "site": "west", "facility_energy_kwh": 1}
            ],
            published_right_sizing=[advice("busy", "insufficient_data", reason_code="short_lookback")],
        )
    )
    assert section(made, "next").endswith("No advice for 1 deployment (short lookback): their data is not enough.")
    # 1 MJ over 200,000 tokens are 5 J each, and 5 / 3.6 kWh per million.
    assert (
        "On 2026-10-28 a million output tokens cost the fleet unknown USD and 1.39 kWh of its servers (5.00 J per"
        " token)."
    ) in section(made, "cost-and-energy-over-time")
    assert "50.0 % of the servers' energy was idle" in section(made, "headline")
    assert "What the fleet cost in the last 28 dates is unknown. Models" in section(made, "models")
    assert "remainder" not in section(made, "models").partition("SQL query")[0]
    assert "was 2 kWh in the last 28 dates, 50 % of the fleet's 4 kWh with hosts and cooling: unknown USD" in section(
        made, "idle-energy"
    )
    for name in ("cost-parts", "carbon-by-hour"):
        assert "unknown: no" in section(made, name)
        assert "<svg" not in re.findall(rf'<section[^>]* id="{name}".*?</section>', made, re.DOTALL)[0]


def test_lines_of_many_models_add_up_whatever_their_names_are(tmp_path: Path) -> None:
    """Eight models at 1 to 8 USD, one named like a line of the picture; the two cheapest are one line."""
    names = ["whole fleet", "other models", "(fleet)", *(f"model-{n}" for n in range(5))]
    costs = [cost(NEWEST, name, 8 - place) for place, name in enumerate(names)]
    made = page.page(
        publications.write(
            tmp_path,
            marts_fleet_daily=[fleet_day(NEWEST)],
            marts_model_daily=[model_day(NEWEST, name) for name in names],
            marts_cost_daily=[*costs, cost(NEWEST, "model-4", None, "energy")],
        )
    )
    shown = section(made, "cost-and-energy-over-time")
    # 8 + 7 + … + 1 = 36 USD over 1.6 million tokens; the two last 2 + 1 over 0.4. A part of one has no price.
    assert "a million output tokens cost the fleet at least 22.50 USD" in shown
    assert "whole fleet 2026-10-28 22.500 1.389 5.000 36.00 1.600 no" in shown
    assert "whole fleet 2026-10-28 40.000 1.389 5.000 8.00 0.200 yes" in shown
    assert "other models 2026-10-28 7.500 1.389 5.000 3.00 0.400 no" in shown
    assert "other models 2026-10-28 35.000 1.389 5.000 7.00 0.200 yes" in shown


def test_names_are_harmless_in_every_place(tmp_path: Path) -> None:
    days = [NEWEST - timedelta(days=days) for days in range(3)]
    made = page.page(
        publications.write(
            tmp_path,
            published_publication=[publications.publication(fleet=SCRIPT, held_back_dates=SCRIPT)],
            marts_fleet_daily=[fleet_day(on) for on in days],
            marts_model_daily=[model_day(on, name) for on in days for name in NAMES],
            marts_cost_daily=[cost(on, name, 3) for on in days for name in NAMES],
            published_right_sizing=[advice(name, "spin_down", confidence="high") for name in NAMES],
            marts_free_boards=[
                {"as_of_date": NEWEST, "site": name, "device_type": name, "gpus_now": 1, "fitting_deployment": name}
                for name in NAMES
            ],
            marts_cost_anomalies_daily=[
                {"date": NEWEST, "model": name, "part": name, "cost_usd": 1, "usual_usd": 2, "is_anomaly": True}
                for name in NAMES
            ],
            marts_held_back_dates=[
                {"date": NEWEST, "invariant": name, "table_name": name, "remedy": name} for name in (SCRIPT, QUOTES)
            ],
        )
    )
    read = Reader(made)
    assert {tag for tag, _ in read.elements} & {"script", "iframe", "object", "embed", "form", "img", "base"} == set()
    handlers = [(tag, name) for tag, found in read.elements for name in found if name.startswith("on")]
    assert handlers == []
    links = {found["href"] for tag, found in read.elements if tag == "a"}
    assert all(link.startswith("#") for link in links)
    # Each name is there as text, in the table of models too.
    for name in (SCRIPT, FORMULA, QUOTES):
        assert name in section(made, "models")
    # A name that is too long is cut, with the whole of it in the title.
    found = [one for one in read.texts if "x" * 100 in one]
    assert found == []
    assert any(found.get("title") == LONG for tag, found in read.elements if tag == "bdi")
    # What changes the direction of the text around it is a visible escape.
    assert "\u202e" not in made
    assert "נמוך \\u202e gpt" in section(made, "models")
    assert "🦙" in section(made, "models")
    made_by = {"free-boards", "alarms", "held-back", "advice"}
    assert all("🦙" in section(made, name) for name in made_by - {"held-back"})
