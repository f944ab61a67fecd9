"""Scope 2 by location and by market: sites that are alike but for the electricity that they buy.

Each board draws 360 W all day, on a node without a host draw, at a PUE of 1.25: 8.64 kWh of its own a day, 10.8 kWh at
the facility's meter, 0.45 kWh an hour. The grid emits 400 g/kWh: 4,320 g a day by location. 2026 has 365 days.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.planted import DAY, ENERGY, OUTPUT, Series, board, pod, rising, vllm
from tests.shapes import Seen, Shape, shape

SITE = {"zone": "XX", "pue": 1.25, "wue_litres_per_kwh": 1.8}
RESIDUAL = {"residual_mixes": [{"gco2e_per_kwh": 500.0, "source": "registry 2025"}]}
SUN = {"gco2e_per_kwh": 0.0, "is_renewable": True, "source": "certificate"}
# Name -> its site, and the contracts of it.
SITES: dict[str, tuple[dict[str, object], list[dict[str, object]]]] = {
    "bare": ({}, []),
    "residual": (RESIDUAL, []),
    "share": ({}, [{"contract": "tariff", "share_ratio": 0.5, "gco2e_per_kwh": 20.0, "source": "supplier"}]),
    # 10 kWh a day of sun, then 5 kWh of gas.
    "yearly": (
        {},
        [
            {"contract": "sun", "mwh_per_year": 3.65, **SUN},
            {"contract": "gas", "mwh_per_year": 1.825, "gco2e_per_kwh": 100.0, "source": "supplier"},
        ],
    ),
    # 20 kWh a day from 6 to 18 o'clock: within these hours more than is used, and over the day, too.
    "hourly": (
        RESIDUAL,
        [{"contract": "sun", "mwh_per_year": 7.3, "matching": "hourly", "local_hours": [6, 18], **SUN}],
    ),
    "spread": (RESIDUAL, [{"contract": "sun", "mwh_per_year": 7.3, "local_hours": [6, 18], **SUN}]),
    # A quarter of each hour is a tariff's, and of the rest sun takes what it can.
    "blend": (
        {},
        [
            {"contract": "sun", "mwh_per_year": 3.65, **SUN},
            {"contract": "tariff", "share_ratio": 0.25, "gco2e_per_kwh": 40.0, "source": "supplier"},
        ],
    ),
    "no_factor": ({"zone": "unknown"}, [{"contract": "tariff", "share_ratio": 0.5, **SUN}]),
    # Its last local date, the 14th, ends at 7:00 UTC.
    "ended": (
        {"time_zone": "America/Los_Angeles"},
        [{"contract": "tariff", "share_ratio": 1.0, "valid_to": DAY, **SUN}],
    ),
}


def boards(site: str) -> tuple[str, ...]:
    """The boards of a site: one, and at `share` a second one that is free."""
    return ("a", "free") if site == "share" else ("a",)


def series() -> Iterator[Series]:
    """Boards and engines of every site."""
    for site in SITES:
        for of in boards(site):
            labels = {} if of == "free" else pod(f"{of}-{site}")
            yield ENERGY, board(f"GPU-{of}-{site}", f"n-{of}-{site}", **labels), rising(360_000, 0, start=1e9)
            if of != "free":
                yield OUTPUT, vllm(f"{of}-{site}", f"{of}-{site}"), rising(10, 0)


HOURS = "".join(f"{DAY}T{hour:02}:00:00Z,400\n" for hour in range(24))
CARBON = shape(
    "carbon",
    series,
    files={"carbon.csv": "at,g\n" + HOURS},
    sites=[
        {"name": "carbon", "zone": "unknown", "pue": 1.25},
        *({"name": name, **SITE, **changes} for name, (changes, _) in SITES.items()),
    ],
    nodes=[{"name": f"n-{of}-{site}", "site": site, "host_watts": 0} for site in SITES for of in boards(site)],
    devices=[{"device_uuid": "GPU-free-share", "node": "n-free-share"}],
    # 876.6 kg over four years of 8,766 hours are 25 g an hour, 600 g a day.
    device_types=[{"name": "a100-sxm4-80gb", "embodied_kgco2e": 876.6}],
    energy_contracts=[{"site": site, **one} for site, (_, contracts) in SITES.items() for one in contracts],
    grid_intensity={
        "files": [
            {"path": "carbon.csv", "zone": "XX", "time": "at", "values": {"direct_gco2e_per_kwh": "g"}, "source": "g"}
        ]
    },
)


@pytest.fixture(scope="module")
def book(shared_book: Callable[[Shape], Seen]) -> Seen:
    return shared_book(CARBON)


@pytest.mark.parametrize(
    ("site", "expected"),
    [
        ("bare", (4320.0, 4320.0, "grid_average", 0.0, 0.0)),  # neither a contract nor a residual mix
        ("residual", (4320.0, 5400.0, "residual_mix", 0.0, 0.0)),  # 10.8 × 500
        ("share", (8640.0, 4536.0, "grid_average", 10.8, 0.0)),  # of 21.6 kWh half at 20 g, half at 400 g
        ("yearly", (4320.0, 80.0, "contracts", 10.8, 10.0)),  # 0.8 kWh of gas at 100 g
        ("hourly", (4320.0, 2700.0, "residual_mix", 5.4, 5.4)),  # 12 hours of 0.45 kWh; the others at 500 g
        ("spread", (4320.0, 0.0, "contracts", 10.8, 10.8)),
        ("blend", (4320.0, 108.0, "contracts", 10.8, 8.1)),  # 2.7 kWh at 40 g; of 8.1 kWh sun supplies 10
        ("no_factor", (None, None, "unknown", 5.4, 5.4)),
        ("ended", (4320.0, 3060.0, "grid_average", 3.15, 3.15)),  # 17 hours of 0.45 kWh at 400 g
    ],
)
def test_scope_2_has_two_figures_and_the_basis_of_the_second(book: Seen, site: str, expected: tuple) -> None:
    found = book.query(
        "select scope2_location_gco2e::double, scope2_market_gco2e::double, market_basis, matched_kwh::double,"
        " renewable_matched_kwh::double from marts.site_footprint_daily where site = ?",
        [site],
    )
    assert found == [tuple(pytest.approx(value, abs=1e-3) if isinstance(value, float) else value for value in expected)]


def test_what_has_no_factor_is_counted_and_not_guessed(book: Seen) -> None:
    found = dict(book.query("select site, market_unknown_kwh::double from marts.site_footprint_daily"))
    assert {site: kwh for site, kwh in found.items() if kwh} == {"no_factor": pytest.approx(10.8, abs=1e-5)}


def test_models_share_the_sites_market_based_co2_and_a_site_without_a_factor_has_none(book: Seen) -> None:
    found = book.query(
        "select site, sum(market_gco2e), count(market_gco2e), max(scope2_market_gco2e) from marts.model_daily"
        " join marts.site_footprint_daily using (date, site) group by site order by site"
    )
    assert [row for row in found if row[1] != row[3]] == []
    assert {site for site, _, known, _ in found if known == 0} == {"no_factor"}
    # The month has the sum of its rows, and of `share` half the kWh without a residual mix.
    months = book.query(
        "select site, round(sum(market_kgco2e)::double, 3), max(market_grid_average_ratio) from finance.carbon"
        " where site in ('bare', 'residual', 'share', 'no_factor') group by site order by site"
    )
    assert months == [("bare", 4.32, 1.0), ("no_factor", None, None), ("residual", 5.4, 0.0), ("share", 4.536, 0.5)]
    # The free board used as much as the model's.
    shares = book.query("select round(market_gco2e::double, 3) from marts.model_daily where site = 'share'")
    assert shares == [(2268.0,), (2268.0,)]


def test_contracts_are_used_in_the_files_order_and_never_more_than_the_site_used(book: Seen) -> None:
    found = book.query(
        "select site, contract, matching, round(contracted_kwh::double, 3), round(matched_kwh::double, 3),"
        " round(surplus_kwh::double, 3) from marts.energy_contracts_daily order by site, contract"
    )
    assert found == [
        ("blend", "sun", "yearly", 10.0, 8.1, 1.9),
        ("blend", "tariff", "share", 2.7, 2.7, 0.0),
        ("ended", "tariff", "share", 3.15, 3.15, 0.0),
        ("hourly", "sun", "hourly", 20.0, 5.4, 14.6),
        ("no_factor", "tariff", "share", 5.4, 5.4, 0.0),
        ("share", "tariff", "share", 10.8, 10.8, 0.0),
        ("spread", "sun", "yearly", 20.0, 10.8, 9.2),
        ("yearly", "gas", "yearly", 5.0, 0.8, 4.2),
        ("yearly", "sun", "yearly", 10.0, 10.0, 0.0),
    ]


def test_hours_add_up_to_the_date_and_keep_both_figures(book: Seen) -> None:
    found = book.query(
        """
        select count(*) from marts.site_footprint_daily as days
        join (
            select date, site, sum(scope2_location_gco2e) as location, sum(scope2_market_gco2e) as market,
                sum(matched_kwh) + sum(unmatched_kwh) as kwh
            from marts.site_scope2_hourly group by all
        ) as hours using (date, site)
        where location is distinct from scope2_location_gco2e or market is distinct from scope2_market_gco2e
            or kwh <> facility_energy_kwh
        """
    )
    assert found == [(0,)]
    by_hour = book.query(
        "select extract('hour' from hour_start_at), matched_kwh::double, market_basis from marts.site_scope2_hourly"
        " where site = 'hourly' order by 1"
    )
    assert [(hour, basis) for hour, kwh, basis in by_hour if kwh] == [(hour, "contracts") for hour in range(6, 18)]


def test_the_indicators_of_a_facility_have_numerator_denominator_and_basis(book: Seen) -> None:
    found = book.query(
        "select it_energy_kwh::double, facility_energy_kwh::double, pue, pue_basis, cue_location_kgco2e_per_kwh,"
        " ref_contract_ratio, site_water_litres::double, wue_site_litres_per_kwh, wue_basis"
        " from marts.site_footprint_daily where site in ('blend', 'bare') order by site"
    )
    # CUE: 4.32 kg / 8.64 kWh; REF: 8.1 / 10.8 kWh; water: 8.64 kWh × 1.8 litres.
    shared = [8.64, 10.8, 1.25, "stated", 0.5]
    water = [15.552, 1.8, "stated"]
    for row, ref in zip(found, (0.0, 0.75), strict=True):
        assert list(row) == [
            pytest.approx(value, abs=1e-5) if isinstance(value, float) else value for value in (*shared, ref, *water)
        ]
    # Without a WUE its water is not known; the place of the source has no board, and so no row.
    assert book.query("select count(*) from marts.site_footprint_daily where site = 'carbon'") == [(0,)]


def test_manufacture_is_in_scope_3_alone_with_the_free_boards(book: Seen) -> None:
    found = dict(book.query("select site, round(scope3_embodied_gco2e::double, 3) from marts.site_footprint_daily"))
    assert found == {site: 600.0 * len(boards(site)) for site in SITES}
    assert book.query("select sum(embodied_unknown_gpu_seconds)::double from marts.site_footprint_daily") == [(0.0,)]


def test_sci_has_energy_by_location_and_manufacture_whatever_the_contracts(book: Seen) -> None:
    found = book.query(
        "select site, sci_basis, round(sci_gco2e::double, 3), round(sci_gco2e_per_output_mtok, 3) from marts.sci_daily"
        " where site in ('bare', 'share', 'yearly', 'no_factor') order by site, sci_basis"
    )
    # 864,000 tokens: (4,320 + 600) g / 0.864 Mtok.
    assert found == [
        ("bare", "complete", 4920.0, 5694.444),
        ("no_factor", "no_grid_factor", None, None),
        ("share", "complete", 4920.0, 5694.444),
        ("share", "no_tokens", 4920.0, None),
        ("yearly", "complete", 4920.0, 5694.444),
    ]
