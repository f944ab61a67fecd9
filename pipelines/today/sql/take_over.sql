insert into raw.series_chunks by name
select * from booked.raw.series_chunks
where source in (select unnest($sources)) and chunk_start_at >= $from and chunk_start_at < $to;
insert into raw.series by name
select * from booked.raw.series
where $from < $to and series_id in (select series_id from raw.series_chunks where source in (select unnest($sources)));
insert into raw.power_samples by name
select * from booked.raw.power_samples
where observed_at >= $from and observed_at < $to
    and series_id in (select series_id from raw.series_chunks where source in (select unnest($sources)));
insert into raw.token_samples by name
select * from booked.raw.token_samples
where observed_at >= $from and observed_at < $to
    and series_id in (select series_id from raw.series_chunks where source in (select unnest($sources)))
