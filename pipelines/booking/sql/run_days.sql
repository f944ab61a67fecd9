-- The days that the run's alarms are about: those that it landed whole. A run that lands nothing, as `run --rebuild`,
-- is about what it booked.
create or replace temp table run_days as
with landed as (
    select distinct cast(window_start_at as date) as date from raw.landings
    where asset = 'raw/telemetry' and run_id = $run_id and window_end_at - window_start_at = interval 1 day
),
booked as (
    select distinct cast(unnest(generate_series(start_date, end_date - interval 1 day, interval 1 day)) as date) as date
    from raw.bookings where run_id = $run_id
)
select date from landed
union all
select date from booked where not exists (select 1 from landed)
