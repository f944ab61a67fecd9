-- The rows of an engine's interval in the token book add up to what the engine moved, to the last digit; and where the
-- interval is matched, each place of its energy has its part of the tokens: of a meter scope by GPU-seconds, of the
-- places of a scope by joules.
{% set engine_keys = ['date', 'engine', 'interval_start_at'] %}
{% set places = ['site', 'node', 'device_type', 'meter_scope'] %}

with booked as (

    select
        {{ engine_keys | join(', ') }},
        {{ places | join(', ') }},
        sum(tokens) as tokens,
        max(case when is_matched then 1 else 0 end) as is_matched
    from {{ ref('token_ledger') }}
    where {{ in_run('date') }}
    group by {{ engine_keys | join(', ') }}, {{ places | join(', ') }}

),

engines as (

    select
        {{ engine_keys | join(', ') }},
        sum(tokens) as tokens,
        max(is_matched) as is_matched
    from booked
    group by {{ engine_keys | join(', ') }}

),

moved as (

    select
        intervals.date,
        intervals.engine,
        {{ from_epoch_us('intervals.interval_number * ' ~ grid_us()) }} as interval_start_at,
        sum(intervals.tokens - coalesce(handed_over.handed_tokens, 0)) as tokens
    from {{ ref('int_token_intervals') }} as intervals
    left join {{ ref('int_handed_over_tokens') }} as handed_over
        on {{ equal_keys('intervals', 'handed_over', ['date', 'engine', 'model', 'interval_number', 'token_class']) }}
    -- What came by transfer is a part of input; what was handed over whole has no row.
    where intervals.token_class <> 'transferred_input' and not coalesce(handed_over.is_whole, false)
    group by intervals.date, intervals.engine, intervals.interval_number

),

lost as (

    select
        {% for key in engine_keys -%}
        coalesce(engines.{{ key }}, moved.{{ key }}) as {{ key }},
        {% endfor -%}
        'all' as place,
        engines.tokens as found_tokens,
        moved.tokens as expected_tokens
    from engines
    full outer join moved on {{ equal_keys('engines', 'moved', engine_keys) }}
    where engines.tokens is distinct from moved.tokens

),

powered as (

    select
        {{ engine_keys | join(', ') }},
        site,
        node,
        coalesce(device_type, {{ unknown() }}) as device_type,
        meter_scope,
        sum(productive_joules + idle_joules) as joules,
        sum(gpu_seconds) as gpu_seconds
    from {{ ref('energy_ledger') }}
    where {{ in_run('date') }} and engine not in ({{ unallocated() }}, {{ unknown() }})
    group by {{ engine_keys | join(', ') }}, site, node, coalesce(device_type, {{ unknown() }}), meter_scope

),

weighed as (

    select
        *,
        count(*) over engine_window as places,
        {{ ratio('joules', 'sum(joules) over scope_window') }} as scope_share,
        case
            when min(meter_scope) over engine_window = max(meter_scope) over engine_window then 1
            else {{ ratio('sum(gpu_seconds) over scope_window', 'sum(gpu_seconds) over engine_window') }}
        end as engine_share
    from powered
    window
        engine_window as (partition by {{ engine_keys | join(', ') }}),
        scope_window as (partition by {{ engine_keys | join(', ') }}, meter_scope)

),

-- Without joules, shares are by time; a place of one engine alone has all.
expected as (

    select
        {{ columns_of('weighed', engine_keys + places) }},
        case
            when weighed.places = 1 then cast(engines.tokens as double)
            else cast(engines.tokens as double) * weighed.scope_share * weighed.engine_share
        end as tokens
    from weighed
    inner join engines on {{ equal_keys('weighed', 'engines', engine_keys) }} and engines.is_matched = 1

),

-- Each of several shares is rounded to a millionth.
misplaced as (

    select
        {{ columns_of('expected', engine_keys) }},
        coalesce(expected.node || ' ', '') || expected.device_type || ' ' || expected.meter_scope as place,
        coalesce(booked.tokens, {{ exact('0') }}) as found_tokens,
        expected.tokens as expected_tokens
    from expected
    left join booked
        on {{ equal_keys('expected', 'booked', engine_keys + ['site', 'device_type', 'meter_scope']) }}
        and (expected.node = booked.node or expected.node is null)
    where abs(coalesce(cast(booked.tokens as double), 0) - expected.tokens) > 1e-3 + 1e-6 * abs(expected.tokens)

),

broken as (

    select
        {{ engine_keys | join(', ') }},
        place,
        cast(found_tokens as double) as found_tokens,
        cast(expected_tokens as double) as expected_tokens
    from lost
    union all
    select
        {{ engine_keys | join(', ') }},
        place,
        cast(found_tokens as double) as found_tokens,
        expected_tokens
    from misplaced

)

select
    date,
    'token_ledger' as table_name,
    {{ row_key(['engine', 'interval_start_at', 'place']) }} as row_key,
    found_tokens as found,
    'tokens of all classes' as unit,
    coalesce(cast(expected_tokens as {{ dbt.type_string() }}), 'none') || ' by its energy' as expected
from broken
