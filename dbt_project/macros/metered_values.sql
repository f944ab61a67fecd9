-- The second parsing of outside values, for the balances (`int_label_identities`, `int_metered_…`): the grammar of
-- outside_values.sql in code of its own, so that a mistake in either shows as a difference. Keep out everything that
-- the book itself uses.

{# A process start in Unix seconds, in whichever unit makes it a moment from 2000 to a day after its sample. NULL where
   none does. #}
{% macro metered_start_seconds(value, sampled_us) -%}
coalesce(
            {%- for per_second in ['1e0', '1e3', '1e6', '1e9'] %}
            case
                when {{ value }} / {{ per_second }}
                    between case when {{ sampled_us }} < 946684800000000 then 0 else 946684800 end and {{ sampled_us }} / 1e6 + 86400
                    then {{ value }} / {{ per_second }}
            end{{ ',' if not loop.last }}
            {%- endfor %}
        )
{%- endmacro %}

{# The digits that end a text, 0 to 9 of them; what is left of it without them. #}
{% macro metered_ending(text) %}regexp_extract(concat({{ text }}, '|'), '([0-9]*)[|]$', 1){% endmacro %}
{% macro metered_rank(text) -%}
case when length({{ metered_ending(text) }}) between 1 and 9 then cast({{ metered_ending(text) }} as bigint) end
{%- endmacro %}

{# Whether a counter's rise between two samples is a leap: over `watts` by itself, over the minute that ends with it, and
   over the time since it moved, as an exporter may show a counter late. `rises`: a CTE with `risen`, `watts`, `ceiling`,
   `from_us` and `to_us`, of one counter per `key`; the CTE `{{ rises }}_assessed` has is_leap beside them. Nothing reaches
   over midnight. #}
{% macro metered_leap_ctes(rises, key) -%}
{%- set in_order = 'partition by ' ~ key ~ ', ' ~ int_div('to_us', day_us()) ~ ' order by to_us' -%}
{{ rises }}_in_order as (

    select
        *,
        case when risen <= watts * (to_us - from_us + 60e6) / 1e6 then risen end as minute_part,
        count(nullif(risen, 0)) over ({{ in_order }} rows between unbounded preceding and 1 preceding) as moves
    from {{ rises }}

),

{{ rises }}_of_minutes as (

    select
        *,
        sum(minute_part) over ({{ in_order }} range between 59999999 preceding and current row) as latest_joules,
        to_us - min(from_us) over ({{ in_order }} range between 59999999 preceding and current row) as latest_us,
        -- From one move to the next the counter repeats a value; the step that ends with the next one is counted with them.
        to_us - min(from_us) over (partition by {{ key }}, {{ int_div('to_us', day_us()) }}, moves) as still_us
    from {{ rises }}_in_order

),

{{ rises }}_assessed as (

    select
        *,
        case
            when watts is null then risen > ceiling * (to_us - from_us) / 1e6
            when risen <= watts * least(still_us, to_us - from_us + 600e6) / 1e6 then false
            when risen > watts * (to_us - from_us + 60e6) / 1e6 then true
            else risen > watts * (to_us - from_us) / 1e6 and latest_joules > watts * latest_us / 1e6
        end as is_leap
    from {{ rises }}_of_minutes

),
{%- endmacro %}

{# Of int_metered_readings: a counter of which nothing fell, repeated or leapt, on the date or over its edges. Its
   difference is its energy. #}
{% macro is_calm_reading() -%}
{%- set possible_watts = "coalesce(possible_watts, " ~ ceiling_watts('meter_scope') ~ ")" -%}
{%- set midnight_watts = "coalesce(midnight_watts, " ~ ceiling_watts('meter_scope') ~ ")" -%}
kind = 'counter'
        and troubles = 0
        and coalesce(steepest_rise_per_second <= {{ possible_watts }}, true)
        and coalesce(first_value >= previous_value, true)
        and coalesce(next_value >= coalesce(last_value, previous_value), true)
        and coalesce(
            first_value - previous_value <= {{ midnight_watts }} * (first_us - previous_us) / 1e6,
            true
        )
        and coalesce(
            next_value - coalesce(last_value, previous_value)
                <= {{ midnight_watts }} * (next_us - coalesce(last_us, previous_us)) / 1e6,
            true
        )
        and coalesce(last_value - first_value <= {{ possible_watts }} * (last_us - first_us) / 1e6, true)
{%- endmacro %}
