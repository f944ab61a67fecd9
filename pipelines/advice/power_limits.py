"""Under which power limits deployments worked, and what they drew, carried and promised there: read from the marts.

Add here what a power cap needs from the warehouse. Keep out which limit is recommended, and why
(`pipelines.analysis.power_caps`).
"""

from __future__ import annotations

import duckdb
import pandas as pd

from pipelines.analysis import power_caps
from pipelines.analysis.sizes import KEYS
from pipelines.warehouse import database

READ = ("efficiency_curve_daily", "goodput_hourly", "power_limits_daily")
_NAMED = ", ".join(KEYS)
# A date that is held back is evidence of nothing.
_IN_LOOKBACK = (
    "date >= usage.lookback_start_date and date <= usage.as_of_date"
    " and date not in (select date from marts.held_back_dates)"
)
# Only dates on which every board told, and all said the same.
_TOLD = f"""
select usage.usage, date, date >= usage.held_start_date as is_held, power_limit_watts_max as limit_watts
from marts.power_limits_daily inner join usage_told as usage using ({_NAMED})
where meters_with_limit = meters and power_limit_watts_min = power_limit_watts_max and {_IN_LOOKBACK}
order by usage.usage, date
"""
_LEVELS = f"""
select usage.usage, date, date >= usage.held_start_date as is_held, load_bin, intervals,
    gpu_seconds::double as gpu_seconds, tokens::double as tokens, joules::double as joules
from marts.efficiency_curve_daily inner join usage_told as usage using ({_NAMED})
where {_IN_LOOKBACK} order by usage.usage, date, load_bin
"""
_HIGHEST = f"""
select pool, limit_percent, list_extract(loads, {power_caps.LEAST_INTERVALS}) as seen,
    list_extract(train_loads, {power_caps.LEAST_INTERVALS}) as train_seen
from (
    select pool, limit_percent, max(tokens_per_second_per_gpu, {power_caps.LEAST_INTERVALS}) as loads,
        max(tokens_per_second_per_gpu, {power_caps.LEAST_INTERVALS}) filter (where not demand.is_held) as train_loads
    from demand inner join limited_dates using (usage, date) group by all
)
order by all
"""
_JUDGED = f"""
select pool, limit_percent, limited_dates.is_held,
    floor(round(2 * log2(case when role = 'prefill' then matched_total_tokens else matched_output_tokens end
        / matched_gpu_seconds), 9))::integer as load_bin,
    sum(requests)::double as requests, sum(good_requests_low)::double as good_requests,
    max(models.slo_attainment_ratio) as attainment
from marts.goodput_hourly
inner join usage_told as usage using ({_NAMED})
inner join limited_dates using (usage, date)
inner join fleet.models as models using (model)
where models.slo_attainment_ratio is not null and requests > 0 and matched_gpu_seconds > 0
    and case when role = 'prefill' then matched_total_tokens else matched_output_tokens end > 0
group by all order by all
"""


def read_evidence(
    connection: duckdb.DuckDBPyConnection, usage: pd.DataFrame, numbered: pd.DataFrame, days: pd.DataFrame
) -> power_caps.Evidence | None:
    """What a lower limit did, of the deployments of `numbered` (their names, `usage`, dates) and the table `demand`;
    None where none of them worked under two. `days` per `usage` and `date`: `gpu_seconds`."""
    with database.registered(connection, usage_told=numbered):
        dates = power_caps.limited_dates(usage, connection.execute(_TOLD).df())
        if dates.empty:
            return None
        with database.registered(connection, limited_dates=dates):
            highest, judged = connection.execute(_HIGHEST).df(), connection.execute(_JUDGED).df()
        levels = connection.execute(_LEVELS).df()
    held_since = pd.to_datetime(days["usage"].map(numbered.set_index("usage")["held_start_date"]))
    held_gpus = days[["usage", "date", "gpu_seconds"]].assign(is_held=pd.to_datetime(days["date"]) >= held_since)
    now = dates[dates["is_newest"]].set_index("usage")
    return power_caps.Evidence(dates, now, levels, held_gpus, highest, judged)
