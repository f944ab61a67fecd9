"""The rows of mission.yaml: what they are, how each is asked, and when an answer is the one that is expected.

Add here a way to ask. Keep out questions and answers (mission.yaml), and how a fleet comes to its book (`fleets`).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import dagster as dg
import openpyxl
import pytest
import yaml
from adbc_driver_postgresql import dbapi

from pipelines.alarming import ledger_alarms
from pipelines.booking.project import prepared_project
from pipelines.code_location import SCHEDULE, definitions_of
from pipelines.fleet.fleet_file import load_fleet
from pipelines.fleet.places import PROJECT
from pipelines.fleet.targets.publication_targets import PostgresqlTarget
from pipelines.publishing.postgresql import loading as postgresql
from pipelines.publishing.publication_manifest import REPORT, WORKBOOK
from pipelines.today import ticks
from pipelines.warehouse import contracts
from tests.books import environment
from tests.mission.fleets import LIMIT_SECONDS, Planted
from tests.servers import Postgresql

TABLE = Path(__file__).with_name("mission.yaml")
# Of a figure that no row states otherwise: sums are kept to a millionth.
WITHIN = 1e-6
HEADINGS_ROW = 4  # of a sheet of the workbook
DSN = "WATTLEDGER_MISSION_POSTGRESQL"


@dataclass(frozen=True)
class Row:
    """One question: exactly one of the keys in `ASK` is how it is asked."""

    promise: str
    question: str
    working: str
    answer: Any = None
    fleet: str = "planted"
    within: float = WITHIN
    needs: tuple[str, ...] = ()
    expected_wrong_until: str = ""
    was: str = ""
    sql: str = ""
    command: str = ""
    today: str = ""
    workbook: str = ""
    report: bool = False
    postgresql: str = ""
    schedule: str = ""
    alarms: str = ""
    asked_by: str = ""

    @property
    def way(self) -> str:
        """The key that holds how it is asked."""
        (way,) = (key for key in ASK if getattr(self, key))
        return way


def rows() -> list[Row]:
    """The rows of mission.yaml, in their order."""
    read = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    return [Row(**{**row, "needs": tuple(row.get("needs", ()))}) for row in read]


def answered(row: Row, fleet: Any) -> Any:
    """What is answered; rows of figures as lists, texts as those of the expected ones that are there."""
    return ASK[row.way](row, fleet)


def is_right(row: Row, got: Any) -> bool:
    """Whether the answer is the expected one: figures within `within`, everything else to the letter."""
    return plain(got) == _approximately(row.answer, row.within)


def _approximately(value: Any, within: float) -> Any:
    if isinstance(value, list):
        return [_approximately(one, within) for one in value]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return pytest.approx(value, rel=within, abs=1e-9)
    return value


def plain(value: Any) -> Any:
    """Numbers as floats, dates as text, rows as lists."""
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M")
    if isinstance(value, date):
        return value.isoformat()
    return float(value) if isinstance(value, Decimal) else value


# --- the ways to ask --------------------------------------------------------------------------------------------------


def _sql(row: Row, fleet: Any) -> Any:
    sql = row.sql.replace("{published}", str(fleet.fleet.published))
    return [list(one) for one in fleet.query(sql)]


def _printed(expected: Sequence[str], text: str) -> list[str]:
    """Those of the expected texts that are in what was printed, whatever its spaces."""
    flat = " ".join(text.replace("\N{NO-BREAK SPACE}", " ").split())
    return [one for one in expected if one in flat]


def _command(row: Row, fleet: Planted) -> list[str]:
    return _printed(row.answer, fleet.command(row.command))


def _today(row: Row, fleet: Planted) -> list[str]:
    """The tick of a moment of the past, and the command that prints the newest tick."""
    ticks.refresh(fleet.fleet, datetime.fromisoformat(row.today))
    return _printed(row.answer, fleet.command("today"))


def _workbook(row: Row, fleet: Planted) -> list[list[Any]]:
    """`Sheet: heading = value, …: heading, …` of the rows that have these values."""
    sheet, where, wanted = (part.strip() for part in row.workbook.split(":"))
    book = openpyxl.load_workbook(fleet.fleet.published / WORKBOOK, data_only=True)
    lines = [list(line) for line in book[sheet].iter_rows(min_row=HEADINGS_ROW, values_only=True)]
    chosen = dict(tuple(part.strip() for part in pair.split("=")) for pair in where.split(","))
    found = [dict(zip(lines[0], line, strict=True)) for line in lines[1:]]
    return [
        [line[heading.strip()] for heading in wanted.split(",")]
        for line in found
        if all(str(line[heading])[: len(value)] == value for heading, value in chosen.items())
    ]


def _report(row: Row, fleet: Planted) -> list[str]:
    """The page that `wattledger report` writes."""
    fleet.command("report")
    return _printed(row.answer, (fleet.fleet.published / REPORT).read_text(encoding="utf-8"))


def _postgresql(row: Row, fleet: Planted) -> list[list[Any]]:
    """The publication written to a real server, and asked there."""
    with Postgresql.installed() as server:
        server.start()
        os.environ[DSN] = server.uri
        target = PostgresqlTarget.model_construct(dsn_env=DSN, schema_prefix="", reader=None)
        project = prepared_project()
        marts = contracts.contracts_of(project.manifest_path, project.project_dir).marts
        postgresql.publish(fleet.fleet, target, marts)
        with dbapi.connect(server.uri, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute(row.postgresql)
            return [list(one) for one in cursor.fetchall()]


def _schedule(row: Row, fleet: Planted) -> list[Any]:
    """What the schedule of Dagster asks for at a moment, and its cron line."""
    running = fleet.folder / "running.yaml"
    running.write_text(row.schedule.partition("\n")[2], encoding="utf-8")
    repository = definitions_of(load_fleet(running, environment(fleet.folder / "data"))).get_repository_def()
    schedule = repository.get_schedule_def(SCHEDULE)
    with dg.DagsterInstance.ephemeral() as history:
        moment = datetime.fromisoformat(row.schedule.partition("\n")[0])
        context = dg.build_schedule_context(history, moment, repository_def=repository)
        (request,) = schedule.evaluate_tick(context).run_requests
    return [schedule.cron_schedule, schedule.execution_timezone, request.partition_key]


def _alarms(row: Row, fleet: Planted) -> list[list[Any]]:
    """What a run would send of alarms of this kind: severity, sentence and USD."""
    found = ledger_alarms.published_alarms(fleet.fleet, {}).alarms
    return [[alarm.severity, alarm.what, alarm.usd] for alarm in found if alarm.kind == row.alarms]


def _asked_by(row: Row, _: Any) -> str:
    """Another suite's test, run in a process of its own."""
    words = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-o", "addopts=", row.asked_by]
    done = subprocess.run(words, cwd=PROJECT, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    return "passed" if done.returncode == 0 else done.stdout[-500:]


ASK: dict[str, Callable[[Row, Any], Any]] = {
    "sql": _sql,
    "command": _command,
    "today": _today,
    "workbook": _workbook,
    "report": _report,
    "postgresql": _postgresql,
    "schedule": _schedule,
    "alarms": _alarms,
    "asked_by": _asked_by,
}
