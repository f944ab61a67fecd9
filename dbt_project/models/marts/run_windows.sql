-- Named windows, exactly: read from the raw samples, not from the grid. Windows that touch the run's dates are computed anew.
{{ config(replaces='windows') }}

with windows as (

    select
        *,
        {{ epoch_us('start_at') }} as start_us,
        {{ epoch_us('end_at') }} as end_us
    from {{ source('raw', 'run_windows') }}
    where {{ overlaps_run('start_at', 'end_at') }}

),

ledger as (

    select distinct
        interval_start_at,
        interval_seconds,
        meter_scope,
        meter,
        node,
        engine,
        model
    from {{ ref('energy_ledger') }}
    where date >= (select cast(min(start_at) as date) from windows) and date <= (select cast(max(end_at) as date) from windows)

),

meters as (

    select * from {{ ref('int_meter_choices') }}

),

reading_days as (

    select * from {{ ref('int_reading_days') }}

),

series as (

    select * from {{ ref('stg_series') }}

),

token_choices as (

    select * from {{ ref('int_token_choices') }}

),

engine_days as (

    select * from {{ ref('int_engine_days') }}

),

-- Of a process that is scraped more than once, the target that gives its name is read here.
redundant_series as (

    select distinct series_id from {{ ref('int_scrape_copies') }} where is_redundant

),

window_meters as (

    select distinct
        windows.window_id,
        windows.start_us,
        windows.end_us,
        ledger.meter_scope,
        ledger.meter
    from windows
    inner join ledger
        on {{ epoch_us('ledger.interval_start_at') }} < windows.end_us
        and {{ epoch_us('ledger.interval_start_at') }} + ledger.interval_seconds * 1000000 > windows.start_us
        and {{ is_of_window('ledger', 'windows') }}

),

energy_readings as (

    select
        window_meters.*,
        meters.reading_id,
        meters.quantity,
        meters.possible_watts,
        coalesce(meters.typical_interval_seconds, {{ var('grid_seconds') }}) as typical_interval_seconds
    from window_meters
    inner join meters on window_meters.meter_scope = meters.meter_scope and window_meters.meter = meters.meter
    where meters.purpose = 'booked'
    qualify row_number() over (partition by window_meters.window_id, meters.meter_scope, meters.meter order by meters.date desc) = 1

),

power_readings as (

    select
        window_meters.window_id,
        window_meters.meter_scope,
        window_meters.meter,
        reading_days.reading_id,
        meters.possible_watts
    from window_meters
    inner join reading_days
        on window_meters.meter_scope = reading_days.meter_scope and window_meters.meter = reading_days.meter
    left join meters
        on reading_days.date = meters.date
        and reading_days.meter_scope = meters.meter_scope
        and reading_days.meter = meters.meter
        and meters.purpose = 'booked'
    where reading_days.quantity = 'power' and reading_days.samples > 0
    qualify row_number() over (
        partition by window_meters.window_id, reading_days.meter_scope, reading_days.meter
        order by reading_days.rank, reading_days.date desc, reading_days.reading_id
    ) = 1

),

token_readings as (

    select distinct
        windows.window_id,
        windows.start_us,
        windows.end_us,
        series.reading_id,
        series.token_class
    from windows
    inner join engine_days on coalesce(windows.engine = engine_days.engine, windows.model is not null)
    inner join token_choices on engine_days.engine = token_choices.engine and engine_days.date = token_choices.date
    inner join series
        on token_choices.engine = series.engine
        and token_choices.token_class = series.token_class
        and token_choices.source = series.source
        and token_choices.metric = series.metric
    left join redundant_series on series.series_id = redundant_series.series_id
    where series.quantity = 'tokens'
        and redundant_series.series_id is null
        and series.token_class in ('input', 'output')
        and (windows.engine is not null or coalesce(series.model, engine_days.model) = windows.model)

),

-- Samples of the windows, and as much before and after as brackets their edges.
raw_points as (

    {% for stream in ['power', 'token'] -%}
    select
        series.reading_id,
        '{{ stream }}' as stream,
        {{ epoch_us('samples.observed_at') }} as observed_us,
        max(samples.value * series.factor) as value
    from {{ source('raw', stream ~ '_samples') }} as samples
    inner join series on samples.series_id = series.series_id
    where {{ is_valid_sample('samples.value') }}
        and samples.observed_at >= (select min(start_at) - interval 15 minute from windows)
        and samples.observed_at < (select max(end_at) + interval 15 minute from windows)
        and series.reading_id in (
            {%- if stream == 'power' %}
            select reading_id from energy_readings union select reading_id from power_readings
            {%- else %}
            select reading_id from token_readings
            {%- endif %}
        )
    group by 1, 2, 3
    {% if not loop.last %}union all{% endif %}
    {% endfor %}

),

