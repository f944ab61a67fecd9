"""What was advised, date by date, and what the changes that followed saved by the meters.

These are primary data (`appended_tables`): advice is of the lookback of its date, which no later run has. Add here what
holds for the two tables. Keep out how a change is found (dbt_project/models/advice/inputs), how it is measured
(`analysis.measured_savings`) and what became of which advice: SQL (finance.advice_score).
"""

from __future__ import annotations

import duckdb

from pipelines.warehouse import appended_tables

_KEYS = {
    "site": ("varchar", "As in deployment_usage."),
    "deployment": ("varchar", "As in deployment_usage."),
    "role": ("varchar", "As in deployment_usage."),
    "meter_scope": ("varchar", "As in deployment_usage."),
}
_PROMISE = {
    "current_gpus": ("double", "As in right_sizing."),
    "recommended_gpus": ("double", "As in right_sizing."),
    "recommended_power_limit_watts": ("double", "As in right_sizing. NULL: another kind."),
    "saving_kwh_month": ("double", "What was promised, as in right_sizing. NULL: not known."),
    "saving_low": ("double", "As in right_sizing."),
    "saving_high": ("double", "As in right_sizing."),
    "saving_now_usd_month": ("double", "As in right_sizing."),
    "confidence": ("varchar", "As in right_sizing."),
    "reason_code": ("varchar", "As in right_sizing."),
}
_SIDES = {
    "gpus": ("double", "Accelerators; 0 where it was off."),
    "engines": ("double", "Engines. NULL: none reported."),
    "power_limit_watts": ("double", "Power limit of each accelerator. NULL: not known, or not the same for all."),
    "model": ("varchar", "Model; several joined by a comma. NULL: it was off."),
    "device_type": ("varchar", "Device type; several joined by a comma. NULL: it was off."),
}
_RATIOS = {
    "queued_ratio": ("double", "Share of the intervals in which requests waited, 0-1. NULL: no engine reports it."),
    "good_request_ratio": (
        "double",
        "Share of the requests that kept the model's SLO, at least, 0-1. NULL: no SLO, or nothing was assessed.",
    ),
    "paid_gpus": (
        "double",
        "Mean accelerators of its device types that the site paid for. NULL: not known.",
    ),
}


def _sides(columns: dict[str, tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """Each column before the change and after it."""
    return {
        f"{name}_{side}": (kind, f"{described} {side.capitalize()} the change.")
        for name, (kind, described) in columns.items()
        for side in ("before", "after")
    }


TABLES: dict[str, tuple[str, dict[str, tuple[str, str]]]] = {
    "advice_given": (
        "One row per date and advice to follow, as it was given on that date's evening; again where it was given"
        " otherwise later. [evidence: advice]",
        {
            "recommendation_id": ("varchar", "As in right_sizing and consolidation."),
            "as_of_date": ("date", "Newest booked UTC date: the advice is of its evening."),
            "given_at": ("timestamptz", "When it was computed."),
            "kind": ("varchar", "As in right_sizing and consolidation."),
            **_KEYS,
            "model": ("varchar", "As in deployment_usage."),
            "device_type": ("varchar", "As in deployment_usage."),
            **_PROMISE,
        },
    ),
    "measured_changes": (
        "One row per change of what a deployment runs on and date on which it was measured anew. The newest date of a"
        " change counts; its last is 28 dates after it. [evidence: advice]",
        {
            "change_id": ("varchar", "Hash of site, deployment, role, meter scope and changed_on."),
            "as_of_date": ("date", "Newest booked UTC date of the measurement."),
            "measured_at": ("timestamptz", "When it was measured."),
            **_KEYS,
            "what": (
                "varchar",
                "What changed; several, less than a week apart and measured together, are joined by `+`: `off`, `on`,"
                " `model`, `device`, `fewer_replicas`, `fewer_gpus`, `more_gpus`, `engines`, `power_cap`,"
                " `power_cap_lifted`, `sleep`, `sleep_ended`.",
            ),
            "started_on": ("date", "First UTC date that is not like the week before."),
            "changed_on": ("date", "First UTC date of the week from which it is otherwise."),
            **_sides(_SIDES),
            "days_before": ("integer", "Dates before the change that it is measured by, 28 at most."),
            "days_after": ("integer", "Dates after it, 28 at most."),
            "saving_watts": (
                "double",
                "Mean watts that its accelerators, and those that it left, draw less than they would have without the"
                " change, within meter_scope. Negative: more. NULL: not known.",
            ),
            "saving_kwh_month": ("double", "Facility kWh of 730 hours of that: × 730 h × PUE. NULL as there."),
            "saving_low": ("double", "Lower end of the 95 % interval of saving_kwh_month. NULL: too few dates."),
            "saving_high": ("double", "Upper end of it. NULL as there."),
            "adjusted_for": (
                "varchar",
                "What the watts without the change are expected by, beside the dates before: `hour`, `weekend` (two"
                " such dates and two others at least; in older rows `weekday`), `tokens` (where they are known"
                " throughout).",
            ),
            **_sides(_RATIOS),
            "realised_energy_usd_month": (
                "double",
                "USD of saving_kwh_month at the mean tariff after the change (before it where it is off); 0 where the"
                " rate of a GPU-hour holds the electricity. NULL: no tariff is known.",
            ),
            "realised_capacity_usd_month": (
                "double",
                "USD of 730 hours of the accelerators that the site pays for no more: of those that the change freed,"
                " as many as left the bill since. NULL: not known what is paid.",
            ),
        },
    ),
}  # fmt: skip


def create(connection: duckdb.DuckDBPyConnection, at: str = "published") -> None:
    """Create the tables where they are missing, in the schema `at`."""
    appended_tables.create(connection, TABLES, at)


def bring(connection: duckdb.DuckDBPyConnection, source: str, target: str) -> None:
    """Append to the tables of the schema `target` the rows of `source` that they lack."""
    appended_tables.bring(connection, TABLES, source, target)
