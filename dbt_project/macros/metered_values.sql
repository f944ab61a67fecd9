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
