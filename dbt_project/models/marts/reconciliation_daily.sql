-- The balance: what each meter's raw says it measured against what the book holds. The metered side reads raw and the catalogues alone, in
-- another way than the book: counters telescope (last − first + what stood before each fall), gauges are weighted sample by sample.
with booked_meters as (

    select
        date,
        site,
        meter_scope,
        meter,
        {{ exact_sum('energy_joules') }} as booked_joules
    from {{ ref('energy_ledger') }}
    where {{ in_run('date') }}
    group by date, site, meter_scope, meter

),

metered as (

    select * from {{ ref('int_metered_days') }}

),

final as (

    select
        coalesce(metered.date, booked_meters.date) as date,
        coalesce(booked_meters.site, metered.site) as site,
        coalesce(metered.meter, booked_meters.meter) as meter,
        coalesce(metered.meter_scope, booked_meters.meter_scope) as meter_scope,
        metered.source,
        metered.metric,
        cast(metered.metered_joules as {{ exact_type() }}) as metered_joules,
        cast(booked_meters.booked_joules as {{ exact_type() }}) as booked_joules,
        cast(coalesce(booked_meters.booked_joules, {{ exact('0') }}) - coalesce(metered.metered_joules, {{ exact('0') }}) as {{ exact_type() }}) as difference_joules,
        cast(coalesce(metered.rejected_samples, 0) as bigint) as rejected_samples,
        metered.cross_check_source,
        cast(metered.cross_check_joules as {{ exact_type() }}) as cross_check_joules,
        {{ ratio('metered.cross_check_joules - metered.metered_joules', 'metered.metered_joules') }} as cross_check_ratio
    from metered
    full outer join booked_meters
        on metered.date = booked_meters.date and metered.meter_scope = booked_meters.meter_scope and metered.meter = booked_meters.meter

)

select * from final
