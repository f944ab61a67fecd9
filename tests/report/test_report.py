"""The fleet report of publications written by hand: its sentences, what it does with names, NULLs and empty tables."""

from __future__ import annotations

import json
import re
from datetime import date, timedelta
from html.parser import HTMLParser
from pathlib import Path

import pytest

from pipelines.command_line import advice_headline
from pipelines.report import advice_words, figures, page
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
                saving_kgco2e_month=20, saving_energy_usd_month=15, avoidable_now_usd_month=985,
                avoidable_later_usd_month=0, not_avoidable_usd_month=0, saving_now_usd_month=1_000),
            advice("busy", "fewer_gpus", confidence="low", reason_code="demand_fits", recommended_gpus=4, freed_gpus=4,
                saving_kwh_month=50, saving_kgco2e_month=10, saving_energy_usd_month=10,
                avoidable_now_usd_month=990, saving_now_usd_month=1_000),
        ],
    )  # fmt: skip
    return page.page(path)


def test_the_headline_is_compared_with_the_day_and_the_week_before(small: str) -> None:
    # (4 + 1) USD over 0.2 million tokens are 25 USD; the day before 2 / 0.2 = 10, a week before 5 / 0.2 = 25.
    assert (
        "On 2026-10-28 the fleet cost 5.00 USD and served 0.200 million output tokens: 25.00 USD per million,"
        " 150 % more than the day before and the same as a week before; 50.0 % of the accelerators' energy was idle."
    ) in section(small, "headline")
    assert "Cost of the day 5.00 USD interval not known day before: ▲ +150 % week before: same" in section(
        small, "headline"
    )


def test_the_headline_names_what_is_in_doubt_on_its_date(tmp_path: Path) -> None:
    def headline(on: date, reasons: str) -> str:
        days = [fleet_day(NEWEST), fleet_day(on, site="east", doubt_reasons=reasons)]
        return section(page.page(publications.write(tmp_path / f"{on}{reasons}", marts_fleet_daily=days)), "headline")

    words = "In doubt by a hundredth or more: above_limit, hidden_processes (marts.doubts has what to do)."
    doubted, clean = headline(NEWEST, "above_limit,hidden_processes"), headline(NEWEST, "")
    assert words in doubted and "counted: exact" not in doubted
    assert "In doubt" not in clean and "counted: exact" in clean
    assert "In doubt" not in headline(date(2026, 10, 27), "hidden_processes")


def test_the_table_of_models_names_what_is_in_doubt(tmp_path: Path) -> None:
    """A model that is clean has none, one of which nothing was assessed a dash."""
    days = [
        model_day(NEWEST, model, doubt_reasons=reasons)
        for model, reasons in (("doubted", "above_limit,hidden_processes"), ("clean", ""), ("dark", None))
    ]
    days.append(model_day(date(2026, 10, 27), "doubted", doubt_reasons="hidden_processes"))
    fleet = [fleet_day(NEWEST, models=3)]
    shown = section(page.page(publications.write(tmp_path, marts_fleet_daily=fleet, marts_model_daily=days)), "models")
    cells = {model: re.search(rf"{model} .*? no ([^\s,]+(?:, \w+)*)", shown) for model in ("doubted", "clean", "dark")}
    assert {model: cell and cell[1] for model, cell in cells.items()} == {
        "doubted": "above_limit, hidden_processes",
        "clean": "none",
        "dark": "–",
    }


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
        "Stop llm/silent (now 8 × a6000): saves 100 kWh (15 USD) a month, and 985 USD more once freed GPUs are handed"
        " back. It served no token from 2026-10-01 to 2026-10-28. Confidence: high. Do it now."
    ) in top
    assert top.index("llm/silent") < top.index("Run llm/busy on 4 GPUs instead of 8")


