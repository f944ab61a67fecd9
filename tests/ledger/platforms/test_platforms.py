"""Platforms on results that were really published: the figures that a reader can check against InferenceX's own site.

Figures are those of the published table (data README): throughput to the last published digit (0.05 tokens a second),
prices to a hundredth of a cent (0.00005 USD per million tokens).
"""

from __future__ import annotations

import re
from datetime import date
from typing import Any

import pytest

from pipelines.fleet.places import PROJECT
from tests.benchmark_books import book_of_benchmarks, entry
from tests.books import Book, validation_data

NEEDED_BY = {"published": ("validation-data",), "history": ("validation-data",)}

TPUT, PRICE = 0.05, 0.00005


def of(name: str, path: str, kind: str = "inferencex") -> dict[str, str]:
    """A benchmark of the fleet file in the validation data."""
    validation_data()
    return entry(name, f"${{WATTLEDGER_VALIDATION_DATA}}/{path}", kind)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Book:
    """The published table of now."""
    return book_of_benchmarks(tmp_path_factory.mktemp("published"), of("inferencex", "inferencex/benchmarks.json"))


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Book:
    """The same, and what was published before."""
    return book_of_benchmarks(
        tmp_path_factory.mktemp("history"),
        of("now", "inferencex/benchmarks.json"),
        of("earlier", "inferencex/history.json"),
        of("ml_energy", "ml_energy_v3/models", "ml_energy"),
    )


# --- partial load -----------------------------------------------------------------------------------------------------


LOAD_OF = (
    " from marts.platform_partial_load where model = 'DeepSeek-R1' and precision = 'fp8'"
    " and compared_output_length_tokens = 1024 and target_output_tokens_per_second_per_user = 30"
    " and ownership = 'hyperscaler'"
)


def test_at_all_in_prices_everybody_costs_a_full_accelerator_over_the_load(published: Book) -> None:
    """GB300's 0.1022 and H200's 0.2201 USD per million tokens are the published table's."""
    found = published.query(
        "select platform, capacity_ratio, effective_cost_usd_per_mtok, energy_cost_ratio" + LOAD_OF + " and"
        " compared_input_length_tokens = 1024 and cost_basis = 'all_in_price' and replicas_basis = 'one_replica'"
        " and platform in ('gb300', 'h200') and capacity_ratio in (0.05, 0.5, 1) order by 1, 2"
    )
    assert found == [
        (platform, load, pytest.approx(full / load, abs=0.00005 / load), None)
        for platform, full in (("gb300", 0.1022), ("h200", 0.2201))
        for load in (0.05, 0.5, 1.0)
    ]
    assert published.query(
        "select count(*) from marts.platform_partial_load where cost_basis = 'all_in_price'"
        " and replicas_basis = 'one_replica' and abs(price_ratio * capacity_ratio - 1) > 1e-9"
    ) == [(0,)]


def test_full_load_is_the_best_configuration_of_the_comparison(published: Book) -> None:
    rows, different = published.query(
        "select count(*), count(*) filter (where loads.run_url <> comparison.run_url"
        " or abs(loads.effective_cost_usd_per_mtok - comparison.usd_per_mtok) > 1e-9)"
        " from marts.platform_partial_load as loads inner join marts.platform_comparison as comparison"
        " using (model, precision, compared_input_length_tokens, compared_output_length_tokens,"
        " target_output_tokens_per_second_per_user, platform, ownership)"
        " where selection = 'all' and capacity_ratio = 1 and cost_basis = 'all_in_price'"
        " and replicas_basis = 'one_replica'"
    )[0]
    assert (rows > 0, different) == (True, 0)


