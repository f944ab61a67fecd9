-- The days that the run landed whole: what its alarms are about.
create or replace temp table run_days as
select distinct cast(window_start_at as date) as date from raw.landings
where asset = 'raw/telemetry' and run_id = $run_id and window_end_at - window_start_at = interval 1 day