def test_what_a_commitment_pays_for_is_saved_at_its_end_and_is_in_no_total(tmp_path: Path) -> None:
    """16 committed GPUs at 1 USD, 4 beside GPUs in use; what saves at once is first."""
    kept = {"confidence": "high", "saving_kwh_month": 1, "avoidable_now_usd_month": 0}
    rows = [
        advice("committed", "spin_down", **kept, freed_gpus=16, saving_energy_usd_month=15, saving_now_usd_month=15,
            avoidable_later_usd_month=11_680, avoidable_from=date(2027, 7, 1), not_avoidable_usd_month=0,
            avoidable_basis="16 committed until 2027-07-01"),
        advice("beside", "fewer_gpus", **kept, freed_gpus=4, saving_energy_usd_month=30, saving_now_usd_month=30,
            avoidable_later_usd_month=0, not_avoidable_usd_month=2_920,
            avoidable_basis="4 beside accelerators that stay in use"),
    ]  # fmt: skip
    top = section(page.page(publications.write(tmp_path, published_right_sizing=rows)), "next")
    assert (
        "2 changes would save 45 USD of electricity a month (2 kWh, unknown kg CO2e). Another 11,680 USD a month follow"
        " once commitments end, all of it from 2027-07-01 on. 2,920 USD of freed GPUs are paid on: they are owned,"
        " committed without an end, or beside GPUs in use."
    ) in top
    assert "Handing back" not in top
    assert (
        "saves 1 kWh (15 USD) a month, and 11,680 USD more from 2027-07-01 on, when no commitment pays for them (GPUs:"
        " 16 committed until 2027-07-01)."
    ) in top
    assert (
        "saves 1 kWh (30 USD) a month; 2,920 USD of freed GPUs are paid on (GPUs: 4 beside accelerators that stay in"
        " use)."
    ) in top
    assert top.index("llm/beside") < top.index("llm/committed")


def test_the_only_engine_is_not_tried_on_and_a_computed_size_is_named(tmp_path: Path) -> None:
    """56 kWh, between 0 and 114, and 1,130 instead of them with the emptied node off."""
    steps = {"current_replicas": 1, "confidence": "low", "recommended_gpus": 4, "freed_gpus": 4}
    theory = advice(
        "busy", "fewer_gpus", **steps, evidence_basis="scaled_by_bandwidth", saving_kwh_month=56, saving_low=0,
        saving_high=114, saving_energy_usd_month=8, saving_kwh_month_if_nodes_off=1130, saving_now_usd_month=8,
    )  # fmt: skip
    seen = advice("seen", "fewer_gpus", **steps | {"current_replicas": 2}, evidence_basis="highest_observed")
    top = section(page.page(publications.write(tmp_path, published_right_sizing=[theory, seen])), "next")
    assert (
        "(56 kWh, unknown kg CO2e), none of it with at least medium confidence. Switching off the nodes that become"
        " empty as well makes it 1,130 kWh."
    ) in top
    assert (
        "Run llm/busy on 4 GPUs instead of 8 (now 1 engine, 8 × a6000): saves 56 kWh (8 USD) a month, likely 0 to 114"
        " kWh. Fewer GPUs per engine carry all demand seen from 2026-10-01 to 2026-10-28: computed from the best"
        " of today's engines and the memory bandwidth, not measured. Confidence: low. Try it before you rely on it. It"
        " is the only engine: start the new one beside it and compare with its SLO."
    ) in top
    assert (
        "carry all demand seen from 2026-10-01 to 2026-10-28. Confidence: low. Try it before you rely on it: run" in top
    )


