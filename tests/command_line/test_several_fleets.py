"""Several fleets of a folder: what `table --all` prints and `sql --all` answers, with sums worked out by hand."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from pipelines.fleet.fleet_file import load_fleet
from tests import commands
from tests.books import environment
from tests.report import publications
from tests.report.publications import NEWEST, fleet_day

MONTH = {
    "month": NEWEST.replace(day=1), "site": "west", "status": "open", "booked_hours": 372.0, "month_hours": 744.0,
    "closed_cost_usd": 100.0, "known_cost_usd": 100.0, "idle_cost_usd": 50.0, "forecast_usd": 200.0,
    "facility_energy_kwh": 10.0, "location_kgco2e": 2.0, "is_cost_complete": True,
}  # fmt: skip
BUDGET = {
    "month": NEWEST.replace(day=1), "budget": "chat", "scope": "team", "name": "chat", "budget_usd": 150.0,
    "spent_usd": 75.0, "forecast_usd": 160.0, "expected_overrun_usd": 10.0,
}  # fmt: skip


def written(folder: Path, name: str, **tables: publications.Rows) -> Path:
    """A fleet file in `folder`, and its publication where it has rows."""
    fleets = folder / "fleets"
    fleets.mkdir(exist_ok=True)
    path = fleets / f"{name}.yaml"
    path.write_text(
        f"fleet: {name}\nperiod: {{start: 2026-10-01}}\n"
        "sources: [{name: cluster, kind: prometheus, url: 'http://p:9090', interval_seconds: 30}]\n"
    )
    if tables:
        publications.write(load_fleet(path, {"WATTLEDGER_DATA": str(folder / "data")}).published, **tables)
    return path


def answered(folder: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    surroundings = environment(folder / "data", WATTLEDGER_FLEETS=str(folder / "fleets"), **more)
    return commands.run([*words, "--all"], surroundings, timeout=60)


def day(**changes: Any) -> dict[str, Any]:
    """A date of a fleet: 1 MJ for 200,000 output tokens, half of it idle, a quarter of the time at work."""
    known = {"known_seconds": 86400, "active_seconds": 21600, "compute_cost_usd": 10.0, "is_cost_complete": True}
    priced = {"matched_compute_cost_usd": 10.0, "priced_output_tokens": 200_000}
    return fleet_day(NEWEST, **known, **priced, **changes)


def test_one_table_has_all_fleets_and_their_sums(tmp_path: Path) -> None:
    written(
        tmp_path, "east",
        finance_months=[MONTH, {**MONTH, "site": "east"}, {**MONTH, "month": NEWEST.replace(month=9, day=1)}],
        marts_fleet_daily=[day(), day(site="east")], finance_budgets=[BUDGET],
    )  # fmt: skip
    # 3 MJ for 200,000 tokens; without a grid factor for a part, and without a price.
    large = {"energy_joules": 3e6, "matched_joules": 3e6, "productive_joules": 3e6, "idle_joules": 0}
    unknown = {"is_cost_complete": False, "is_carbon_complete": False, "compute_cost_usd": None}
    west = {**MONTH, "known_cost_usd": 40.0, "closed_cost_usd": 40.0, "idle_cost_usd": 0.0, "is_cost_complete": False}
    west |= {"forecast_usd": None, "facility_energy_kwh": None}
    written(
        tmp_path, "west", finance_months=[west],
        marts_fleet_daily=[day() | large | unknown], finance_budgets=[{**BUDGET, "expected_overrun_usd": 0.0}],
    )  # fmt: skip
    done = answered(tmp_path, "table")
    assert (done.returncode, done.stderr) == (0, "")
    months, ledger, budgets, *_ = done.stdout.split("\n\n")
    assert months == "\n".join(
        [
            "fleet  month    booked  USD charged  USD known  idle cost  USD at its end     kWh  kgCO2e",
            "-----  -------  ------  -----------  ---------  ---------  --------------  ------  ------",
            "east   2026-10   50.0%       200.00     200.00      50.0%          400.00    20.0     4.0",
            "west   2026-10   50.0%      ≥ 40.00    ≥ 40.00       0.0%               –       –     2.0",
            "all    2026-10   50.0%     ≥ 240.00   ≥ 240.00      41.7%               –  ≥ 20.0     6.0",
        ]
    )
    dates = "2026-10-28 to 2026-10-28"
    assert ledger == "\n".join(
        [
            "fleet  dates                     J/output token  idle energy  idle time"
            "  kWh  kgCO2e  USD compute  USD compute/Mtok",
            "-----  ------------------------  --------------  -----------  ---------"
            "  ---  ------  -----------  ----------------",
            f"east   {dates}          5.0000        50.0%      75.0%  1.0     0.2        20.00             50.00",
            f"west   {dates}         15.0000         0.0%      75.0%  0.5   ≥ 0.1            –             50.00",
            # 5 MJ for 600,000 tokens; 1 MJ of 5 idle.
            f"all    {dates}          8.3333        20.0%      75.0%  1.5   ≥ 0.3      ≥ 20.00             50.00",
        ]
    )  # fmt: skip
    assert [line.split() for line in budgets.splitlines()[2:]] == [
        ["east", "2026-10", "chat", "team", "chat", "150.00", "75.00", "50.0%", "160.00", "10.00"],
        ["west", "2026-10", "chat", "team", "chat", "150.00", "75.00", "50.0%", "160.00", "–"],
    ]


def test_boards_and_whole_nodes_are_rows_of_their_own(tmp_path: Path) -> None:
    written(tmp_path, "east", marts_fleet_daily=[day()])
    written(tmp_path, "west", marts_fleet_daily=[day(meter_scope="node")])
    names = [line.split("  ")[0] for line in answered(tmp_path, "table").stdout.splitlines()[2:6]]
    assert names == ["east (board)", "west (node)", "all (board)", "all (node)"]


def test_what_is_no_fleet_or_has_nothing_is_named_and_the_others_are_shown(tmp_path: Path) -> None:
    written(tmp_path, "east", marts_fleet_daily=[day()])
    written(tmp_path, "new")
    twice = tmp_path / "fleets" / "twice.yaml"
    twice.write_text((tmp_path / "fleets" / "east.yaml").read_text())
    wrong = tmp_path / "fleets" / "wrong.yml"
    wrong.write_text("fleet: wrong\nperiod: {start: 2026-10-01}\nsourcez: []\n")
    done = answered(tmp_path, "table")
    assert done.returncode == 1
    assert "\neast   2026-10-28 to 2026-10-28 " in done.stdout
    assert done.stderr.splitlines()[:2] == [
        "fleet new: nothing is published yet",
        f"{twice}: {tmp_path}/fleets/east.yaml is named 'east', too. Change `fleet:` in one of them",
    ]
    assert str(wrong) in done.stderr
    # A query that left a fleet out would be wrong without a word.
    done = answered(tmp_path, "sql", "from marts.fleet_daily")
    assert (done.returncode, done.stdout) == (2, "")


def test_a_query_has_the_fleet_of_each_row(tmp_path: Path) -> None:
    written(tmp_path, "east", finance_months=[MONTH])
    written(tmp_path, "west", finance_months=[{**MONTH, "known_cost_usd": 40.0}])
    query = "select fleet, known_cost_usd::double as usd from finance.months order by fleet"
    done = answered(tmp_path, "sql", query, "--format", "csv")
    assert (done.returncode, done.stdout) == (0, "fleet,usd\neast,100.0\nwest,40.0\n")
    # This table has a column of the name already.
    done = answered(tmp_path, "sql", "select fleet from published.publication order by fleet", "--format", "csv")
    assert done.stdout == "fleet\neast\nwest\n"
    done = answered(tmp_path, "sql", "from finance.monthz")
    assert (done.returncode, "The nearest names: finance.months" in done.stderr) == (2, True)
    for reading in (f"from '{tmp_path}/fleets/east.yaml'", f"attach '{tmp_path}/x.duckdb'"):
        assert answered(tmp_path, "sql", reading).returncode == 2


@pytest.mark.parametrize(
    ("folder", "words"),
    [("", "--all: WATTLEDGER_FLEETS is not set"), ("/nowhere", "WATTLEDGER_FLEETS=/nowhere has no fleet file")],
)
def test_a_folder_without_fleets_is_one_line(tmp_path: Path, folder: str, words: str) -> None:
    done = commands.run(["table", "--all"], environment(tmp_path, WATTLEDGER_FLEETS=folder), timeout=60)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert words in done.stderr
