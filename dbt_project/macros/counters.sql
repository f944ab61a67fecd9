-- How counters are read and differenced: the same for joules, tokens and the buckets of a histogram.

{# Whether a sample is a dip that the next sample takes back: a glitch of the exporter, not a reset, for after a reset
   the counter could not have come so far. Where no limit is known, an energy counter's dip is one too (it would have to
   draw its whole past in one step); a token counter's is not. #}
{% macro is_dip(value, at_us, before, before_us, after, after_us, unlimited_dips_are_glitches, possible_watts='possible_watts') %}
    coalesce(
        {{ value }} < {{ before }}
        and {{ after }} >= {{ before }}
        and case
            when {{ possible_watts }} is null then {{ unlimited_dips_are_glitches }}
            else {{ after }} - {{ value }} > {{ possible_watts }} * ({{ after_us }} - {{ at_us }}) / 1e6
                and {{ after }} - {{ before }} <= {{ possible_watts }} * ({{ after_us }} - {{ before_us }}) / 1e6
        end,
        false
    )
{% endmacro %}

{# CTEs from `counter_series_days` (series_id, reading_id, factor, day_number, date, is_in_run, needs_every_sample,
   first_us, first_value, last_us, last_value), `chosen_readings` (reading_id, possible_watts, and ceiling_watts where
   no limit is known) and `dated_limits` (reading_id, day_number, possible_watts, is_doubted) to `counter_readings`
   (reading_id, first_us, first_reading, last_us, last_reading, possible_watts, is_doubted, ceiling_watts): first and
   last per series and interval ("aggregate first, difference second"), single samples where a date needs every sample,
   and the neighbours before and after the run. #}
{% macro counter_reading_ctes(samples, unlimited_dips_are_glitches) %}
fast_series_days as (

    select * from counter_series_days where is_in_run and not needs_every_sample

),

slow_series_days as (

    select * from counter_series_days where needs_every_sample

),

slow_span as (

    select
        min({{ from_epoch_us('day_number * ' ~ day_us()) }}) as start_at,
        max({{ from_epoch_us('(day_number + 1) * ' ~ day_us()) }}) as end_at
    from slow_series_days
    having count(*) > 0

),

-- Between falls a counter only rises: its first value of an interval is the least, its last the greatest. Samples are
-- read here and below each for itself: a common name for both would hold every sample in memory.
summaries as (

    select
        series_id,
        {{ int_div(epoch_us('observed_at'), grid_us()) }} as interval_number,
        {{ epoch_us('min(observed_at)') }} as first_us,
        min(value) as first_value,
        {{ epoch_us('max(observed_at)') }} as last_us,
        max(value) as last_value
    from {{ samples }}
    where observed_at >= {{ run_start_at() }}
        and observed_at < {{ run_end_at() }}
        and {{ is_valid_sample('value') }}
        and series_id in (select series_id from fast_series_days)
    group by series_id, {{ int_div(epoch_us('observed_at'), grid_us()) }}

),

summarised as (

    select
        fast_series_days.reading_id,
        summaries.first_us,
        summaries.first_value * fast_series_days.factor as first_reading,
        summaries.last_us,
        summaries.last_value * fast_series_days.factor as last_reading
    from summaries
    inner join fast_series_days
        on summaries.series_id = fast_series_days.series_id
        and {{ int_div('summaries.first_us', day_us()) }} = fast_series_days.day_number

),

sampled as (

    select
        slow_series_days.reading_id,
        {{ epoch_us('samples.observed_at') }} as observed_us,
        max(samples.value * slow_series_days.factor) as reading
    from {{ samples }} as samples
    inner join slow_series_days
        on samples.series_id = slow_series_days.series_id
        and {{ int_div(epoch_us('samples.observed_at'), day_us()) }} = slow_series_days.day_number
    cross join slow_span
    where {{ is_valid_sample('samples.value') }}
        and samples.observed_at >= slow_span.start_at
        and samples.observed_at < slow_span.end_at
    group by slow_series_days.reading_id, samples.observed_at

),

neighbour_days as (

    select * from counter_series_days where not is_in_run and not needs_every_sample

),

neighbour_ends as (

    select
        reading_id,
        max(last_us) as last_us,
        max_by(last_value, last_us) as last_reading
    from neighbour_days
    where date < date '{{ start_date() }}'
    group by reading_id

),