def test_an_own_stack_at_full_load_costs_the_all_in_price_where_watts_are_the_limit(published: Book) -> None:
    """H200, 1.73 kW provisioned, 700 W limit, 138 W idle, 1.41 USD/h with electricity at 0.08: 1.2716 without.

    5 %: (138 + 490) / 2 = 314 W = 314 × 1.73 / 700 × 0.08 = 0.06208 USD/h; 4.6550 % of (1.2716 + 0.06208) USD/h.
    20 %: 490 + 210 / 9 = 513.333 W = 0.101494 USD/h; 1.373094 USD/h for 1,779.7 × 0.2 tokens a second is 1.0716.
    """
    found = published.query(
        "select capacity_ratio, watts_per_gpu, power_basis, effective_cost_usd_per_mtok, energy_cost_ratio"
        + LOAD_OF
        + " and compared_input_length_tokens = 1024 and cost_basis = 'own_stack' and replicas_basis = 'one_replica'"
        " and platform = 'h200' and capacity_ratio in (0.05, 0.2, 1) order by 1"
    )
    near = pytest.approx
    assert found == [
        (0.05, near(314), "assumed", near(4.1633, abs=2e-4), near(0.046550, abs=2e-5)),
        (
            0.2,
            near(513.3333, abs=1e-4),
            "assumed",
            near(1.0716, abs=1e-4),
            near(0.073916, abs=2e-5),
        ),
        (1.0, near(700), "assumed", near(0.2201, abs=5e-5), near(0.098156, abs=2e-5)),
    ]


def test_watts_are_interpolated_between_published_ones(published: Book) -> None:
    """MI355X, atom, 8k/1k: 772.073 W at 991.9 tokens a second and accelerator, 936.154 W at 2,503.9. Half of that is
    1,251.95: 772.073 + 164.081 × 260.05 / 1,512 = 800.29 W, so 0.6392 J per token. Idle watts are not known."""
    found = published.query(
        "select capacity_ratio, watts_per_gpu, watts_basis, power_basis, joules_per_token, reason"
        + LOAD_OF
        + " and compared_input_length_tokens = 8192 and cost_basis = 'own_stack' and replicas_basis = 'one_replica'"
        " and platform = 'mi355x' and capacity_ratio in (0.05, 0.1, 0.5, 1) order by 1"
    )
    near = pytest.approx
    assert found == [
        (0.05, None, None, None, None, "idle_watts_unknown"),
        (
            0.1,
            near(655.308, abs=1e-3),
            "assumed_to_lowest_point",
            "assumed",
            near(2.6171, abs=1e-4),
            "ok",
        ),
        (
            0.5,
            near(800.29, abs=0.01),
            "between_points",
            "measured_board",
            near(0.6392, abs=1e-4),
            "ok",
        ),
        (
            1.0,
            near(936.154, abs=1e-3),
            "between_points",
            "measured_board",
            near(0.3739, abs=1e-4),
            "ok",
        ),
    ]


def test_a_demand_takes_whole_replicas(published: Book) -> None:
    """48 GB200 carry 48 × 5,564.9 = 267,115 tokens a second. A fifth, 53,423, takes one of them and 4 of H200 with
    8 × 1,779.7 = 14,238 each: 32 × 1.41 USD/h for 192.32 million tokens an hour, 0.2346 USD per million."""
    found = published.query(
        "select platform, replicas, gpus_per_replica, effective_cost_usd_per_mtok" + LOAD_OF + " and"
        " compared_input_length_tokens = 1024 and cost_basis = 'all_in_price' and replicas_basis = 'whole_replicas'"
        " and platform in ('gb200', 'h200') and capacity_ratio = 0.2 order by 1"
    )
    assert found == [
        ("gb200", 1, 48, pytest.approx(0.1103 * 5, abs=3e-4)),
        ("h200", 4, 8, pytest.approx(0.2346, abs=1e-4)),
    ]


# --- results ----------------------------------------------------------------------------------------------------------


def test_every_published_row_is_kept_with_its_run_and_one_is_not_compared(published: Book) -> None:
    rows, runs, comparable, priced = published.query(
        "select count(*), count(run_url), count(*) filter (where is_comparable), count(hyperscaler_usd_per_mtok)"
        " from marts.platform_results"
    )[0]
    assert (rows, runs, comparable, priced) == (435, 435, 434, 435)
    ((platform, gpus, implied, url),) = published.query(
        "select platform, gpus, implied_gpus, run_url from marts.platform_results"
        " where comparable_reason = 'gpus_do_not_fit'"
    )
    # Its figures are those of 360 accelerators; it is stated to have 8.
    assert (platform, gpus, implied) == ("mi355x", 8, pytest.approx(359.94, abs=0.01))
    assert url.endswith("/actions/runs/26829715287/attempts/1")


def test_a_run_in_two_files_counts_once(history: Book) -> None:
    # 435 and 816 rows; 90 are in both files.
    assert history.query(
        "select copies, count(*) from marts.platform_results where benchmark = 'inferencex' group by 1 order by 1"
    ) == [(1, 1071), (2, 90)]
    assert history.query(
        "select count(*) from marts.platform_results where benchmark = 'inferencex' and is_latest"
    ) == [(567,)]


