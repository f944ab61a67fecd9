"""Two fleet files of one name do not write over each other; a file that was moved or copied goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.command_line.main import main
from pipelines.fleet.data_owner import claim
from pipelines.fleet.fleet_file import Fleet, FleetError, load_fleet
from tests.fleet.test_fleet import SMALLEST


def fleet_at(path: Path, text: str = SMALLEST) -> Fleet:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return load_fleet(path, {"WATTLEDGER_DATA": str(path.parents[1] / "data")})


def test_another_file_of_the_same_name_is_refused(tmp_path: Path) -> None:
    claim(fleet_at(tmp_path / "a" / "fleet.yaml"))
    claim(fleet_at(tmp_path / "a" / "fleet.yaml", f"{SMALLEST}max_spread_days: 4\n"))  # edited
    other = fleet_at(tmp_path / "b" / "fleet.yaml")
    with pytest.raises(FleetError) as refused:
        claim(other)
    assert refused.value.problems == [
        f"fleet: got 'mine', which {tmp_path}/a/fleet.yaml is named too, and {tmp_path}/data/mine has that file's data,"
        " expected a name of its own: change `fleet:`, or set WATTLEDGER_DATA to another folder. If this file replaces"
        f" the other one, remove {tmp_path}/data/mine/fleet_file"
    ]
    claim(fleet_at(tmp_path / "a" / "fleet.yaml"))  # the first one goes on


@pytest.mark.parametrize("left", [None, SMALLEST.replace("mine", "other"), SMALLEST, "fleet: [mine", "- mine"])
def test_a_file_that_was_moved_renamed_or_copied_takes_over(tmp_path: Path, left: str | None) -> None:
    first = tmp_path / "a" / "fleet.yaml"
    claim(fleet_at(first))
    first.unlink()
    if left is not None:
        first.write_text(left, encoding="utf-8")
    claim(fleet_at(tmp_path / "b" / "fleet.yaml"))
    marker = tmp_path / "data" / "mine" / "fleet_file"
    assert marker.read_text(encoding="utf-8") == f"{tmp_path}/b/fleet.yaml\n"


def test_run_refuses_before_it_asks_a_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WATTLEDGER_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))  # a run sets it for its children
    claim(fleet_at(tmp_path / "a" / "fleet.yaml", f"{SMALLEST}max_spread_days: 4\n"))
    other = fleet_at(tmp_path / "b" / "fleet.yaml")
    assert main(["run", "--fleet", str(other.path)]) == 2
    assert f"fleet: got 'mine', which {tmp_path}/a/fleet.yaml is named too" in capsys.readouterr().err
    assert not other.warehouse.exists()
