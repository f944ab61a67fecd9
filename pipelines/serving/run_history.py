"""What Dagster's history has of the fleet's last run: when it ended, how long it took, and the state of each check.

Add here a fact of a run that is worth watching. Keep out the run itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import dagster as dg

from pipelines.code_location import JOB
from pipelines.fleet.fleet_file import Fleet

_ENDED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]


class CheckState(NamedTuple):
    """A check as the last run found it; `table` is schema and name. `severity` is error or warn."""

    table: str
    check: str
    severity: str
    is_passed: bool


@dataclass(frozen=True)
class LastRun:
    """The last run that has ended."""

    ended_seconds: float
    seconds: float
    is_successful: bool
    checks: list[CheckState]


def last_run(fleet: Fleet, home: Path) -> LastRun | None:
    """The fleet's last run in the Dagster instance of the folder `home`; None where there was none."""
    if not (home / "dagster.yaml").exists():
        return None
    with dg.DagsterInstance.from_config(str(home)) as instance:
        chosen = dg.RunsFilter(job_name=JOB, statuses=_ENDED, tags={"fleet": fleet.fleet})
        for record in instance.get_run_records(chosen, limit=1):
            if record.start_time is None or record.end_time is None:
                continue
            events = instance.all_logs(record.dagster_run.run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION)
            checks = {state[:2]: state for state in map(_state, events) if state is not None}
            return LastRun(
                record.end_time,
                record.end_time - record.start_time,
                record.dagster_run.status == dg.DagsterRunStatus.SUCCESS,
                sorted(checks.values()),
            )
    return None


def _state(event: dg.EventLogEntry) -> CheckState | None:
    if event.dagster_event is None:
        return None
    found = event.dagster_event.asset_check_evaluation_data
    return CheckState(
        "/".join(found.asset_key.path[-2:]), found.check_name, found.severity.value.lower(), bool(found.passed)
    )