def test_a_size_that_only_data_sheets_allow_is_an_experiment_and_no_saving(tmp_path: Path) -> None:
    """One engine on 8 GPUs, 8.88 tok/s at best: 4.44 on 4 of them in proportion, 12.09 at most. And four engines of
    which two may be enough, of which nothing else is known."""
    evidence = {"demand_tokens_per_second_p99": 9.8964, "queued_intervals": 5, "pressure_intervals": 8055}
    size = {"current_replicas": 1, "current_gpus_per_replica": 8, "recommended_gpus": 8, "trial_replicas": 1}
    size |= {"trial_gpus_per_replica": 4, "trial_days": 7, "capacity_low_tokens_per_second": 4.44}
    nothing_saved = {"freed_gpus": None, "saving_kwh_month": None, "evidence_basis": "bandwidth_floor"}
    large = advice(
        "large", "try_it", **size, **nothing_saved, capacity_high_tokens_per_second=12.088,
        evidence=json.dumps(evidence), reason_code="data_sheet_only",
    )  # fmt: skip
    several = {"current_replicas": 4, "current_gpus_per_replica": 1, "current_gpus": 4, "recommended_gpus": 4}
    several |= {"trial_replicas": 2, "trial_gpus_per_replica": 1, "trial_days": 28}
    fewer = advice("small", "try_it", **several, **nothing_saved, reason_code="data_sheet_only")
    stopped = advice("silent", "spin_down", confidence="high", saving_kwh_month=100, saving_energy_usd_month=30,
        saving_now_usd_month=30)  # fmt: skip
    even = {"current_replicas": 5, "current_gpus_per_replica": 1, "current_gpus": 5, "recommended_gpus": 5}
    even |= {"trial_replicas": 4, "trial_gpus_per_replica": 1, "trial_days": 1, "freed_gpus": None}
    balanced = advice("even", "try_it", **even, reason_code="no_load_was_too_much")
    made = page.page(publications.write(tmp_path, published_right_sizing=[large, fewer, stopped, balanced]))
    top = section(made, "next")
    assert (
        "Try llm/even with 4 engines instead of 5. Its engines share the load, and no load was seen to be too much:"
        " nothing shows how much one serves. Each of those left has 25 % more. Send one of them no requests for a day"
    ) in top
    assert "Stop, and send it its part again, as soon as a request is preempted" in top
    assert "1 change would save 30 USD of electricity a month" in top
    assert "3 smaller sizes may be tried; no saving of it is counted." in top
    assert (
        "Try llm/large with engines on 4 GPUs instead of 8. Only the data sheet's memory bandwidth shows that it may be"
        " enough. In proportion to the GPUs, the best load of its own engines is 4.44 tokens a second on that size,"
        " and their own rates allow at most 12.09. In 99 % of the intervals it is asked for up to 9.90. Requests waited"
        " in 5 intervals with the GPUs of today. It is the only engine: start the smaller one beside it, and send it"
        " all requests. Run it for 7 days. The intervals with more than 4.44 tokens a second decide: keep it if"
        " requests wait in at most 1 % of them, none is preempted, and the first token comes in time."
    ) in top
    assert "Try llm/small with 2 engines instead of 4. Only the data sheet's" in top
    assert "Let one part of the requests go to that size. Run it for 28 days. The intervals with requests decide" in top
    shown = section(made, "advice")
    assert "1 deployment of 4 should change" in shown
    assert "llm/large try it: data sheet only 8 a6000; try engines on 4 GPUs instead of 8 – – – – – – – –" in shown


def test_a_size_that_may_be_too_slow_is_an_experiment_that_names_the_objective(tmp_path: Path) -> None:
    """Four tokens a second on 8 GPUs are two on 4; 0.4 s per token ask for 2.5. Without an objective: which to state.
    A prefill pool makes no output tokens, so its pace is not known."""
    size = {"current_replicas": 1, "current_gpus_per_replica": 8, "recommended_gpus": 8, "trial_replicas": 1}
    size |= {"trial_gpus_per_replica": 4, "trial_days": 7, "capacity_low_tokens_per_second": 12.8, "freed_gpus": None}
    facts = {"busiest_request_tokens_per_second": 4.0, "tpot_slo_seconds": 0.4}
    slow = advice("slow", "try_it", **size, evidence=json.dumps(facts), reason_code="latency_not_shown")
    free = advice("free", "try_it", **size, reason_code="no_latency_objective")
    pool = advice("pool", "try_it", **size, evidence="{}", reason_code="latency_not_shown")
    top = section(page.page(publications.write(tmp_path, published_right_sizing=[slow, free, pool])), "next")
    enough = "In proportion to the GPUs, the best load of its own engines is enough on that size, but each token of a"
    assert (
        f"Try llm/slow with engines on 4 GPUs instead of 8. {enough} request takes 2.00 times as long. When most was"
        " asked for, a running request had 4.00 tokens a second, which leaves 2.00; the model's objective (tpot_seconds"
        " 0.400) asks for 2.50. It is the only engine: start the smaller one beside it, and send it all requests. Run"
        " it for 7 days. The intervals with requests decide: keep it if requests wait in at most 1 % of them, none is"
        " preempted, and the first token comes in time, and so do the others."
    ) in top
    assert (
        f"Try llm/free with engines on 4 GPUs instead of 8. {enough} request takes 2.00 times as long. The fleet file"
        " states no objective for that: state tpot_seconds in the slo of the model free, the seconds that a token may"
        " take."
    ) in top
    assert "takes 2.00 times as long, and how fast a request is served now is not known." in top


