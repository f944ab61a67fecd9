"""The fleet report of the bundled demo: what it advises, what that saves, and that it is right."""

from __future__ import annotations

from tests.books import Book
from tests.report.test_report import section


def test_the_demo_report_names_what_to_do_next_and_what_it_saves(four_weeks: tuple[Book, str]) -> None:
    made = (four_weeks[0].fleet.published / "report.html").read_text(encoding="utf-8")
    top = section(made, "next")
    # Two models without a request on 8 and 4 GPUs at 1.20 USD, and 4 of 8 GPUs too many: 16 × 1.20 × 730 = 14,016 USD,
    # of the first two 12 × 1.20 × 730 = 10,512 USD.
    assert "3 changes would save 69 USD of electricity a month at once (456 kWh, 88 kg CO2e)" in top
    assert "Handing back 16 freed GPUs saves 14,016 USD more a month, 10,512 USD of it with at least medium" in top
    assert (
        "Stop llm-research/Kimi-K2.5 (now 1 engine, 8 × a100-sxm4-80gb): saves 201 kWh (30 USD) a month, likely 86 to"
        " 317 kWh,"
        " and 7,008 USD more once the 8 freed GPUs are handed back."
        " It served no token from 2026-10-01 to 2026-10-28. Confidence: high. Do it now."
    ) in top
    assert "handing them back saves 657 USD more a month" in top
    # The same totals as in docs/finance.md.
    assert (
        "The fleet cost 21,374 USD in the last 28 dates, 84 % of it capacity. What models are charged of it depends on"
        " the basis: 106 USD on marginal, 5,926 USD on usage, 20,560 USD on allocation and 21,374 USD on fully loaded."
    ) in section(made, "cost-parts")
    assert "the biggest difference is electricity at west: 20.61 USD (3.0 %)" in section(made, "bills")
    assert "28 of 28 dates are published" in section(made, "quality")
    # 763.51 USD a day, of which model_daily has 662.17; × 730 / 24.
    assert "the whole fleet costs 23,223 USD in a month like the newest date." in top
    assert "the fleet cost 763.51 USD (662.17 USD of it for accelerators and their electricity)" in section(
        made, "headline"
    )
    # The demo's fleet file states 20,000 USD for the team that keeps two models without a request.
    assert "1 × budget will be exceeded; the newest is of 2026-10-28: team research," in section(made, "alarms")
    assert "nan" not in made.lower().replace("unallocated", "").split()