neighbour_starts as (

    select
        reading_id,
        min(first_us) as first_us,
        min_by(first_value, first_us) as first_reading
    from neighbour_days
    where date >= date '{{ end_date() }}'
    group by reading_id

),

readings as (

    select reading_id, first_us, first_reading, last_us, last_reading, false as is_sample from summarised
    union all
    select reading_id, observed_us, reading, observed_us, reading, true as is_sample from sampled
    union all
    select reading_id, last_us, last_reading, last_us, last_reading, false as is_sample from neighbour_ends
    union all
    select reading_id, first_us, first_reading, first_us, first_reading, false as is_sample from neighbour_starts

),

bracketed as (

    select
        readings.*,
        coalesce(chosen_readings.possible_watts, dated_limits.possible_watts) as possible_watts,
        coalesce(dated_limits.is_doubted, false) as is_doubted,
        chosen_readings.ceiling_watts,
        lag(last_reading) over reading_window as previous_reading,
        lag(last_us) over reading_window as previous_us,
        lead(first_reading) over reading_window as next_reading,
        lead(first_us) over reading_window as next_us
    from readings
    inner join chosen_readings on readings.reading_id = chosen_readings.reading_id
    left join dated_limits
        on readings.reading_id = dated_limits.reading_id
        and {{ int_div('readings.first_us', day_us()) }} = dated_limits.day_number
    window reading_window as (partition by readings.reading_id order by first_us)

),

counter_readings as (

    select
        reading_id,
        first_us,
        first_reading,
        last_us,
        last_reading,
        possible_watts,
        is_doubted,
        ceiling_watts
    from bracketed
    where not (
        is_sample
        and {{ is_dip(
            'first_reading', 'first_us', 'previous_reading', 'previous_us', 'next_reading', 'next_us', unlimited_dips_are_glitches,
            '(' ~ accepted_watts('possible_watts', 'is_doubted', 'previous_us', 'next_us') ~ ')'
        ) }}
    )

)
{% endmacro %}