points as (

    select
        energy_readings.window_id,
        energy_readings.reading_id,
        energy_readings.quantity,
        energy_readings.start_us,
        energy_readings.end_us,
        energy_readings.typical_interval_seconds,
        energy_readings.possible_watts,
        raw_points.observed_us,
        raw_points.value
    from energy_readings
    inner join raw_points
        on energy_readings.reading_id = raw_points.reading_id
        and raw_points.observed_us between energy_readings.start_us - 900000000 and energy_readings.end_us + 900000000
    where raw_points.stream = 'power'
        and (energy_readings.quantity = 'energy' or raw_points.value <= coalesce(energy_readings.possible_watts, {{ ceiling_watts('energy_readings.meter_scope') }}))
    union all
    select
        token_readings.window_id,
        token_readings.reading_id,
        token_readings.token_class as quantity,
        token_readings.start_us,
        token_readings.end_us,
        cast({{ var('grid_seconds') }} as double) as typical_interval_seconds,
        cast(null as double) as possible_watts,
        raw_points.observed_us,
        raw_points.value
    from token_readings
    inner join raw_points
        on token_readings.reading_id = raw_points.reading_id
        and raw_points.observed_us between token_readings.start_us - 900000000 and token_readings.end_us + 900000000
    where raw_points.stream = 'token'

),

bracketed_points as (

    select
        *,
        lag(value) over point_window as before_value,
        lag(observed_us) over point_window as before_us,
        lead(value) over point_window as after_value,
        lead(observed_us) over point_window as after_us
    from points
    window point_window as (partition by window_id, quantity, reading_id order by observed_us)

),

-- An energy counter's dip that the next sample takes back is a glitch, as in the book.
unglitched_points as (

    select
        window_id,
        reading_id,
        quantity,
        start_us,
        end_us,
        typical_interval_seconds,
        possible_watts,
        observed_us,
        value
    from bracketed_points
    where not (
        quantity = 'energy'
        and {{ is_dip('value', 'observed_us', 'before_value', 'before_us', 'after_value', 'after_us', true) }}
    )

),

steps as (

    select
        *,
        lag(observed_us) over point_window as step_start_us,
        lag(value) over point_window as previous_value
    from unglitched_points
    window point_window as (partition by window_id, quantity, reading_id order by observed_us)

),

inner_steps as (

    select
        window_id,
        reading_id,
        quantity,
        observed_us - step_start_us as length_us,
        greatest(start_us, step_start_us) - step_start_us as from_us,
        least(end_us, observed_us) - step_start_us as to_us,
        case
            when quantity = 'power' then (previous_value + value) / 2 * (observed_us - step_start_us) / 1e6
            when value >= previous_value then value - previous_value
            else value
        end as risen,
        case when quantity = 'power' then value - previous_value else 0 end as slope_watts,
        quantity = 'energy'
        and case when value >= previous_value then value - previous_value else value end
        > coalesce(possible_watts * (observed_us - step_start_us) / 1e6, 1e300) as is_impossible,
        -- A counter's step is known however long it is; a gauge's is not.
        quantity = 'power'
        and observed_us - step_start_us > {{ gauge_gap_factor() }} * 1e6 * typical_interval_seconds as is_gap
    from steps
    where step_start_us < observed_us and step_start_us < end_us and observed_us > start_us

),

integrated as (

    select
        window_id,
        reading_id,
        quantity,
        sum({{ accumulated('risen', 'slope_watts', 'to_us', 'length_us') }} - {{ accumulated('risen', 'slope_watts', 'from_us', 'length_us') }}) as total,
        sum(to_us - from_us) as covered_us,
        max(case when is_gap then 1 else 0 end) as gaps,
        max(case when is_impossible then 1 else 0 end) as impossible_steps
    from inner_steps
    group by window_id, reading_id, quantity

),

energy as (

    select
        energy_readings.window_id,
        count(*) as meters,
        min(energy_readings.meter_scope) as meter_scope,
        max(energy_readings.meter_scope) as other_meter_scope,
        {{ exact_sum('integrated.total') }} as energy_joules,
        max(case when energy_readings.quantity = 'energy' then 1 else 0 end) = 1 as has_counter,
        min(coalesce(integrated.covered_us, 0)) as covered_us,
        max(coalesce(integrated.gaps, 0)) as gaps,
        max(coalesce(integrated.impossible_steps, 0)) as impossible_steps
    from energy_readings
    left join integrated
        on energy_readings.window_id = integrated.window_id
        and energy_readings.reading_id = integrated.reading_id
        and integrated.quantity in ('energy', 'power')
    group by energy_readings.window_id

),

