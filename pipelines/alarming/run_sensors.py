"""Dagster's sensors that send alarms after a run which its daemon started: of the schedule, or by hand in the UI.

A `wattledger run` sends its own: it is executed in its own process, of which no sensor learns. Keep out what is sent:
`delivery` is the same for both.
"""

import dagster as dg

from pipelines.alarming.delivery import after_run
from pipelines.alarming.run_outcome import outcome_of
from pipelines.fleet.fleet_file import Fleet

LOOK_SECONDS = 120


def alarm_sensors(fleet: Fleet, job: str) -> list[dg.SensorDefinition]:
    """One for runs of the job that succeeded and one for those that failed; none for a fleet that sends nothing."""
    if not fleet.alarms.are_sent:
        return []
    return [_sensor(fleet, job, status) for status in (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE)]


def _sensor(fleet: Fleet, job: str, status: dg.DagsterRunStatus) -> dg.SensorDefinition:
    @dg.run_status_sensor(
        run_status=status,
        name=f"alarms_after_{status.value.lower()}",
        description="Sends what a run of the daily ledger changed to the receivers of the fleet file's key `alarms`.",
        default_status=dg.DefaultSensorStatus.RUNNING,
        # Each look is kept in Dagster's history for a week.
        minimum_interval_seconds=LOOK_SECONDS,
    )
    def sensor(context: dg.RunStatusSensorContext) -> None:
        """Send the alarms of one run."""
        repository = context.repository_def
        # What a person makes in the UI by hand is no run of the ledger.
        if repository is not None and context.dagster_run.job_name == job:
            run_id = context.dagster_run.run_id
            for line in after_run(fleet, outcome_of(fleet, context.instance, run_id, repository.get_job(job))):
                context.log.warning(line)

    return sensor
