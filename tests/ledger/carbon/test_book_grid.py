"""CO2 by the hour of the grid against CO2 by its year: two generated boards of 2023 on California ISO's real series."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
import yaml

from tests.books import Book, files_source, record, validation_data

NEEDED_BY = {"book": ("validation-data",)}

COUNTER = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
BOARD = '{"UUID": "GPU-%s", "Hostname": "n1", "modelName": "NVIDIA H100 80GB HBM3"}'
THE_FIRST, THE_SECOND = date(2023, 6, 1), date(2023, 6, 2)
MIDNIGHT = datetime(2023, 6, 1, tzinfo=UTC)
# 03:00 to 15:00 UTC is 20:00 to 08:00 in California, when its sun is away: 0.72 kWh an hour, or 0.12 kWh.
NIGHT = range(3, 15)


def board(name: str, hourly_kwh: list[float]) -> pa.Table:
    """A board's energy counter (mJ), read every five minutes of 1 June 2023 and at its end."""
    joules, rows = 0.0, []
    for step in range(24 * 12 + 1):
        rows.append((COUNTER, BOARD % name, MIDNIGHT + timedelta(minutes=5 * step), joules * 1000))
        joules += hourly_kwh[min(step // 12, 23)] * 3.6e6 / 12
    return pa.table(
        dict(zip(("metric", "labels", "observed_at", "value"), map(list, zip(*rows, strict=True)), strict=True))
    )


def fleet_of(folder: Path, grid: dict, zone: str = "US-CAL-CISO") -> Path:
    contents = {
        "fleet": "west_2023",
        "synthetic": True,
        "period": {"start": THE_FIRST, "end": date(2023, 6, 3)},
        "sources": [files_source("dcgm", "*.parquet")],
        "sites": [{"name": "west", "zone": zone, "time_zone": "America/Los_Angeles", "pue": 1.0}],
        "nodes": [{"name": "n1", "site": "west", "host_watts": 0}],
        "assignments": [
            {"device_uuid": f"GPU-{name}", "model": f"{name}-model", "start_at": "2023-01-01T00:00:00Z"}
            for name in ("night", "day")
        ],
        "grid_intensity": grid,
    }
    folder.mkdir(parents=True, exist_ok=True)
    record(board("night", [0.72 if hour in NIGHT else 0.12 for hour in range(24)]), folder, "night")
    record(board("day", [0.12 if hour in NIGHT else 0.72 for hour in range(24)]), folder, "day")
    path = folder / "fleet.yaml"
    path.write_text(yaml.safe_dump(contents, sort_keys=False), encoding="utf-8")
    return path


def by_model(book: Book) -> list[tuple]:
    return book.query(
        "select model, facility_energy_kwh::double, location_gco2e::double, lifecycle_gco2e::double,"
        " hourly_carbon_ratio from marts.model_daily order by model desc"
    )


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Book:
    validation_data()
    folder = tmp_path_factory.mktemp("grid")
    export = "${WATTLEDGER_VALIDATION_DATA}/carbon_hourly/US-CAL-CISO_2023_hourly.csv.gz"
    grid = {"files": [{"path": export, "format": "electricity_maps", "zone": "US-CAL-CISO"}]}
    book = Book.of(fleet_of(folder, grid), folder / "data")
    book.run(THE_FIRST, THE_SECOND)
    return book


def test_california_isos_series_lands_whole_with_its_published_means(book: Book) -> None:
    (row,) = book.query(
        "select count(*), round(avg(direct_gco2e_per_kwh), 2), round(avg(lifecycle_gco2e_per_kwh), 2),"
        " min(direct_gco2e_per_kwh), max(direct_gco2e_per_kwh), count(marginal_gco2e_per_kwh)"
        " from raw.grid_intensity where zone = 'US-CAL-CISO'"
    )
    assert row == (8760, 193.46, 261.16, 54.89, 330.82, 0)


def test_the_hour_weighs_a_kilowatt_hour_as_the_year_does_not(book: Book) -> None:
    """Both boards use 12 × 0.72 + 12 × 0.12 = 10.08 kWh, so the year's 193.46 g/kWh would give both 1,950.077 g. By the
    file's own hours the one that works at night emits 1,230.2028 g, the one that works by day 903.4728 g: on this clear
    day the year overstates the first by 59 % and the second by 116 %, and hides that night work emits 36 % more."""
    assert by_model(book) == [
        ("night-model", 10.08, pytest.approx(1230.2028, abs=1e-3), pytest.approx(1721.8260, abs=1e-3), 1.0),
        ("day-model", 10.08, pytest.approx(903.4728, abs=1e-3), pytest.approx(1358.6640, abs=1e-3), 1.0),
    ]
    assert {row[2] > 10.08 * 193.46 / 2 for row in by_model(book)} == {True, False}


def test_each_hour_has_its_factor_and_its_source(book: Book) -> None:
    rows = book.query(
        "select carbon_basis, carbon_source, location_gco2e_per_kwh, lifecycle_gco2e_per_kwh, marginal_gco2e_per_kwh"
        " from marts.site_carbon_hourly where site = 'west' order by hour_start_at"
    )
    assert len(rows) == 24
    assert rows[0] == ("hourly", "US-CAL-CISO_2023_hourly.csv.gz", 72.04, 113.5, None)
    assert book.failed_tests() == set()


def test_a_missing_hour_takes_the_year_and_is_marked(tmp_path: Path) -> None:
    """The file has 100 g from 00:00 to 12:00 and nothing after. The night board uses 9 × 0.72 + 3 × 0.12 = 6.84 kWh in
    those hours and 3.24 kWh later: 684 g + 3.24 × 193.46 g = 1,310.8104 g. The day board uses 3.24 and 6.84 kWh:
    324 g + 1,323.2664 g = 1,647.2664 g. The file has no life-cycle value: 10.08 × the year's 261.16 g."""
    hours = "".join(f"2023-06-01T{hour:02}:00:00Z,100\n" for hour in range(12))
    tmp_path.mkdir(exist_ok=True)
    (tmp_path / "half.csv").write_text("at,direct\n" + hours)
    file = {"path": "half.csv", "time": "at", "values": {"direct": "direct_gco2e_per_kwh"}, "zone": "US-CAL-CISO"}
    book = Book.of(fleet_of(tmp_path, {"files": [file]}), tmp_path / "data")
    book.run(THE_FIRST, THE_SECOND)
    assert by_model(book) == [
        ("night-model", 10.08, pytest.approx(1310.8104, abs=1e-3), pytest.approx(2632.4928, abs=1e-3), 6.84 / 10.08),
        ("day-model", 10.08, pytest.approx(1647.2664, abs=1e-3), pytest.approx(2632.4928, abs=1e-3), 3.24 / 10.08),
    ]
    basis = "select carbon_basis, lifecycle_basis, count(*) from marts.site_carbon_hourly group by all order by all"
    assert book.query(basis) == [("hourly", "yearly_2023", 12), ("yearly_2023", "yearly_2023", 12)]
    assert book.failed_tests("hours_of_a_landed_zone_have_their_own_factor") == {
        "hours_of_a_landed_zone_have_their_own_factor"
    }