meter_watts as (

    select
        power_readings.window_id,
        power_readings.meter,
        {{ exact(ratio(exact_sum('raw_points.value'), 'count(*)')) }} as watts
    from power_readings
    inner join windows on power_readings.window_id = windows.window_id
    inner join raw_points
        on power_readings.reading_id = raw_points.reading_id
        and raw_points.stream = 'power'
        and raw_points.observed_us > windows.start_us
        and raw_points.observed_us < windows.end_us
        and raw_points.value <= coalesce(power_readings.possible_watts, {{ ceiling_watts('power_readings.meter_scope') }})
    group by power_readings.window_id, power_readings.meter

),

watts as (

    select
        window_id,
        count(*) as meters,
        cast(sum(watts) as double) as mean_watts
    from meter_watts
    group by window_id

),

tokens as (

    select
        window_id,
        sum(case when quantity = 'output' then total end) as output_tokens,
        sum(case when quantity = 'input' then total end) as input_tokens
    from integrated
    where quantity in ('input', 'output')
    group by window_id

),

assembled as (

    select
        windows.window_id,
        windows.start_at,
        windows.end_at,
        windows.node,
        windows.engine,
        windows.model,
        (windows.end_us - windows.start_us) / 1e6 as duration_seconds,
        energy.meters,
        energy.meter_scope,
        energy.other_meter_scope,
        energy.energy_joules,
        energy.covered_us,
        energy.gaps,
        energy.impossible_steps,
        energy.has_counter,
        windows.end_us - windows.start_us as window_us,
        case when watts.meters = energy.meters then 'gauge_mean' when energy.energy_joules is not null then 'energy_over_time' end as mean_watts_basis,
        case
            when watts.meters = energy.meters then watts.mean_watts
            else cast(energy.energy_joules as double) * 1e6 / (windows.end_us - windows.start_us)
        end as mean_watts,
        coalesce(windows.output_tokens, cast(tokens.output_tokens as double)) as output_tokens,
        coalesce(windows.total_tokens, cast(tokens.output_tokens + tokens.input_tokens as double)) as total_tokens,
        case when windows.output_tokens is not null or windows.total_tokens is not null then 'stated' else 'counters' end as tokens_basis
    from windows
    left join energy on windows.window_id = energy.window_id
    left join watts on windows.window_id = watts.window_id
    left join tokens on windows.window_id = tokens.window_id

),

judged as (

    select
        *,
        case
            when energy_joules is null then 'no_meter'
            when meter_scope <> other_meter_scope then 'mixed_meter_scopes'
            when covered_us < window_us then 'window_not_bracketed'
            when gaps > 0 then 'sampling_gap_exceeded'
            when impossible_steps > 0 then 'impossible_counter_step'
            -- Too short for one of them, or one is wrong. A gauge's energy is its own mean.
            when has_counter
                and mean_watts_basis = 'gauge_mean'
                and abs(mean_watts * duration_seconds - cast(energy_joules as double)) > 0.05 * cast(energy_joules as double)
                then 'counter_and_gauge_differ'
            when output_tokens is null and total_tokens is null then 'no_tokens'
            else 'ok'
        end as reason_code
    from assembled

),

held_back as (

    select
        windows.window_id as held_back_window_id,
        {{ joined_in_order('cast(held.date as ' ~ dbt.type_string() ~ ')') }} as held_back_dates
    from windows
    inner join {{ ref('held_back_dates') }} as held
        on windows.start_at < cast(held.date + interval 1 day as {{ timestamp_type() }}) and windows.end_at > cast(held.date as {{ timestamp_type() }})
    group by windows.window_id

),

final as (

    select
        cast(start_at as date) as date,
        window_id,
        start_at,
        end_at,
        node,
        engine,
        model,
        meter_scope,
        cast(meters as integer) as meters,
        mean_watts,
        mean_watts_basis,
        energy_joules,
        output_tokens,
        total_tokens,
        tokens_basis,
        {{ ratio('energy_joules', 'output_tokens') }} as joules_per_output_token,
        {{ ratio('energy_joules', 'total_tokens') }} as joules_per_total_token,
        reason_code = 'ok' as is_valid,
        reason_code,
        held_back.held_back_dates,
        held_back.held_back_dates is null as is_complete
    from judged
    left join held_back on judged.window_id = held_back.held_back_window_id

)

select * from final
