"""A grid zone that nothing knows is refused, and energy that ends up without CO2 is reported."""

from __future__ import annotations

import csv
import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pipelines.fleet.catalog import SEEDS
from tests.books import validation_data
from tests.fleet.test_fleet import SMALLEST, load, problems
from tests.planted import DAY, DAY_SECONDS, ENERGY, HOURS, Series, board, rising
from tests.shapes import Seen, Shape, shape

CHECK = "energy_of_a_zone_has_a_factor"
DENMARK = "grid_intensity: {files: [{path: dk.csv, zone: DK-DK1, time: at, values: {direct_gco2e_per_kwh: g}}]}\n"
LONDON = "grid_intensity: {sources: [{name: neso, kind: uk_carbon_intensity, zone: GB-London}]}\n"


def at_zone(zone: str) -> str:
    return f"{SMALLEST}sites: [{{name: west, zone: {zone}, pue: 1.1}}]\n"


# --- the fleet file ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "nearest"),
    [("US-CAL-CSIO", "US-CAL-CISO"), ("us-cal-ciso", "US-CAL-CISO"), ("gcp-us-east-4", "gcp-us-east4")],
)
def test_a_mistyped_zone_is_refused_with_the_three_nearest(tmp_path: Path, typed: str, nearest: str) -> None:
    (problem,) = problems(tmp_path, at_zone(typed))
    start, _, named = problem.partition("; nearest: ")
    assert start == (
        f"sites[west].zone: got {typed!r}, expected a zone of the seeds grid_factors and grid_zones or of a source"
        " under grid_intensity, or unknown (no CO2)"
    )
    first, *others = named.split(", ")
    assert (first, len(others)) == (nearest, 2)


def test_a_name_that_is_like_no_zone_is_refused_with_all_of_them(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, at_zone("Germany"))
    known = problem.partition("; known: ")[2].split(", ")
    assert {"DE", "ES", "US-CAL-CISO", "eGRID-US"} < set(known)


def test_a_mistyped_zone_of_a_site_may_be_nearest_to_the_zone_of_a_source(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, at_zone("DK-DKI") + DENMARK)
    assert "; nearest: DK-DK1, " in problem


@pytest.mark.parametrize(
    "text",
    [
        at_zone("US-CAL-CISO"),  # the seeds have its factor
        at_zone("DK-DK1") + DENMARK,  # a file has its hours; no seed knows it
        at_zone("GB-London") + LONDON,  # an API has
        at_zone("unknown"),  # stated: the grid is unknown
    ],
)
def test_a_zone_that_something_knows_is_accepted(tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str) -> None:
    with caplog.at_level(logging.WARNING):
        assert len(load(tmp_path, text).sites) == 1
    assert caplog.messages == []


