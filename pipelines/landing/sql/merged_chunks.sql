-- The chunks of the series that came, with what was counted over the whole day and what the held chunk knew of rows that are merged away.
select came.series_id, ? as source,
    least(came.chunk_start_at, held.chunk_start_at) as chunk_start_at,
    greatest(came.chunk_end_at, held.chunk_end_at) as chunk_end_at,
    counted.samples, counted.first_at, counted.first_value, counted.last_at, counted.last_value,
    counted.falls, counted.duplicates,
    greatest(came.out_of_order, held.out_of_order) as out_of_order,
    greatest(came.rejects, counted.rejects) as rejects,
    counted.longest_gap_seconds, counted.typical_interval_seconds, counted.steepest_rise_per_second
from chunks_came as came
join chunks_counted as counted on counted.series_id = came.series_id
left join raw.series_chunks as held
    on held.series_id = came.series_id and held.source = ? and held.chunk_start_at >= ? and held.chunk_start_at < ?
