"""A backup that is refused leaves nothing, and one that is made is whole, also beside what a killed one has left."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from filelock import FileLock

from pipelines.fleet.fleet_file import Fleet, load_fleet
from pipelines.upkeep import backups
from pipelines.warehouse import database, disk_room
from pipelines.warehouse.raw_tables import create_tables
from pipelines.warehouse.refusals import QuestionError

NOW = datetime(2026, 11, 20, 6, tzinfo=UTC)


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    path = tmp_path / "mine.yaml"
    path.write_text("fleet: mine\nperiod: {start: 2026-11-15}\nsources: [{name: agents, kind: spool}]\n")
    made = load_fleet(path, {"WATTLEDGER_DATA": str(tmp_path / "data")})
    made.root.mkdir(parents=True)
    with database.connect(made.warehouse) as connection:
        create_tables(connection)
        connection.execute("insert into raw.booked_with values ('2026-11-15', 'method_version', '5')")
    return made


def test_a_backup_is_a_folder_that_can_be_opened(fleet: Fleet, tmp_path: Path) -> None:
    killed = tmp_path / "backups" / ".building-mine-20261119T060000Z"
    killed.mkdir(parents=True)
    (killed / "half").write_bytes(b"of a warehouse")
    made = backups.back_up(fleet, tmp_path / "backups", NOW)
    assert made.folder == tmp_path / "backups" / "mine-20261120T060000Z"
    assert made.dates == (date(2026, 11, 15),)
    assert [path.name for path in (tmp_path / "backups").iterdir()] == ["mine-20261120T060000Z"]
    copy = made.folder / "mine" / "warehouse.duckdb"
    facts = json.loads((made.folder / "backup.json").read_text())
    assert facts["warehouse_sha256"] == hashlib.sha256(copy.read_bytes()).hexdigest()
    assert facts["publication_id"] is None
    with database.connect(copy, read_only=True) as connection:
        assert connection.execute("select date from raw.booked_with").fetchall() == [(date(2026, 11, 15),)]
    with pytest.raises(QuestionError, match="is there already"):
        backups.back_up(fleet, tmp_path / "backups", NOW)


def test_a_backup_that_is_refused_leaves_nothing(fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(QuestionError, match=r"expected a folder outside .*, best on another disk"):
        backups.back_up(fleet, fleet.root / "backups", NOW)
    assert [path.name for path in fleet.root.iterdir()] == ["warehouse.duckdb"]
    monkeypatch.setattr(disk_room, "MARGIN_RATIO", 1e12)
    with pytest.raises(disk_room.TooLittleRoom, match=r"the backup of fleet mine needs .* of free disk"):
        backups.back_up(fleet, tmp_path / "backups", NOW)
    assert list((tmp_path / "backups").iterdir()) == []


def test_a_backup_waits_for_the_writer(fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATTLEDGER_LOCK_SECONDS", "0.2")
    with FileLock(f"{fleet.warehouse}.lock"), pytest.raises(database.WarehouseBusy, match="is being written by"):
        backups.back_up(fleet, tmp_path / "backups", NOW)
    assert list((tmp_path / "backups").iterdir()) == []