def test_a_grid_source_whose_zone_no_site_has_is_named_in_a_note(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The mistyped name is the source's: the site keeps its yearly factor, so nothing else would show it."""
    with caplog.at_level(logging.WARNING):
        load(tmp_path, at_zone("GB") + LONDON.replace("GB-London", "GBR"))
    assert caplog.messages == [
        "fleet.yaml: grid_intensity.sources[neso].zone: got 'GBR', which no site has: its hours are not used; nearest:"
        ' GB. If it is right: accepted: ["grid_intensity.sources[neso].zone"]'
    ]


# --- the book ---------------------------------------------------------------------------------------------------------


ZONES = {
    "caiso": "US-CAL-CISO",
    "jutland": "DK-DK1",
    "skane": "SE-SE4",
    "gridless": "unknown",
    "upstate": "eGRID-NYUP",
    "texas": "eGRID-ERCO",
    "oslo": "NO-NO1",
}


def of_zones() -> Iterator[Series]:
    """Seven sites, each with one board of 100 W in a hall of PUE 1.5: 0.15 kWh an hour."""
    for site in ZONES:
        # Off from noon on, when its zone has no hours any more.
        last = 12 * HOURS if site == "skane" else DAY_SECONDS
        yield ENERGY, board(f"GPU-{site}", f"n-{site}"), rising(100_000, 0, last)


MORNING = {"path": "morning.csv", "time": "at", "values": {"direct_gco2e_per_kwh": "grams"}}
SHAPE_OF_ZONES = shape(
    "caiso",
    of_zones,
    files={"morning.csv": "at,grams\n" + "".join(f"{DAY}T{hour:02}:00:00Z,30\n" for hour in range(12))},
    sites=[{"name": site, "zone": zone, "pue": 1.5} for site, zone in ZONES.items()],
    nodes=[{"name": f"n-{site}", "site": site, "host_watts": 0} for site in ZONES],
    grid_intensity={
        "files": [{**MORNING, "zone": "DK-DK1", "source": "dk"}, {**MORNING, "zone": "SE-SE4", "source": "se"}]
    },
)


@pytest.fixture(scope="module")
def book(shared_book: Callable[[Shape], Seen]) -> Seen:
    return shared_book(SHAPE_OF_ZONES)


def test_energy_without_a_factor_is_reported_by_site_zone_hours_and_kwh(book: Seen) -> None:
    """12 h × 100 W × 1.5 = 1.8 kWh in Jutland. Not reported: California has its year, Skåne drew nothing in the hours
    without a value, and the site without a grid has none stated."""
    columns = "site, sum(facility_energy_kwh)::double, sum(location_gco2e)::double"
    assert book.query(f"select {columns} from marts.fleet_daily group by 1 order by 1") == [
        ("caiso", pytest.approx(3.6), pytest.approx(3.6 * 193.46)),
        ("gridless", pytest.approx(3.6), None),
        ("jutland", pytest.approx(3.6), pytest.approx(1.8 * 30)),
        ("oslo", pytest.approx(3.6), pytest.approx(3.6 * 15)),
        ("skane", pytest.approx(1.8), pytest.approx(1.8 * 30)),
        ("texas", pytest.approx(3.6), pytest.approx(3.6 * 336.0)),
        ("upstate", pytest.approx(3.6), pytest.approx(3.6 * 109.6)),
    ]
    noon = datetime(DAY.year, DAY.month, DAY.day, 12, tzinfo=UTC)
    jutland = ("site", "jutland", noon, noon + timedelta(hours=12), "DK-DK1: 12 hours, 1.8 kWh")
    columns = "entity_kind, entity, since_at, until_at, evidence"
    assert book.data_test(CHECK, columns) == ("warn", [jutland])
    # Its rows have it as `is_carbon_complete`; no joule or token of them is in doubt.
    marked = (
        "select site, is_carbon_complete from marts.fleet_daily where doubt_reasons <> '' or not is_carbon_complete"
    )
    assert book.query(f"{marked} and site <> 'gridless'") == [("jutland", False)]
    assert book.broken() == {}


# --- the seeds --------------------------------------------------------------------------------------------------------

# EPA, eGRID2023 (release of January 2025) and eGRID2022: g CO2e per kWh of the subregion's total output.
EGRID_2023 = {"NYUP": 109.6, "SPSO": 405.9, "MROW": 420.2, "ERCT": 336.0, "CAMX": 198.7, "RFCW": 415.5, "US": 351.6}
EGRID_2022 = {"NYUP": 125.0, "SPSO": 442.3, "MROW": 427.9, "ERCT": 351.2, "CAMX": 226.5}


def egrid(valid_from: str) -> dict[str, float]:
    """Subregion -> g/kWh of the seed's rows that begin on a date."""
    with (SEEDS / "grid_factors.csv").open(newline="", encoding="utf-8") as lines:
        rows = [row for row in csv.DictReader(lines) if row["zone"].startswith("eGRID-")]
    return {
        row["zone"].removeprefix("eGRID-"): float(row["direct_gco2e_per_kwh"])
        for row in rows
        if row["valid_from"] == valid_from
    }


def test_the_factors_of_the_united_states_are_those_that_epa_published() -> None:
    newest = egrid("2023-01-01")
    assert {zone: newest[zone] for zone in EGRID_2023} == EGRID_2023
    assert egrid("2022-01-01") == EGRID_2022
    assert len(newest) == 28  # 27 subregions and the United States


@pytest.mark.needs("validation-data")
def test_every_subregion_has_epas_rate_in_grams_per_kwh() -> None:
    """A pound is 453.59237 g: 1 lb/MWh = 0.45359237 g/kWh."""
    with (validation_data() / "egrid2023" / "subregions.csv").open(newline="", encoding="utf-8") as lines:
        pounds = {row["code"]: float(row["total_output_lb_co2e_per_mwh"]) for row in csv.DictReader(lines)}
    assert egrid("2023-01-01") == {code: pytest.approx(rate * 0.45359237, abs=0.051) for code, rate in pounds.items()}
