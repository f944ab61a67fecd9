-- When each board was seen with each claimant: one row per date, board, claimant and stretch of sightings. The last
-- sighting before the date and the first one after it are rows too, which end where they start. Only boards that
-- changed hands on the date are looked at sample by sample.
with labels as (

    select * from {{ ref('int_board_labels') }} where is_mapped

),

power_samples as (

    select * from {{ source('raw', 'power_samples') }}

),

board_days as (

    select
        date,
        meter,
        {{ gap_cap_us(
            "coalesce(max(case when place = 'own' then sampling_interval_seconds end), max(sampling_interval_seconds))", var('grid_seconds')
        ) }} as cap_us,
        min(case when place = 'own' then claim_key end) <> max(case when place = 'own' then claim_key end) as is_contested
    from labels
    group by date, meter

),

claimants as (

    select
        date,
        meter,
        claim_key,
        max(namespace) as namespace,
        max(pod) as pod,
        max(container) as container,
        max(mig_instance) as mig_instance,
        max(mig_slices) as mig_slices,
        max(mig_instance_slices) as mig_instance_slices,
        max(mig_memory_gb) as mig_memory_gb
    from labels
    group by date, meter, claim_key

),

sightings as (

    select
        labels.date,
        labels.meter,
        labels.claim_key,
        board_days.cap_us,
        {{ epoch_us('power_samples.observed_at') }} as observed_us
    from power_samples
    inner join labels on power_samples.series_id = labels.series_id
    inner join board_days on labels.date = board_days.date and labels.meter = board_days.meter
    where board_days.is_contested
        and labels.place = 'own'
        and power_samples.observed_at >= {{ run_start_at() }}
        and power_samples.observed_at < {{ run_end_at() }}
        and {{ epoch_us('power_samples.observed_at') }} between labels.first_us and labels.last_us
        and {{ is_valid_sample('power_samples.value') }}
    group by labels.date, labels.meter, labels.claim_key, board_days.cap_us, {{ epoch_us('power_samples.observed_at') }}

),

stepped as (

    select
        *,
        case when observed_us - lag(observed_us) over claim_window <= cap_us then 0 else 1 end as is_new_run
    from sightings
    window claim_window as (partition by date, meter, claim_key order by observed_us)

),

numbered as (

    select
        *,
        sum(is_new_run) over (partition by date, meter, claim_key order by observed_us rows unbounded preceding) as run_number
    from stepped

),

runs as (

    select
        date,
        meter,
        claim_key,
        min(observed_us) as start_us,
        max(observed_us) as end_us
    from numbered
    group by date, meter, claim_key, run_number
    union all
    select
        labels.date,
        labels.meter,
        labels.claim_key,
        min(labels.first_us) as start_us,
        max(labels.last_us) as end_us
    from labels
    inner join board_days on labels.date = board_days.date and labels.meter = board_days.meter
    where labels.place = 'own' and not board_days.is_contested
    group by labels.date, labels.meter, labels.claim_key
    {%- for place, sight in [('before', 'max(last_us)'), ('after', 'min(first_us)')] %}
    union all
    select
        date,
        meter,
        claim_key,
        {{ sight }} as start_us,
        {{ sight }} as end_us
    from labels
    where place = '{{ place }}'
    group by date, meter, claim_key
    {%- endfor %}

),

-- While other instances of the board go on, an instance is held until its next claimant is seen, as a whole board is.
ended as (

    select
        runs.*,
        claimants.mig_instance is not null as is_of_instance,
        lead(runs.start_us) over (partition by runs.date, runs.meter, runs.claim_key order by runs.start_us, runs.end_us) as own_next_us,
        lead(runs.start_us) over (partition by runs.date, runs.meter, claimants.mig_instance order by runs.start_us, runs.end_us) as next_us
    from runs
    inner join claimants on {{ equal_keys('runs', 'claimants', ['date', 'meter', 'claim_key']) }}

),

final as (

    select
        runs.date,
        runs.meter,
        runs.claim_key,
        runs.start_us,
        case
            when not runs.is_of_instance then runs.end_us
            when runs.own_next_us between runs.end_us and runs.end_us + board_days.cap_us then runs.own_next_us
            when runs.next_us between runs.end_us and runs.end_us + board_days.cap_us then runs.next_us
            else runs.end_us
        end as end_us,
        board_days.cap_us,
        claimants.namespace,
        claimants.pod,
        claimants.container,
        claimants.mig_instance,
        claimants.mig_slices,
        claimants.mig_instance_slices,
        claimants.mig_memory_gb,
        case
            when claimants.pod is null and claimants.container is null then {{ unallocated() }}
            else coalesce(claimants.namespace || '/', '') || coalesce(claimants.pod, claimants.container)
        end as held_by
    from ended as runs
    inner join board_days on runs.date = board_days.date and runs.meter = board_days.meter
    inner join claimants on {{ equal_keys('runs', 'claimants', ['date', 'meter', 'claim_key']) }}

)

select * from final
