"""Dollars and CO2 with a part missing: a fleet of sites at each of which one price is missing, or only looks so.

Every board draws 360 W: with a PUE of 1.2 and 0.10 USD/kWh that is 0.0432 USD an hour, and 216 g at 500 g/kWh. Every
engine generates 10 tokens a second, 36,000 an hour. An A100's hour is 2 USD, and 4 USD from the local 16th on.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.books import Book
from tests.planted import (
    DAY,
    DAY_SECONDS,
    ENERGY,
    HOURS,
    OUTPUT,
    WATTS,
    Samples,
    Series,
    board,
    plant,
    pod,
    rising,
    steady,
    vllm,
    without,
)

H100 = "NVIDIA H100 80GB HBM3"
A6000 = "NVIDIA RTX A6000"
SECOND = DAY + timedelta(days=1)
END = 2 * DAY_SECONDS
A100_TYPE = "a100-sxm4-80gb"
RATES = [
    {"device_type": A100_TYPE, "usd_per_gpu_hour": 2.0, "valid_to": SECOND, "source": "planted"},
    {"device_type": A100_TYPE, "usd_per_gpu_hour": 4.0, "valid_from": SECOND, "source": "planted"},
    # Known on the second date alone.
    {"device_type": "h100-sxm5-80gb", "usd_per_gpu_hour": 2.0, "valid_from": SECOND, "source": "planted"},
]
FLAT = [{"usd_per_kwh": 0.1}]


def site(name: str, *, tariff: list[dict] = FLAT, **more: object) -> dict[str, object]:
    return {"name": name, "zone": "US-CAL-CISO", "pue": 1.2, "tariff": tariff, **more}


# Each pod has a board of its own on a node of its own; the site of each node.
SITES = {
    "late-0": site("rated_late"),
    "nightless-0": site("night_tariff_missing", tariff=[{"usd_per_kwh": 0.1, "local_hours": (7, 24)}]),
    "sleeper-0": site("idle_at_night", tariff=[{"usd_per_kwh": 0.1, "local_hours": (7, 24)}]),
    "gifted-0": site("free_power", tariff=[{"usd_per_kwh": 0.0}]),
    "halfgrid-0": site("half_a_grid", zone="XX-HALF"),
    "kolkata-0": site("south", time_zone="Asia/Kolkata"),
    "angeles-0": site("pacific", time_zone="America/Los_Angeles"),
    "gap-0": site("west"),
    "priced-0": site("two_models"),
    "rateless-0": {"name": "two_models"},
    "deaf-0": site("shared"),
    "busy-0": {"name": "shared"},
    "spare": {"name": "shared"},
    "tool-0": site("tools"),
    "worker-0": {"name": "tools"},
}


def joules(first: float = 0, last: float = END) -> Samples:
    """A counter of 360 W in millijoules."""
    return rising(360_000, first, last, start=1e9)


def served(name: str, tokens: Samples | None = None) -> Series:
    """The output tokens of a pod: ten a second."""
    return OUTPUT, vllm(name, f"model-{name}"), tokens or rising(10, 0, END)


def series() -> Iterator[Series]:
    """Every site's boards and engines."""
    types = {"late-0": H100, "rateless-0": A6000}
    for name in SITES:
        if name == "gap-0":  # a gauge alone, silent from 06:00 to 18:00 of the first date
            yield WATTS, board("GPU-gap-0", "n-gap-0", **pod(name)), without(steady(360, 0, END), 6 * HOURS, 18 * HOURS)
            continue
        labels = {} if name == "spare" else pod(name)
        labels |= {"modelName": types[name]} if name in types else {}
        yield ENERGY, board(f"GPU-{name}", f"n-{name}", **labels), joules()
    for name in SITES:
        if name in ("spare", "tool-0"):
            continue
        if name == "sleeper-0":  # nothing before 07:00 of either date
            idle = [*rising(0, 0, 7 * HOURS, start=1e6), *rising(10, 7 * HOURS + 60, DAY_SECONDS, start=1e6 + 600)]
            yield served(name, [s for s in idle if s[0] <= idle[0][0] + DAY_SECONDS])
        elif name == "deaf-0":  # no word of its tokens from noon of the first date on
            yield served(name, rising(10, 0, 12 * HOURS))
        else:
            yield served(name)


