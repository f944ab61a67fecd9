"""Contracts and residual mixes of the fleet file: one amount for one hour, of sites that are there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fleet.test_fleet import SMALLEST, load, problems

SITE = "sites: [{name: west, zone: unknown, pue: 1.2%s}, {name: east, zone: unknown, pue: 1.2}]\n"
FACTOR = "gco2e_per_kwh: 0, source: certificate"


def contracts(*stated: str) -> str:
    """A fleet file with these contracts of the site west."""
    listed = ", ".join(f"{{site: west, {FACTOR}, {one}}}" for one in stated)
    return f"{SMALLEST}{SITE % ''}energy_contracts: [{listed}]\n"


@pytest.mark.parametrize(
    ("stated", "problem"),
    [
        (
            ["contract: sun"],
            "energy_contracts[0]: expected exactly one of share_ratio (of each hour) and mwh_per_year",
        ),
        (
            ["contract: sun, share_ratio: 1, mwh_per_year: 10"],
            "energy_contracts[0]: expected exactly one of share_ratio (of each hour) and mwh_per_year",
        ),
        (
            ["contract: sun, share_ratio: 1, matching: hourly"],
            "energy_contracts[0]: matching: got 'hourly', expected none with share_ratio: a share is of each hour",
        ),
        (
            ["contract: sun, mwh_per_year: 10, local_hours: [18, 6]"],
            "energy_contracts[0]: local_hours: got [18, 6], expected 0 <= from < to <= 24",
        ),
        (
            ["contract: sun, mwh_per_year: 10", "contract: sun, mwh_per_year: 5, valid_from: 2026-06-01"],
            "energy_contracts[sun] (from 2026-06-01): states an amount for dates and hours of site 'west' for which"
            " energy_contracts[sun] (from 1970-01-01) states one already, expected one amount per contract: give it a"
            " name of its own, or end the earlier one (valid_to is the first date on which it does not hold)",
        ),
        (
            [
                "contract: a, share_ratio: 0.7, local_hours: [0, 12]",
                "contract: b, share_ratio: 0.4, valid_from: 2026-06-01",
            ],
            "energy_contracts: the share_ratio of a, b make 1.1 of site 'west' from 2026-06-01, hour 0, expected at"
            " most 1: lower a share, or end one of them",
        ),
        # Their twins: a new amount from a date on; other names; shares that meet; shares that are all of it.
        (
            [
                "contract: sun, mwh_per_year: 10, valid_to: 2026-06-01",
                "contract: sun, mwh_per_year: 5, valid_from: 2026-06-01",
            ],
            None,
        ),
        (["contract: sun, mwh_per_year: 10", "contract: gas, mwh_per_year: 5"], None),
        (
            [
                "contract: a, share_ratio: 0.7, local_hours: [0, 12]",
                "contract: b, share_ratio: 0.7, local_hours: [12, 24]",
            ],
            None,
        ),
        (["contract: a, share_ratio: 0.1", "contract: b, share_ratio: 0.2", "contract: c, share_ratio: 0.7"], None),
    ],
)
def test_a_contract_states_one_amount_for_an_hour(tmp_path: Path, stated: list[str], problem: str | None) -> None:
    if problem is None:
        assert len(load(tmp_path, contracts(*stated)).energy_contracts) == len(stated)
    else:
        assert problems(tmp_path, contracts(*stated)) == [problem]


def test_a_contract_is_for_a_site_of_the_fleet(tmp_path: Path) -> None:
    text = f"{SMALLEST}{SITE % ''}energy_contracts: [{{contract: sun, site: north, share_ratio: 1, {FACTOR}}}]\n"
    assert problems(tmp_path, text) == [
        "energy_contracts[sun].site: got 'north', expected one of the sites ['east', 'west']"
    ]


def test_a_contract_has_a_row_with_the_way_in_which_it_is_matched(tmp_path: Path) -> None:
    fleet = load(
        tmp_path,
        contracts(
            "contract: a, share_ratio: 0.5",
            "contract: b, mwh_per_year: 10",
            "contract: c, mwh_per_year: 10, matching: hourly, local_hours: [6, 18]",
        ),
    )
    found = [contract.row() for contract in fleet.energy_contracts]
    assert [(row["matching"], row["local_hour_from"], row["local_hour_to"]) for row in found] == [
        ("share", 0, 24),
        ("yearly", 0, 24),
        ("hourly", 6, 18),
    ]


def test_residual_mixes_of_a_site_hold_one_after_the_other(tmp_path: Path) -> None:
    mix = (
        ", residual_mixes: [{gco2e_per_kwh: 400, source: '2024'%s},"
        " {gco2e_per_kwh: 390, source: '2025', valid_from: 2026-01-01}]"
    )
    assert problems(tmp_path, SMALLEST + SITE % (mix % "")) == [
        "sites[west].residual_mixes[1] (from 2026-01-01): holds on dates on which residual_mixes[0] (from 1970-01-01)"
        " holds already, expected one per date: keep one of them, or end the earlier one (valid_to is the first date"
        " on which it does not hold)"
    ]
    assert len(load(tmp_path, SMALLEST + SITE % (mix % ", valid_to: 2026-01-01")).sites[0].residual_mixes) == 2
