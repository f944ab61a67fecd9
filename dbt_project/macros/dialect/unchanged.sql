-- Marts that are made again only if what they are made from has changed (config `made: if_inputs_changed`): their SQL,
-- all rows that it reads, and DuckDB's version. For tables that are costly to compute and seldom differ. Keep out tables
-- that read the run's dates: they differ in every run.

{# A digest of what this mart is made from, as an SQL expression. The compiled SQL has its macros, dbt's vars and its own
   text; rows count in whatever order, with the names and types of their columns. #}
{% macro digest_of_inputs() %}
    md5(concat_ws(
        ' ', version(), '{{ local_md5(compiled_code) }}'
        {%- for unique_id in model.depends_on.nodes | sort %}
        {%- set node = graph.nodes.get(unique_id) or graph.sources[unique_id] %},
        (
            select cast((count(*), any_value(typeof(found)), bit_xor(hash(found)), sum(hash(found))) as varchar)
            from {{ api.Relation.create(schema=node.schema, identifier=node.get('identifier') or node.alias) }} as found
        )
        {%- endfor %}
    ))
{% endmacro %}

{# The digest that the rows of this mart were made from, if that is what they would be made from now; none otherwise. #}
{% macro digest_if_unchanged() %}
    {%- set found = run_query(
        "select digest from raw.made_from where mart = '" ~ this.identifier ~ "' and digest = (select " ~ digest_of_inputs() ~ ')'
    ) -%}
    {{ return(found[0][0] if found else none) }}
{% endmacro %}

{# In the transaction that makes the rows: what they were made from. A mart that is held back has other rows, and so forgets it. #}
{% macro remember_inputs() %}
    {{ forget_inputs(this.identifier) }};
    insert into raw.made_from select '{{ this.identifier }}', {{ digest_of_inputs() }};
{% endmacro %}

{% macro forget_inputs(mart) %}delete from raw.made_from where mart = '{{ mart }}'{% endmacro %}
