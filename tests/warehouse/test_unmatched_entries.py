"""Entries of the fleet file that telemetry does not have are found, within their own dates, with the nearest name."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from pipelines.booking.fleet_file_check import fleet_file_check
from pipelines.command_line.main import main
from pipelines.fleet.fleet_file import Fleet
from pipelines.warehouse import database
from pipelines.warehouse.raw_tables import create_tables
from pipelines.warehouse.unmatched_entries import unmatched
from tests.fleet.test_fleet import SMALLEST, load

# Booked are the first three days of October: one board of gpu-0a and one engine that serves org/big.
BOOKED = [
    ("node", "gpu-0a"),
    ("device", "GPU-1"),
    ("device_type", "h100-sxm5-80gb"),
    ("model", "big"),
    ("namespace", "llm"),
    ("site", "dc1"),
    # The assignment of a mistyped engine made it up.
    ("engine", "llm/tpyo"),
]
DAYS = ["2026-10-01", "2026-10-02", "2026-10-03"]
SERIES = [
    ("dcgm_exporter", {"Hostname": "gpu-0a", "UUID": "GPU-1", "modelName": "NVIDIA H100", "instance": "10.0.0.5:9400"}),
    ("dcgm_exporter", {"Hostname": "gpu-03", "UUID": "MIG-c", "instance": "172.16.0.9:9400"}),
    ("ipmi_exporter", {"instance": "10.9.0.3:9290"}),
    ("vllm", {"namespace": "llm", "pod": "big-0", "model_name": "org/big", "instance": "10.1.2.3:8000"}),
]  # fmt: skip


def write(connection: duckdb.DuckDBPyConnection) -> None:
    create_tables(connection)
    connection.execute("create schema marts; create schema reference")
    connection.execute("create table marts.token_ledger (date date, engine varchar)")
    connection.execute("create table reference.label_catalog as from 'dbt_project/seeds/label_catalog.csv'")
    connection.execute("create table reference.metric_catalog as from 'dbt_project/seeds/metric_catalog.csv'")
    for n, (kind, labels) in enumerate(SERIES):
        metric = {"dcgm_exporter": "DCGM_FI_DEV_POWER_USAGE", "ipmi_exporter": "ipmi_dcmi_power_consumption_watts"}
        connection.execute(
            "insert into raw.series values (?, 'cluster', ?, ?, ?, ?, ?)",
            [n, kind, metric.get(kind, "m"), json.dumps(labels), "2026-10-01 00:00:00+00", "2026-10-03 23:00:00+00"],
        )
    for on in DAYS:
        connection.execute("insert into marts.token_ledger values (?, 'llm/big-0')", [on])
        connection.executemany("insert into raw.booked_names values (?, ?, ?)", [(on, *name) for name in BOOKED])


@pytest.fixture(scope="module")
def warehouse() -> Iterator[duckdb.DuckDBPyConnection]:
    with database.connect(":memory:") as connection:
        write(connection)
        yield connection


def fleet(folder: Path, text: str) -> Fleet:
    return load(folder, f"{SMALLEST}sites: [{{name: dc1, zone: ES, pue: 1.2}}]\n{text}\n")


SPAN = "2026-10-01 to 2026-10-03"


@pytest.mark.parametrize(
    ("text", "key", "why"),
    [
        (
            "nodes: [{name: gpu-a}]",
            "nodes[gpu-a].name",
            f"got 'gpu-a', expected a node that telemetry has, {SPAN}; nearest: gpu-0a",
        ),
        (
            "nodes: [{name: gpu-0a, aliases: [10.0.0.6]}]",
            "nodes[gpu-0a].aliases[10.0.0.6]",
            f"got '10.0.0.6', expected a node that telemetry has, {SPAN}; nearest: 10.0.0.5",
        ),
        (
            "nodes: [{name: GPU-33, aliases: [10.9.0.3]}]",  # its boards are on gpu-03
            "nodes[GPU-33].name",
            "got 'GPU-33', which has a wall meter and no board, beside 'gpu-03', which has boards and no wall meter,"
            " expected one name for all meters of a host",
        ),
        (
            "devices: [{device_uuid: GPU-2, spare: true}]",
            "devices[0].device_uuid",
            f"got 'GPU-2', expected a device_uuid that telemetry has, {SPAN}; nearest: GPU-1",
        ),
        (
            "engines: [{engine: llm/bgi-0, team: chat}]",
            "engines[0].engine",
            f"got 'llm/bgi-0', expected an engine, pod, job or address that telemetry has, {SPAN}; nearest: llm/big-0",
        ),
        (
            "engines: [{engine: llm/big-0, pods: [llm/bag-*]}]",
            "engines[0].pods[llm/bag-*]",
            f"got 'llm/bag-*', expected an engine, pod, job or address that telemetry has, {SPAN}; nearest: llm/big-0",
        ),
        (
            'engines: [{engine: llm/big-0, targets: ["10.1.2.3:8001"]}]',
            "engines[0].targets[10.1.2.3:8001]",
            f"got '10.1.2.3:8001', expected a scraped address that telemetry has, {SPAN}; nearest: 10.1.2.3:8000",
        ),
        (
            "models: [{name: bgi, aliases: [org/bgi]}]",
            "models[bgi].name",
            f"got 'bgi' (or org/bgi), expected a model that telemetry has, {SPAN}; nearest: big",
        ),
        ("teams: {lml: x}", "teams[lml]", f"got 'lml', expected a namespace that telemetry has, {SPAN}; nearest: llm"),
        (
            "cost_rates: [{device_type: H100, usd_per_gpu_hour: 2, source: x}]",
            "cost_rates[0].device_type",
            f"got 'H100', expected a device type that telemetry has, {SPAN}; nearest: h100-sxm5-80gb",
        ),
        (
            "spot_rates: [{site: dc1, device_type: H100, gpus: 8, usd_per_gpu_hour: 1,"
            ' start_at: "2026-10-02T00:00:00Z", end_at: "2026-10-03T00:00:00Z"}]',
            "spot_rates[0].device_type",
            "got 'H100', expected a device type that telemetry has, 2026-10-02 to 2026-10-02; nearest: h100-sxm5-80gb",
        ),
        (
            'assignments: [{node: gpu-0a, engine: llm/tpyo, start_at: "2026-10-01T00:00:00Z"}]',
            "assignments[0].engine",
            f"got 'llm/tpyo', expected an engine, pod, job or address that telemetry has, {SPAN}",
        ),
        (
            'assignments: [{device_uuid: GPU-2, model: big, start_at: "2026-10-01T00:00:00Z"}]',
            "assignments[0].device_uuid",
            f"got 'GPU-2', expected a device_uuid that telemetry has, {SPAN}; nearest: GPU-1",
        ),
    ],
)  # fmt: skip
def test_a_name_that_telemetry_does_not_have_is_found_with_the_nearest(
    warehouse: duckdb.DuckDBPyConnection, tmp_path: Path, text: str, key: str, why: str
) -> None:
    found = unmatched(fleet(tmp_path, text), warehouse)
    assert found is not None
    assert (key, why) in [(one.key, one.text) for one in found]
    accepted = unmatched(fleet(tmp_path, f'{text}\naccepted: ["{key}"]'), warehouse)
    assert accepted is not None
    assert key not in [one.key for one in accepted]


@pytest.mark.parametrize(
    "text",
    [
        "nodes: [{name: gpu-0a, aliases: [10.0.0.5]}]",  # the address that its exporter is scraped at
        "nodes: [{name: gpu-03, aliases: [10.9.0.3]}]",
        # A host without boards of quite another name, and one beside boards whose wall meter is known.
        "nodes: [{name: storage-1, aliases: [10.9.0.3]}]",
        "nodes: [{name: gpu-04, aliases: [10.9.0.3]}, {name: gpu-03}, {name: gpu-0a}]",
        # A node that was retired before the first booked date, and one that comes later.
        'nodes: [{name: old}]\nassignments: [{node: old, model: m, start_at: "2026-08-01T00:00:00Z",'
        ' end_at: "2026-10-01T00:00:00Z"}]',
        'nodes: [{name: new}]\nassignments: [{node: new, model: m, start_at: "2026-10-04T00:00:00Z"}]',
        # Stated to be in a node: no meter has to show it.
        "nodes: [{name: dark, site: dc1, gpus: [{device_type: x1, count: 8}]}]\n"
        "cost_rates: [{device_type: x1, usd_per_gpu_hour: 2, source: x}]",
        "engines: [{engine: llm/*, team: chat}]",
        'engines: [{engine: a, targets: ["10.1.2.3:8000"]}]',
        "engines: [{engine: llm/frontend, pods: [llm/big-*]}]",
        "models: [{name: other, aliases: [org/big]}]",
        # A contract that has ended, and one that starts later.
        "cost_rates: [{device_type: a6000, usd_per_gpu_hour: 2, source: x, valid_to: 2026-10-01}]",
        "commitments: [{commitment: c, site: dc1, device_type: a6000, gpus: 8, usd_per_gpu_hour: 1,"
        " valid_from: 2026-12-01}]",
        # What trains has no telemetry of its own: the file names it.
        'engines: [{engine: llm/big-0, model: big}]\n'
        'assignments: [{node: gpu-0a, engine: run-7, model: training, start_at: "2026-10-01T00:00:00Z"}]',
    ],
)  # fmt: skip
def test_what_telemetry_has_or_need_not_have_is_no_finding(
    warehouse: duckdb.DuckDBPyConnection, tmp_path: Path, text: str
) -> None:
    assert unmatched(fleet(tmp_path, text), warehouse) == []


def test_an_accepted_entry_that_matches_by_now_is_a_finding(
    warehouse: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    found = unmatched(fleet(tmp_path, 'nodes: [{name: gpu-0a}]\naccepted: ["nodes[gpu-0a].name"]'), warehouse)
    assert [str(one) for one in found or []] == [
        "accepted[0]: got 'nodes[gpu-0a].name', expected the key of a finding, as `wattledger check` prints it: it"
        " silences nothing, so remove it"
    ]


def test_nothing_is_checked_before_the_first_booking(tmp_path: Path) -> None:
    with database.connect(":memory:") as connection:
        create_tables(connection)
        assert unmatched(fleet(tmp_path, "nodes: [{name: gpu-a}]"), connection) is None


def test_check_waits_for_no_run_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "p.csv").write_text("t,w\n2026-10-02T00:00:00Z,5\n", encoding="utf-8")
    monkeypatch.setenv("WATTLEDGER_DATA", str(tmp_path / "data"))
    path = tmp_path / "fleet.yaml"
    path.write_text(
        "fleet: mine\nperiod: {start: 2026-10-01}\nnodes: [{name: gpu-a}]\nsources: [{name: w, kind: files,"
        " interval_seconds: 1, files: [{path: p.csv, time: t, values: {wall_power_watts: w}}]}]\n",
        encoding="utf-8",
    )
    root = tmp_path / "data" / "mine"
    root.mkdir(parents=True)
    with database.connect(root / "warehouse.duckdb") as connection:
        write(connection)
    assert main(["check", "--json", "--fleet", str(path)]) == 0
    assert [one["key"] for one in json.loads(capsys.readouterr().out)] == ["nodes[gpu-a].name"]
    assert [one.name for one in root.iterdir()] == ["warehouse.duckdb"]
    hold = "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print('open', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", hold, str(root / "warehouse.duckdb")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == b"open\n"
        assert main(["check", "--json", "--fleet", str(path)]) == 0
        (only,) = json.loads(capsys.readouterr().out)
        run.communicate()
    assert only["got"].startswith(f"names are not compared with what was landed: {root}/warehouse.duckdb is open in")


def test_check_and_each_run_warn_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WATTLEDGER_DATA", str(tmp_path / "data"))
    mine = fleet(tmp_path, "nodes: [{name: gpu-a}]")
    mine.root.mkdir(parents=True)
    with database.connect(mine.warehouse) as connection:
        write(connection)
    why = f"a node that telemetry has, {SPAN}; nearest: gpu-0a"
    assert main(["check", "--offline", "--json", "--fleet", str(mine.path)]) == 0
    assert json.loads(capsys.readouterr().out) == []
    result = fleet_file_check(mine)()
    assert (result.passed, result.severity.value) == (False, "WARN")
    assert result.description == (
        f"1 row\n  nodes[gpu-a].name: got 'gpu-a', expected {why}\n"
        "  What to do: correct the value or the name, or remove the entry."
        ' If it is right: accepted: ["nodes[gpu-a].name"]'
    )


def test_each_run_warns_of_what_is_implausible_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tariff in cents: 12 USD per kWh were booked without a word at the end of the run."""
    monkeypatch.setenv("WATTLEDGER_DATA", str(tmp_path / "data"))
    mine = load(tmp_path, f"{SMALLEST}sites: [{{name: dc1, zone: ES, pue: 1.2, tariff: [{{usd_per_kwh: 12}}]}}]\n")
    mine.root.mkdir(parents=True)
    with database.connect(mine.warehouse) as connection:
        write(connection)
    result = fleet_file_check(mine)()
    assert (result.passed, result.severity.value) == (False, "WARN")
    assert "sites[dc1].tariff[0].usd_per_kwh: got 12, expected 0.005 to 1 USD per kWh" in str(result.description)
