-- Lists of columns, of joins and of select lists.

{# The condition of a join on columns of the same names. `using` is for joins of which either side may lack the key:
   after it, `one.*` begins with the keys on Spark, and a union by position mixes the columns up. #}
{% macro equal_keys(one, other, keys) -%}
    {%- for key in keys %}{{ one }}.{{ key }} = {{ other }}.{{ key }}{{ ' and ' if not loop.last }}{% endfor -%}
{%- endmacro %}

{# Columns of one table, in a select list or a `group by`. #}
{% macro columns_of(table, columns) -%}
    {%- for column in columns %}{{ table }}.{{ column }}{{ ', ' if not loop.last }}{% endfor -%}
{%- endmacro %}
