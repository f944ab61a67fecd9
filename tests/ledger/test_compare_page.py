"""Every number of docs/compare.md: what other tools' formulas give of the composed cluster, and what its book has.

The formulas are other people's arithmetic, so they are here, over the planted series, and in no table. Add a tool with
its formula and its rows on the page. Keep out figures that no other tool has.
"""

from __future__ import annotations

import re
from itertools import pairwise
from statistics import fmean

import pytest

from pipelines.fleet.places import PROJECT
from tests import composed
from tests.books import Book

PAGE = (PROJECT / "docs" / "compare.md").read_text(encoding="utf-8")
SERIES = composed.series()
ENERGY, GAUGE = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_DEV_POWER_USAGE"
INPUT, OUTPUT = "vllm:prompt_tokens_total", "vllm:generation_tokens_total"
BIG = [f"GPU-big-{n}" for n in range(4)]
USD_PER_GPU_HOUR = 2.0
# Boards of the site `cal`: those that a workload reserved, and the free one.
RESERVED, FREE = len(composed.BOARDS), 1
REFERENCE_WATTS = 93.0
LIST_USD_PER_MTOK = {"input": 1.0, "output": 4.0}


def planted(metric: str, **labels: str) -> list[list[float]]:
    return [
        [value for _, value in samples]
        for name, held, samples in SERIES
        if name == metric and labels.items() <= held.items()
    ]


def increases(counter: list[float]) -> list[float]:
    """By minute; a counter that falls began again from 0."""
    return [after - before if after >= before else after for before, after in pairwise(counter)]


def watts(*boards: str) -> list[float]:
    gauges = [planted(GAUGE, UUID=board, replica="a")[0] for board in boards]
    return [sum(of_a_minute) for of_a_minute in zip(*gauges, strict=True)][1:]


def tokens(metric: str, **labels: str) -> list[float]:
    counters = [increases(counter) for counter in planted(metric, **labels)]
    return [sum(of_a_minute) for of_a_minute in zip(*counters, strict=True)]


def panel(model: str, *boards: str) -> list[float]:
    """Watts over output tokens per second, at each sample that has tokens."""
    per_minute = zip(watts(*boards), tokens(OUTPUT, model_name=model), strict=True)
    return [power / (generated / 60) for power, generated in per_minute if generated]


def opencost_tokens(model: str) -> float:
    """Prompt and generated tokens of all pods: last value less first, or the last one if that is negative."""
    total = 0.0
    for metric in (INPUT, OUTPUT):
        counters = planted(metric, model_name=model)
        first, last = (sum(counter[n] for counter in counters) for n in (0, -1))
        total += last - first if last >= first else last
    return total


def opencost_usd(boards: int) -> float:
    """Reserved GPU-hours, with their part by weight of what nothing reserved."""
    return USD_PER_GPU_HOUR * boards * (1 + FREE / RESERVED)


def kepler_joules(board_watts: list[float], idle_watts: float) -> float:
    """Active energy: what is above the watts that it is set to, else above the least power seen."""
    return sum((power - idle_watts) * 60 for power in board_watts)


def kepler_idle_share(board_watts: list[float], idle_watts: float) -> float:
    return 1 - kepler_joules(board_watts, idle_watts) / kepler_joules(board_watts, 0)


def mig_share(instance: str) -> float:
    activity = {
        one: planted("DCGM_FI_PROF_GR_ENGINE_ACTIVE", UUID=composed.MIG_BOARD, GPU_I_ID=one)[0][0] for one in "12"
    }
    return activity[instance] / sum(activity.values())


def litellm_usd_per_mtok(input_tokens: float, output_tokens: float) -> float:
    """Each class of tokens by its price on a list."""
    usd = (input_tokens * LIST_USD_PER_MTOK["input"] + output_tokens * LIST_USD_PER_MTOK["output"]) / 1e6
    return usd / (input_tokens + output_tokens) * 1e6


def joules_per_token(book: Book, *models: str) -> float:
    ((ratio,),) = book.query(
        "select sum(matched_joules)::double / sum(matched_output_tokens)::double from marts.model_daily"
        " where list_contains(?, model)",
        [list(models)],
    )
    return ratio


def cost_usd(book: Book, basis: str, model: str) -> float:
    ((cost,),) = book.query(
        "select sum(cost_usd)::double from marts.cost_daily where basis = ? and model = ?", [basis, model]
    )
    return cost


