-- Which reading books which stretch of a meter that is handed over: one row per meter and stretch between two changes.
-- A stretch is booked by the best reading that covers it; over a gap of a counter, the counter's difference is the sum:
-- what covers the gap is scaled to it (`scale`), and the rest is shared by the stretches that no reading covers
-- (`uncovered_joules`).
with steps as (

    select * from {{ ref('int_handover_steps') }}

),

handovers as (

    select distinct
        date,
        meter_scope,
        meter
    from {{ ref('int_meter_choices') }}
    where is_handover

),

run_dates as (

    select * from {{ ref('stg_run_dates') }}

),

numbered as (

    select
        *,
        coalesce(is_gap, false) or is_impossible as is_bridge,
        sum(case when coalesce(is_gap, false) or is_impossible then 1 else 0 end) over (
            partition by meter_scope, meter, reading_order order by start_us rows unbounded preceding
        ) as bridges_before
    from steps

),

covered as (

    select
        meter_scope,
        meter,
        reading_order,
        min(start_us) as start_us,
        max(end_us) as end_us
    from numbered
    where not is_bridge
    group by meter_scope, meter, reading_order, bridges_before

),

-- A gauge knows nothing of its gap, a counter the sum, unless the sum is refuted.
bridges as (

    select
        meter_scope,
        meter,
        reading_order,
        start_us,
        end_us,
        energy_joules as risen_joules,
        possible_watts,
        is_reset,
        is_impossible,
        end_us - start_us > {{ var('max_spread_seconds') | int * 1000000 }} as is_overspread
    from numbered
    where is_bridge and is_counter and not coalesce(is_refuted, false)

),

edges as (

    {% for edge in ['start_us', 'end_us'] -%}
    select meter_scope, meter, {{ edge }} as edge_us from covered
    union
    select meter_scope, meter, {{ edge }} as edge_us from bridges
    union
    select handovers.meter_scope, handovers.meter, run_dates.{{ edge }} as edge_us
    from handovers
    inner join run_dates on handovers.date = run_dates.date
    {% if not loop.last %}union{% endif %}
    {% endfor %}

),

stretches as (

    select
        meter_scope,
        meter,
        edge_us as start_us,
        lead(edge_us) over (partition by meter_scope, meter order by edge_us) as end_us
    from edges

),

{% for spans, name, best in [('covered', 'coverers', 'covered_by'), ('bridges', 'bridgers', 'bridged_by')] -%}
{{ name }} as (

    select
        stretches.meter_scope,
        stretches.meter,
        stretches.start_us,
        min({{ spans }}.reading_order) as {{ best }}
    from stretches
    inner join {{ spans }}
        on stretches.meter_scope = {{ spans }}.meter_scope
        and stretches.meter = {{ spans }}.meter
        and stretches.start_us >= {{ spans }}.start_us
        and stretches.end_us <= {{ spans }}.end_us
    group by stretches.meter_scope, stretches.meter, stretches.start_us

),

{% endfor -%}
-- A gap of a counter does not affect stretches that a better reading covers.
known as (

    select
        stretches.*,
        coverers.covered_by,
        case when bridgers.bridged_by < coalesce(coverers.covered_by, 1000000) then bridgers.bridged_by end as bridged_by
    from stretches
    left join coverers on {{ equal_keys('stretches', 'coverers', ['meter_scope', 'meter', 'start_us']) }}
    left join bridgers on {{ equal_keys('stretches', 'bridgers', ['meter_scope', 'meter', 'start_us']) }}
    where stretches.end_us is not null and (coverers.covered_by is not null or bridgers.bridged_by is not null)

),

covered_pieces as (

    select
        known.meter_scope,
        known.meter,
        known.start_us,
        {{ clipped_joules('steps', 'known.start_us', 'known.end_us') }} as joules
    from known
    inner join steps
        on known.meter_scope = steps.meter_scope
        and known.meter = steps.meter
        and known.covered_by = steps.reading_order
        and steps.start_us < known.end_us
        and steps.end_us > known.start_us

),