def test_measured_joules_are_the_publishers_own(published: Book) -> None:
    """MI355X, sglang, fp4, 1k/1k, 4 at once on 4 boards: published as 3.161212 J per token and 6.353339 per output
    token. Provisioned joules are another quantity: 2.65 kW / 198.9 tokens a second."""
    found = published.query(
        "select measured_joules_per_token, measured_joules_per_output_token, power_basis, provisioned_joules_per_token"
        " from marts.platform_results where run_url like '%/27213443242/%' and gpus = 4 and concurrency = 4"
        " and input_length_tokens = 1024"
    )
    assert found == [
        (
            pytest.approx(3.161212, rel=2e-6),
            pytest.approx(6.353339, rel=2e-6),
            "measured_board",
            pytest.approx(13.3203, abs=1e-4),
        )
    ]
    assert published.query(
        "select count(*) from marts.platform_results where measured_joules_per_token is not null"
    ) == [(17,)]


def test_joules_of_a_row_with_roles_are_of_all_its_boards(published: Book) -> None:
    """MI355X, 16 GPUs that prefill and 8 that decode, 24 boards of 907.773 W: published as 0.255314 J per token. Its
    0.685255 J per output token are decode's alone, 812.882 W over 1,186.247 tokens a second; of all boards they are
    24 × 907.773 W over 8 × 1,186.247, 2.295743."""
    assert published.query(
        "select gpus, measured_joules_per_token, measured_joules_per_output_token from marts.platform_results"
        " where is_disaggregated and measured_joules_per_token is not null"
    ) == [(24, pytest.approx(0.255314, rel=2e-6), pytest.approx(2.295743, rel=1e-6))]


def test_results_without_input_tokens_are_kept_and_not_compared(history: Book) -> None:
    assert history.query(
        "select comparable_reason, architecture, count(*), count(measured_joules_per_output_token)"
        " from marts.platform_results where benchmark = 'ml_energy' group by all"
    ) == [("no_total_throughput", "dense", 37, 37)]


# --- comparison -------------------------------------------------------------------------------------------------------

# By work and target: platform -> best tokens per second per GPU, and USD per million tokens at hyperscalers' prices.
BEST: dict[tuple[str, int, int, int], dict[str, tuple[float, float]]] = {
    ("fp8", 1024, 1024, 30): {
        "gb300": (7210.8, 0.1022),
        "gb200": (5564.9, 0.1103),
        "b200": (4837.9, 0.1120),
        "mi355x": (2214.6, 0.1856),
        "h200": (1779.7, 0.2201),
        "b300": (2518.5, 0.2581),
        "mi325x": (314.6, 1.1301),
        "mi300x": (270.2, 1.1516),
        "h100": (182.0, 1.9845),
    },
    ("fp8", 1024, 1024, 100): {
        "mi355x": (248.1, 1.6569),
        "b200": (193.4, 2.8001),
        "h200": (98.8, 3.9631),
        "gb300": (148.0, 4.9771),
        "b300": (115.5, 5.6270),
        "gb200": (20.0, 30.6659),
    },
    ("fp4", 8192, 1024, 30): {"b200": (12147.2, 0.0446), "b300": (13931.7, 0.0467), "gb300": (14550.9, 0.0506)},
    ("fp4", 8192, 1024, 50): {"gb300": (14550.9, 0.0506), "b200": (9510.7, 0.0570)},
}
COMPARED = (
    "from marts.platform_comparison where model = 'DeepSeek-R1' and precision = ? and compared_input_length_tokens = ?"
    " and compared_output_length_tokens = ? and target_output_tokens_per_second_per_user = ?"
    " and ownership = 'hyperscaler' and selection = ?"
)


@pytest.mark.parametrize("work", BEST, ids=lambda work: "-".join(map(str, work)))
def test_the_best_of_each_platform_are_the_published_figures_in_their_order(
    published: Book, work: tuple[str, int, int, int]
) -> None:
    expected = BEST[work]
    found = published.query(
        f"select platform, total_tokens_per_second_per_gpu, usd_per_mtok {COMPARED} and reason = 'ok'"
        " order by cost_rank",
        [*work, "all"],
    )
    assert [platform for platform, *_ in found][: len(expected)] == list(expected)
    for platform, tokens, price in found[: len(expected)]:
        assert (tokens, price) == (
            pytest.approx(expected[platform][0], abs=TPUT),
            pytest.approx(expected[platform][1], abs=PRICE),
        ), platform


