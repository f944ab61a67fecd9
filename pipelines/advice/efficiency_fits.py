"""marts/efficiency_fit: what form the watts of each efficiency curve take, fitted anew from the curve of every run.

Add here what carries a curve from the marts to a fit and back. Keep out the fitting (`analysis.power_fits`) and every
figure of the curve itself, which is SQL (marts.efficiency_curve).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dagster as dg
import duckdb
import pandas as pd

from pipelines.analysis import power_fits
from pipelines.fleet.fleet_file import Fleet
from pipelines.publishing import parts, pictures
from pipelines.warehouse import database
from pipelines.warehouse.asset_keys import asset_key
from pipelines.warehouse.computed_tables import write_table

KEYS = ("site", "deployment", "model", "device_type", "meter_scope", "role", "tokens_basis")
TABLE_COMMENT = (
    "One row per site, deployment, model, device type, meter scope and role of the lookback. The form of watts against"
    " load that predicts a left-out level of efficiency_curve best, per accelerator, or why there is none. It holds"
    " between the lowest and the highest observed load and is never extrapolated. [topic: efficiency]"
)
_INTERVAL = {"": "", "_low": ": lower end of the 95 % interval", "_high": ": upper end of the 95 % interval"}
_NO_FORM = " NULL: the form has none, or there is no form; of the ends also too_few_dates."
_PARAMETERS = {
    "intercept_watts_per_gpu": "Watts where the fitted line meets no load: not the power of an idle device",
    "slope_joules_per_token": "Watts per token per second of the linear form: joules of one more token",
    "limit_watts_per_gpu": "Watts that the saturating form approaches",
    "half_load_tokens_per_second_per_gpu": "Load at which the saturating form is half-way from intercept to limit",
}
# Name -> type, description.
COLUMNS = {
    "as_of_date": ("date", "Newest booked UTC date: the lookback of the curve ends with it."),
    **dict.fromkeys(KEYS, ("varchar", "As in efficiency_curve.")),
    "best_tokens_per_second_per_gpu": ("double", "Load of the best observed point. NULL: the curve has no level."),
    "best_joules_per_token": ("double", "Its J/token, as observed. NULL as there."),
    "knee_tokens_per_second_per_gpu": (
        "double",
        "Load of the knee: more load saves at most a tenth. The best point itself: no bend was seen. NULL as there.",
    ),
    "knee_joules_per_token": ("double", "Its J/token, as observed. NULL as there."),
    "levels": ("integer", "Load levels (rows of efficiency_curve with is_level) that the fit is made of."),
    "lowest_tokens_per_second_per_gpu": ("double", "Lowest load among them. NULL: there is none."),
    "highest_tokens_per_second_per_gpu": (
        "double",
        "Highest load among them: the fit does not hold beyond. NULL as there.",
    ),
    "form": ("varchar", "`constant`, `linear` or `saturating`: the lowest leave-one-out error. NULL: refused."),
    **{
        f"{parameter}{end}": ("double", f"{meaning}{_INTERVAL[end]}.{_NO_FORM}")
        for parameter, meaning in _PARAMETERS.items()
        for end in _INTERVAL
    },
    "interval_basis": (
        "varchar",
        "What the intervals follow from: `dates` (how the dates differ, counted as fewer where a date resembles the one"
        " before, or the scatter of the levels about the form where wider), `one_date` (that scatter; they hold for the"
        " date alone), `too_few_dates` (no interval: 2 to 6 dates, or not 1.5 independent ones). NULL: refused.",
    ),
    "watts_per_gpu_at_highest_load": ("double", "Fitted watts at the highest observed load. NULL: refused."),
    "loo_error_watts": (
        "double",
        "Root mean square of fitted minus observed watts, each level left out of its own fit. NULL: refused.",
    ),
    "loo_error_ratio": ("double", "loo_error_watts over the mean watts of the levels. NULL: refused."),
    **{
        f"{form}_loo_error_watts": ("double", f"loo_error_watts of the {form} form, chosen or not. NULL: refused.")
        for form in power_fits.FORMS
    },
    "reason_code": (
        "varchar",
        "`ok`, or why there is no form: `too_few_load_levels` (under 5), `load_range_too_narrow` (highest under"
        " twice the lowest), `no_tokens_served`, `no_matched_tokens` (power or tokens are not known).",
    ),
    "held_back_dates": ("varchar", "As in efficiency_curve."),
    "is_complete": ("boolean", "As in efficiency_curve."),
}

_CURVES = f"""
select max(as_of_date) as as_of_date, {", ".join(KEYS)},
    case when max(matched_tokens) > 0 then 'too_few_load_levels' when max(matched_tokens) = 0 then 'no_tokens_served'
        else 'no_matched_tokens' end as reason_without_levels,
    any_value(held_back_dates) as held_back_dates, bool_and(is_complete) as is_complete