covered_joules as (

    select
        meter_scope,
        meter,
        start_us,
        {{ exact_sum('joules') }} as joules
    from covered_pieces
    group by meter_scope, meter, start_us

),

weighed as (

    select
        known.*,
        known.end_us - known.start_us as length_us,
        covered_joules.joules
    from known
    left join covered_joules on {{ equal_keys('known', 'covered_joules', ['meter_scope', 'meter', 'start_us']) }}

),

-- What a gap contains of other readings: stretches that better readings cover, and stretches in the gap of a better
-- counter.
gaps as (

    select
        bridges.*,
        coalesce({{ exact_sum('case when weighed.bridged_by is null then weighed.joules end') }}, {{ exact('0') }}) as better_joules,
        coalesce(sum(case when weighed.bridged_by < bridges.reading_order then weighed.length_us end), 0) as better_bridged_us,
        coalesce({{ exact_sum('case when weighed.bridged_by = bridges.reading_order then weighed.joules end') }}, {{ exact('0') }})
            as covered_joules,
        coalesce(sum(case when weighed.bridged_by = bridges.reading_order and weighed.covered_by is not null then weighed.length_us end), 0)
            as covered_us,
        coalesce(sum(case when weighed.bridged_by = bridges.reading_order and weighed.covered_by is null then weighed.length_us end), 0)
            as uncovered_us
    from bridges
    inner join weighed
        on bridges.meter_scope = weighed.meter_scope
        and bridges.meter = weighed.meter
        and weighed.start_us >= bridges.start_us
        and weighed.end_us <= bridges.end_us
    group by all

),

owed as (

    select
        *,
        greatest(
            risen_joules * (1 - better_bridged_us / cast(end_us - start_us as double)) - cast(better_joules as double), 0
        ) as owed_joules,
        cast(covered_joules as double) as known_joules
    from gaps

),

shared as (

    select
        *,
        case
            when is_impossible then null
            when is_reset and covered_us > 0 then null
            when covered_us = 0 then owed_joules
            -- Its gauge was there all the time and saw nothing: only the counter knows.
            when known_joules = 0 and not is_overspread then owed_joules
            when is_overspread then nullif(greatest(owed_joules - known_joules, 0), 0)
            else least(greatest(owed_joules - known_joules, 0), coalesce(possible_watts * uncovered_us / 1e6, 1e300))
        end as rest_joules
    from owed

),

solved as (

    select
        *,
        known_joules = 0 and covered_us > 0 and uncovered_us = 0 and rest_joules > 0 and not is_overspread as is_rest_of_all,
        case
            when is_impossible or is_reset or is_overspread or known_joules = 0 or covered_us = 0 then cast(1 as double)
            else (owed_joules - case when uncovered_us = 0 then 0 else rest_joules end) / known_joules
        end as scale
    from shared

),

final as (

    select
        weighed.meter_scope,
        weighed.meter,
        weighed.start_us,
        weighed.end_us,
        case when coalesce(solved.is_rest_of_all, false) then null else weighed.covered_by end as covered_by,
        coalesce(solved.scale, 1) as scale,
        case
            when weighed.covered_by is null or solved.is_rest_of_all
                then solved.rest_joules * (
                    weighed.length_us / cast(case when solved.is_rest_of_all then solved.covered_us else solved.uncovered_us end as double)
                )
        end as uncovered_joules,
        solved.end_us - solved.start_us as gap_us,
        coalesce(solved.is_reset and solved.covered_us = 0, false) as is_reset,
        coalesce(solved.is_impossible, false) as is_impossible
    from weighed
    left join solved
        on weighed.meter_scope = solved.meter_scope
        and weighed.meter = solved.meter
        and weighed.bridged_by = solved.reading_order
        and weighed.start_us >= solved.start_us
        and weighed.end_us <= solved.end_us

)

select * from final
