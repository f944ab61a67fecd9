-- A date's cost is unusual: the fleet's, or that of a model and part which moves the fleet's by 1 % or more. A warning: the cost may be right.
{{ config(severity='warn', meta={'dagster': {'ref': {'name': 'cost_anomalies_daily'}}, 'expected': 'a cost within 5 % or 3.5 spreads of the median of its weekday', 'remedy': 'see marts.cost_change_daily of the date: whether price, efficiency, volume or idle time changed'}) }}

with anomalies as (

    select * from {{ ref('cost_anomalies_daily') }} where {{ in_run('date') }}

),

fleet as (

    select * from anomalies where scope = 'fleet'

)

select
    anomalies.date,
    anomalies.site,
    anomalies.model,
    anomalies.part,
    anomalies.cost_usd,
    anomalies.usual_usd,
    anomalies.robust_z,
    anomalies.moved_model,
    anomalies.moved_part
from anomalies
inner join fleet on anomalies.date = fleet.date
where anomalies.is_anomaly and (anomalies.scope = 'fleet' or abs(anomalies.difference_usd) >= 0.01 * fleet.usual_usd)
