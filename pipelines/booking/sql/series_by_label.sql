-- The series with a label that holds $text, whole or else as a part, and those whose label of the same meaning has the same
-- shape: digits are alike, so `tp0` is as `tp1`. What cannot be read as such a number is not enough: a model may read it well.
with exploded as (
    select series_id, source_kind, unnest(map_entries(cast(cast(labels as json) as map(varchar, varchar)))) as entry
    from raw.series
),
labels as (
    select exploded.series_id, catalog.attribute, entry.key as label, entry.value as value
    from exploded
    join reference.label_catalog as catalog on exploded.source_kind = catalog.source_kind and entry.key = catalog.label
),
hits as (
    select *, value = $text as is_whole from labels
    where value = $text or (length($text) > 1 and contains(value, $text))
    qualify is_whole = max(is_whole) over ()
),
meanings as (
    select attribute, count(distinct series_id) as series from hits group by attribute
),
-- The same text may be in labels of several meanings. It is a number where other values of the label are numbers; else the
-- meaning with the fewest series is the likeliest, and costs least.
meant as (
    select meanings.attribute
    from meanings
    join labels on meanings.attribute = labels.attribute
    group by meanings.attribute, meanings.series
    order by count(*) filter ($is_readable) > 0 desc, meanings.series, meanings.attribute
    limit 1
),
shapes as (
    select distinct regexp_replace(hits.value, '[0-9]', '0', 'g') as shape from hits join meant using (attribute)
)
select labels.series_id, min(labels.label), min(labels.value)
from labels
join meant on labels.attribute = meant.attribute
where regexp_replace(labels.value, '[0-9]', '0', 'g') in (select shape from shapes)
group by labels.series_id
