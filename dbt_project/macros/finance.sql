-- The words of schema finance: what a reader without a manual sees where the book has a name of its own.

{# A name of the book (site, deployment, model, tenant) in plain words; what a source or the fleet file calls something
   keeps its name. `what`: the word for it where it is not known. #}
{% macro plain_name(name, what) -%}
    case {{ name }}
        when {{ unknown() }} then 'Unknown {{ what }}'
        when {{ unallocated() }} then 'Free accelerators'
        when {{ remainder() }} then 'Free accelerators'
        when {{ unused_commitment() }} then 'Unused commitment'
        when {{ unmetered() }} then 'Unmetered accelerators'
        when {{ no_requests() }} then 'No request log'
        when {{ unattributed() }} then 'Not in the request log'
        else {{ name }}
    end
{%- endmacro %}

{# Who pays: the first of these teams that is known. What no model holds is nobody's. #}
{% macro payer(deployment, teams) -%}
    case
        when {{ deployment }} in ({{ unallocated() }}, {{ beside_the_models() }}) then {{ plain_name(deployment, 'deployment') }}
        else coalesce({{ teams | join(', ') }}, 'No team')
    end
{%- endmacro %}

{# Of a month, one amount of the rows of cost_daily on a basis; unknown where it is unknown of a row that has a cost. #}
{% macro on_basis(basis, column='cost_usd', also='true') -%}
    {{ money_sum("case when basis = '" ~ basis ~ "' and " ~ also ~ " then " ~ column ~ " end") }}
{%- endmacro %}
