-- The series from which the joules of some meters were booked on dates of the month.
select booked_for, series_id, source, metric, sum(booked_seconds) as seconds
from marts.series_daily
where outcome = 'booked' and date >= {month} - 1 and date <= last_day({month}) + 1 and booked_for in ({meters})
group by all
order by booked_for, seconds desc, series_id
