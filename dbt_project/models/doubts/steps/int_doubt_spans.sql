-- From when to when which figure of which board or engine is in doubt: one row per date, reason, entity and span.
-- `unbooked_tokens` are what the book lacks of them; NULL where that is not known.
with dates as (

    select * from {{ ref('stg_run_dates') }}

),

parts as (

    select * from {{ ref('stg_series_parts') }} where track is not null

),

series as (

    select distinct
        series_id,
        engine,
        token_class
    from {{ ref('stg_series') }}
    where quantity = 'tokens'

),

token_days as (

    select * from {{ ref('token_reconciliation_daily') }} where {{ in_run('date') }}

),

token_ledger as (

    select * from {{ ref('token_ledger') }} where {{ in_run('date') }}

),

pairs as (

    select * from {{ ref('int_scrape_pairs') }} where basis = 'suspected'

),

meter_days as (

    select * from {{ ref('reconciliation_daily') }} where {{ in_run('date') }} and abs(cross_check_ratio) > 0.05

),

ledger as (

    select * from {{ ref('energy_ledger') }} where {{ in_run('date') }}

),

limits as (

    select distinct
        date,
        meter_scope,
        meter,
        possible_watts
    from {{ ref('int_meter_choices') }}
    where purpose = 'booked' and possible_watts is not null

),

engine_days as (

    select distinct
        parts.date,
        case parts.basis
            when 'values' then 'hidden_processes' when 'sum' then 'part_left_a_sum' when 'unknown' then 'unclear_falls' else 'no_counter'
        end as reason,
        series.engine,
        series.token_class,
        cast(null as double) as unbooked_tokens,
        case
            when parts.basis in ('values', 'sum') then cast(parts.tracks as {{ dbt.type_string() }}) || ' lines of values in one counter'
            else 'falls of one counter'
        end as evidence
    from parts
    inner join series on parts.landed_series_id = series.series_id
    where parts.basis not in ('process_start', 'delta')
    union all
    select
        date,
        'unseen_tokens' as reason,
        engine,
        token_class,
        cast(unseen_tokens as double) as unbooked_tokens,
        cast(restarts as {{ dbt.type_string() }}) || ' restarts, ' || cast(round(unseen_seconds, 0) as {{ dbt.type_string() }})
            || ' s unseen' as evidence
    from token_days
    where unseen_tokens > 0
    union all
    select
        date,
        'token_counters_disagree' as reason,
        engine,
        token_class,
        cast(null as double) as unbooked_tokens,
        cross_check_metric || ' has ' || cast(round(cast(100 * cross_check_ratio as double), 1) as {{ dbt.type_string() }}) || ' %' as evidence
    from token_days
    where abs(cross_check_ratio) > 0.05 and (engine not like 'gateway:%' or cross_check_ratio > 0)
    union all
    select distinct
        date,
        'conflicting_role' as reason,
        engine,
        'input' as token_class,
        cast(null as double) as unbooked_tokens,
        'role of ' || engine as evidence
    from token_ledger
    where role_basis = 'conflicting'
    union all
    {% for engine, other in [('engine', 'other_engine'), ('other_engine', 'engine')] -%}
    select
        date,
        'scraped_twice' as reason,
        {{ engine }} as engine,
        cast(null as {{ dbt.type_string() }}) as token_class,
        cast(null as double) as unbooked_tokens,
        'as ' || {{ other }} || ' over ' || cast(increments as {{ dbt.type_string() }}) || ' increments' as evidence
    from pairs
    {% if not loop.last %}union all{% endif %}
    {% endfor %}

),

final as (

    select
        engine_days.date,
        engine_days.reason,
        cast(null as {{ dbt.type_string() }}) as meter_scope,
        cast(null as {{ dbt.type_string() }}) as meter,
        engine_days.engine,
        engine_days.token_class,
        dates.start_us as from_us,
        dates.end_us as to_us,
        engine_days.unbooked_tokens,
        engine_days.evidence
    from engine_days
    inner join dates on engine_days.date = dates.date
    union all
    select
        meter_days.date,
        'meters_disagree' as reason,
        meter_days.meter_scope,
        meter_days.meter,
        cast(null as {{ dbt.type_string() }}) as engine,
        cast(null as {{ dbt.type_string() }}) as token_class,
        dates.start_us as from_us,
        dates.end_us as to_us,
        cast(null as double) as unbooked_tokens,
        meter_days.cross_check_source || ' has ' || cast(round(cast(100 * meter_days.cross_check_ratio as double), 1) as {{ dbt.type_string() }})
            || ' %' as evidence
    from meter_days
    inner join dates on meter_days.date = dates.date
    union all
    select
        ledger.date,
        'above_limit' as reason,
        ledger.meter_scope,
        ledger.meter,
        cast(null as {{ dbt.type_string() }}) as engine,
        cast(null as {{ dbt.type_string() }}) as token_class,
        {{ epoch_us('ledger.interval_start_at') }} as from_us,
        {{ epoch_us('ledger.interval_start_at') }} + {{ grid_us() }} as to_us,
        cast(null as double) as unbooked_tokens,
        'more than ' || cast(round(limits.possible_watts, 0) as {{ dbt.type_string() }}) || ' W' as evidence
    from ledger
    inner join limits on {{ equal_keys('ledger', 'limits', ['date', 'meter_scope', 'meter']) }}
    where cast(ledger.energy_joules as double) > limits.possible_watts * cast(ledger.covered_seconds as double) + 1e-3

)

select * from final