def fleet(folder: Path) -> dict[str, object]:
    """These sites as in the fleet file, with half a day of a grid in a file."""
    hours = [f"{DAY}T{hour:02}:00:00Z,500\n" for hour in range(12)]
    (folder / "grid.csv").write_text("at,g\n" + "".join(hours), encoding="utf-8")
    values = {"direct_gco2e_per_kwh": "g"}
    return {
        "sites": [site for site in SITES.values() if "pue" in site],
        "nodes": [{"name": f"n-{name}", "site": site["name"], "host_watts": 0} for name, site in SITES.items()],
        "devices": [{"device_uuid": "GPU-spare", "node": "n-spare"}],
        "cost_rates": RATES,
        "grid_intensity": {
            "files": [{"path": "grid.csv", "zone": "XX-HALF", "time": "at", "values": values, "source": "g"}]
        },
    }


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Book:
    folder = tmp_path_factory.mktemp("money")
    planted = plant(folder, series(), days=2, **fleet(folder), marts=("fleet_daily", "model_monthly"))
    planted.run()
    return planted


def of(book: Book, name: str, columns: str, table: str = "model_daily", date: object = DAY) -> tuple:
    """Columns of the rows of a pod's model and date, each as a double to 6 digits; one row is expected."""
    rounded = ", ".join(f"round({column}::double, 6)" for column in columns.split(", "))
    when = "month = date_trunc('month', ?::date)" if table == "model_monthly" else "date = ?"
    held = "device_type <> 'none'"  # not the tokens of hours without power
    (row,) = book.query(
        f"select {rounded} from marts.{table} where {held} and model = ? and {when}", [f"model-{name}", date]
    )
    return row


UNIT = "compute_cost_usd_per_output_mtok"


def test_a_rate_that_is_known_on_one_of_two_dates_prices_the_tokens_of_that_date(book: Book) -> None:
    # (24 × 2 + 24 × 0.0432) USD over 864,000 tokens: 49.0368 / 0.864, on the second date and in the month.
    assert of(book, "late-0", f"{UNIT}, cost_coverage_ratio, is_cost_complete") == (None, 0, 0)
    assert of(book, "late-0", f"{UNIT}, cost_coverage_ratio, is_cost_complete", date=SECOND) == (56.755556, 1, 1)
    month = of(book, "late-0", f"{UNIT}, cost_coverage_ratio, is_cost_complete, unpriced_gpu_seconds", "model_monthly")
    assert month == (56.755556, 0.5, 0, 86400)
    # The tariff is known on both: 0.0432 USD an hour less the idle floor's share.
    variable = "variable_cost_usd_per_output_mtok"
    assert of(book, "late-0", variable) == of(book, "late-0", variable, date=SECOND)


def test_hours_without_a_tariff_are_in_neither_part_of_a_unit_cost(book: Book) -> None:
    # 17 × 2.0432 USD over 17 × 36,000 tokens.
    assert of(book, "nightless-0", f"{UNIT}, cost_coverage_ratio") == (56.755556, round(17 / 24, 6))
    # All 24 hours of capacity are charged; electricity of seven of them is missing, and marked as missing.
    columns = "capacity_cost_usd, energy_cost_usd, is_cost_complete, unpriced_gpu_seconds"
    assert of(book, "nightless-0", columns) == (48, round(17 * 0.0432, 6), 0, 7 * HOURS)


def test_an_unpriced_hour_in_which_nothing_ran_takes_nothing_from_the_unit_cost(book: Book) -> None:
    # The same tariff; all its tokens are generated in priced hours: 17 × 2.0432 USD over 17 × 36,000 tokens.
    assert of(book, "sleeper-0", f"{UNIT}, cost_coverage_ratio, is_cost_complete") == (56.755556, 1, 0)


def test_a_price_of_zero_is_a_price(book: Book) -> None:
    assert of(book, "gifted-0", f"{UNIT}, cost_coverage_ratio, is_cost_complete") == (round(48 / 0.864, 6), 1, 1)
    assert of(book, "gifted-0", "energy_cost_usd, variable_cost_usd_per_output_mtok") == (0, 0)


def test_hours_without_a_grid_are_in_neither_part_of_co2_per_token(book: Book) -> None:
    # 216 g an hour over 36,000 tokens: 6000 g per million, over the twelve hours that are known.
    columns = "location_gco2e_per_output_mtok, carbon_coverage_ratio, is_carbon_complete, location_gco2e"
    assert of(book, "halfgrid-0", columns) == (6000, 0.5, 0, 12 * 216)
    assert of(book, "halfgrid-0", "carbon_unknown_joules") == (360 * 12 * HOURS,)
    assert of(book, "late-0", "carbon_coverage_ratio, is_carbon_complete") == (1, 1)


