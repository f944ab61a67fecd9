"""Public claims about what accelerators earn, from the inputs that are published with them.

The inputs are rows of the seeds `scenarios` and `scenario_sensitivities`. The expected numbers are the publishers' or
are worked out here by hand, to the digits that are written: a tolerance of half the last digit, or as stated.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator

import pytest

from pipelines.fleet.places import DBT_PROJECT
from pipelines.warehouse.raw_tables import create_tables
from tests.books import Book, demo_fleet, on

THROUGHPUT, PRICE, RATE = "total_tokens_per_second_per_gpu", "usd_per_total_mtok", "usd_per_gpu_hour"
STATED = ("none", None)


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Book:
    folder = tmp_path_factory.mktemp("scenarios")
    made = Book.of(demo_fleet(folder, on("10-01"), on("10-02")), folder / "data")
    with made.connection() as connection:
        create_tables(connection)
    made.dbt("seed", "--select", "scenarios", "scenario_sensitivities")
    made.dbt("run", "--select", "+scenario_results")
    return made


def one(book: Book, columns: str, scenario: str, variant: tuple[str, float | None] = STATED) -> tuple:
    """The only row of a scenario with one input changed."""
    (row,) = book.query(
        f"select {columns} from marts.scenario_results"
        " where scenario = ? and varied_input = ? and varied_value is not distinct from ?",
        [scenario, *variant],
    )
    return row


# --- what follows from the published inputs -----------------------------------------------------------------------


def test_a_token_of_gb300_costs_a_thirty_fifth_of_one_of_h200(book: Book) -> None:
    """2.65 and 1.41 USD per GPU-hour at 6,000 and 90 tokens/s; 2.10 and 1.73 kW."""
    cost, per_mw, cheaper, more, status = one(
        book,
        "cost_usd_per_mtok, tokens_per_second_per_mw, cost_multiple, tokens_per_mw_multiple, claim_status",
        "gb300_deepseek_r1_cost",
    )
    assert cost == pytest.approx(0.1227, abs=5e-5)
    assert per_mw == pytest.approx(2.857e6, abs=5e2)
    assert cheaper == pytest.approx(35.4, rel=0.005)
    assert more == pytest.approx(54.9, abs=0.05)
    assert status == "reproduced"
    cost, per_mw, status = one(book, "cost_usd_per_mtok, tokens_per_second_per_mw, claim_status", "h200_deepseek_r1")
    assert cost == pytest.approx(4.352, abs=5e-4)
    assert per_mw == pytest.approx(52.0e3, abs=50)
    assert status == "reproduced"  # published: 4.20
    assert one(book, "claim_status", "gb300_deepseek_r1_per_mw") == ("reproduced",)  # published: 50 times
    assert one(book, "solved_value", "h200_deepseek_r1_at_its_cost")[0] == pytest.approx(93.3, abs=0.05)


@pytest.mark.parametrize(
    ("owner", "status", "costs"),
    [
        ("hyperscaler", "reproduced", {6_000: 0.0903, 30_000: 0.0181, 60_000: 0.0090}),
        ("neocloud", "reproduced", {6_000: 0.1083, 30_000: 0.0217, 60_000: 0.0108}),
        ("rental", "not_reproduced", {6_000: 0.1343, 30_000: 0.0269, 60_000: 0.0134}),
    ],
)
def test_two_cents_per_million_tokens_depend_on_who_owns_the_b200(
    book: Book, owner: str, status: str, costs: dict[int, float]
) -> None:
    """1.95, 2.34 and 2.90 USD per GPU-hour; 30,000 tokens/s are five times the 6,000 of the start."""
    name = f"b200_gpt_oss_{owner}"
    assert one(book, "claim_status", name) == (status,)
    for throughput, cost in costs.items():
        found = one(book, "cost_usd_per_mtok", name, STATED if throughput == 30_000 else (THROUGHPUT, throughput))
        assert found == (pytest.approx(cost, abs=5e-5),), throughput


def test_three_million_dollars_become_twenty_eight(book: Book) -> None:
    """1.5 million tokens/s of a rack over three years at 0.20 USD per million, all sold."""
    name = "gb200_nvl72_30m"
    rack, gpu, revenue, multiple, status = one(
        book,
        "tokens_per_second_per_rack, tokens_per_second_per_gpu, revenue_usd, revenue_multiple, claim_status",
        name,
    )
    assert (rack, gpu) == (pytest.approx(1.5e6), pytest.approx(20_833, abs=0.5))
    assert revenue == pytest.approx(28.4e6, abs=5e4)
    assert multiple == pytest.approx(9.46, abs=0.005)
    assert status == "reproduced"  # within 10 % of 30 million
    for price, expected in ((0.21, 29.8e6), (0.40, 56.8e6)):
        assert one(book, "revenue_usd", name, (PRICE, price))[0] == pytest.approx(expected, abs=5e4)


def test_the_same_rack_earns_less_where_not_all_is_sold_or_prices_fall(book: Book) -> None:
    """9.4608 times; × 0.7 and × 0.5; × (1 + 0.7 + 0.49) / 3 and × (1 + 0.5 + 0.25) / 3."""
    found = dict(
        book.query(
            "select (varied_input, varied_value)::varchar, revenue_multiple from marts.scenario_results"
            " where scenario = 'gb200_nvl72_30m' and varied_input in ('sold_utilisation_ratio', 'price_decay_ratio')"
        )
    )
    assert found == {
        "(sold_utilisation_ratio, 0.7)": pytest.approx(6.62, abs=0.005),
        "(sold_utilisation_ratio, 0.5)": pytest.approx(4.73, abs=0.005),
        "(price_decay_ratio, 0.3)": pytest.approx(6.91, abs=0.005),
        "(price_decay_ratio, 0.5)": pytest.approx(5.52, abs=0.005),
    }
    # 9.4608 million USD a year at 10 %: ÷ 1.1 + ÷ 1.21 + ÷ 1.331 − 3 million.
    npv, payback, why = one(book, "npv_usd, payback_years, null_reasons", "gb200_nvl72_30m", ("discount_ratio", 0.1))
    assert npv == pytest.approx(20.528e6, abs=500)
    assert payback == pytest.approx(3 / 9.4608, abs=1e-6)
    assert why is None
    # Its twin without a discount rate has no present value, and the reason.
    assert one(book, "npv_usd, null_reasons", "gb200_nvl72_30m") == (None, "npv_usd: no discount_ratio is stated")


@pytest.mark.parametrize(("token_class", "margin"), [("input", 0.833), ("output", 0.453)])
def test_a_margin_follows_from_price_and_cost_of_a_token(book: Book, token_class: str, margin: float) -> None:
    """1.35 USD against 0.226, and 5.40 against 2.955: of a million tokens, because no volume is published."""
    found = one(book, "gross_margin_ratio, throughput_basis, claim_status", f"deepseek_r1_margin_{token_class}")
    assert found == (pytest.approx(margin, abs=5e-4), "one_million_tokens", "reproduced")


# --- what a claim would need ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("years", "needed"),
    [
        (3, {1.00: 11_010, 1.35: 8_156, 2.00: 5_505, 5.40: 2_039}),
        (4, {1.00: 8_258, 1.35: 6_117, 2.00: 4_129, 5.40: 1_529}),
    ],
)
def test_seventy_five_million_dollars_are_solved_for_the_throughput_they_need(
    book: Book, years: int, needed: dict[float, float]
) -> None:
    """75e6 × 1e6 / (72 GPUs × years × 31,536,000 s × price), to a token per second."""
    for price, throughput in needed.items():
        found = one(
            book,
            "solved_value, solved_for, throughput_basis, claim_status, revenue_multiple",
            f"gb200_nvl72_75m_{years}_years",
            STATED if price == 1 else (PRICE, price),
        )
        assert found == (
            *(pytest.approx(throughput, abs=0.5), "tokens_per_second_per_gpu", "solved", "solved"),
            pytest.approx(15),
        )


@pytest.mark.parametrize(
    ("variant", "yearly", "years"),
    [(STATED, 1.394e6, 3.59), ((RATE, 2.75), 1.734e6, 2.88), ((RATE, 3.30), 2.081e6, 2.40)],
)
def test_five_million_dollars_pay_a_rack_for_about_three_years(
    book: Book, variant: tuple[str, float | None], yearly: float, years: float
) -> None:
    """72 GPUs × 8,760 h × 2.21, 2.75 and 3.30 USD."""
    found = one(book, "annual_cost_usd, solved_value, solved_for, claim_status", "gb200_nvl72_5m_in_years", variant)
    assert found == (pytest.approx(yearly, abs=500), pytest.approx(years, abs=0.005), "years", "solved")


def test_ten_times_per_mw_and_fifteen_times_per_dollar_name_what_they_need(book: Book) -> None:
    """10 × 2.10 / 1.73 and 15 × 1.95 / 1.41 times the tokens per GPU; no throughput of either side is published."""
    for name, needed in (("gb200_per_mw_10x", 12.1), ("b200_per_dollar_15x", 20.7)):
        value, solved_for, status, computed, note = one(
            book, "solved_value, solved_for, claim_status, computed_value, note", name
        )
        assert value == pytest.approx(needed, abs=0.05)
        assert (solved_for, status, computed) == ("throughput_multiple", "solved", None)
        assert note.startswith("Needs published rows of ")


def test_a_b200_at_six_thousand_tokens_a_second_is_the_published_number_per_mw(book: Book) -> None:
    """2.8 million tokens/s per MW × 2.17 kW."""
    assert one(book, "solved_value, claim_status", "b200_gpt_oss_per_mw") == (pytest.approx(6_076, abs=0.5), "solved")


def test_a_factory_of_a_hundred_mw_serves_a_million_tokens_a_second_per_rack(book: Book) -> None:
    """807 million USD a year at a margin of 77.6 %: 3.60 billion USD, 1.80e16 tokens at 0.20 USD per million, 70 %
    sold by 750 racks. Published from a rounded revenue: 1.087 million, within 0.2 %."""
    revenue, sold, rack, sold_at_cost, status = one(
        book,
        "revenue_usd, sold_mtok, tokens_per_second_per_rack, break_even_sold_ratio, claim_status",
        "gb200_100_mw_factory",
    )
    assert revenue == pytest.approx(3.60e9, rel=0.002)
    assert sold * 1e6 == pytest.approx(1.80e16, rel=0.002)
    assert rack == pytest.approx(1.087e6, rel=0.002)
    assert sold_at_cost == pytest.approx(0.7 * (1 - 0.776))
    assert status == "solved"


# --- sizing -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sized(book: Book, tmp_path_factory: pytest.TempPathFactory) -> Book:
    """A copy of the book with scenarios of a size alone."""
    copied = book.copy(tmp_path_factory.mktemp("sized"))
    queues = [("two", 2, 1), ("four", 4, 3), ("ten", 10, 8), ("full", 4, 4), ("empty", 4, 0), ("many", 1_000, 1)]
    peaks = [("peak", 7_000, 0.7, 8, None), ("small_peak", 10, 0.7, 8, 2), ("over", 7_001, 0.7, 8, None)]
    with copied.connection() as connection:
        connection.executemany(
            "insert into reference.scenarios by name select ? as scenario, ? as servers, ? as offered_servers", queues
        )
        connection.executemany(
            "insert into reference.scenarios by name select ? as scenario, ? as peak_tokens_per_second,"
            " ? as target_utilisation_ratio, ? as gpus_per_replica, ? as min_replicas,"
            " 125 as total_tokens_per_second_per_gpu",
            peaks,
        )
    copied.dbt("run", "--select", "scenario_results")
    return copied


def test_requests_wait_by_erlangs_formula(sized: Book) -> None:
    """C(2, 1), C(4, 3) and C(10, 8), to five digits. Where all servers are busy the queue has no end."""
    for name, waiting in (("two", 0.33333), ("four", 0.50943), ("ten", 0.40918), ("empty", 0), ("many", 0)):
        assert one(sized, "waiting_ratio", name)[0] == pytest.approx(waiting, abs=5e-6), name
    waiting, why = one(sized, "waiting_ratio, null_reasons", "full")
    assert waiting is None
    assert "waiting_ratio: the load keeps all servers busy" in why


def test_a_peak_needs_whole_replicas_below_their_target(sized: Book) -> None:
    """A replica of 8 GPUs serves 1,000 tokens/s, 700 at its target: 7,000 need ten of them, a token more eleven. A
    small peak needs the two that are the least."""
    assert [one(sized, "needed_gpus", name)[0] for name in ("peak", "over", "small_peak")] == [80, 88, 16]
    assert one(sized, "needed_gpus", "two") == (None,)  # its twin, without a peak


# --- the seeds --------------------------------------------------------------------------------------------------------


def rows(seed: str) -> Iterator[dict[str, str]]:
    with (DBT_PROJECT / "seeds" / f"{seed}.csv").open(newline="", encoding="utf-8") as lines:
        yield from csv.DictReader(lines)


def test_every_scenario_has_its_source_and_every_claim_a_tolerance_or_an_unknown() -> None:
    names = [row["scenario"] for row in rows("scenarios")]
    assert len(names) == len(set(names))
    for row in rows("scenarios"):
        assert row["title"] and row["source"] and row["as_of"], row["scenario"]
        assert row["reference_scenario"] in {"", *names}
        if row["claim_measure"]:
            assert bool(row["claim_tolerance_ratio"]) != bool(row["solve_for"]), row["scenario"]
    assert {row["scenario"] for row in rows("scenario_sensitivities")} <= set(names)


def test_every_shipped_number_is_known_or_has_its_reason(book: Book) -> None:
    """No shipped scenario is misspelt, and each claim came to a result."""
    assert book.query(
        "select count(*) from marts.scenario_results where null_reasons like '%seed scenarios%'"
        " or null_reasons like '%outside%' or claim_status = 'unknown'"
    ) == [(0,)]
    assert book.query(
        "select distinct claim_status from marts.scenario_results where varied_input = 'none' order by all"
    ) == [("not_reproduced",), ("reproduced",), ("solved",), (None,)]
