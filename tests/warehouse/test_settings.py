"""Which dates a changed setting makes old, and which change leaves them as they are; dates by hand.

The book of 1 to 5 October names the site `west`, node n1 with GPU-1 (a100, engine llm/chat-0, model chat), and from the
3rd on also n2 with GPU-2 (engine llm/code-0, model code, gateway `proxy`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml

from pipelines.booking import stale_settings
from pipelines.fleet.fleet_file import Fleet, load_fleet
from pipelines.landing import bill_landing, fleet_landing
from pipelines.warehouse import due_dates, settings
from pipelines.warehouse.contracts import Contracts

pytestmark = pytest.mark.sampled

FLEET: dict[str, Any] = {
    "fleet": "mine",
    "period": {"start": "2026-10-01"},
    "sources": [
        {"name": "agents", "kind": "spool", "site": "west"},
        {"name": "proxy", "kind": "prometheus", "url": "http://proxy:9090", "interval_seconds": 30, "site": "west"},
    ],
    "sites": [
        {
            "name": "west",
            "zone": "US-CAL-CISO",
            "time_zone": "America/Los_Angeles",
            "pue": 1.2,
            "tariff": [
                {"usd_per_kwh": 0.1, "valid_to": date(2026, 10, 3)},
                {"usd_per_kwh": 0.2, "valid_from": date(2026, 10, 3)},
            ],
        }
    ],
    "nodes": [{"name": "n1", "site": "west"}, {"name": "n2", "site": "west", "aliases": ["10.0.0.2"]}],
    "models": [{"name": "chat", "slo": {"ttft_seconds": 1}}, {"name": "code", "aliases": ["org/code"]}],
    "engines": [{"engine": "llm/chat-*", "deployment": "a"}, {"engine": "llm/*", "deployment": "b"}],
    "teams": {"llm": "research"},
    "cost_rates": [
        {"device_type": "a100", "usd_per_gpu_hour": 2.0, "valid_from": date(2026, 1, 1), "source": "a contract"}
    ],
    "assignments": [{"device_uuid": "GPU-1", "engine": "e", "start_at": "2026-10-02T12:00:00Z"}],
    "bills": {
        "inline": [
            {
                "site": "west",
                "kind": "rental",
                "start_at": "2026-10-02T12:00:00Z",
                "end_at": "2026-10-04T00:00:00Z",
                "usd": 9,
            }
        ]
    },
    "run_windows": {
        "inline": [
            {"window_id": "night", "node": "n1", "start_at": "2026-10-02T23:00:00Z", "end_at": "2026-10-03T01:00:00Z"}
        ]
    },
}
CONTRACTS = Contracts({}, formulas="f", seeds=frozenset({"device_types", "scenarios"}), method_version="2")


def october(*days: int) -> list[date]:
    return [date(2026, 10, day) for day in days]


def fleet_of(folder: Path, contents: dict[str, Any]) -> Fleet:
    path = folder / "fleet.yaml"
    path.write_text(yaml.safe_dump(contents, sort_keys=False), encoding="utf-8")
    return load_fleet(path, {"WATTLEDGER_DATA": str(folder / "data")})


def copied() -> dict[str, Any]:
    return yaml.safe_load(yaml.safe_dump(FLEET))


@pytest.fixture
def booked(held: duckdb.DuckDBPyConnection, tmp_path: Path) -> duckdb.DuckDBPyConnection:
    """A warehouse in which 1 to 5 October are booked with FLEET."""
    held.execute("create schema marts")
    held.execute("create schema reference")
    names = "site varchar, node varchar, engine varchar, namespace varchar, model varchar"
    held.execute(
        f"create table marts.energy_ledger (date date, {names}, meter varchar, device_uuid varchar,"
        " device_type varchar)"
    )
    held.execute(f"create table marts.token_ledger (date date, {names})")
    held.execute("create table marts.fleet_daily (date date, method_version varchar)")
    held.execute("create table reference.device_types as select 'a100' as device_type, 400 as idle_watts_loaded")
    held.execute(
        "create table reference.cost_rates (device_type varchar, usd_per_gpu_hour double, includes varchar,"
        " valid_from date)"
    )
    held.execute("create table reference.grid_zones (zone varchar, wider_zone varchar)")
    held.execute(
        "create table reference.grid_factors (zone varchar, valid_from date, valid_to date, basis varchar,"
        " source varchar, direct_gco2e_per_kwh double, lifecycle_gco2e_per_kwh double)"
    )
    held.execute("insert into reference.grid_factors values ('US-CAL-CISO', '2023-01-01', null, 'y', 's', 193, null)")
    held.execute(
        "insert into raw.grid_intensity (zone, start_at, direct_gco2e_per_kwh, source) select 'US-CAL-CISO',"
        " timestamptz '2026-10-01 00:00+00' + to_hours(n::integer), 200, 'grid.csv' from range(120) as of_days(n)"
    )
    for on in october(1, 2, 3, 4, 5):
        held.execute("insert into marts.fleet_daily values (?, '2')", [on])
        row = "'west', 'n1', 'llm/chat-0', 'llm', 'chat', 'GPU-1', 'GPU-1', 'a100'"
        held.execute(f"insert into marts.energy_ledger values (?, {row})", [on])
        held.execute("insert into raw.series_chunks (source, chunk_start_at, samples) values ('agents', ?, 9)", [on])
    for on in october(3, 4, 5):
        row = "'west', 'n2', 'llm/code-0', 'llm', 'code', 'GPU-2', 'GPU-2', 'h100'"
        held.execute(f"insert into marts.energy_ledger values (?, {row})", [on])
        held.execute("insert into marts.token_ledger values (?, 'west', 'n2', 'llm/code-0', 'llm', 'code')", [on])
        held.execute("insert into raw.series_chunks (source, chunk_start_at, samples) values ('proxy', ?, 9)", [on])
    write(held, fleet_of(tmp_path, copied()))
    due_dates.booked(held, date(2026, 10, 1), date(2026, 10, 6), constants=constants(tmp_path))
    return held


def write(connection: duckdb.DuckDBPyConnection, fleet: Fleet) -> None:
    fleet_landing.write_fleet(connection, fleet)
    fleet_landing.write_run_windows(connection, fleet)
    bill_landing.write_bills(connection, fleet)


def constants(folder: Path, **more: object) -> settings.Constants:
    return settings.constants(fleet_of(folder, copied() | more), CONTRACTS)


def stale(connection: duckdb.DuckDBPyConnection, folder: Path) -> dict[str, list[int]]:
    """Setting -> the days of October that were booked with another value."""
    found, unrecorded = settings.stale(connection, constants(folder))
    assert unrecorded == []
    return {setting: [on.day for on in dates] for setting, dates in found.items()}


# --- the fleet file ---------------------------------------------------------------------------------------------------

Edit = Callable[[dict[str, Any]], object]


def set_in(*keys: Any, to: object) -> Edit:
    def edit(contents: dict[str, Any]) -> None:
        for key in keys[:-1]:
            contents = contents[key]
        contents[keys[-1]] = to

    return edit


def appended(*keys: Any, what: object) -> Edit:
    def edit(contents: dict[str, Any]) -> None:
        part: Any = contents
        for key in keys:
            part = part[key]
        part.append(what)

    return edit


def supplied_from(first: date) -> Edit:
    """A fleet file whose site has a contract for its electricity from that local date on."""
    contract = {"contract": "sun", "site": "west", "share_ratio": 1.0, "gco2e_per_kwh": 0.0, "source": "certificate"}
    return set_in("energy_contracts", to=[{**contract, "valid_from": first}])


CHANGED = {
    # Local midnight is 07:00 UTC: the UTC date 3 October begins on the local 2nd and ends on the local 3rd.
    "the earlier price": (set_in("sites", 0, "tariff", 0, "usd_per_kwh", to=0.3), {"tariffs": [1, 2, 3]}),
    "the later price": (set_in("sites", 0, "tariff", 1, "usd_per_kwh", to=0.3), {"tariffs": [3, 4, 5]}),
    "the time zone": (
        set_in("sites", 0, "time_zone", to="UTC"), {"sites": [1, 2, 3, 4, 5], "tariffs": [1, 2, 3, 4, 5]}
    ),
    "the PUE": (set_in("sites", 0, "pue", to=1.3), {"sites": [1, 2, 3, 4, 5]}),
    "a contract for electricity from the 4th on": (supplied_from(date(2026, 10, 4)), {"energy_contracts": [4, 5]}),
    "a residual mix": (
        set_in("sites", 0, "residual_mixes", to=[{"gco2e_per_kwh": 400.0, "source": "registry"}]),
        {"residual_mixes": [1, 2, 3, 4, 5]},
    ),
    "a rate": (set_in("cost_rates", 0, "usd_per_gpu_hour", to=3.0), {"cost_rates": [1, 2, 3, 4, 5]}),
    "a rate from the 4th on": (
        appended("cost_rates", what={"device_type": "a100", "usd_per_gpu_hour": 3.0, "valid_from": date(2026, 10, 4),
                                     "source": "a contract"}),
        {"cost_rates": [4, 5]},
    ),
    "an assignment": (set_in("assignments", 0, "engine", to="f"), {"assignments": [2, 3, 4, 5]}),
    "an assignment that ends": (
        set_in("assignments", 0, "end_at", to="2026-10-04T12:00:00Z"), {"assignments": [4, 5]}
    ),
    # Before its first assignment a device was of unknown use; from now on it is unallocated there.
    "the first assignment of a device": (
        appended("assignments", what={"device_uuid": "GPU-2", "model": "m", "start_at": "2026-10-05T00:00:00Z"}),
        {"assignments": [3, 4, 5]},
    ),
    "a node": (set_in("nodes", 1, "host_watts", to=300), {"nodes": [3, 4, 5]}),
    "the accelerators of a node, by the site's own dates": (
        set_in("nodes", 0, "gpus", to=[{"device_type": "a100", "count": 8, "valid_from": date(2026, 10, 4)}]),
        {"node_gpus": [4, 5]},
    ),
    "the accelerators of a node that no date names": (
        appended("nodes", what={"name": "n3", "site": "west", "gpus": [{"device_type": "a100", "count": 8}]}),
        {"node_gpus": [1, 2, 3, 4, 5]},
    ),
    "a spot price, until the next one begins": (
        set_in("spot_rates", to=[
            {"site": "west", "device_type": "a100", "gpus": 2.0, "usd_per_gpu_hour": 1.0,
             "start_at": "2026-10-02T12:00:00Z", "end_at": "2026-10-02T18:00:00Z"},
            {"site": "west", "device_type": "a100", "gpus": 2.0, "usd_per_gpu_hour": 2.0,
             "start_at": "2026-10-04T12:00:00Z"},
        ]),
        {"spot_rates": [2, 4, 5]},
    ),
    "a device": (set_in("devices", to=[{"device_uuid": "GPU-2", "node": "n1"}]), {"devices": [3, 4, 5]}),
    "an SLO": (set_in("models", 0, "slo", "ttft_seconds", to=2), {"models": [1, 2, 3, 4, 5]}),
    "an alias": (set_in("models", 1, "aliases", to=["org/code", "code-2"]), {"models": [3, 4, 5]}),
    "an engine": (set_in("engines", 1, "deployment", to="c"), {"engines": [3, 4, 5]}),
    "the order of engines that fit the same": (
        lambda contents: contents["engines"].reverse(), {"engines": [1, 2, 3, 4, 5]}
    ),
    "a team": (set_in("teams", "llm", to="product"), {"teams": [1, 2, 3, 4, 5]}),
    "a source": (set_in("sources", 1, "tokens_complete", to=True), {"sources": [3, 4, 5]}),
    "a label that names the tenant": (
        set_in("sources", 1, "tenant_labels", to=["fairness_id"]), {"sources": [3, 4, 5]}
    ),
    "a run window": (
        set_in("run_windows", "inline", 0, "end_at", to="2026-10-03T02:00:00Z"), {"run_windows": [2, 3]}
    ),
    # The run of its last date makes the month anew.
    "a bill": (set_in("bills", "inline", 0, "usd", to=10), {"bills": [3]}),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGED)
def test_a_change_makes_exactly_the_dates_old_on_which_it_counts(
    booked: duckdb.DuckDBPyConnection, tmp_path: Path, name: str
) -> None:
    edit, expected = CHANGED[name]
    contents = copied()
    edit(contents)
    write(booked, fleet_of(tmp_path, contents))
    assert stale(booked, tmp_path) == expected


DECEMBER = date(2026, 12, 1)
UNCHANGED: dict[str, Edit] = {
    "nothing": lambda contents: None,
    "the order of every list": lambda contents: (
        [contents[key].reverse() for key in ("sources", "nodes", "models")] + [contents["sites"][0]["tariff"].reverse()]
    ),
    "a tariff that ends in December": set_in("sites", 0, "tariff", 1, "valid_to", to=DECEMBER),
    "a tariff from December on": lambda contents: contents["sites"][0]["tariff"].__setitem__(
        slice(1, None),
        [
            {"usd_per_kwh": 0.2, "valid_from": date(2026, 10, 3), "valid_to": DECEMBER},
            {"usd_per_kwh": 0.9, "valid_from": DECEMBER},
        ],
    ),
    # The open rate ends there by itself.
    "a rate from December on": appended(
        "cost_rates",
        what={"device_type": "a100", "usd_per_gpu_hour": 9.0, "valid_from": DECEMBER, "source": "a contract"},
    ),
    "a rate of a device that no date has": appended(
        "cost_rates",
        what={"device_type": "b200", "usd_per_gpu_hour": 9.0, "valid_from": date(2026, 1, 1), "source": "a contract"},
    ),
    "an assignment that ends in December": set_in("assignments", 0, "end_at", to="2026-12-01T00:00:00Z"),
    "a contract for electricity from December on": supplied_from(DECEMBER),
    "a node that no date has": appended("nodes", what={"name": "n3", "site": "west", "host_watts": 100}),
    "a model that no date has": appended("models", what={"name": "m3", "aliases": ["org/m3"]}),
    "how a model may be sized": set_in("models", 0, "min_replicas", to=2),
    "a second site, with all sources placed": appended("sites", what={"name": "east", "zone": "ES", "pue": 1.5}),
    "a team of a namespace that no date has": set_in("teams", "batch", to="finance"),
    "a bill of dates that are not booked": appended(
        "bills",
        "inline",
        what={
            "site": "west",
            "kind": "rental",
            "start_at": "2026-10-06T00:00:00Z",
            "end_at": "2026-12-01T00:00:00Z",
            "usd": 9,
        },
    ),
    "a source that has landed nothing": appended("sources", what={"name": "more", "kind": "spool", "path": "more"}),
}


@pytest.mark.parametrize("name", UNCHANGED)
def test_what_counts_on_no_date_makes_none_old(booked: duckdb.DuckDBPyConnection, tmp_path: Path, name: str) -> None:
    contents = copied()
    UNCHANGED[name](contents)
    write(booked, fleet_of(tmp_path, contents))
    assert stale(booked, tmp_path) == {}


def test_a_source_without_a_site_belongs_to_the_only_one(booked: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    contents = copied()
    del contents["sources"][0]["site"]
    write(booked, fleet_of(tmp_path, contents))
    settings.record(booked, date(2026, 10, 1), date(2026, 10, 6), constants(tmp_path))
    assert stale(booked, tmp_path) == {}
    contents["sites"].append({"name": "east", "zone": "ES", "pue": 1.5})
    write(booked, fleet_of(tmp_path, contents))
    assert stale(booked, tmp_path) == {"sites": [1, 2, 3, 4, 5]}


# --- the grid, the seeds, the code ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("update raw.grid_intensity set direct_gco2e_per_kwh = 1 where start_at = '2026-10-02 23:00+00'",
         {"grid": [2]}),
        ("delete from raw.grid_intensity where start_at = '2026-10-04 00:00+00'", {"grid": [4]}),
        ("insert into raw.grid_intensity select * replace ('ES' as zone) from raw.grid_intensity", {}),
        ("update reference.grid_factors set direct_gco2e_per_kwh = 1", {"grid_factors": [1, 2, 3, 4, 5]}),
        # Where one factor ends the next begins, and nothing before it changes.
        ("insert into reference.grid_factors values ('US-CAL-CISO', '2026-10-05', null, 'y', 's', 1, null)",
         {"grid_factors": [5]}),
        ("update reference.device_types set idle_watts_loaded = 1", {"seed device_types": [1, 2, 3, 4, 5]}),
        # No date is booked with a scenario.
        ("create table reference.scenarios as select 1 as gpus", {}),
        # The fleet file's own rate comes first.
        ("insert into reference.cost_rates values ('a100', 9, '', '2026-01-01')", {}),
        ("insert into reference.cost_rates values ('h100', 9, '', '2026-01-01')", {"cost_rates": [3, 4, 5]}),
        ("insert into raw.model_prices (model, source, valid_from) values ('m', 's', '2026-10-04')",
         {"prices": [4, 5]}),
        ("update raw.booked_with set value = 'other' where setting = 'formulas' and date < '2026-10-03'",
         {"formulas": [1, 2]}),
        ("update raw.booked_with set value = '0.0.9' where setting = 'code_version'", {}),
        # A setting from after the date's booking is not compared.
        ("delete from raw.booked_with where setting = 'tariffs'", {}),
    ],
)  # fmt: skip
def test_values_of_the_grid_seeds_and_code_make_their_dates_old(
    booked: duckdb.DuckDBPyConnection, tmp_path: Path, change: str, expected: dict[str, list[int]]
) -> None:
    booked.execute(change)
    assert stale(booked, tmp_path) == expected


def test_formulas_that_make_the_same_rows_make_no_date_old(booked: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    booked.execute("update raw.booked_with set value = 'same' where setting = 'formulas' and date < '2026-10-03'")
    booked.execute("update raw.booked_with set value = 'other' where setting = 'formulas' and date = '2026-10-04'")
    found, _ = settings.stale(booked, replace(constants(tmp_path), same_formulas=frozenset({"same"})))
    assert found == {"formulas": october(4)}


def test_another_grid_of_time_makes_every_date_old(booked: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    found, _ = settings.stale(booked, constants(tmp_path, grid_seconds=600, max_spread_days=2))
    assert found == dict.fromkeys(("grid_seconds", "max_spread_days"), october(1, 2, 3, 4, 5))


def test_booking_again_records_anew_and_other_dates_stay(booked: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    contents = copied()
    contents["sites"][0]["pue"] = 1.5
    write(booked, fleet_of(tmp_path, contents))
    due_dates.booked(booked, date(2026, 10, 2), date(2026, 10, 4), constants=constants(tmp_path))
    assert stale(booked, tmp_path) == {"sites": [1, 4, 5]}
    rows = booked.execute("select count(*), count(distinct (date, setting)) from raw.booked_with").fetchall()[0]
    assert rows[0] == rows[1] > 0
    assert booked.execute("select method_version, code_version from raw.warehouse_version").fetchall() == [
        ("2", "0.1.0")
    ]


def test_dates_from_before_settings_were_recorded_are_listed(booked: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    booked.execute("delete from raw.booked_with where date <= '2026-10-02'")
    assert settings.stale(booked, constants(tmp_path)) == ({}, october(1, 2))
    assert settings.booked_dates(booked) == october(1, 2, 3, 4, 5)


def test_the_warning_has_ranges_and_the_command(tmp_path: Path) -> None:
    changed = {"tariffs": october(1, 2, 3, 7), "grid": october(9)}
    assert stale_settings.described(fleet_of(tmp_path, copied()), changed) == (
        "5 booked dates use older settings: tariffs: 2026-10-01 to 2026-10-03, 2026-10-07 (4 dates); grid: 2026-10-09"
        f" (1 date). Re-book with: wattledger run --fleet {tmp_path / 'fleet.yaml'} --rebuild"
        " --start 2026-10-01 --end 2026-10-10"
    )
    everything = stale_settings.described(fleet_of(tmp_path, copied()), {"columns": october(1), "grid": october(9)})
    assert everything.endswith(f"--fleet {tmp_path / 'fleet.yaml'} --rebuild")
    many = [date(2026, 1, 1) + timedelta(days=2 * n) for n in range(7)]
    assert "2026-01-09 and 2 more ranges (7 dates)" in stale_settings.described(
        fleet_of(tmp_path, copied()), {"grid": many}
    )
