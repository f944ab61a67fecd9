-- The balance: what each meter measured according to raw, compared with the book. The metered side reads raw and the
-- catalogues alone, in another way than the book: counters telescope (last − first + the value before each fall),
-- gauges are weighted sample by sample.
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

-- All samples of a meter: also those of readings that are not booked, and of a meter whose samples were all rejected.
refused as (

    select
        cast(chunks.chunk_start_at as date) as date,
        series.meter_scope,
        series.meter,
        max(series.site) as site,
        sum(chunks.rejects + chunks.duplicates) as rejected_samples,
        sum(chunks.out_of_order) as out_of_order_samples
    from {{ source('raw', 'series_chunks') }} as chunks
    inner join {{ ref('stg_series') }} as series on chunks.series_id = series.series_id
    where chunks.chunk_start_at >= {{ run_start_at() }}
        and chunks.chunk_start_at < {{ run_end_at() }}
        and series.stream = 'power'
        and series.quantity in ('energy', 'power')
        and series.meter is not null
        and chunks.rejects + chunks.duplicates + chunks.out_of_order > 0
    group by 1, 2, 3

),

impossible as (

    select
        impossible_samples.date,
        impossible_samples.meter_scope,
        impossible_samples.meter,
        impossible_samples.site,
        -- Where the limit is in doubt, rejected samples of up to twice the limit are booked.
        impossible_samples.impossible_samples
        - case when doubted_limits.meter is null then near_edge_samples else near_samples end as rejected_samples,
        cast(0 as bigint) as out_of_order_samples
    from {{ ref('int_impossible_samples') }} as impossible_samples
    left join {{ ref('int_doubted_limits') }} as doubted_limits
        on impossible_samples.date = doubted_limits.date
        and impossible_samples.meter = doubted_limits.meter
        and impossible_samples.meter_scope = 'board'
    where impossible_samples.impossible_samples
        > case when doubted_limits.meter is null then near_edge_samples else near_samples end

),

not_booked as (

    select
        date,
        meter_scope,
        meter,
        max(site) as site,
        sum(rejected_samples) as rejected_samples,
        sum(out_of_order_samples) as out_of_order_samples
    from (select * from refused union all select * from impossible) as either
    group by date, meter_scope, meter

),

-- What the passed-over seconds show; the joules of a counter that catches up are real.
refuted as (

    select
        date,
        meter_scope,
        meter,
        {{ exact_sum(exact('shown_joules')) }} as refuted_joules
    from {{ ref('int_refuted_stretches') }}
    where not is_caught_up
    group by date, meter_scope, meter

),

final as (

    select
        date,
        coalesce(booked_meters.site, metered.site, not_booked.site) as site,
        meter,
        meter_scope,
        metered.source,
        metered.metric,
        cast(metered.metered_joules as {{ exact_type() }}) as metered_joules,
        cast(booked_meters.booked_joules as {{ exact_type() }}) as booked_joules,
        cast(
            coalesce(booked_meters.booked_joules, {{ exact('0') }})
                - coalesce(metered.metered_joules, {{ exact('0') }}) as {{ exact_type() }}
        ) as difference_joules,
        cast(refuted.refuted_joules as {{ exact_type() }}) as refuted_joules,
        cast(coalesce(not_booked.rejected_samples, 0) as bigint) as rejected_samples,
        cast(coalesce(not_booked.out_of_order_samples, 0) as bigint) as out_of_order_samples,
        metered.cross_check_source,
        cast(metered.cross_check_joules as {{ exact_type() }}) as cross_check_joules,
        {{ ratio('metered.cross_check_joules - metered.metered_joules', 'metered.metered_joules') }} as cross_check_ratio
    from metered
    full outer join booked_meters using (date, meter_scope, meter)
    full outer join not_booked using (date, meter_scope, meter)
    left join refuted using (date, meter_scope, meter)

)

select * from final