def model_total(book: Book, column: str, model: str) -> float:
    ((total,),) = book.query(f"select sum({column})::double from marts.model_daily where model = ?", [model])
    return total


def per_mtok(book: Book, model: str) -> float:
    return cost_usd(book, "fully_loaded", model) / model_total(book, "total_tokens", model) * 1e6


def capacity(book: Book, column: str) -> float:
    ((usd,),) = book.query(
        f"select sum({column})::double from marts.cost_daily"
        " where basis = 'fully_loaded' and part = 'capacity' and site = 'cal'"
    )
    return usd


def row(shown: float, own: float, *why: str) -> tuple[str, ...]:
    return f"{shown:,.2f}", f"{own:,.2f}", f"{round(shown / own - 1, 6):+.1%}", *why


def share_row(shown: float, own: float, *why: str) -> tuple[str, ...]:
    return f"{shown:.1%}", f"{own:.1%}", f"{(shown - own) * 100:+.1f} points", *why


def numbers(text: str) -> list[str]:
    """Without those within code, links and names."""
    text = re.sub(r"`[^`]*`|\]\([^)]*\)", " ", text)
    return re.findall(r"(?<![\w.,])\d+(?:,\d{3})*(?:\.\d+)?%?(?!\w)", text)


@pytest.fixture(scope="module")
def expected(composed_book: Book) -> dict[tuple[str, str], tuple[str, ...]]:
    """(tool, figure) -> what it shows, what we show, the difference, the numbers of the reason."""
    book = composed_book
    big, solo, pd, batch = (
        panel("big", *BIG),
        panel("solo", "GPU-solo"),
        panel("org/pd", "GPU-prefill", "GPU-decode"),
        panel("batch", "GPU-job"),
    )
    of_a_pod = BIG[:2]
    prefill, decode = (tokens(OUTPUT, model_name="org/pd", pod=pod) for pod in ("prefill-0", "decode-0"))
    solo_watts = watts("GPU-solo")
    mig_watts = [rise / 60_000 for rise in increases(planted(ENERGY, UUID=composed.MIG_BOARD, GPU_I_ID="1")[0])]
    mig_joules = kepler_joules(mig_watts, REFERENCE_WATTS) * mig_share("1")
    solo_tokens, mig_tokens = sum(tokens(OUTPUT, model_name="solo")), sum(tokens(OUTPUT, model_name="mig-a"))
    big_input, big_output = (sum(tokens(metric, model_name="big")) for metric in (INPUT, OUTPUT))
    remote = sum(tokens("litellm_output_tokens_metric_total", model="remote"))
    own_idle = model_total(book, "idle_joules", "solo") / model_total(book, "energy_joules", "solo")
    electricity = cost_usd(book, "fully_loaded", "big") - opencost_usd(len(BIG))
    set_to = f"Kepler, set to {REFERENCE_WATTS:.0f} W"
    assert cost_usd(book, "fully_loaded", "remote") is None
    return {
        ("Grafana panel", "J per output token, `big`"): row(fmean(big), joules_per_token(book, "big"), str(len(big))),
        ("Grafana panel", "`big`, joined by `pod`"): row(
            fmean(panel("big", *of_a_pod)), joules_per_token(book, "big"), f"{sum(watts(*BIG[2:])) / 60:.0f}"
        ),
        ("Grafana panel", "J per output token, `solo`"): row(
            fmean(solo), joules_per_token(book, "solo"), str(len(solo_watts) - len(solo))
        ),
        ("Grafana panel", "J per output token, `pd`"): row(
            fmean(pd), joules_per_token(book, "pd"), f"{sum(prefill):.0f}", f"{sum(prefill) + sum(decode):,.0f}"
        ),
        ("Grafana panel", "J per output token, these and `batch`"): row(
            fmean([*big, *solo, *pd, *batch]),
            joules_per_token(book, "big", "solo", "pd", "batch"),
            f"{model_total(book, 'output_tokens', 'batch'):.0f}",
            f"{model_total(book, 'output_tokens', 'big'):,.0f}",
        ),
        ("OpenCost, llm-d", "USD per million tokens, `big`"): row(
            opencost_usd(len(BIG)) / opencost_tokens("big") * 1e6, per_mtok(book, "big"), f"{electricity:.2f}"
        ),
        ("OpenCost, llm-d", "USD per million tokens, `pd`"): row(
            opencost_usd(2) / opencost_tokens("org/pd") * 1e6,
            per_mtok(book, "pd"),
            f"{opencost_tokens('org/pd'):,.0f}",
            f"{model_total(book, 'total_tokens', 'pd'):,.0f}",
        ),
        ("OpenCost, llm-d", "USD per million tokens, `solo`"): row(
            opencost_usd(1) / opencost_tokens("solo") * 1e6,
            per_mtok(book, "solo"),
            f"{opencost_tokens('solo'):.0f}",
            f"{model_total(book, 'total_tokens', 'solo'):,.0f}",
        ),
        ("OpenCost, llm-d", "USD that `solo` used"): row(USD_PER_GPU_HOUR, cost_usd(book, "usage", "solo")),
        ("OpenCost, llm-d", "idle share of GPU-hours"): share_row(
            FREE / (RESERVED + FREE), capacity(book, "idle_cost_usd") / capacity(book, "cost_usd")
        ),
        ("Kepler", "idle share of J, `solo`"): share_row(
            kepler_idle_share(solo_watts, min(solo_watts)), own_idle, f"{min(solo_watts):.0f}"
        ),
        (set_to, "idle share of J, `solo`"): share_row(
            kepler_idle_share(solo_watts, REFERENCE_WATTS), own_idle, f"{min(solo_watts) - REFERENCE_WATTS:.0f}"
        ),
        (set_to, "J per output token, `solo`"): row(
            kepler_joules(solo_watts, REFERENCE_WATTS) / solo_tokens, joules_per_token(book, "solo")
        ),
        (set_to, "J per output token, `mig-a`"): row(
            mig_joules / mig_tokens,
            joules_per_token(book, "mig-a"),
            f"{model_total(book, 'productive_joules', 'mig-a') / mig_tokens:.2f}",
        ),
        ("LiteLLM", "USD per million tokens, `big`"): row(
            litellm_usd_per_mtok(big_input, big_output),
            per_mtok(book, "big"),
            *(f"{price:.0f}" for price in LIST_USD_PER_MTOK.values()),
        ),
        ("LiteLLM", "USD per million output tokens, `remote`"): (
            f"{litellm_usd_per_mtok(0, remote):.2f}",
            "none",
            "none",
        ),
    }