def test_a_model_without_a_rate_is_in_neither_part_of_the_fleets_unit_cost(book: Book) -> None:
    (row,) = book.query(
        "select round(compute_cost_usd_per_output_mtok, 6), cost_coverage_ratio, is_cost_complete"
        " from marts.fleet_daily where site = 'two_models' and date = ?",
        [DAY],
    )
    assert row == (56.755556, 0.5, False)
    assert of(book, "rateless-0", f"{UNIT}, capacity_cost_usd, compute_cost_usd") == (None, None, None)


def test_capacity_is_charged_for_claimed_hours_covered_or_not(book: Book) -> None:
    columns = "claimed_gpu_seconds, gpu_seconds, capacity_cost_usd, unknown_cost_usd, energy_cost_usd"
    assert of(book, "gap-0", columns) == (86400, 43200, 48, 24, round(12 * 0.0432, 6))
    # The covered hours have electricity as well: 24 × 2 + 12 × 0.0432.
    assert of(book, "gap-0", "compute_cost_usd") == (48.5184,)


def test_a_pod_that_holds_its_board_keeps_its_own_cost(book: Book) -> None:
    # Silent from noon on: 24 × 2.0432 USD stay its own. The spare board's as much stay in its own row.
    own = 24 * 2.0432
    columns = "compute_cost_usd, unknown_cost_usd"
    assert of(book, "deaf-0", columns) == (round(own, 6), 24)
    assert of(book, "busy-0", columns) == (round(own, 6), 0)
    spare = book.query(
        "select compute_cost_usd::double from marts.model_daily"
        " where site = 'shared' and model = '__unallocated__' and date = ?",
        [DAY],
    )
    assert spare == [(pytest.approx(own),)]
    # On the second date no engine is known for the pod; the board is still its own, and there is no cost per token.
    unknown = book.query(
        f"select round(compute_cost_usd::double, 6), {UNIT} from marts.model_daily"
        " where site = 'shared' and model = '__unknown__' and date = ?",
        [SECOND],
    )
    assert unknown == [(round(24 * 4.0432, 6), None)]


def test_a_pod_without_an_engine_keeps_its_own_cost_too(book: Book) -> None:
    own = round(24 * 2.0432, 6)
    assert of(book, "worker-0", "compute_cost_usd") == (own,)
    (tool,) = book.query(
        "select round(compute_cost_usd::double, 6), round(unknown_cost_usd::double, 6) from marts.model_daily"
        " where site = 'tools' and model = '__unknown__' and date = ?",
        [DAY],
    )
    assert tool == (own, 48)


def test_a_rate_is_that_of_the_sites_local_date(book: Book) -> None:
    # The 16th begins at 18:30 UTC in Kolkata and at 07:00 UTC of the 16th in Los Angeles.
    capacity = "capacity_cost_usd"
    assert of(book, "kolkata-0", capacity) == (18.5 * 2 + 5.5 * 4,)
    assert of(book, "kolkata-0", capacity, date=SECOND) == (24 * 4,)
    assert of(book, "angeles-0", capacity) == (24 * 2,)
    assert of(book, "angeles-0", capacity, date=SECOND) == (7 * 2 + 17 * 4,)
    assert of(book, "busy-0", capacity) == (24 * 2,)  # UTC


def test_money_adds_up_to_the_last_digit_from_hours_to_months(book: Book) -> None:
    columns = [name for name, *_ in book.query("describe marts.model_hourly") if name.endswith("_cost_usd")]
    assert len(columns) == 8
    sums = ", ".join(f"sum({name})" for name in columns)
    found = {
        tuple(book.query(f"select {sums} from marts.{table}")[0])
        for table in ("model_hourly", "model_daily", "model_monthly", "fleet_daily")
    }
    assert len(found) == 1
    types = {kind for name, kind, *_ in book.query("describe marts.model_hourly") if name.endswith("_cost_usd")}
    assert types == {"DECIMAL(28,12)"}
    assert book.query(
        "select count(*) from marts.model_hourly where capacity_cost_usd is not null"
        " and capacity_cost_usd < unknown_cost_usd"
    ) == [(0,)]
