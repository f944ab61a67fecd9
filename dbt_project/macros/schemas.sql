{# Models live in exactly the schema they name (marts, not main_marts): the names are a contract with readers. #}
{% macro generate_schema_name(custom_schema_name, node) -%}
    {{ custom_schema_name | trim if custom_schema_name else target.schema }}
{%- endmacro %}
