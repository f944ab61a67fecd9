-- MetricFlow's time spine: it reads it only for metrics that accumulate, and for dates without any row.
select cast(day as date) as date
from generate_series(timestamp '2020-01-01', timestamp '2039-12-31', interval 1 day) as days(day)
