-- Where DuckDB and Spark differ about texts.

{# A number of 64 bits that equal texts have in common; NULL of NULL. For joins within one query: the engines' numbers
   differ. #}
{% macro text_number(text) %}{{ return(adapter.dispatch('text_number', 'wattledger')(text)) }}{% endmacro %}
{% macro default__text_number(text) %}case when {{ text }} is not null then hash({{ text }}) end{% endmacro %}
{% macro spark__text_number(text) %}case when {{ text }} is not null then xxhash64({{ text }}) end{% endmacro %}
