-- Where DuckDB and Spark differ about lists and maps.

{# One row per integer of [first, last]; used in a select list. #}
{% macro integers_between(first, last) %}{{ return(adapter.dispatch('integers_between', 'wattledger')(first, last)) }}{% endmacro %}
{% macro default__integers_between(first, last) %}unnest(generate_series({{ first }}, {{ last }})){% endmacro %}
{% macro spark__integers_between(first, last) %}explode(sequence({{ first }}, {{ last }})){% endmacro %}

{# The labels of a series (JSON text) as rows of (series_id, label, value). #}
{% macro label_rows(relation) %}{{ return(adapter.dispatch('label_rows', 'wattledger')(relation)) }}{% endmacro %}
{% macro default__label_rows(relation) %}
    select series_id, entry.key as label, entry.value as value
    from (
        select series_id, unnest(map_entries(cast(cast(labels as json) as map(varchar, varchar)))) as entry
        from {{ relation }}
    ) as exploded
{% endmacro %}
{% macro spark__label_rows(relation) %}
    select series_id, label, value
    from {{ relation }} lateral view explode(from_json(labels, 'map<string,string>')) as label, value
{% endmacro %}

{# The value of one label of a series (JSON text); NULL where the series has no such label. #}
{% macro label_value(labels, label) %}{{ return(adapter.dispatch('label_value', 'wattledger')(labels, label)) }}{% endmacro %}
{% macro default__label_value(labels, label) %}json_extract_string({{ labels }}, '$."' || {{ label }} || '"'){% endmacro %}
{% macro spark__label_value(labels, label) %}try_element_at(from_json({{ labels }}, 'map<string,string>'), {{ label }}){% endmacro %}

{# The distinct values of a group in order, as one text; NULL where there are none (Spark joins nothing to ''). #}
{% macro joined_in_order(value) %}{{ return(adapter.dispatch('joined_in_order', 'wattledger')(value)) }}{% endmacro %}
{% macro default__joined_in_order(value) %}string_agg(distinct {{ value }}, ',' order by {{ value }}){% endmacro %}
{% macro spark__joined_in_order(value) %}nullif(array_join(array_sort(collect_set({{ value }})), ','), ''){% endmacro %}

{# A text as JSON, in quotes and escaped; NULL is null. #}
{% macro json_text(value) %}{{ return(adapter.dispatch('json_text', 'wattledger')(value)) }}{% endmacro %}
{% macro default__json_text(value) %}coalesce(cast(to_json({{ value }}) as varchar), 'null'){% endmacro %}
{# Spark writes objects alone: what is between `{"t":` and `}`. #}
{% macro spark__json_text(value) -%}
case
    when {{ value }} is null then 'null'
    else substr(to_json(named_struct('t', {{ value }})), 6, length(to_json(named_struct('t', {{ value }}))) - 6)
end
{%- endmacro %}

{# The value at the first or the last moment of a group; of several at one moment the largest, as wherever one reading has
   several samples at a moment. #}
{% macro value_at_first(value, at) %}min_by({{ value }}, {{ one_by_one(at, '-' ~ value) }}){% endmacro %}
{% macro value_at_last(value, at) %}max_by({{ value }}, {{ one_by_one(at, value) }}){% endmacro %}
{# Two values that are compared one after the other. #}
{% macro one_by_one(first, second) %}{{ return(adapter.dispatch('one_by_one', 'wattledger')(first, second)) }}{% endmacro %}
{% macro default__one_by_one(first, second) %}row({{ first }}, {{ second }}){% endmacro %}
{% macro spark__one_by_one(first, second) %}struct({{ first }}, {{ second }}){% endmacro %}
