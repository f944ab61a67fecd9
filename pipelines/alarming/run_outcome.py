"""What became of one run of Dagster's, whoever started it: read from Dagster's own history.

Add here what an alarm needs of a run. Keep out which of it is an alarm (`run_alarms`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pipelines.fleet.fleet_file import Fleet
from pipelines.warehouse import mistakes
from pipelines.warehouse.asset_keys import table_of

if TYPE_CHECKING:
    import dagster as dg


@dataclass(frozen=True)
class Found:
    """What one check found. `description` is what should hold, `text` is what the run prints of it; `rows` is a table
    in Markdown, and `rows_found` how many rows there are in all."""

    table: str
    name: str
    passed: bool
    is_error: bool
    text: str = ""
    description: str = ""
    remedy: str = ""
    rows: str = ""
    rows_found: int | None = None


@dataclass(frozen=True)
class Outcome:
    """`failures` has a line per reason why steps failed. With `is_whole` the run had every step, so each check that
    the fleet has was asked unless a step failed. `remedies` are those of all checks. `began_at` is None where the run
    could not begin."""

    ended_at: datetime
    is_success: bool
    failures: tuple[str, ...] = ()
    checks: tuple[Found, ...] = ()
    is_whole: bool = True
    remedies: Mapping[str, str] | None = None
    began_at: datetime | None = None

    @property
    def is_good(self) -> bool:
        """Whether a run ends with status 0 by it."""
        return self.is_success and not any(check.is_error and not check.passed for check in self.checks)


def together(outcomes: Sequence[Outcome]) -> Outcome:
    """The outcome of several runs of one command as that of one run: what was wrong in any of them is wrong. A
    check that one run failed has that run's finding."""
    checks: dict[tuple[str, str], Found] = {}
    for found in (found for outcome in outcomes for found in outcome.checks):
        before = checks.get((found.table, found.name))
        if before is None or before.passed or not found.passed:
            checks[found.table, found.name] = found
    return replace(
        outcomes[-1],
        is_success=all(outcome.is_success for outcome in outcomes),
        failures=tuple(line for outcome in outcomes for line in outcome.failures),
        checks=tuple(checks.values()),
        began_at=outcomes[0].began_at,
    )


def outcome_of(fleet: Fleet, instance: dg.DagsterInstance, run_id: str, job: dg.JobDefinition) -> Outcome:
    """What became of a run; an alarm itself where the history does not show it. `job` has the remedies of its
    checks."""
    if not fleet.alarms.are_sent:
        return Outcome(datetime.now(UTC), True)
    try:
        return _outcome_of(fleet, instance, run_id, job)
    except Exception as failure:  # no run fails because its alarms cannot be found
        reason = f"what became of it cannot be read from Dagster's history: {mistakes.unexplained(failure)}"
        return Outcome(datetime.now(UTC), False, (reason,), is_whole=False)


def _outcome_of(fleet: Fleet, instance: dg.DagsterInstance, run_id: str, job: dg.JobDefinition) -> Outcome:
    import dagster as dg  # noqa: PLC0415 (the command `alarms` reads no history)

    record = instance.get_run_record_by_id(run_id)
    run = record.dagster_run if record is not None else None
    wanted = {
        dg.DagsterEventType.ASSET_CHECK_EVALUATION,
        dg.DagsterEventType.STEP_FAILURE,
        dg.DagsterEventType.RUN_FAILURE,
    }
    steps, checks, whole_run = [], {}, []
    graph = job.asset_layer.asset_graph
    specs = {key: graph.get_check_spec(key) for key in graph.asset_check_keys}
    for entry in instance.all_logs(run_id, of_type=wanted):
        event = entry.dagster_event
        if event is None:
            continue
        if event.is_step_failure:
            steps.append((event.step_key or "", event.step_failure_data.error))
        elif event.event_type == dg.DagsterEventType.RUN_FAILURE:
            whole_run.append(("", event.job_failure_data.error))
        else:
            found = event.asset_check_evaluation_data
            spec = specs.get(dg.AssetCheckKey(found.asset_key, found.check_name))
            rows, count = found.metadata.get("rows"), found.metadata.get("rows_found")
            checks[found.asset_key, found.check_name] = Found(
                table_of(found.asset_key),
                found.check_name,
                found.passed,
                found.severity == dg.AssetCheckSeverity.ERROR,
                found.description or "",
                " ".join((spec.description or "").split()) if spec is not None else "",
                str(spec.metadata.get("remedy", "")) if spec is not None else "",
                rows.md_str or "" if isinstance(rows, dg.MarkdownMetadataValue) else "",
                count.value if count is not None and isinstance(count.value, int) else None,
            )
    ended = record.end_time if record is not None else None
    began = record.start_time if record is not None else None
    return Outcome(
        ended_at=datetime.now(UTC) if ended is None else datetime.fromtimestamp(ended, UTC),
        is_success=run is not None and run.status == dg.DagsterRunStatus.SUCCESS,
        failures=tuple(mistakes.reasons(fleet, steps or whole_run)),
        checks=tuple(checks.values()),
        is_whole=run is not None and not run.asset_selection,
        remedies={spec.name: str(spec.metadata.get("remedy", "")) for spec in specs.values()},
        began_at=None if began is None else datetime.fromtimestamp(began, UTC),
    )
