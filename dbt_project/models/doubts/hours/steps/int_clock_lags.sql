-- Engines whose boards draw before or after their tokens come, by more than an interval and at most an hour: the clock that
-- stamps one of the two is wrong. A load that comes and goes shows it, one that is always there does not. One row per date
-- and engine.
{% set step = [300 // var('grid_seconds'), 1] | max %}
{% set lags = [0] %}  {# in steps, the shortest first #}
{% for steps in range(1, [3600 // (var('grid_seconds') * step), 1] | max + 1) %}{% do lags.extend([steps, -steps]) %}{% endfor %}
{% set least_part = 0.05 %}  {# of the intervals: idle and productive energy change by as much #}
{% set most_left = 0.4 %}  {# of the difference: what partly idle intervals at each change leave of it #}
{% set at_work = 1.5 %}  {# times what the boards draw idle: of less the half-way line is noise #}

with energy as (

    select * from {{ ref('energy_ledger') }} where {{ in_run('date') }} and attribution_method = 'exclusive'

),

tokens as (

    select
        date,
        engine,
        interval_start_at,
        sum(tokens) as tokens
    from {{ ref('token_ledger') }}
    where {{ in_run('date') }} and token_class in ('input', 'output')
    group by date, engine, interval_start_at

),

watts as (

    select
        date,
        engine,
        interval_start_at,
        {{ ratio(exact_sum('energy_joules'), exact_sum('covered_seconds')) }} as watts
    from energy
    where covered_seconds > 0
    group by date, engine, interval_start_at

),

-- Of an engine whose watts show whether it works, and whose time has no hole.
levels as (

    select
        date,
        engine,
        (min(watts) + max(watts)) / 2 as middle_watts
    from watts
    group by date, engine
    having max(watts) >= {{ at_work }} * min(watts)
        and (count(*) - 1) * {{ grid_us() }}
            = max({{ epoch_us('interval_start_at') }}) - min({{ epoch_us('interval_start_at') }})

),

intervals as (

    select
        watts.date,
        watts.engine,
        watts.interval_start_at,
        case when watts.watts > levels.middle_watts then 1 else 0 end as is_high,
        case when tokens.tokens > 0 then 1 else 0 end as is_busy
    from watts
    inner join levels on watts.date = levels.date and watts.engine = levels.engine
    left join tokens on {{ equal_keys('watts', 'tokens', ['date', 'engine', 'interval_start_at']) }}

),

-- In which part of the intervals boards and tokens differ, if what the boards drew is read so much later.
differences as (

    select
        date,
        engine,
        {% for lag in lags -%}
        avg(abs(is_busy - is_high_{{ loop.index }})) as apart_{{ loop.index }}{{ ',' if not loop.last }}
        {% endfor %}
    from (
        select
            date,
            engine,
            is_busy,
            {% for lag in lags -%}
            {{ 'lead' if lag >= 0 else 'lag' }}(is_high, {{ (lag * step) | abs }}) over engine_window
                as is_high_{{ loop.index }}{{ ',' if not loop.last }}
            {% endfor %}
        from intervals
        window engine_window as (partition by date, engine order by interval_start_at)
    ) as read_later
    group by date, engine

),

least as (

    select
        *,
        least({% for lag in lags %}apart_{{ loop.index }}{{ ', ' if not loop.last }}{% endfor %}) as least_apart
    from differences

),

found as (

    select
        date,
        engine,
        apart_1 as apart,
        least_apart,
        case
            {% for lag in lags -%}
            when apart_{{ loop.index }} = least_apart then {{ lag * step * var('grid_seconds') }}
            {% endfor -%}
        end as lag_seconds
    from least

),

final as (

    select
        date,
        engine,
        lag_seconds
    from found
    where apart - least_apart >= {{ least_part }}
        and least_apart <= {{ most_left }} * apart
        and abs(lag_seconds) > {{ var('grid_seconds') }}

)

select * from final
