"""The price of a token class by regression: a date's own lookback, in any order of booking.

One A100 draws 90 W of idle floor and more; every five minutes it computes as many input tokens as the hour asks for,
and generates output at another pace, so that both move apart. Twenty dates over the end of a month.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from tests.books import Book
from tests.planted import DAY, DAY_SECONDS, ENERGY, INPUT, OUTPUT, Samples, Series, board, moment, plant, pod, vllm

DAYS = 20  # 15 October to 3 November
STEP = 300
CACHED = "vllm:prompt_tokens_cached_total"


def served() -> list[Series]:
    """Per step input of 1,000 to 4,000 tokens at 2 J each and output of 300 to 900 at 20 J, above 93 W."""
    joules = inputs = outputs = 1e6
    energy: Samples = [(moment(0), joules)]
    prompt: Samples = [(moment(0), inputs)]
    generated: Samples = [(moment(0), outputs)]
    for n in range(DAYS * DAY_SECONDS // STEP):
        x, y = 1000 * (1 + n % 4), 300 * (1 + n // 4 % 3)
        joules += 93 * STEP + 2 * x + 20 * y
        inputs, outputs = inputs + x, outputs + y
        at = moment((n + 1) * STEP)
        energy.append((at, joules))
        prompt.append((at, inputs))
        generated.append((at, outputs))
    return [
        (ENERGY, board("GPU-a", "n-a", **pod("a-0")), [(at, 1000 * value) for at, value in energy]),
        (INPUT, vllm("a-0", "a"), prompt),
        (OUTPUT, vllm("a-0", "a"), generated),
        (CACHED, vllm("a-0", "a"), [(at, 0.0) for at, _ in prompt]),
    ]


def book_of(folder: Path) -> Book:
    return plant(
        folder,
        served(),
        days=DAYS,
        nodes=[{"name": "n-a", "site": "west", "host_watts": 0}],
        cost_rates=[{"device_type": "a100-sxm4-80gb", "usd_per_gpu_hour": 2.0, "source": "contract"}],
        marts=("phase_fit", "token_class_cost_daily"),
    )


@pytest.mark.rest
def test_a_dates_classes_are_priced_by_its_own_lookback_in_any_order(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    whole = book_of(tmp_path / "a")
    whole.run()
    methods = whole.query(
        "select date, any_value(price_method) from marts.token_class_cost_daily where basis = 'allocation'"
        " group by date having count(distinct price_method) = 1 order by date"
    )
    # A fit takes seven dates.
    first = DAY + timedelta(days=6)
    assert [method for on, method in methods] == ["weights" if on < first else "regression" for on, _ in methods]
    assert len(methods) == DAYS
    # The newest date's fit is that of phase_fit; a computed input token costs its joules' share.
    fit = whole.query(
        "select joules_per_computed_input_token / joules_per_output_token from marts.phase_fit where reason_code = 'ok'"
    )
    found = whole.query(
        "select max(cost_usd_per_mtok) filter (token_class = 'computed_input')"
        " / max(cost_usd_per_mtok) filter (token_class = 'output') from marts.token_class_cost_daily"
        " where basis = 'allocation' and date = (select max(date) from marts.token_class_cost_daily)"
    )
    assert abs(found[0][0] / fit[0][0] - 1) < 1e-6
    # The end of the period first: the months of November's dates are made anew with October's.
    (tmp_path / "b").mkdir()
    turned = book_of(tmp_path / "b")
    middle, end = DAY + timedelta(days=17), DAY + timedelta(days=DAYS)
    turned.run(middle, end)
    turned.run(DAY, middle - timedelta(days=5))
    turned.run(middle - timedelta(days=5), middle)
    assert turned.hashes() == whole.hashes()
