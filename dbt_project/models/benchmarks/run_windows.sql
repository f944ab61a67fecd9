-- Named windows, exactly: read from the raw samples, not from the grid. Windows that touch the run's dates are computed
-- again.
{{ config(replaces='windows') }}

with windows as (

    select
        *,
        {{ epoch_us('start_at') }} as start_us,
        {{ epoch_us('end_at') }} as end_us
    from {{ source('raw', 'run_windows') }}
    where {{ overlaps_run('start_at', 'end_at') }}

),

series as (

    select * from {{ ref('stg_series') }}

),

held_back_dates as (

    select * from {{ ref('held_back_dates') }}

),

doubt_spans as (

    select * from {{ ref('int_doubt_spans') }} where {{ marks_hours('reason') }}

),

meter_errors as (

    select * from {{ ref('meter_errors') }}

),

refuted as (

    select * from {{ ref('int_refuted_stretches') }} where not is_caught_up

),

{{ window_reading_ctes(
    ref('energy_ledger'), ref('int_meter_choices'), ref('int_reading_days'), ref('stg_series'), ref('int_scrape_copies'),
    ref('int_token_choices'), ref('int_engine_days'), ref('int_engine_roles')
) }},

-- Samples of the windows, and as much before and after as brackets their edges.
samples as (

    {% for stream in ['power', 'token'] -%}
    select
        window_readings.window_reading,
        {{ epoch_us('samples.observed_at') }} as observed_us,
        max(samples.value * series.factor) as value
    from window_readings
    inner join series on window_readings.reading_id = series.reading_id
    inner join {{ source('raw', 'power_samples') if stream == 'power' else ref('stg_token_samples') }} as samples
        on series.series_id = samples.series_id
        and {{ epoch_us('samples.observed_at') }} between window_readings.start_us - 900000000 and window_readings.end_us + 900000000
    where {{ is_valid_sample('samples.value') }}
        and samples.observed_at >= (select min(start_at) - interval 15 minute from windows)
        and samples.observed_at < (select max(end_at) + interval 15 minute from windows)
        and window_readings.purpose {{ '<>' if stream == 'power' else '=' }} 'tokens'
        {% if stream == 'power' -%}
        and not exists (
            select 1 from refuted
            where refuted.reading_id = window_readings.reading_id
                and {{ epoch_us('samples.observed_at') }} between refuted.from_us and refuted.to_us
                and samples.value * series.factor <= refuted.most_watts
        )
        {% endif -%}
    group by window_readings.window_reading, samples.observed_at
    {% if not loop.last %}union all{% endif %}
    {% endfor %}

),

points as (

    select
        *,
        lag(value) over point_window as before_value,
        lag(observed_us) over point_window as before_us,
        lead(value) over point_window as after_value,
        lead(observed_us) over point_window as after_us
    from samples
    inner join window_readings using (window_reading)
    where quantity <> 'power' or value <= coalesce(possible_watts, {{ ceiling_watts('meter_scope') }})
    window point_window as (partition by window_reading order by observed_us)

),

-- An energy counter's dip that the next sample takes back is a glitch, as in the book.
counter_readings as (

    select
        window_reading as reading_id,
        observed_us as first_us,
        value as first_reading,
        observed_us as last_us,
        value as last_reading,
        possible_watts,
        false as is_doubted,
        case when purpose = 'tokens' then {{ most_tokens_per_second() }} end as ceiling_watts
    from points
    where quantity <> 'power'
        and not (quantity = 'energy' and {{ is_dip('value', 'observed_us', 'before_value', 'before_us', 'after_value', 'after_us', true) }})

),

{{ counter_step_ctes('counter_readings') }},

-- A counter's step is known however long it is, unless it is refuted; a gauge's is not.
window_steps as (

    select
        assessed_steps.reading_id as window_reading,
        assessed_steps.start_us,
        assessed_steps.end_us,
        case when refuted.reading_id is null then assessed_steps.risen end as energy_joules,
        cast(0 as double) as slope_watts,
        assessed_steps.is_impossible or refuted.reading_id is not null as is_impossible,
        false as is_gap
    from assessed_steps
    inner join window_readings on assessed_steps.reading_id = window_readings.window_reading
    left join refuted
        on window_readings.reading_id = refuted.reading_id
        and window_readings.purpose = 'energy'
        and assessed_steps.risen = 0
        and assessed_steps.end_us between refuted.from_us and refuted.to_us
    union all
    select
        window_reading,
        before_us as start_us,
        observed_us as end_us,
        (before_value + value) / 2 * (observed_us - before_us) / 1e6 as energy_joules,
        value - before_value as slope_watts,
        false as is_impossible,
        observed_us - before_us > {{ gap_cap_us('sampling_interval_seconds', var('grid_seconds')) }} as is_gap
    from points
    where purpose = 'energy' and quantity = 'power' and before_us < observed_us

),

