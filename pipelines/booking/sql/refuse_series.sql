insert into raw.refused_series
select series_id, source, metric, $label, $value, $model, $message, $run_id, now()
from raw.series
where series_id = $series_id and series_id not in (select series_id from raw.refused_series)