def test_the_table_is_what_each_formula_gives(expected: dict[tuple[str, str], tuple[str, ...]]) -> None:
    lines = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if line.startswith("|")][2:]
    written = {
        (tool, figure): (shown, own, difference, *numbers(why)) for tool, figure, shown, own, difference, why in lines
    }
    assert written == expected


def test_the_numbers_of_the_text(composed_book: Book) -> None:
    reserved_and_free = USD_PER_GPU_HOUR * (RESERVED + FREE)
    assert capacity(composed_book, "cost_usd") == pytest.approx(reserved_and_free)
    assert composed_book.query(
        "select distinct attribution_confidence from marts.energy_ledger where model = 'mig-a'"
    ) == [("medium",)]
    ((unseen, ratio),) = composed_book.query(
        "select (select unbooked_tokens::double from marts.doubts where entity = 'llm/solo-0'),"
        " (select doubted_tokens_ratio from marts.model_daily where model = 'solo')"
    )
    ((host_watts, pue),) = composed_book.query(
        "select host_overhead_joules::double / 3600, facility_energy_kwh::double * 3.6e6"
        " / (energy_joules + host_overhead_joules)::double from marts.model_daily where model = 'solo'"
    )
    ((floor_watts,),) = composed_book.query(
        "select sum(idle_floor_joules)::double / 1800 from marts.energy_ledger"
        " where model = 'solo' and idle_basis = 'device_type_reference'"
    )
    text = "\n".join(line for line in PAGE.splitlines() if not line.startswith("|"))
    assert numbers(text) == [
        f"{reserved_and_free:.2f}",
        f"{floor_watts:.0f}",
        f"{min(watts('GPU-solo')):.0f}",
        f"{joules_per_token(composed_book, 'solo'):,.2f}",
        f"{unseen:.0f}",
        f"{ratio:.1%}",
        f"{host_watts:.0f}",
        f"{pue:.1f}",
    ]


def test_the_page_is_one_page() -> None:
    prose = re.sub(r"\]\([^)]*\)", "]", PAGE)
    assert len(re.findall(r"\S*\w\S*", prose)) <= 700
