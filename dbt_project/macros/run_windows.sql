{# A window names a node, or an engine, or a model: the first that it names says which rows of the ledger, and so which meters, count. #}
{% macro is_of_window(ledger, windows) -%}
case
            when {{ windows }}.node is not null then {{ ledger }}.node = {{ windows }}.node
            when {{ windows }}.engine is not null then {{ ledger }}.engine = {{ windows }}.engine
            else {{ ledger }}.model = {{ windows }}.model
        end
{%- endmacro %}