from marts.recoverable_energy
where not starts_with(model, '__')
group by {", ".join(KEYS)}
"""
_POINTS = f"""
select {", ".join(KEYS)},
    max(tokens_per_second_per_gpu) filter (where is_best) as best_tokens_per_second_per_gpu,
    max(joules_per_token) filter (where is_best) as best_joules_per_token,
    max(tokens_per_second_per_gpu) filter (where is_knee) as knee_tokens_per_second_per_gpu,
    max(joules_per_token) filter (where is_knee) as knee_joules_per_token
from marts.efficiency_curve
group by {", ".join(KEYS)}
"""


def write_fits(connection: duckdb.DuckDBPyConnection) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Replace marts.efficiency_fit by fits of marts.efficiency_curve; returns the load levels and the fits."""
    levels = connection.execute("select * from marts.efficiency_curve where is_level").df()
    days = connection.execute("select * from marts.efficiency_curve_daily").df()
    fits = (
        connection.execute(_CURVES)
        .df()
        .merge(connection.execute(_POINTS).df(), how="left", on=list(KEYS))
        .merge(power_fits.fit_power(levels, KEYS, days), how="left", on=list(KEYS))
    )
    fits["levels"] = fits["levels"].fillna(0)
    fits["reason_code"] = fits["reason_code"].fillna(fits["reason_without_levels"])
    write_table(connection, "marts.efficiency_fit", TABLE_COMMENT, COLUMNS, fits)
    return levels, fits[list(COLUMNS)]


def efficiency_fit_asset(fleet: Fleet, pool: str) -> dg.AssetsDefinition:
    """marts/efficiency_fit, after the curve that it describes."""
    read = [
        asset_key(fleet, "marts", name) for name in ("efficiency_curve", "efficiency_curve_daily", "recoverable_energy")
    ]

    key = asset_key(fleet, "marts", "efficiency_fit")

    @dg.asset(
        key=key,
        deps=read,
        check_specs=[parts.spec(key)],
        group_name="efficiency",
        owners=["team:operations"],
        kinds={"duckdb"},
        pool=pool,
    )
    def efficiency_fit() -> Iterator[Any]:
        """Watts against load per model and device type: the form with the least error in watts, or why none fits."""
        with database.writing(fleet.warehouse, "efficiency_fit"), database.connect(fleet.warehouse) as held:
            levels, fits = write_fits(held)
        title = f"{fleet.fleet}: J/token against tok/s ({fleet.telemetry})"
        made = parts.Parts()
        picture = made.picture("curve", lambda: pictures.efficiency_curves(levels, fits, title))
        refused = fits.loc[fits["reason_code"] != "ok", "reason_code"].value_counts()
        yield dg.MaterializeResult(
            metadata={
                "dagster/row_count": len(fits),
                "forms": {str(form): int(n) for form, n in fits["form"].value_counts().items()},
                "refused": {str(reason): int(n) for reason, n in refused.items()},
                "curve": dg.MarkdownMetadataValue(picture),
            }
        )
        yield made.result(key)

    return efficiency_fit
