"""The intervals of headline figures, on four weeks of the demo: of the amounts that the dictionary has, and by hand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import date
from math import isclose, sqrt

import duckdb
import pytest

from pipelines.named_figures import dictionary, explanation, intervals
from pipelines.named_figures.choices import Choice
from pipelines.warehouse import database
from tests.books import Book

OCTOBER, SEPTEMBER = date(2026, 10, 1), date(2026, 9, 1)
COMPUTED = [figure for figure in dictionary.figures().values() if figure.interval == intervals.COMPUTED]


@pytest.fixture(scope="module")
def published(four_weeks: tuple[Book, str]) -> Iterator[duckdb.DuckDBPyConnection]:
    with closing(database.connect(four_weeks[0].fleet.snapshot, read_only=True)) as connection:
        yield connection


@pytest.mark.parametrize("figure", COMPUTED, ids=lambda figure: figure.name)
def test_an_interval_is_of_the_amount_that_the_dictionary_has(
    published: duckdb.DuckDBPyConnection, figure: dictionary.HeadlineFigure
) -> None:
    rows = published.execute(
        "select month, site, model, value, value_low, value_high from marts.figure_intervals where figure = ?",
        [figure.name],
    ).fetchall()
    compared = 0
    for month, site, model, value, low, high in rows:
        if model.startswith("__") and model != intervals.ALL:  # rows that schema finance gathers under one name
            continue
        choice = Choice(month, None, None if model == intervals.ALL else model, None if site == intervals.ALL else site)
        ((amount,),) = published.execute(explanation.query_of(figure, choice)).fetchall()
        # Schema finance rounds kilograms to a milligram.
        assert isclose(value, float(amount), rel_tol=1e-9, abs_tol=2e-6), choice
        assert low <= value <= high
        compared += 1
    # Two months; the fleet, and at least the three models that serve.
    assert compared >= 2 * 2 * 4


def test_the_electricity_of_october_by_hand(published: duckdb.DuckDBPyConnection) -> None:
    """The boards' own kWh by type, from the ledger; their hosts are stated, the PUE is 1.2."""
    boards = dict(
        published.execute(
            "select device_type, sum(energy_joules) / 3.6e6 from marts.model_monthly where month = ? group by all",
            [OCTOBER],
        ).fetchall()
    )
    assert {name: round(float(kwh), 1) for name, kwh in boards.items()} == {"a100-sxm4-80gb": 1190.4, "a6000": 663.6}
    # At the facility boards × 1.2, each type ± 5 %; hosts 3892.553 − 1.2 × 1854.0 = 1667.8, ± 30 %; the whole ± 5 %.
    effects = [0.05 * 1.2 * 1190.4, 0.05 * 1.2 * 663.6, 0.3 * 1667.8, 0.05 * 3892.553]
    half = 1.96 * sqrt(sum(effect**2 for effect in effects) / 3)
    ((low, high, metered_ratio),) = published.execute(
        "select value_low, value_high, metered_ratio from marts.figure_intervals where month = ? and site = '__all__'"
        " and model = '__all__' and figure = 'facility_energy_kwh'",
        [OCTOBER],
    ).fetchall()
    # On the 22nd no meter covers 600 s of a busy A6000 and 300 s of an empty one: up to 300 W, and what comes with each
    # kWh of them at the facility.
    gaps = 0.05 * 1.617 + 0.025 * 4.852
    assert (low, high) == (pytest.approx(3892.553 - half, abs=0.2), pytest.approx(3892.553 + half + gaps, abs=0.05))
    assert metered_ratio == pytest.approx(1854.0 / 3892.6, abs=1e-4)


def test_over_all_models_a_share_between_them_is_not_unsure(published: duckdb.DuckDBPyConnection) -> None:
    """And the sum of two months of one model is not surer than each: the errors are the same."""
    fleet = published.execute(
        "select max(shares_uncertainty) from marts.figure_intervals where model = '__all__'"
    ).fetchall()
    assert fleet == [(0.0,)]
    ratios = published.execute(
        "select (value_high - value_low) / value from marts.figure_intervals where model = '__all__'"
        " and site = '__all__' and figure = 'energy_joules' order by month"
    ).fetchall()
    # 7 hours of September, 665 of October.
    assert [round(ratio, 3) for (ratio,) in ratios] == [pytest.approx(0.083, abs=0.002)] * 2


@pytest.mark.parametrize(
    ("name", "choice", "line"),
    [
        ("output_tokens", Choice(OCTOBER), "exact"),
        ("idle_cost_usd", Choice(OCTOBER), "not computed: how sure it is depends on the telemetry of activity, which"),
        ("facility_energy_kwh", Choice(OCTOBER, team="platform"), "none is computed of one team: leave --team out"),
        ("facility_energy_kwh", Choice(date(2020, 1, 1)), "not known: the month was booked without the evidence"),
        (
            "facility_energy_kwh",
            Choice(OCTOBER),
            "3,278.031 to 4,507.277 kWh (95 %): hosts without a meter ± 14.5 %, stated PUE",
        ),
        ("idle_energy_ratio", Choice(OCTOBER, model="Kimi-K2.5"), "exact"),
    ],
)
def test_how_sure_a_figure_is_in_a_line(
    published: duckdb.DuckDBPyConnection, name: str, choice: Choice, line: str
) -> None:
    assert intervals.line(published, dictionary.named(name), choice).startswith(line)
