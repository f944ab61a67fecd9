"""Published figures and identities through a booked day, of which watts and tokens are planted.

Sources: ISO/IEC 21031 (SCI), the SCI for AI specification, NVIDIA's HGX H100 footprint (164 kg a GPU) with Boavizta's
server (5,700 kg of 8 GPUs), a GPU that generates 2.8 million tokens a second per MW. Published figures have
three digits, and their year has 8,760 hours, where manufacture is spread over 8,766 here (0.07 %): 0.25 % together.

A cost at part of the load is in dbt_project/models/efficiency/unit_tests_phases.yml, the 130 g/Mtok of SCI for AI in
unit_tests_footprints.yml.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.planted import DAY, ENERGY, OUTPUT, Series, board, pod, rising, vllm
from tests.shapes import Seen, Shape, shape

ROUNDED = 0.0025
# The book rounds each five minutes to a millionth of a kWh: of 0.0372 kWh that is 1.3 in 100,000.
KWH_ROUNDED = 2e-5
TOKENS_PER_SECOND = 1_000
WATTS = 1_000 / 2.8  # 2.8 million tokens a second per MW
PUE, USD_PER_KWH, GCO2E_PER_KWH, USD_PER_GPU_HOUR = 1.25, 0.10, 400.0, 3.6
# Device type -> kilograms of CO2e of its manufacture and the years of its life.
FOOTPRINTS = {
    "three_years": (876.5, 3.0),
    "four_years": (876.5, None),  # the default
    "five_years": (876.5, 5.0),
    "whole_server": (1_000.0, 4.0),
}
# Device type -> cost of capital and years: what an annuity pays a year of what is written off.
OWNED = {"three_years": (0.08, 4.0), "five_years": (0.10, 5.0), "whole_server": (0.0, 4.0)}


def series() -> Iterator[Series]:
    """One board and one engine of every device type."""
    for kind in FOOTPRINTS:
        labels = board(f"GPU-{kind}", f"n-{kind}", **pod(kind)) | {"modelName": kind}
        yield ENERGY, labels, rising(WATTS * 1_000, 0, start=1e9)
        yield OUTPUT, vllm(kind, kind), rising(TOKENS_PER_SECOND, 0)


HOURS = "".join(f"{DAY}T{hour:02}:00:00Z,{GCO2E_PER_KWH}\n" for hour in range(24))
NUMBERS = shape(
    "numbers",
    series,
    files={"numbers.csv": "at,g\n" + HOURS},
    sites=[{"name": "numbers", "zone": "XX-400", "pue": PUE, "tariff": [{"usd_per_kwh": USD_PER_KWH}]}],
    nodes=[{"name": f"n-{kind}", "site": "numbers", "host_watts": 0} for kind in FOOTPRINTS],
    device_types=[
        {
            "name": kind,
            "power_limit_watts": 700.0,
            "embodied_kgco2e": kilograms,
            **({"embodied_life_years": years} if years else {}),
        }
        for kind, (kilograms, years) in FOOTPRINTS.items()
    ],
    cost_rates=[
        {"device_type": "four_years", "usd_per_gpu_hour": USD_PER_GPU_HOUR, "source": "rented"},
        *(
            {
                "device_type": kind,
                "price_usd_per_gpu": 33_000.0,
                "residual_value_usd_per_gpu": 3_000.0,
                "life_years": years,
                "cost_of_capital_ratio": ratio,
                "source": "bought",
            }
            for kind, (ratio, years) in OWNED.items()
        ),
    ],
    grid_intensity={
        "files": [
            {
                **{"path": "numbers.csv", "zone": "XX-400", "source": "g"},
                **{"time": "at", "values": {"direct_gco2e_per_kwh": "g"}},
            }
        ]
    },
)


@pytest.fixture(scope="module")
def book(shared_book: Callable[[Shape], Seen]) -> Seen:
    return shared_book(NUMBERS)


def one(book: Seen, columns: str, table: str, model: str) -> tuple:
    """The only row of a model."""
    (row,) = book.query(f"select {columns} from marts.{table} where model = ?", [model])
    return row


def test_joules_per_token_and_tokens_per_second_and_megawatt_are_one_number(book: Seen) -> None:
    joules, per_mw, per_kwh = one(
        book,
        "joules_per_output_token, output_tokens_per_second_per_mw, output_tokens_per_kwh",
        "model_daily",
        "four_years",
    )
    assert joules == pytest.approx(0.357, rel=ROUNDED)
    assert per_mw == pytest.approx(2.8e6, rel=1e-6)
    assert per_kwh * 1_000 == pytest.approx(1.008e10, rel=1e-6)  # tokens per MWh
    # Each from the others, to the last digits of a double.
    assert joules == pytest.approx(1e6 / per_mw, rel=1e-12)
    assert per_kwh * 1_000 == pytest.approx(3_600 * per_mw, rel=1e-12)
    assert per_kwh * 1_000 == pytest.approx(3.6e9 / joules, rel=1e-12)


def test_a_million_tokens_take_their_joules_over_three_and_six_tenths_kwh(book: Seen) -> None:
    kwh, facility_kwh = one(
        book,
        "energy_joules::double / 3.6e6 / (output_tokens::double / 1e6),"
        " facility_energy_kwh::double / (output_tokens::double / 1e6)",
        "model_daily",
        "four_years",
    )
    assert kwh == pytest.approx(1 / 2.8 / 3.6, rel=1e-6)
    assert facility_kwh == pytest.approx(1 / 2.8 / 3.6 * PUE, rel=KWH_ROUNDED)


def test_dollars_per_million_tokens_are_rate_over_speed_and_energy_at_its_tariff(book: Seen) -> None:
    costs = dict(
        book.query(
            "select part, sum(cost_usd)::double / 86.4 from marts.cost_daily where model = 'four_years'"
            " and basis = 'allocation' group by part"  # 86.4 million tokens
        )
    )
    assert costs["capacity"] == pytest.approx(USD_PER_GPU_HOUR / (TOKENS_PER_SECOND * 3_600 / 1e6), rel=1e-6)
    energy = 1 / 2.8 / 3.6 * PUE * USD_PER_KWH
    assert costs["energy"] + costs["overhead"] == pytest.approx(energy, rel=1e-6)
    # The whole stack: (fixed + energy) per hour over millions of tokens per hour.
    whole, variable = one(
        book,
        "compute_cost_usd_per_output_mtok, energy_cost_usd::double / 86.4",
        "model_daily",
        "four_years",
    )
    assert whole == pytest.approx((USD_PER_GPU_HOUR + WATTS / 1_000 * PUE * USD_PER_KWH) / 3.6, rel=1e-6)
    assert variable == pytest.approx(energy, rel=1e-6)


@pytest.mark.parametrize(
    ("kind", "factor"), [("three_years", 0.30192 + 0.008), ("five_years", 0.26380 + 0.01), ("whole_server", 0.25)]
)
def test_what_is_owned_pays_a_capital_recovery_factor_of_what_is_written_off(
    book: Seen, kind: str, factor: float
) -> None:
    """CRF(8 %, 4 years) and CRF(10 %, 5 years) of 30,000 USD, and interest on the 3,000 USD that are left, a tenth of
    that: a twelfth of a year over the 31 days of October.

    Without a cost of capital it is a straight line: a fourth a year."""
    usd = book.query(
        "select sum(cost_usd)::double from marts.cost_daily where model = ? and basis = 'allocation'"
        " and part in ('capacity', 'cost_of_capital')",
        [kind],
    )
    assert usd[0][0] * 31 * 12 / 30_000 == pytest.approx(factor, abs=5e-6)


@pytest.mark.parametrize(
    ("kind", "grams_per_hour"),
    [("three_years", 33.4), ("four_years", 25.0), ("five_years", 20.0), ("whole_server", 28.54)],
)
def test_manufacture_is_so_many_grams_a_gpu_hour(book: Seen, kind: str, grams_per_hour: float) -> None:
    """164 + 5,700 / 8 = 876.5 kg a GPU over 3, 4 and 5 years; 1,000 kg over 4 years, whole, for an hour."""
    sci, booked = (
        one(book, f"{column}::double / 24", table, kind)[0]
        for column, table in (("scope3_embodied_gco2e", "sci_daily"), ("embodied_gco2e", "model_daily"))
    )
    assert sci == pytest.approx(grams_per_hour, rel=ROUNDED)
    assert booked == pytest.approx(sci, rel=1e-6)  # telemetry covers all of the claimed day


def test_grams_per_million_tokens_are_energy_by_location_and_manufacture(book: Seen) -> None:
    embodied, operational, sci, total = one(
        book,
        "scope3_embodied_gco2e::double / 86.4, scope2_location_gco2e::double / 86.4, sci_gco2e_per_output_mtok,"
        " sci_gco2e_per_total_mtok",
        "sci_daily",
        "four_years",
    )
    assert embodied == pytest.approx(6.95, rel=ROUNDED)  # 25 g/h at 1,000 tokens a second
    assert operational == pytest.approx(1 / 2.8 / 3.6 * PUE * GCO2E_PER_KWH, rel=1e-6)
    assert sci == pytest.approx(embodied + operational, rel=1e-6)
    assert total is None  # no input is reported