def test_a_power_limit_that_no_board_had_is_an_experiment(tmp_path: Path) -> None:
    size = {"trial_replicas": 1, "trial_gpus_per_replica": 4, "current_gpus_per_replica": 8, "freed_gpus": None}
    limit = {"current_power_limit_watts": 400, "trial_power_limit_watts": 320, "freed_gpus": None}
    row = advice(
        "hot", "try_it", **limit, trial_days=7, evidence=json.dumps({"limited_token_ratio": 0.4}), recommended_gpus=8
    )
    top = section(page.page(publications.write(tmp_path / "one", published_right_sizing=[row])), "next")
    assert "Change nothing yet. 1 lower power limit may be tried; no saving of it is counted." in top
    assert (
        "Try llm/hot with a power limit of 320 W instead of 400. In the last 28 dates no board of its kind had another"
        " limit: nothing shows what a lower one does. It draws more than 320 W at loads with 40 % of its tokens. Set it"
        " on all boards of one engine for 7 days, or on all engines if there is one. The intervals with requests"
        " decide, compared at the same load: the next run computes what it saved. Keep it if requests wait in at most"
        " 1 % of them and the first token comes in time."
    ) in top
    both = [row, advice("large", "try_it", **size), advice("unknown", "try_it", **limit)]
    top = section(page.page(publications.write(tmp_path / "both", published_right_sizing=both)), "next")
    assert "1 smaller size and 2 lower power limits may be tried" in top


def test_a_copy_in_fewer_bits_is_an_experiment_of_which_the_answers_have_to_be_compared(tmp_path: Path) -> None:
    row = advice(
        "dense", "try_it", trial_precision="int4", trial_replicas=1, trial_gpus_per_replica=1, trial_weights_gib=16.58,
        trial_kv_bytes_per_token=491_520, trial_days=7, current_replicas=1, current_gpus=2, current_gpus_per_replica=2,
        recommended_gpus=2, freed_gpus=None, reason_code="fewer_bits_fit",
    )  # fmt: skip
    made = page.page(publications.write(tmp_path, published_right_sizing=[row]))
    top = section(made, "next")
    assert "1 smaller size may be tried; no saving of it is counted." in top
    assert (
        "Try llm/dense with a copy in int4 on 1 GPU an engine instead of 2. As it is, half of the GPUs do not hold it:"
        " its weights take 16.6 GiB then, and the KV cache 491,520 bytes a token, which has room for as many tokens as"
        " are known to be needed. No telemetry shows whether its answers are good enough: compare them first. It is the"
        " only engine: start the smaller one beside it, and send it all requests. Run it for 7 days. The intervals with"
        " requests decide: keep it if"
    ) in top
    assert "2 a6000; try a copy in int4 on 1 GPU an engine instead of 2" in section(made, "advice")