gauge_means as (

    select
        window_id,
        window_reading,
        {{ exact(ratio(exact_sum('value'), 'count(*)')) }} as watts
    from points
    where purpose = 'watts' and observed_us > start_us and observed_us < end_us
    group by window_id, window_reading

),

gauges as (

    select
        window_id,
        count(*) as gauges,
        cast(sum(watts) as double) as gauge_watts
    from gauge_means
    group by window_id

),

clipped_steps as (

    select
        readings.*,
        steps.start_us as step_start_us,
        steps.end_us as step_end_us,
        case
            when readings.purpose = 'energy' or not steps.is_impossible
                then {{ clipped_joules('steps', 'readings.start_us', 'readings.end_us') }}
        end as total,
        {{ sampling_variance(
            'least(steps.end_us, readings.end_us) - greatest(steps.start_us, readings.start_us)', 'steps.'
        ) }} as sampling_joules2,
        least(steps.end_us, readings.end_us) - greatest(steps.start_us, readings.start_us) as covered_us,
        case when steps.is_gap then 1 else 0 end as gaps,
        case when steps.is_impossible then 1 else 0 end as impossible_steps
    from window_readings as readings
    left join window_steps as steps
        on readings.window_reading = steps.window_reading
        and steps.start_us < readings.end_us
        and steps.end_us > readings.start_us
    where readings.purpose <> 'watts'

),

totals as (

    select
        window_id,
        nullif(count(distinct case when purpose = 'energy' then window_reading end), 0) as meters,
        min(meter_scope) as meter_scope,
        max(meter_scope) as other_meter_scope,
        {{ exact_sum("case when purpose = 'energy' then total end") }} as energy_joules,
        cast({{ exact_sum("case when purpose = 'energy' then sampling_joules2 end") }} as double) as sampling_joules2,
        max(case when quantity = 'energy' then 1 else 0 end) = 1 as has_counter,
        sum(case when purpose = 'energy' then covered_us end) as covered_us,
        max(case when purpose = 'energy' then gaps end) as gaps,
        max(case when purpose = 'energy' then impossible_steps end) as impossible_steps,
        sum(case when quantity = 'output' then total end) as counted_output_tokens,
        sum(case when quantity = 'input' then total end) as counted_input_tokens
    from clipped_steps
    group by window_id

),

-- Tokens that the window states are no counter's.
doubted_readings as (

    select
        readings.window_id,
        readings.window_reading,
        spans.reason,
        spans.from_us,
        spans.to_us,
        readings.start_us,
        cast(null as double) as unbooked_tokens,
        cast(null as {{ dbt.type_string() }}) as engine_class
    from window_readings as readings
    inner join doubt_spans as spans on {{ equal_keys('readings', 'spans', ['meter_scope', 'meter']) }}
    where readings.purpose = 'energy' and spans.from_us < readings.end_us and spans.to_us > readings.start_us
    union all
    select
        readings.window_id,
        readings.window_reading,
        spans.reason,
        spans.from_us,
        spans.to_us,
        readings.start_us,
        spans.unbooked_tokens * (least(spans.to_us, readings.end_us) - greatest(spans.from_us, readings.start_us))
            / (spans.to_us - spans.from_us) as unbooked_tokens,
        readings.engine || ' ' || readings.quantity as engine_class
    from window_readings as readings
    inner join doubt_spans as spans
        on readings.engine = spans.engine and coalesce(spans.token_class, readings.quantity) = readings.quantity
    inner join windows on readings.window_id = windows.window_id
    where coalesce(windows.output_tokens, windows.total_tokens) is null
        and spans.from_us < readings.end_us
        and spans.to_us > readings.start_us

),