def test_a_target_that_a_platform_does_not_reach_has_no_price_and_what_it_reached(published: Book) -> None:
    found = published.query(
        f"select platform, usd_per_mtok, reason, round(highest_output_tokens_per_second_per_user, 1) {COMPARED}"
        " and reason <> 'ok' order by platform",
        ["fp8", 1024, 1024, 100, "all"],
    )
    assert found == [
        ("h100", None, "target_not_reached", 87.2),
        ("mi300x", None, "target_not_reached", 68.6),
        ("mi325x", None, "target_not_reached", 70.4),
    ]


def test_the_leader_depends_on_what_may_be_chosen(published: Book) -> None:
    """The best at 30 tokens a second for each user lets one request in a hundred wait 21 s for its first token."""
    work = ["fp8", 1024, 1024, 30]
    leaders = {
        selection: published.query(
            f"select platform, usd_per_mtok, speculation, is_disaggregated, ttft_p99_seconds, run_url {COMPARED}"
            " and cost_rank = 1",
            [*work, selection],
        )[0]
        for selection in ("all", "without_speculation", "ttft_within_limit")
    }
    assert leaders["all"][:4] == ("gb300", pytest.approx(0.1022, abs=PRICE), "mtp", True)
    assert leaders["all"][4] == pytest.approx(21.5, abs=0.05)
    assert leaders["ttft_within_limit"][:2] == ("mi355x", pytest.approx(0.6348, abs=PRICE))
    assert leaders["ttft_within_limit"][4] <= 2
    assert leaders["without_speculation"][:3] == ("gb200", pytest.approx(0.1103, abs=PRICE), "none")
    assert all(leader[5].startswith("https://") for leader in leaders.values())


# --- crossover --------------------------------------------------------------------------------------------------------

CROSSED = (
    "from marts.platform_crossover where model = 'DeepSeek-R1' and ownership = 'hyperscaler' and selection = 'all'"
    " and precision = ? and compared_input_length_tokens = ? and compared_output_length_tokens = 1024 and kind = ?"
)


def test_above_a_speed_another_platform_leads_and_the_gap_is_flagged(published: Book) -> None:
    found = published.query(
        "select from_platform, to_platform, round(at_output_tokens_per_second_per_user, 2), has_nearby_points"
        f" {CROSSED} and at_output_tokens_per_second_per_user > 30 order by 3",
        ["fp8", 1024, "interactivity"],
    )
    assert found == [("gb300", "mi355x", 84.12, False), ("mi355x", "gb300", 124.31, False)]


def test_a_change_is_between_the_best_results_of_both_platforms(published: Book) -> None:
    """GB300's best: 84.12 tok/s/user for 0.178 and 172.92 for 4.977; MI355X's, among others: 81.63 for 0.635, 124.31
    for 1.657 and 136.99 for 24.65. To MI355X: not below 84.12, as it was the dearer one at 81.63; and GB300 leads again
    at its next best, 172.92, so it may have led all the way. Back to GB300: after its 84.12, which is the cheaper one
    than 1.657; and by 136.99, where it serves 172.92 for less."""
    at = "at_output_tokens_per_second_per_user"
    found = published.query(
        f"select from_platform, to_platform, round({at}_low, 2), round({at}_high, 2), interval_level, interval_basis"
        f" {CROSSED} and {at} > 30 order by {at}",
        ["fp8", 1024, "interactivity"],
    )
    assert found == [
        ("gb300", "mi355x", 84.12, None, None, "open_end"),
        ("mi355x", "gb300", 84.12, 136.99, 1, "between_measured_points"),
    ]
    outside = (
        f"select count(*), count(*) filter (where {at} between coalesce({at}_low, 0) and coalesce({at}_high, 1e9))"
        " from marts.platform_crossover where kind = 'interactivity'"
    )
    assert len({*published.query(outside)[0]}) == 1


