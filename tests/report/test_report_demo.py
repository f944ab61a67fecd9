"""The fleet report of the bundled demo: what it advises, what that saves, and that it is right."""

from __future__ import annotations

import re

from tests.books import Book
from tests.report.test_report import section


def test_the_demo_report_names_what_to_do_next_and_what_it_saves(four_weeks: tuple[Book, str]) -> None:
    made = (four_weeks[0].fleet.published / "report.html").read_text(encoding="utf-8")
    top = section(made, "next")
    # Two models without a request on 8 and 4 GPUs at 1.20 USD, a node each: 12 × 1.20 × 730 = 10,512 USD. That 4 GPUs
    # of 8 are enough for another is not shown by evidence. Of 763.51 USD a day, × 730 / 24 = 23,223 USD.
    assert (
        "Handing back 12 freed GPUs saves 10,512 USD a month, 45 % of what the whole fleet costs (23,223 USD in a month"
        " like the newest date). At once 2 changes would save 60 USD of electricity a month (400 kWh, 77 kg CO2e)."
    ) in top
    assert (
        "2 smaller sizes may be tried; no saving of it is counted. Try llm-research/Qwen3.5-397B with engines on 4"
        in top
    )
    # The node with 4 GPUs that MiniMax-M2.5 leaves, instead of its own with 8; and 4 bits of the other one's 16.
    assert "start the smaller one on a100-03, and send it all requests. Other advice empties a100-03: hand that" in top
    assert "the first token comes in time. Then hand back a100-01 instead of a100-03: 4 GPUs more." in top
    assert "Try llm-teaching/gemma-4-31B with a copy in int4 on 1 GPU an engine instead of 2." in top
    assert "its weights take 16.6 GiB then, and the KV cache 491,520 bytes a token" in top
    assert "is 4.44 tokens a second on that size, and their own rates allow at most 12.09." in top
    assert "paid on" not in top
    assert (
        "Stop llm-research/Kimi-K2.5 (now 1 engine, 8 × a100-sxm4-80gb): saves 201 kWh (30 USD) a month, likely 86 to"
        " 317 kWh,"
        " and 7,008 USD more once freed GPUs are handed back."
        " It served no token from 2026-10-01 to 2026-10-28. Confidence: high. Do it now."
    ) in top
    assert "whose hours are worth 657 USD a month: that is saved once they can be handed back" in top
    # The same totals as in docs/finance.md.
    assert (
        "The fleet cost 21,374 USD in the last 28 dates, 84 % of it capacity. What models are charged of it depends on"
        " the basis: 106 USD on variable, 5,926 USD on usage, 20,560 USD on allocation and 21,374 USD on fully loaded."
    ) in section(made, "cost-parts")
    assert "the biggest difference is electricity at west: 20.61 USD (3.0 %)" in section(made, "bills")
    assert "28 of 28 dates are published" in section(made, "quality")
    # 763.51 USD a day, of which model_daily has 662.17.
    assert "the fleet cost 763.51 USD (662.17 USD of it for accelerators and their electricity)" in section(
        made, "headline"
    )
    # The month of schema finance: 744 hours, of which 665 are booked.
    assert (
        "October 2026 is open, 89 % of it booked. It cost 21,149 USD so far, and will have cost 23,663 USD at its end;"
        " 75 % of what is known of it paid for idle accelerators."
    ) in section(made, "months")
    assert "1 of 4 budgets will be exceeded: research by 1,559.7 USD." in section(made, "budgets")
    assert "Of the 21,149 USD of October 2026 research pays 19,269 USD (91 %)." in section(made, "payers")
    # The demo's fleet file states 20,000 USD for the team that keeps two models without a request.
    assert "1 × budget will be exceeded; the newest is of 2026-10-28: team research," in section(made, "alarms")
    assert "nan" not in made.lower().replace("unallocated", "").split()


def test_every_tile_has_its_interval_or_why_it_has_none(four_weeks: tuple[Book, str]) -> None:
    made = (four_weeks[0].fleet.published / "report.html").read_text(encoding="utf-8")
    tiles = re.findall(r'<li><span class="what">(.*?)</span><span class="value">.*?</span>(.*?)</li>', made)
    shown = [(re.sub("<.*?>", "", title), re.sub("<.*?>", " ", rest)) for title, rest in tiles]
    assert len(shown) == 5 + 7  # of the month, of the date
    known = re.compile(r"\(95 %\)|\(80 %\)|\bexact\b|no interval: ")
    assert [title for title, rest in shown if not known.search(rest.replace("\N{NO-BREAK SPACE}", " "))] == []


def test_every_saving_that_is_advised_has_its_interval(four_weeks: tuple[Book, str]) -> None:
    top = section((four_weeks[0].fleet.published / "report.html").read_text(encoding="utf-8"), "next")
    assert len(re.findall(r"saves \d+ kWh", top)) == len(re.findall(r"likely \d+ to \d+ kWh", top)) == 2