-- Of the spans of a step the first one counts what it has; of the readings of an engine's class, too, what is not booked.
doubted_pieces as (

    select
        steps.window_id,
        case
            when steps.purpose = 'energy'
                and row_number() over (partition by steps.window_reading, steps.step_start_us order by spans.reason, spans.from_us) = 1
                then steps.total
        end as doubted_joules,
        case
            when steps.purpose = 'tokens'
                and row_number() over (partition by steps.window_reading, steps.step_start_us order by spans.reason, spans.from_us) = 1
                then steps.total
        end as doubted_tokens,
        cast(null as double) as unbooked_tokens,
        spans.reason as doubt_reasons
    from clipped_steps as steps
    inner join doubted_readings as spans
        on steps.window_reading = spans.window_reading
        and spans.from_us < steps.step_end_us
        and spans.to_us > steps.step_start_us
    where spans.unbooked_tokens is null
    union all
    select
        window_id,
        cast(null as {{ exact_type() }}) as doubted_joules,
        cast(null as {{ exact_type() }}) as doubted_tokens,
        max(unbooked_tokens) as unbooked_tokens,
        reason as doubt_reasons
    from doubted_readings
    where unbooked_tokens is not null
    group by window_id, engine_class, start_us, from_us, reason
    union all
    select
        windows.window_id,
        cast(null as {{ exact_type() }}) as doubted_joules,
        cast(null as {{ exact_type() }}) as doubted_tokens,
        cast(null as double) as unbooked_tokens,
        '' as doubt_reasons
    from windows
    left join totals on windows.window_id = totals.window_id
    where coalesce(totals.energy_joules, windows.output_tokens, windows.total_tokens, totals.counted_output_tokens) is not null

),

window_doubts as (

    select
        window_id,
        {{ summed_doubts() }}
    from doubted_pieces
    group by window_id

),

held_back as (

    select
        windows.window_id,
        {{ joined_in_order('cast(held.date as ' ~ dbt.type_string() ~ ')') }} as held_back_dates
    from windows
    inner join held_back_dates as held
        on windows.start_at < cast(held.date + interval 1 day as {{ timestamp_type() }})
        and windows.end_at > cast(held.date as {{ timestamp_type() }})
    group by windows.window_id

),

assembled as (

    select
        *,
        case
            when gauges = meters and (not has_counter or energy_joules is null) then 'gauge_mean'
            when energy_joules is not null then 'energy_over_time'
        end as mean_watts_basis,
        case
            when gauges = meters and (not has_counter or energy_joules is null) then gauge_watts
            else cast(energy_joules as double) * 1e6 / (end_us - start_us)
        end as mean_watts,
        coalesce(output_tokens, cast(counted_output_tokens as double)) as window_output_tokens,
        coalesce(total_tokens, cast(counted_output_tokens + counted_input_tokens as double)) as window_total_tokens,
        case
            when energy_joules is null then 'no_meter'
            when meter_scope <> other_meter_scope then 'mixed_meter_scopes'
            when coalesce(covered_us, 0) < meters * (end_us - start_us) then 'window_not_bracketed'
            when gaps > 0 then 'sampling_gap_exceeded'
            when impossible_steps > 0 then 'impossible_counter_step'
            -- Too short for one of them, or one is wrong. A gauge's energy is its own mean.
            when has_counter
                and gauges = meters
                and abs(gauge_watts * (end_us - start_us) / 1e6 - cast(energy_joules as double)) > 0.05 * cast(energy_joules as double)
                then 'counter_and_gauge_differ'
            when coalesce(output_tokens, total_tokens, counted_output_tokens) is null then 'no_tokens'
            else 'ok'
        end as reason_code
    from windows
    left join totals using (window_id)
    left join gauges using (window_id)
    left join window_doubts using (window_id)
    left join held_back using (window_id)

),

-- The gain of the meters is taken as the same of all of them.
with_error as (

    select
        assembled.*,
        cast(assembled.energy_joules as double) * meter_errors.energy_error_ratio as meter_error_joules,
        sqrt({{ variance_of_bound('meter_error_joules') }} + assembled.sampling_joules2) as uncertainty_joules
    from assembled
    left join meter_errors on assembled.meter_scope = meter_errors.meter_scope

),

with_half_width as (

    select
        *,
        {{ half_width('uncertainty_joules', 'meter_error_joules', 'sqrt(sampling_joules2)') }} as half_width_joules
    from with_error

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
        case
            when half_width_joules is not null then greatest(cast(energy_joules as double) - half_width_joules, 0)
        end as energy_joules_low,
        cast(energy_joules as double) + half_width_joules as energy_joules_high,
        window_output_tokens as output_tokens,
        window_total_tokens as total_tokens,
        case when output_tokens is not null or total_tokens is not null then 'stated' else 'counters' end as tokens_basis,
        {{ ratio('energy_joules', 'window_output_tokens') }} as joules_per_output_token,
        {{ ratio('energy_joules', 'window_total_tokens') }} as joules_per_total_token,
        reason_code = 'ok' as is_valid,
        reason_code,
        {{ doubt_columns(tokens='coalesce(window_total_tokens, window_output_tokens)', has_facts=false) }},
        held_back_dates,
        held_back_dates is null as is_complete
    from with_half_width

)

select * from final
