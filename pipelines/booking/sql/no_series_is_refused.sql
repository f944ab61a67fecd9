select refused.source, refused.metric, series.labels, refused.label, left(refused.value, 80) as value, refused.model
from raw.refused_series as refused
join raw.series as series on refused.series_id = series.series_id
order by all
