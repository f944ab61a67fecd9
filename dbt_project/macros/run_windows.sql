{# A window names a node, an engine or a model. The first of these that it names selects the rows of the ledger, and so the meters, that count. #}
{% macro is_of_window(ledger, windows) -%}
case
            when {{ windows }}.node is not null then {{ ledger }}.node = {{ windows }}.node
            when {{ windows }}.engine is not null then {{ ledger }}.engine = {{ windows }}.engine
            else {{ ledger }}.model = {{ windows }}.model
        end
{%- endmacro %}
