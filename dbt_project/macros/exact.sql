-- The book is kept in exact numbers: each additive fact is rounded once, here, to a millionth, before it is summed.
-- Sums are then the same in any order, on any engine, at any thread count.

{% macro exact_type() %}decimal(28, 6){% endmacro %}

{# round() of one double can differ between DuckDB and Spark, in how it breaks ties and which digits it reads; floor()
   is the same on both. #}
{% macro exact(value) %}cast(floor(({{ value }}) * 1e6 + 0.5) / 1e6 as {{ exact_type() }}){% endmacro %}

{# Of what may be larger than nine millions of millions (a counter that jumped, J² of a rack): beyond that Spark's floor()
   has no room for millionths. Whole and fraction are rounded apart, as of money; the whole as a whole number, because
   DuckDB multiplies a double by a million to make it a decimal with six places. #}
{% macro exact_large(value) -%}
    cast(
        cast(cast(floor({{ value }}) as decimal(22, 0)) as {{ exact_type() }})
            + cast(floor((({{ value }}) - floor({{ value }})) * 1e6 + 0.5) / 1e6 as {{ exact_type() }}) as {{ exact_type() }}
    )
{%- endmacro %}

{# A sum of exact numbers, in the type that contracts name: each term is made exact before it is added. #}
{% macro exact_sum(value) %}cast(sum(cast({{ value }} as {{ exact_type() }})) as {{ exact_type() }}){% endmacro %}

{# Money has six more digits: five minutes of a board cost cents, and a month of them must be right to the cent. Whole
   dollars and fractions of a dollar are rounded apart, so that both engines see the same digits of a large double. #}
{% macro money_type() %}decimal(28, 12){% endmacro %}
{% macro money(usd) -%}
    cast(
        cast(floor({{ usd }}) as {{ money_type() }})
            + cast(
                floor((({{ usd }}) - floor({{ usd }})) * 1e12 + 0.5) / 1e12 as {{ money_type() }}
            ) as {{ money_type() }}
    )
{%- endmacro %}
{% macro money_sum(usd) %}cast(sum(cast({{ usd }} as {{ money_type() }})) as {{ money_type() }}){% endmacro %}

{# SUM/SUM as a double; NULL, never 0, where the denominator is missing or 0. #}
{% macro ratio(numerator, denominator) %}(cast({{ numerator }} as double) / nullif(cast({{ denominator }} as double), 0)){% endmacro %}

{# What a segment has accumulated `x_us` microseconds after its start, if its watts change evenly from its start to its
   end. A piece of a segment is the difference of two of these rounded amounts, so its pieces add up to the segment to
   the last digit, however it is cut. #}
{% macro accumulated(quantity, slope_watts, x_us, length_us) %}
    {{ exact(
        quantity ~ ' * ((' ~ x_us ~ ') / cast(' ~ length_us ~ ' as double)) + ' ~ slope_watts ~ ' / 2e6 * ((' ~ x_us
            ~ ') * ((' ~ x_us ~ ') / cast(' ~ length_us ~ ' as double)) - (' ~ x_us ~ '))'
    ) }}
{% endmacro %}

{# Collectors and SQL share this rule: finite, not negative, below the exporters' blank sentinels
   (9223372036854775792…795). #}
{% macro is_valid_sample(value) %}({{ value }} >= 0 and {{ value }} < 9.2e18){% endmacro %}
