"""Cooling by a meter of its own: its kWh at the hour's tariff, shared by IT kWh; where there is none, the stated share.

Each site has two A100 that draw 360 W, on nodes without a host draw: 0.72 kWh of IT an hour, and with a PUE of 1.5
0.36 kWh beside it. A kWh costs 0.10 USD. A cooling meter is a CSV file that the fleet file maps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, time, timedelta

import pytest

from tests.planted import DAY, ENERGY, OUTPUT, Series, board, pod, rising, vllm
from tests.shapes import Seen, Shape, shape

# Site -> watts of its cooling meter by hour; no entry: no meter.
WATTS = {
    "metered": [180.0] * 24,  # half of what the PUE adds
    "counted": [180.0] * 24,  # the same by a counter
    "halved": [180.0] * 12,  # no sample after noon
    "over": [720.0] * 24,  # twice what the PUE adds
}
SITES = (*WATTS, "declared", "neither")


def series() -> Iterator[Series]:
    for site in SITES:
        for of in ("a", "b"):
            name = f"{of}-{site}"
            yield ENERGY, board(f"GPU-{name}", f"n-{name}", **pod(name)), rising(360_000, 0, start=1e9)
            yield OUTPUT, vllm(name, name), rising(10)


def meter_files() -> dict[str, str]:
    """The rows of the cooling meters: watts, and the joules of a counter."""
    midnight = datetime.combine(DAY, time(), UTC)
    watts, joules = ["time,hall,watts"], ["time,hall,joules"]
    for site, hours in WATTS.items():
        for minute in range(0, 60 * len(hours), 5):
            at = (midnight + timedelta(minutes=minute)).isoformat()
            if site == "counted":
                joules.append(f"{at},{site},{1e6 + 180 * 60 * minute}")
            else:
                watts.append(f"{at},{site},{hours[minute // 60]}")
    return {"watts.csv": "\n".join(watts) + "\n", "joules.csv": "\n".join(joules) + "\n"}


COOLING = shape(
    "chilled",
    series,
    files=meter_files(),
    sources=[
        {
            "name": "chillers",
            "kind": "files",
            "interval_seconds": 300,
            "files": [
                {"path": f"{what}.csv", "time": "time", "labels": {"site": "hall"}, "values": {metric: what}}
                for what, metric in (
                    ("watts", "facility_cooling_power_watts"),
                    ("joules", "facility_cooling_energy_joules_total"),
                )
            ],
        }
    ],
    sites=[
        {
            "name": site,
            "zone": "unknown",
            "pue": 1.5,
            "tariff": [{"usd_per_kwh": 0.1}],
            **({} if site == "neither" else {"cooling_share_of_overhead": 0.75}),
        }
        for site in SITES
    ]
    + [{"name": "chilled", "zone": "unknown", "pue": 1.5}],
    nodes=[{"name": f"n-{of}-{site}", "site": site, "host_watts": 0} for site in SITES for of in ("a", "b")],
    cost_rates=[{"device_type": "a100-sxm4-80gb", "usd_per_gpu_hour": 2.0, "source": "contract"}],
)


@pytest.fixture(scope="module")
def book(shared_book: Callable[[Shape], Seen]) -> Seen:
    return shared_book(COOLING)


# A board's IT is 0.864 USD a day, what the PUE adds 0.432 USD.
@pytest.mark.parametrize(
    ("site", "cooling", "overhead", "basis"),
    [
        ("metered", 0.216, 0.216, "measured"),  # 4.32 kWh of cooling, half of them at 0.10 USD
        ("counted", 0.216, 0.216, "measured"),
        ("halved", 0.108 + 0.162, 0.108 + 0.054, "mixed"),  # from noon on three quarters of what the PUE adds
        ("over", 0.864, 0.0, "measured_over_pue"),
        ("declared", 0.324, 0.108, "stated"),
        ("neither", None, 0.432, None),
    ],
)
def test_cooling_is_what_its_meter_measured_else_the_stated_share(
    book: Seen, site: str, cooling: float | None, overhead: float, basis: str | None
) -> None:
    found = {
        part: (usd, of_cooling)
        for part, usd, of_cooling in book.query(
            "select part, round(cost_usd::double, 6), cooling_basis from marts.cost_daily where basis = 'allocation'"
            " and model = ? and part in ('energy', 'cooling', 'overhead')",
            [f"a-{site}"],
        )
    }
    assert found["energy"] == (0.864, None)
    assert found["overhead"] == (pytest.approx(overhead, abs=1e-6), None)
    assert found.get("cooling") == (None if cooling is None else (pytest.approx(cooling, abs=1e-6), basis))


def test_the_productive_share_of_measured_cooling_is_variable(book: Seen) -> None:
    # (360 − 93) / 360 of a board's energy is productive.
    assert book.query(
        "select round(sum(cost_usd)::double, 6) from marts.cost_daily where basis = 'variable' and part = 'cooling'"
        " and model = 'a-metered'"
    ) == [(pytest.approx(0.216 * 267 / 360, abs=1e-6),)]


def test_a_cooling_meter_is_no_meter_of_the_ledger(book: Seen) -> None:
    assert book.query(
        "select site, sum(energy_joules)::double / 3.6e6 from marts.energy_ledger group by site order by site"
    ) == [(site, pytest.approx(17.28)) for site in sorted(SITES)]
    assert (
        book.query(
            "select site, part from (select site, part, basis, sum(cost_usd) as usd from marts.cost_daily group by all)"
            " group by site, part having count(distinct usd) > 1 or count(*) <> 4"
        )
        == []
    )
