"""What the demo's Qwen engine shows of its capacity, worked out from its raw samples and beside what is published.

Eight GPUs, one engine. By its own minutes it gives 4.7 tokens a second to one request and 8.7 to three, 13.2 in its
best minute; its best load that lasted an hour is 8.88. Four GPUs are half of its memory bandwidth: 4.44, and in 42.5 %
of the intervals more is asked for. While requests waited it was full: 12.1 in five minutes are the most that it does.
"""

from __future__ import annotations

import pytest

from tests.books import Book

# Minute by minute: the gauges, and what the counter of output tokens rose since the minute before.
MINUTES = """
    with samples as (
        select metric, date_trunc('minute', observed_at) as minute_at, value
        from raw.token_samples join raw.series using (series_id)
        where labels like '%qwen%'
            and observed_at >= timestamptz '2026-10-01 00:00+00' and observed_at < timestamptz '2026-10-29 00:00+00'
    ),
    gauges as (
        select minute_at,
            max(value) filter (where metric = 'vllm:num_requests_running') as running,
            max(value) filter (where metric = 'vllm:num_requests_waiting') as waiting,
            max(value) filter (where metric = 'vllm:generation_tokens_total') as counted
        from samples group by minute_at
    ),
    steps as (
        select *, (counted - lag(counted) over (order by minute_at)) / 60 as rate,
            minute_at - lag(minute_at) over (order by minute_at) as since
        from gauges
    ),
    minutes as (select * from steps where since = interval 1 minute and rate >= 0),
    fives as (
        select time_bucket(interval 5 minute, minute_at) as five_at, avg(rate) as rate
        from minutes group by five_at having count(*) = 5
    ),
    -- Half octaves of the load per GPU, of which an hour was seen.
    best as (
        select max_by(rate, half_octave) as rate from (
            select floor(2 * log2(rate / 8)) as half_octave, avg(rate) as rate
            from fives where rate > 0 group by half_octave having count(*) >= 12
        )
    )
"""


@pytest.fixture(scope="module")
def book(four_weeks: tuple[Book, str]) -> Book:
    return four_weeks[0]


def test_the_raw_minutes_show_what_the_engine_does(book: Book) -> None:
    found = book.query(
        f"""
        {MINUTES}
        select (select count(*) from gauges where waiting > 0),
            (select avg(rate) from minutes where running = 1), (select avg(rate) from minutes where running = 3),
            (select max(rate) from minutes), (select rate from best), (select max(rate) from fives),
            (select avg(cast(fives.rate > best.rate / 2 as integer)) from fives, best)
        """
    )
    assert found[0] == pytest.approx((41, 4.71, 8.656, 13.167, 8.884, 12.083, 0.425), rel=1e-3)


def test_half_of_the_engine_is_tried_and_no_dollar_of_it_is_counted(book: Book) -> None:
    """8.884 / 2 = 4.442 at least, 12.083 at most; 9.9 are asked for in 99 % of the intervals. 42.5 % of 28 days are
    some 120 deciding intervals a day: a week holds the 300 that a trial needs."""
    rows = book.query(
        """
        select kind, reason_code, evidence_basis, recommended_gpus, trial_replicas, trial_gpus_per_replica, trial_days,
            capacity_low_tokens_per_second, capacity_high_tokens_per_second,
            (evidence::json ->> 'queued_intervals')::double, (evidence::json ->> 'request_tokens_per_second')::double,
            (evidence::json ->> 'trial_deciding_intervals')::double / (evidence::json ->> 'days')::double / 288
        from published.right_sizing where model = 'Qwen3.5-397B'
        """
    )
    assert [row[:7] for row in rows] == [("try_it", "data_sheet_only", "bandwidth_floor", 8, 1, 4, 7)]
    assert rows[0][7:] == pytest.approx((4.442, 12.083, 5, 5.237, 0.425), rel=2e-3)
    unknown = book.query(
        """
        select risk_ratio, recommended_capacity_tokens_per_second, backtest_short_ratio, backtest_held, freed_gpus,
            saving_kwh_month, saving_energy_usd_month, saving_kgco2e_month, saving_usd_month_if_released,
            avoidable_now_usd_month, avoidable_later_usd_month, not_avoidable_usd_month, saving_now_usd_month,
            confidence
        from published.right_sizing where model = 'Qwen3.5-397B'
        """
    )
    assert set(unknown[0]) == {None}


def test_the_trial_runs_on_the_node_that_another_model_leaves(book: Book) -> None:
    """Qwen holds the 8 A100 of a100-01. Of the nodes that stopped models leave, a100-02 has 8, too, and frees nothing
    more; a100-03 has 4, which its trial needs: then 8 are handed back instead of 4. No other row moves."""
    moved = book.query(
        """
        select model, kind, move_to_node, move_frees_node, move_frees_gpus, move_after from published.right_sizing
        where move_to_node is not null
        union all select model, kind, move_to_node, move_frees_node, move_frees_gpus, move_after
        from published.consolidation where move_to_node is not null
        """
    )
    left = "west/llm-research/MiniMax-M2.5/MiniMax-M2.5/a100-sxm4-80gb/board/unified"
    assert moved == [("Qwen3.5-397B", "try_it", "a100-03", "a100-01", 4, left)]


def test_a_copy_in_four_bits_is_tried_where_the_weights_fill_both_boards(book: Book) -> None:
    """gemma-4-31B in 16 bits: 57.18 GiB of 2 × 43.2 leave 29.22 for the cache. On one A6000 8 bits leave 43.2 − 29.45 =
    13.75, with a cache of 8 bits as much as 27.5 of 16: too little. 4 bits (30.7e9 × 0.58 bytes are 16.58 GiB) leave
    26.62, with a cache of 8 bits 53.2. gpt-oss-120b, in 4 bits already, stays as it is; both keep their reason."""
    rows = book.query(
        "select model, kind, reason_code, is_preferred, trial_precision, trial_gpus_per_replica, trial_weights_gib,"
        " trial_kv_bytes_per_token, trial_days, saving_kwh_month from published.right_sizing"
        " where model in ('gemma-4-31B', 'gpt-oss-120b') order by model, kind"
    )
    nothing = (None,) * 6
    assert rows == [
        ("gemma-4-31B", "keep", "weights_do_not_fit", False, *nothing),
        ("gemma-4-31B", "try_it", "fewer_bits_fit", True, "int4", 1, pytest.approx(16.583, abs=1e-3), 491_520, 7, None),
        ("gpt-oss-120b", "keep", "weights_do_not_fit", True, *nothing),
    ]


def test_the_totals_of_the_demo_are_of_the_two_models_that_stop(book: Book) -> None:
    """8 and 4 GPUs at 1.20 USD for 730 hours are 10,512 USD; 201.4 and 198.8 kWh."""
    found = book.query(
        "select sum(freed_accelerators), sum(avoidable_now_usd_per_month), sum(saving_kwh_per_month),"
        " string_agg(distinct advice, ' ' order by advice) from finance.savings where saving_kwh_per_month is not null"
    )
    assert found == [(12, pytest.approx(10_512), pytest.approx(400.2, abs=0.1), "spin_down")]
