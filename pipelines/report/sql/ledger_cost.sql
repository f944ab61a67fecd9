-- What the ledger itself takes per GPU-day: all its runs over all that they booked, and the bytes on disk when the newest
-- run was over, or, while none was, before the first one published.
select
    sum(core_seconds) / nullif(sum(gpu_days), 0) as core_seconds_per_gpu_day,
    sum(joules) / nullif(sum(gpu_days) filter (joules is not null), 0) as joules_per_gpu_day,
    string_agg(distinct joules_basis, ' and ' order by joules_basis) as joules_basis,
    arg_max(held_bytes_per_gpu_day, (measured_until = 'end', measured_at)) as held_bytes_per_gpu_day
from finance.ledger_cost