{# Of steps (start_us, end_us) of a counter, for is_impossible_rise: what those that end within the last minute of each
   rose by, in minute_us, and moved_us, when the counter moved before it. A date has minutes of its own, so that any order
   of booking gives the same. What no minute could hold is left out. #}
{% macro late_rise_columns(risen, limit_watts) -%}
    {%- set steps_of_date = 'partition by reading_id, ' ~ int_div('end_us', day_us()) ~ ' order by end_us' -%}
    {%- set last_minute = 'range between ' ~ (least_assessed_us() - 1) ~ ' preceding and current row' -%}
    {%- set before = 'rows between unbounded preceding and 1 preceding' -%}
sum(case when not {{ is_above_a_minute(risen, limit_watts) }} then {{ risen }} end) over (
            {{ steps_of_date }} {{ last_minute }}
        ) as minute_joules,
        end_us - min(start_us) over ({{ steps_of_date }} {{ last_minute }}) as minute_us,
        coalesce(
            max(case when {{ risen }} <> 0 then end_us end) over ({{ steps_of_date }} {{ before }}),
            min(start_us) over ({{ steps_of_date }} {{ before }}),
            start_us
        ) as moved_us
{%- endmacro %}
{% macro is_above_a_minute(risen, limit_watts) -%}
({{ risen }} > {{ limit_watts }} * (end_us - start_us + {{ least_assessed_us() }}) / 1e6)
{%- endmacro %}
{# Whether a step rose by more than its board can draw in its own time, over a minute, and since the counter moved; where
   no limit is known, by more than the ceiling. #}
{% macro is_impossible_rise(risen, limit_watts, ceiling_watts) -%}
({{ risen }} > coalesce(coalesce({{ limit_watts }}, {{ ceiling_watts }}) * (end_us - start_us) / 1e6, 1e300)
        and coalesce({{ is_above_a_minute(risen, limit_watts) }} or minute_joules > {{ limit_watts }} * minute_us / 1e6, true)
        and coalesce(
            {{ risen }} > {{ limit_watts }} * least(end_us - moved_us, end_us - start_us + {{ least_standstill_us() }}) / 1e6,
            true
        ))
{%- endmacro %}

{# CTEs from `readings` (as counter_readings) to `assessed_steps` (reading_id, start_us, end_us, risen, is_reset,
   is_impossible, most_watts): the difference between consecutive readings. After a fall the counter began again at zero
   and its new value is the difference, if a board can draw that much in the time. #}
{% macro counter_step_ctes(readings) %}
ordered_readings as (

    select
        *,
        lag(last_us) over (partition by reading_id order by first_us) as previous_us,
        lag(last_reading) over (partition by reading_id order by first_us) as previous_reading
    from {{ readings }}

),

steps as (

    select
        reading_id,
        first_us as start_us,
        last_us as end_us,
        last_reading - first_reading as difference,
        last_reading as new_reading,
        possible_watts,
        is_doubted,
        ceiling_watts
    from ordered_readings
    where last_us > first_us
    union all
    select
        reading_id,
        previous_us as start_us,
        first_us as end_us,
        first_reading - previous_reading as difference,
        first_reading as new_reading,
        possible_watts,
        is_doubted,
        ceiling_watts
    from ordered_readings
    where first_us > previous_us

),

rises as (

    select
        reading_id,
        start_us,
        end_us,
        case when difference >= 0 then difference else new_reading end as risen,
        difference < 0 as is_reset,
        {{ accepted_watts('possible_watts', 'is_doubted', 'start_us', 'end_us') }} as limit_watts,
        ceiling_watts
    from steps

),

late_rises as (

    select
        *,
        {{ late_rise_columns('risen', 'limit_watts') }}
    from rises

),

assessed_steps as (

    select
        reading_id,
        start_us,
        end_us,
        risen,
        is_reset,
        {{ is_impossible_rise('risen', 'limit_watts', 'ceiling_watts') }} as is_impossible,
        coalesce(limit_watts, ceiling_watts) as most_watts
    from late_rises

)
{% endmacro %}

{# CTEs from `assessed_steps` to `counter_cells` (reading_id, cell_number, risen, covered_us, resets): the run's
   possible steps cut at the edges of cells of `cell_us` microseconds and shared by time. Its `pieces` are these, each
   from `from_us` on. #}
{% macro counter_cell_ctes(cell_us) %}
celled_steps as (

    select
        *,
        {{ int_div('start_us', cell_us) }} as first_cell,
        {{ int_div('end_us - 1', cell_us) }} as last_cell
    from assessed_steps
    where end_us > {{ run_start_us() }} and start_us < {{ run_end_us() }} and not is_impossible

),

spread_steps as (

    select
        *,
        {{ integers_between(
            'greatest(first_cell, ' ~ int_div(run_start_us(), cell_us) ~ ')',
            'least(last_cell, ' ~ int_div(run_end_us() ~ ' - 1', cell_us) ~ ')'
        ) }} as cell_number
    from celled_steps
    where first_cell < last_cell

),

spread_pieces as (

    select
        *,
        greatest(start_us, cell_number * {{ cell_us }}) as from_us,
        least(end_us, (cell_number + 1) * {{ cell_us }}) as to_us
    from spread_steps

),

pieces as (

    select
        reading_id,
        first_cell as cell_number,
        start_us as from_us,
        {{ exact('risen') }} as risen,
        end_us - start_us as covered_us,
        is_reset
    from celled_steps
    where first_cell = last_cell
    union all
    select
        reading_id,
        cell_number,
        from_us,
        {{ accumulated('risen', '0', 'to_us - start_us', '(end_us - start_us)') }}
        - {{ accumulated('risen', '0', 'from_us - start_us', '(end_us - start_us)') }} as risen,
        to_us - from_us as covered_us,
        is_reset
    from spread_pieces

),

counter_cells as (

    select
        reading_id,
        cell_number,
        {{ exact_sum('risen') }} as risen,
        sum(covered_us) as covered_us,
        max(case when is_reset then 1 else 0 end) as resets
    from pieces
    group by reading_id, cell_number

)
{% endmacro %}

{# The exact joules that a step (start_us, end_us, energy_joules, slope_watts) has between two moments. #}
{% macro clipped_joules(step, from_us, to_us) %}
    {%- set length = '(' ~ step ~ '.end_us - ' ~ step ~ '.start_us)' -%}
    {%- set quantity, slope = step ~ '.energy_joules', step ~ '.slope_watts' -%}
    {{ accumulated(quantity, slope, 'least(' ~ step ~ '.end_us, ' ~ to_us ~ ') - ' ~ step ~ '.start_us', length) }}
    - {{ accumulated(quantity, slope, 'greatest(' ~ step ~ '.start_us, ' ~ from_us ~ ') - ' ~ step ~ '.start_us', length) }}
{% endmacro %}