def test_a_larger_node_is_handed_back_instead_of_the_one_that_others_leave(tmp_path: Path) -> None:
    """4 GPUs more: of a trial, of a smaller size, of a size that stays. Its twin is the trial above, beside its own."""
    place = {"move_to_node": "n4", "move_frees_node": "n8", "move_frees_gpus": 4, "current_replicas": 1}
    size = {"trial_replicas": 1, "trial_gpus_per_replica": 4, "current_gpus_per_replica": 8, "recommended_gpus": 8}
    tried = advice("tried", "try_it", **place, **size, freed_gpus=None, reason_code="data_sheet_only")
    smaller = advice("less", "fewer_gpus", **place, recommended_gpus=4, freed_gpus=4, evidence_basis="measured_on_size")
    moved = advice("same", "move", **place, recommended_gpus=4, current_gpus=4, freed_gpus=0, saving_kwh_month=0)
    given = {"published_right_sizing": [tried, smaller], "published_consolidation": [moved]}
    top = section(page.page(publications.write(tmp_path, **given)), "next")
    assert (
        "It is the only engine: start the smaller one on n4, and send it all requests. Other advice empties n4: hand"
        " that node back only after the trial. Run it for a week."
    ) in top
    assert "the first token comes in time. Then hand back n8 instead of n4: 4 GPUs more." in top
    assert (
        "carry all demand seen from 2026-10-01 to 2026-10-28. Start it on n4 once that is empty, and hand back n8"
        " instead: 4 GPUs more."
    ) in top
    assert (
        "Move llm/same as it is to n4 (now 1 engine, 4 × a6000): frees 4 more GPUs, and saves no energy by itself. It"
        " needs no more than that smaller node has. Start it on n4"
    ) in top


def test_a_fleet_in_which_there_is_only_something_to_try_is_not_called_right(tmp_path: Path) -> None:
    row = advice("large", "try_it", reason_code="data_sheet_only", freed_gpus=None, recommended_gpus=8)
    top = section(page.page(publications.write(tmp_path, published_right_sizing=[row])), "next")
    assert "Change nothing yet. 1 smaller size may be tried; no saving of it is counted." in top
    assert "Try llm/large with a smaller size. Only" in top


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
        if not figure.empty:  # left out where it has no rows
            continue
        shown = section(small, figure.query.replace("_", "-"))
        assert figure.title in shown
        assert figure.empty in shown or (figure.boundary in shown and "SQL query" in shown), figure.query
    assert Reader(figures.text_of("advice")).text.startswith("-- One row per deployment")


def test_every_kind_of_advice_has_its_words() -> None:
    assert set(advice_words.WHAT_TO_DO) == set(advice_headline._KINDS)


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
    assert section(made, "next").endswith("No advice yet for 1 deployment: fewer than 7 days are booked.")
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


def test_of_a_month_without_a_price_no_change_and_no_kept_budget_is_shown(tmp_path: Path) -> None:
    """Nothing of it has a price, so 0 USD were neither spent nor expected. A budget of which one price is missing is
    known to be exceeded (120 of 100 USD), never known to be kept (90 of 100)."""
    month = NEWEST.replace(day=1)

    def budget(name: str, spent_usd: float | None, forecast_usd: float | None, **changes: object) -> dict[str, object]:
        overrun = None if forecast_usd is None else max(forecast_usd - 100, 0)
        return {
            "month": month, "budget": name, "scope": "team", "name": "a", "basis": "allocation", "budget_usd": 100,
            "spent_usd": spent_usd, "forecast_usd": forecast_usd, "expected_overrun_usd": overrun,
            "is_in_progress": True, "is_cost_complete": False, **changes,
        }  # fmt: skip

    def shown(folder: str, *budgets: dict[str, object]) -> str:
        return page.page(publications.write(tmp_path / folder, finance_budgets=list(budgets), **unpriced))

    unpriced = {
        "finance_months": [
            {"month": month, "site": "west", "status": "open", "booked_hours": 665, "month_hours": 744,
                "adjustment_usd": 0, "is_cost_complete": False},
        ],
        "finance_bridge": [
            {"month": month, "compared_month": NEWEST.replace(month=9, day=1), "is_of_whole_months": True, "days": 30,
                "site": "west", "model": "m1", "part": "energy", "is_cost_complete": False},
        ],
    }  # fmt: skip
    made = shown("unpriced", budget("a", None, None))
    assert "No month has a cost: no accelerator has a price." in section(made, "months")
    assert "Whether the budgets hold is not known: a price is missing." in section(made, "budgets")
    assert 'id="bridge"' not in made
    partly = shown("partly", budget("a", 80, 90))
    assert "Whether the budgets hold is not known: a price is missing." in section(partly, "budgets")
    assert "1 of 1 budget will be exceeded: a by 20.00 USD." in section(shown("over", budget("a", 80, 120)), "budgets")
    kept = shown("kept", budget("a", 80, 90, is_cost_complete=True), budget("b", None, None))
    assert "The budget holds." in section(kept, "budgets")
    early = shown("early", budget("a", 80, None, is_cost_complete=True))
    assert "not known yet: fewer than 14 days are booked." in section(early, "budgets")


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


