"""`discover` of what has no server: a metrics page, and the spool of an agent, which it leaves as it is."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from collectors.devices.spool import Spool
from collectors.devices.spool_writer import SpoolWriter
from collectors.readings import Reading, labels_json
from pipelines.command_line.main import main
from pipelines.fleet.fleet_file import load_fleet
from tests.servers import http_server, reply

NINE = datetime(2026, 10, 15, 9, tzinfo=UTC)
BOARD = {
    "Hostname": "gpu-a",
    "UUID": "GPU-1",
    "modelName": "NVIDIA A100-SXM4-80GB",
    "pod": "chat-0",
    "namespace": "llm",
}
ENGINE = {"instance": "gpu-a:8000", "pod": "chat-0", "namespace": "llm", "model_name": "chat"}
PAGE = """\
# TYPE DCGM_FI_DEV_POWER_USAGE gauge
DCGM_FI_DEV_POWER_USAGE{Hostname="gpu-a",UUID="GPU-1",modelName="NVIDIA A100-SXM4-80GB"} 300
# TYPE brand_new_power_watts gauge
brand_new_power_watts{gpu="0"} 1
"""


def write(folder: Path, minutes: range) -> None:
    """A board of 300 W that serves ten tokens a second, sampled every 15 s."""
    writer = SpoolWriter(Spool(str(folder)), "gpu-a", rotate_seconds=60)
    for second in range(minutes.start * 60, minutes.stop * 60, 15):
        us = int((NINE + timedelta(seconds=second)).timestamp() * 1e6)
        readings = [
            Reading(us, "dcgm_exporter", "DCGM_FI_DEV_POWER_USAGE", labels_json(BOARD), 300.0),
            Reading(us, "vllm", "vllm:generation_tokens_total", labels_json(ENGINE), 10.0 * second),
        ]
        writer.add(readings)
        if second % 60 == 45:
            assert writer.flush()


@pytest.fixture
def spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WATTLEDGER_DATA", str(tmp_path / "data"))
    return tmp_path / "spool"


def test_a_spool_shows_its_boards_and_is_left_as_it_is(spool: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(spool, range(40))
    before = sorted(spool.rglob("*.parquet"))
    at = (NINE + timedelta(minutes=40)).isoformat()
    assert main(["discover", str(spool), "--name", "agents", "--yes", "--at", at]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert "boards               1: 1 a100-sxm4-80gb" in printed.out
    assert "engines              1: 1 vllm" in printed.out
    assert "every 15 s" in printed.out
    # Of the full hours there is nothing. Of the one that runs samples reach from 0 to 2,385 s of 2,400: 300 W of these
    # are 298.1 W, and 300 W per 10 tokens a second are 30 J.
    assert "First numbers, 2026-10-15 09:00 to 09:40 UTC" in printed.out
    row = next(line.split() for line in printed.out.splitlines() if line.startswith("chat "))
    assert (row[0], row[2], row[3], row[5]) == ("chat", "1.0", "298.1", "30.0000")
    assert sorted(spool.rglob("*.parquet")) == before != []
    fleet = load_fleet(spool.parent / "agents.yaml")
    (source,) = fleet.sources
    assert (source.kind, source.interval_seconds, getattr(source, "path", None)) == ("spool", 15.0, str(spool))


def test_a_gap_makes_no_longer_interval(spool: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(spool, range(34))
    write(spool, range(36, 40))
    assert main(["discover", str(spool), "--json", "--at", (NINE + timedelta(minutes=40)).isoformat()]) == 0
    assert set(json.loads(capsys.readouterr().out)["intervals_seconds"].values()) == {15.0}


def test_an_empty_spool_is_one_line(spool: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (spool / "host=gpu-a").mkdir(parents=True)
    assert main(["discover", str(spool), "--yes"]) == 1
    assert capsys.readouterr().err == (
        f"{spool}: no file of an agent waits here: what is landed is removed from a spool.\n"
    )
    assert not (spool.parent / "spool.yaml").exists()


def test_a_metrics_page_shows_what_an_agent_would_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WATTLEDGER_DATA", str(tmp_path / "data"))
    out = tmp_path / "one.yaml"
    with http_server(lambda handler: reply(handler, 200, PAGE.encode(), "text/plain")) as url:
        assert main(["discover", f"{url}/metrics", "--name", "one", "--out", str(out), "--yes"]) == 0
        printed = capsys.readouterr()
        assert main(["discover", f"{url}/metrics", "--json"]) == 0
    assert "a metrics page, of this moment alone" in printed.out
    assert "boards               1: 1 a100-sxm4-80gb" in printed.out
    assert "1 metrics look like power or energy and are not read: brand_new_power_watts." in printed.out
    assert "First numbers" not in printed.out
    agent = f"wattledger-agent agent --page {url}/metrics --spool {tmp_path / 'data' / 'one' / 'spool'}"
    assert printed.out.splitlines()[-1] == f"before: {agent}"
    assert yaml.safe_load(out.read_text())["sources"] == [
        {"name": "cluster", "kind": "spool", "interval_seconds": 60.0}
    ]
    assert [board["device_uuid"] for board in json.loads(capsys.readouterr().out)["boards"]] == ["GPU-1"]


@pytest.mark.parametrize("option", [["--matcher", 'a="b"'], ["--header", "X-Scope-OrgID: a"]])
def test_options_of_servers_are_refused(spool: Path, capsys: pytest.CaptureFixture[str], option: list[str]) -> None:
    (spool / "host=gpu-a").mkdir(parents=True)
    assert main(["discover", str(spool), *option]) == 2
    assert "are for servers with Prometheus' API" in capsys.readouterr().err
