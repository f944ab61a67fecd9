-- What each run of the ledger itself took, beside the GPU-days that it booked.
with runs as (

    select * from {{ source('raw', 'run_costs') }}

),

bookings as (

    select
        run_id,
        min(start_date) as start_date,
        max(end_date) as end_date
    from {{ source('raw', 'bookings') }}
    where run_id in (select run_id from runs)
    group by run_id

),

days as (

    select
        date,
        {{ exact_sum('gpu_seconds') }} as gpu_seconds
    from {{ ref('fleet_daily') }}
    group by date

),

-- A date counts once, where it was booked first: what it takes to book it again makes its GPU-days dearer.
firsts as (

    select
        runs.run_id,
        days.gpu_seconds
    from days
    inner join bookings on days.date >= bookings.start_date and days.date < bookings.end_date
    inner join runs on bookings.run_id = runs.run_id
    qualify row_number() over (partition by days.date order by runs.began_at, runs.run_id) = 1

),

booked as (

    select
        run_id,
        {{ exact_sum('gpu_seconds') }} as gpu_seconds
    from firsts
    group by run_id

),

-- A package's joules are the machine's: a run has them by its share of the processors' work.
measured as (

    select
        *,
        case when busy_core_seconds > 0 then package_joules * least(core_seconds / busy_core_seconds, 1) end as package_share_joules,
        core_seconds * watts_per_core as stated_joules
    from runs

),

final as (

    select
        measured.run_id,
        measured.began_at,
        measured.measured_at,
        measured.measured_until,
        bookings.start_date as first_date,
        bookings.end_date - 1 as last_date,
        cast(booked.gpu_seconds as double) / 86400 as gpu_days,
        measured.core_seconds,
        measured.wall_seconds,
        measured.peak_memory_bytes,
        coalesce(measured.package_share_joules, measured.stated_joules) as joules,
        case
            when measured.package_share_joules is not null then 'measured'
            when measured.stated_joules is not null then 'stated'
        end as joules_basis,
        measured.held_bytes,
        measured.held_gpu_seconds / 86400 as held_gpu_days,
        {{ ratio('measured.core_seconds', 'cast(booked.gpu_seconds as double)') }} * 86400 as core_seconds_per_gpu_day,
        {{ ratio('coalesce(measured.package_share_joules, measured.stated_joules)', 'cast(booked.gpu_seconds as double)') }} * 86400
            as joules_per_gpu_day,
        {{ ratio('measured.held_bytes', 'measured.held_gpu_seconds') }} * 86400 as held_bytes_per_gpu_day
    from measured
    left join bookings on measured.run_id = bookings.run_id
    left join booked on measured.run_id = booked.run_id

)

select * from final