def test_a_change_is_coloured_where_it_is_more_than_usual_and_a_figure_has_its_interval(tmp_path: Path) -> None:
    """16 dates of 10 and 11 USD in turn change by +10 and −9.09 % from date to date: standard deviation 9.86 % over 14
    changes, so 1.96 of them are 19 %. The newest costs 11 USD after 11, or 22."""

    def headline(newest: float) -> str:
        usd = {NEWEST - timedelta(days=days): 10.0 + days % 2 for days in range(1, 17)} | {NEWEST: newest}
        interval = {"month": NEWEST.replace(day=1), "site": "__all__", "model": "__all__", "meter_scope": "__all__"}
        made = publications.write(
            tmp_path / str(newest),
            marts_fleet_daily=[fleet_day(on) for on in usd],
            marts_cost_daily=[cost(on, "busy", value) for on, value in usd.items()],
            marts_figure_intervals=[
                {**interval, "figure": "known_cost_usd", "value": 200.0, "value_low": 190.0, "value_high": 210.0}
            ],
        )
        return section(page.page(made), "headline")

    usual = headline(12.0)
    assert "Cost of the day 12.00 USD ± 5.0 % (95 %) day before: +9.1 %, as usual (± 19 %)" in usual
    assert "60.00 USD per million, no more unlike the day before than usual and" in usual
    unusual = headline(22.0)
    assert "Cost of the day 22.00 USD ± 5.0 % (95 %) day before: ▲ +100 % week before: ▲ +100 %" in unusual
    assert "Output tokens 0.200 million counted: exact" in unusual


def test_a_month_has_its_intervals_and_a_closed_one_is_exact(tmp_path: Path) -> None:
    month = {"month": NEWEST.replace(day=1), "booked_hours": 600, "month_hours": 744, "is_cost_complete": True}
    open_one = {**month, "site": "west", "status": "open", "closed_cost_usd": 105, "known_cost_usd": 100,
        "known_cost_usd_low": 98, "known_cost_usd_high": 102, "facility_energy_kwh": 50, "facility_energy_kwh_low": 40,
        "facility_energy_kwh_high": 60, "metered_ratio": 0.5}  # fmt: skip
    closed_one = {**open_one, "site": "east", "status": "closed", "metered_ratio": 0.9}

    def shown(name: str, *rows: dict) -> str:
        return section(page.page(publications.write(tmp_path / name, finance_months=rows)), "months")

    # 105 − 100 + 98 USD to 105 − 100 + 102.
    assert "Cost of the month so far 105.00 USD 103.00 to 107.00 (95 %)" in shown("open", open_one)
    assert "Electricity 50.0 kWh 40.0 to 60.0 (95 %); 50 % metered" in shown("open-too", open_one)
    assert "Cost of the month 105.00 USD exact" in shown("closed", closed_one)
    # 103 + 105 to 107 + 105; kWh of both: (25 + 45) of 100.
    both = shown("both", open_one, closed_one)
    assert "210.00 USD 208.00 to 212.00 (95 %)" in both
    assert "100.0 kWh 80.0 to 120.0 (95 %); 70 % metered" in both
    assert "In doubt" not in both
    doubted = shown("doubted", open_one, {**closed_one, "doubt_reasons": "hidden_processes"})
    assert "In doubt by a hundredth or more: hidden_processes (marts.doubts has what to do)." in doubted
