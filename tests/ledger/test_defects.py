"""What other systems get wrong, each by name: defects D1 to D8 of one dashboard, pains P1 to P10 of the field.

All are asked of the composed cluster (`tests/composed.py`): its watts, seconds and tokens are stated there, and every
figure here follows from them by hand.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import composed
from tests.books import Book
from tests.servers import openmetrics, prometheus_with_history


def of_model(book: Book, columns: str, model: str) -> tuple:
    """One row of model_daily; a model of several roles has several."""
    ((row),) = book.query(f"select {columns} from marts.model_daily where model = ?", [model])
    return tuple(None if value is None else float(value) for value in row)


def test_d1_idle_energy_stays_in_the_ratio(composed_book: Book) -> None:
    # 300 W for an hour, 900 tokens in its first half. Over active samples alone it would be 600.
    assert of_model(composed_book, "joules_per_output_token", "solo") == (1_080_000 / 900,)
    assert of_model(composed_book, "idle_time_ratio", "solo") == (0.5,)


def test_d2_tokens_without_power_are_in_no_ratio(composed_book: Book) -> None:
    assert of_model(composed_book, "output_tokens, matched_output_tokens, joules_per_output_token", "ghost") == (
        60_000,
        None,
        None,
    )
    ((joules, tokens),) = composed_book.query(
        "select sum(matched_joules)::double, sum(matched_output_tokens)::double from marts.fleet_daily"
    )
    powered = {model for model, joules in composed.JOULES.items() if not model.startswith("__")}
    assert tokens == sum(n for (model, kind), n in composed.TOKENS.items() if kind == "output" and model in powered)
    assert joules == pytest.approx(sum(composed.JOULES[model] for model in powered), rel=1e-9)


def test_d3_a_missing_side_loses_nothing_but_the_sum(composed_book: Book) -> None:
    # Its engine reports no input: output and its ratio are known, the total is unknown and not the output alone.
    columns = "output_tokens, joules_per_output_token, input_tokens, total_tokens, joules_per_total_token"
    assert of_model(composed_book, columns, "batch") == (300, 720_000 / 300, None, None, None)


def test_d4_equal_container_names_do_not_merge(composed_book: Book) -> None:
    held = composed_book.query(
        "select model, count(distinct device_uuid), sum(energy_joules)::double from marts.energy_ledger"
        " where namespace in ('llm', 'sg') group by 1 order by 1"
    )
    assert held == [("big", 4, 5_976_000), ("mig-a", 1, 476_640), ("mig-b", 1, 819_360), ("sg", 1, 1_800_000),
                    ("solo", 1, 1_080_000)]  # fmt: skip


def test_d5_a_gauge_is_no_energy_where_it_is_silent(composed_book: Book) -> None:
    # 600 W for 10 minutes before and 10 after 40 of silence, not for an hour.
    columns = "sum(energy_joules)::double, sum(covered_seconds)::double"
    query = f"select {columns} from marts.energy_ledger where device_uuid = ?"
    assert composed_book.query(query, [composed.GAUGE_BOARD]) == [(720_000, 1_200)]


def test_d6_a_zone_is_looked_up_by_its_sites_whole_name(composed_book: Book) -> None:
    # `cal` is the beginning of `cal-2`. 0.4 kWh at PUE 1.2 in California, 0.1753 kWh at 1.5 in Spain (factors of 2023),
    # of which the host is 0.2 × 400 W in half an hour, and 0.23 of the board.
    assert of_model(composed_book, "location_gco2e", "solo") == (pytest.approx(0.48 * 193.46, abs=1e-4),)
    facility_kwh = (396_000 * 1.23 + 80 * 1_800) * 1.5 / 3.6e6
    assert of_model(composed_book, "location_gco2e", "shift-a") == (pytest.approx(facility_kwh * 117.83, abs=1e-4),)


@pytest.mark.rest
def test_d7_a_server_that_forgot_erases_nothing(composed_book: Book, tmp_path: Path) -> None:
    book = composed_book.copy(tmp_path / "copy")
    before = book.hashes()
    (tmp_path / "server").mkdir()
    with prometheus_with_history(tmp_path / "server", openmetrics(composed.series()[:1])) as url:
        forgetful = Book.of(composed.fleet(tmp_path, url=url), tmp_path / "copy")
        (landing, *_) = forgetful.land(composed.DAY, composed.DAY.replace(day=16))
        assert landing.outcome == "refused_fewer"
        forgetful.write(composed.DAY, composed.DAY.replace(day=16))
    assert forgetful.hashes() == before


def test_d8_a_renamed_label_is_the_same_node(composed_book: Book) -> None:
    # n1 to n3 report Hostname, n4 to n9 hostname.
    assert composed_book.query("select distinct node from marts.energy_ledger order by 1") == [
        (f"n{n}",) for n in range(1, 10)
    ]


def test_p1_shares_of_a_board_add_up_to_it(composed_book: Book) -> None:
    # Two MIG instances repeat their board's 360 W: 7/15 and 8/15 of 93 W, 1.5 / 4.5 and 3 / 4.5 of the other 267 W.
    held = composed_book.query(
        "select model, attribution_method, attribution_confidence, sum(energy_joules)::double from marts.energy_ledger"
        " where device_uuid = ? group by all order by 1",
        [composed.MIG_BOARD],
    )
    assert held == [("mig-a", "mig_activity", "medium", 476_640), ("mig-b", "mig_activity", "medium", 819_360)]


def test_p2_idle_energy_has_an_account_of_its_own(composed_book: Book) -> None:
    assert of_model(composed_book, "unallocated_joules, parked_joules, energy_joules", "__unallocated__") == (
        216_000,
        0,
        216_000,
    )
    assert of_model(composed_book, "parked_joules", "solo") == (300 * 1800,)
    accounts = "productive_joules, idle_floor_joules, parked_joules, asleep_joules, unallocated_joules, unknown_joules"
    assert composed_book.query(f"select min(least({accounts})) >= 0 from marts.energy_ledger") == [(True,)]


def test_p3_every_denominator_has_its_name(composed_book: Book) -> None:
    columns = "input_tokens, cached_input_tokens, computed_input_tokens, output_tokens, total_tokens"
    assert of_model(composed_book, columns, "sg") == (9_000, 3_000, 6_000, 12_000, 21_000)


def test_p4_prefill_and_decode_count_a_prompt_once(composed_book: Book) -> None:
    rows = composed_book.query(
        "select role, energy_joules::double, input_tokens::double, output_tokens::double, total_tokens::double"
        " from marts.model_daily where model = 'pd' order by 1"
    )
    assert rows == [("decode", 900_000, None, 2_700, 2_700), ("prefill", 1_260_000, 5_400, None, 5_400)]
    # The deployment's ratio: the joules of all its boards over its decoder's output tokens.
    ratio = "select sum(matched_joules)::double / sum(matched_output_tokens)::double from marts.model_daily"
    assert composed_book.query(ratio + " where deployment = 'pd'") == [(800,)]


def test_p5_a_restart_is_neither_lost_nor_counted_twice(composed_book: Book) -> None:
    # From 1,000,600 back to 0 at 10:20: 600 tokens before it, 300 after it.
    held = composed_book.query(
        "select has_reset, sum(tokens)::double from marts.token_ledger"
        " where model = 'solo' and token_class = 'output' group by 1 order by 1"
    )
    assert sum(tokens for _, tokens in held) == 900
    assert [has_reset for has_reset, _ in held] == [False, True]


def test_p6_a_gap_shows_in_the_coverage(composed_book: Book) -> None:
    # The exporters are there for an hour; after it the board is unallocated.
    assert of_model(composed_book, "coverage_ratio", "__unknown__") == (pytest.approx(1200 / 3600),)


def test_p7_device_host_and_facility_are_separate(composed_book: Book) -> None:
    # 300 W of board and 100 W of host for an hour, at PUE 1.2.
    columns = "energy_joules / 3.6e6, host_overhead_joules / 3.6e6, facility_energy_kwh"
    assert of_model(composed_book, columns, "solo") == pytest.approx((0.3, 0.1, 0.48))


def test_p8_a_fleets_ratio_is_no_mean_of_ratios(composed_book: Book) -> None:
    ratio = "select sum(matched_joules)::double / sum(matched_output_tokens)::double, avg(joules_per_output_token)"
    ((of_sums, of_ratios),) = composed_book.query(f"{ratio} from marts.model_daily")
    assert of_sums == pytest.approx(13_824_000 / 36_300)
    assert of_ratios > 1.5 * of_sums


def test_p9_an_unknown_price_is_null(composed_book: Book) -> None:
    # 372,600 productive joules at PUE 1.2 and 0.10 USD; 2 USD per GPU-hour come on top only where capacity is counted.
    columns = "variable_cost_usd, energy_cost_usd, capacity_cost_usd"
    variable, energy, capacity = of_model(composed_book, columns, "solo")
    assert (variable, energy) == pytest.approx((372_600 / 3.6e6 * 1.2 * 0.1, 0.048), abs=1e-6)
    assert capacity == pytest.approx(2, abs=1e-5)
    # No tariff in cal-2, and no rate of a prototype.
    assert of_model(composed_book, "variable_cost_usd, energy_cost_usd", "shift-a") == (None, None)
    assert of_model(composed_book, columns, "__unknown__") == (None, None, None)


def test_p10_labels_that_drift_name_the_same_workload(composed_book: Book) -> None:
    # exported_pod beside pod, org/pd beside pd, 10.0.0.8 beside n8.
    held = composed_book.query("select distinct model, engine from marts.energy_ledger order by 1, 2")
    assert {("solo", "llm/solo-0"), ("pd", "dyn/decode-0"), ("shift-a", "10.0.0.8:8000")} <= set(held)