def test_a_platform_that_is_less_than_full_loses_to_a_full_one(published: Book) -> None:
    found = published.query(
        f"select at_utilisation_ratio {CROSSED} and from_platform = 'gb300' and to_platform = 'b200'"
        " and target_output_tokens_per_second_per_user = 30",
        ["fp8", 1024, "utilisation"],
    )
    assert found == [(pytest.approx(0.912, abs=0.0005),)]


def test_dearer_electricity_changes_the_leader_twice(published: Book) -> None:
    at = " and target_output_tokens_per_second_per_user = 30"
    found = published.query(
        "select from_platform, to_platform, above_assumed_usd_per_kwh"
        f" {CROSSED} {at} and is_change_of_leader order by at_usd_per_kwh",
        ["fp4", 8192, "electricity"],
    )
    assert found == [
        ("b200", "b300", pytest.approx(0.325, abs=0.0005)),
        ("b300", "gb300", pytest.approx(1.25, abs=0.0005)),
    ]
    # GB200 costs more and draws more than each of them: it gains at no price.
    assert published.query(
        f"select distinct outcome, at_usd_per_kwh {CROSSED} {at} and from_platform = 'gb200'",
        ["fp4", 8192, "electricity"],
    ) == [("never", None)]


# --- history ----------------------------------------------------------------------------------------------------------

OF_B200 = (
    "from marts.configuration_history where platform = 'b200' and framework = 'sglang' and precision = 'fp4'"
    " and speculation = 'none' and input_length_tokens = 8192 and output_length_tokens = 1024 and concurrency = 4"
    " and configuration = 'tp 8, ep 8'"
)


def test_the_same_configuration_gave_twice_as_much_after_five_months(history: Book) -> None:
    found = history.query(
        "select measured_on, total_tokens_per_second_per_gpu, throughput_multiple, is_best_so_far, is_regression,"
        f" run_url {OF_B200} order by measurement_number"
    )
    published = {day: tokens for day, tokens, *_ in found}
    assert published[date(2025, 12, 11)] == pytest.approx(272.95, abs=0.005)
    assert published[date(2025, 12, 31)] == pytest.approx(274.79, abs=0.005)
    assert published[date(2026, 3, 25)] == pytest.approx(507.62, abs=0.005)
    assert published[date(2026, 5, 18)] == pytest.approx(553.03, abs=0.005)
    assert published[date(2026, 5, 20)] == pytest.approx(548.83, abs=0.005)
    last = found[-1]
    assert (last[0], last[2], last[3:5]) == (date(2026, 5, 20), pytest.approx(2.01, abs=0.005), (False, False))
    assert all(row[5].startswith("https://") for row in found)


def test_most_of_it_is_that_requests_no_longer_wait(history: Book) -> None:
    """Throughput doubled and a user's speed did not: until December one request in a hundred waited 71 s."""
    first, last = history.query(
        "select round(output_tokens_per_second_per_user, 1), round(interactivity_multiple, 2),"
        f" round(ttft_p99_seconds, 1) {OF_B200} and measured_on in (date '2025-12-11', date '2026-05-20')"
        " order by measurement_number"
    )
    assert first == (120.6, 1.0, 71.3)
    assert last == (129.4, 1.07, 0.6)


# --- the page ---------------------------------------------------------------------------------------------------------


def test_the_queries_of_the_page_print_what_it_shows(published: Book, history: Book) -> None:
    """A query on `configuration_history` or with `is_latest` is of both files, the others of what is published now."""
    text = (PROJECT / "docs/platforms.md").read_text(encoding="utf-8")
    found = re.findall(r"^```sql\n(.*?)^```$\n\n^```\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert len(found) == text.count("```sql") > 1
    for query, printed in found:
        of_both = "configuration_history" in query or "is_latest" in query
        assert page_table(history if of_both else published, query) == printed, query


def page_table(book: Book, query: str) -> str:
    """What a query gives, as a page prints it."""
    with book.connection(read_only=True) as connection:
        result = connection.execute(query)
        names, rows = [column[0] for column in result.description], result.fetchall()
    table = [names, *([shown(value) for value in row] for row in rows)]
    widths = [max(len(row[column]) for row in table) for column in range(len(names))]
    lines = [" | ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    return "\n".join([lines[0], "-+-".join("-" * width for width in widths), *lines[1:]]) + "\n"


def shown(value: Any) -> str:
    """A value as a page has it."""
    return "NULL" if value is None else f"{value:.10g}" if isinstance(value, float) else str(value)
