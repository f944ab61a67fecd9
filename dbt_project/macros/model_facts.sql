-- The facts of a model at any grain: summed here, divided here, once. Used by model_hourly, model_daily,
-- model_monthly and fleet_daily.

{% macro model_keys() -%}
    {{ return(['site', 'deployment', 'namespace', 'team', 'model', 'device_type', 'meter_scope', 'role']) }}
{%- endmacro %}

{% macro energy_facts() %}
    {{ return([
        'gpu_seconds', 'claimed_gpu_seconds', 'unpriced_gpu_seconds', 'covered_seconds', 'known_seconds',
        'active_seconds', 'energy_joules', 'productive_joules', 'idle_floor_joules', 'parked_joules',
        'asleep_joules', 'unallocated_joules', 'idle_joules', 'unknown_joules', 'host_overhead_joules',
        'reference_idle_joules', 'error_joules',
        'matched_joules', 'matched_productive_joules', 'carbon_unknown_joules', 'facility_energy_kwh',
        'hourly_carbon_kwh', 'location_gco2e', 'lifecycle_gco2e', 'idle_location_gco2e', 'embodied_gco2e',
        'water_litres',
        'energy_cost_usd', 'variable_cost_usd', 'capacity_cost_usd', 'idle_compute_cost_usd', 'unknown_cost_usd',
        'compute_cost_usd',
        'matched_location_gco2e', 'matched_variable_cost_usd', 'matched_compute_cost_usd'
    ]) }}
{% endmacro %}

{% macro token_facts() %}
    {{ return([
        'input_tokens', 'cached_input_tokens', 'computed_input_tokens', 'output_tokens', 'total_tokens', 'shared_tokens',
        'matched_output_tokens', 'matched_total_tokens', 'tariffed_output_tokens', 'priced_output_tokens',
        'carbon_known_output_tokens'
    ]) }}
{% endmacro %}

{# What of a row rests on what is in doubt, and what is in doubt because it is not booked. #}
{% macro doubt_facts() %}{{ return(['doubted_joules', 'doubted_tokens', 'unbooked_tokens']) }}{% endmacro %}

{# The words of `doubt_reasons` in order: the reasons of seed doubt_reasons that mark the joules or tokens of an hour. #}
{% macro doubt_reasons() %}
    {{ return([
        'above_limit', 'clocks_apart', 'conflicting_role', 'contradicted_totals', 'hidden_processes', 'meters_disagree',
        'no_counter', 'refuted_host', 'refuted_meter', 'scraped_twice', 'second_name', 'token_counters_disagree',
        'unaccounted_joules', 'unaccounted_tokens', 'unbalanced_joules', 'unbalanced_tokens', 'unclear_falls', 'unclear_shares',
        'uncounted_class', 'unplaced_meter', 'unread_gauge', 'unseen_tokens'
    ]) }}
{% endmacro %}

{# Whether a doubt marks rows of hours. The others are in `doubts` alone: what is published is right after all, or a
   column of its row has it. #}
{% macro marks_hours(reason) %}{{ reason }} in ('{{ doubt_reasons() | join("', '") }}'){% endmacro %}

{# The part of a row's joules, or tokens, from which on the row is marked. #}
{% macro doubt_threshold() %}{{ return(var('doubt_threshold')) }}{% endmacro %}

{# Sums of the facts of doubt, and the reasons that any of the rows has; NULL where no row was assessed. #}
{% macro summed_doubts() -%}
    {%- for fact in doubt_facts() -%}
    {{ exact_sum(fact) }} as {{ fact }},
    {% endfor -%}
    case when count(doubt_reasons) > 0 then substr(
        ''
        {%- for reason in doubt_reasons() %}
        || case when max(case when position(',{{ reason }},' in ',' || doubt_reasons || ',') > 0 then 1 else 0 end) = 1
            then ',{{ reason }}' else '' end
        {%- endfor %}, 2
    ) end as listed_reasons
{%- endmacro %}

{# What tokens in doubt are divided by; the rows of tenants have no total. #}
{% macro booked_tokens() %}{{ return('coalesce(total_tokens, output_tokens)') }}{% endmacro %}
{% macro tenant_tokens() %}{{ return('(coalesce(input_tokens, 0) + coalesce(output_tokens, 0))') }}{% endmacro %}

{# From `listed_reasons`, those of the row's parts. Where counters are not booked at all the row has no tokens to
   divide by. #}
{% macro doubt_columns(tokens=booked_tokens(), has_facts=true) -%}
    {%- set energy_ratio = ratio('doubted_joules', 'energy_joules') %}
    {%- set tokens_ratio = ratio(
        '(coalesce(doubted_tokens, 0) + coalesce(unbooked_tokens, 0))',
        '(' ~ tokens ~ ' + coalesce(unbooked_tokens, 0))'
    ) %}
    {%- for fact in doubt_facts() if has_facts -%}
    cast({{ fact }} as {{ exact_type() }}) as {{ fact }},
    {% endfor -%}
    case when listed_reasons is not null then least(coalesce({{ energy_ratio }}, 0e0), 1e0) end as doubted_energy_ratio,
    case when listed_reasons is not null then coalesce({{ tokens_ratio }}, 0e0) end as doubted_tokens_ratio,
    case
        when coalesce({{ energy_ratio }}, 0) >= {{ doubt_threshold() }}
            or coalesce({{ tokens_ratio }}, 0) >= {{ doubt_threshold() }}
            or position('no_counter' in listed_reasons) > 0
            or position('unclear_falls' in listed_reasons) > 0
            or (position('token_counters_disagree' in listed_reasons) > 0 and coalesce({{ tokens }}, 0) = 0)
            -- Nothing of its energy is booked, or how much is missing is unknown.
            or (position('refuted_meter' in listed_reasons) > 0 and (energy_joules is null or doubted_joules is null))
            then listed_reasons
        when listed_reasons is not null then ''
    end as doubt_reasons
{%- endmacro %}

{% macro doubt_names() %}{{ return(['doubted_energy_ratio', 'doubted_tokens_ratio', 'doubt_reasons']) }}{% endmacro %}

{# How much of the rows of the same keys together is in doubt, and why: the keys and `doubt_names`. #}
{% macro doubts_by(relation, keys, tokens=booked_tokens()) -%}
    select
        {{ keys | join(', ') }},
        {{ doubt_columns(tokens='booked_tokens', has_facts=false) }}
    from (
        select
            {{ keys | join(', ') }},
            {{ exact_sum('energy_joules') }} as energy_joules,
            {{ exact_sum(tokens) }} as booked_tokens,
            {{ summed_doubts() }}
        from {{ relation }}
        group by {{ keys | join(', ') }}
    ) as summed
{%- endmacro %}

{# Money has its own type. #}
{% macro fact_type(fact) %}{{ return(money_type() if fact.endswith('_usd') else exact_type()) }}{% endmacro %}
{% macro fact_sum(fact) %}{{ return(money_sum(fact) if fact.endswith('_usd') else exact_sum(fact)) }}{% endmacro %}

{# Sums of all facts of a relation; an unknown fact stays NULL. Joules per total token have the joules of all rows above
   the line: where the total tokens of one row are unknown, those of the sum are, too. With `of_dates` so are the parts of
   the input where a date does not have them: what is known of a month would pass for the month's. #}
{% macro summed_facts(of_dates=false) %}
    {%- for fact in energy_facts() + token_facts() %}
    {% if of_dates and fact in ['cached_input_tokens', 'computed_input_tokens'] -%}
    case
        when count(distinct case when input_tokens > 0 then date end)
            = count(distinct case when input_tokens > 0 and {{ fact }} is not null then date end)
            then {{ fact_sum(fact) }}
    end
    {%- elif fact == 'matched_total_tokens' -%}
    case when count(case when matched_output_tokens > 0 and matched_total_tokens is null then 1 end) = 0 then {{ fact_sum(fact) }} end
    {%- else -%}
    {{ fact_sum(fact) }}
    {%- endif %} as {{ fact }}{{ ',' if not loop.last }}
    {%- endfor %}
{% endmacro %}

{# SUM/SUM over the intervals with both tokens and energy; costs only over what has a price. The tokens of an engine
   over several rows are shared by joules: a row's joules per token are then the engine's, but its own dollars and CO2
   per token are not, and are NULL. `is_of_rows` is false where the rows are summed. #}
{% macro model_ratios(is_of_rows=true) %}
    {%- set own_ratio = 'case when coalesce(shared_tokens, 0) = 0 then ' if is_of_rows else '' %}
    {%- if is_of_rows %}
    case when shared_tokens > 0 then 'shared' when total_tokens is not null then 'own' end as tokens_basis,
    {%- endif %}
    {{ ratio('matched_joules', 'energy_joules') }} as matched_ratio,
    {{ ratio('matched_joules', 'matched_output_tokens') }} as joules_per_output_token,
    {{ ratio('matched_joules', 'matched_total_tokens') }} as joules_per_total_token,
    {{ own_ratio }}{{ ratio(
        'matched_productive_joules',
        'matched_output_tokens'
    ) }}{{ ' end' if is_of_rows }} as productive_joules_per_output_token,
    {{ ratio('matched_output_tokens', 'matched_joules') }} * 3.6e6 as output_tokens_per_kwh,
    {{ ratio('matched_output_tokens', 'matched_joules') }} * 1e6 as output_tokens_per_second_per_mw,
    {{ ratio('idle_joules', 'productive_joules + idle_joules') }} as idle_energy_ratio,
    1 - {{ ratio('active_seconds', 'known_seconds') }} as idle_time_ratio,
    {{ ratio('reference_idle_joules', 'energy_joules') }} as idle_static_ratio,
    {{ ratio('hourly_carbon_kwh', 'facility_energy_kwh') }} as hourly_carbon_ratio,
    {{ own_ratio }}{{ ratio('matched_location_gco2e', 'carbon_known_output_tokens') }}
        * 1e6{{ ' end' if is_of_rows }} as location_gco2e_per_output_mtok,
    {{ own_ratio }}{{ ratio('matched_compute_cost_usd', 'priced_output_tokens') }}
        * 1e6{{ ' end' if is_of_rows }} as compute_cost_usd_per_output_mtok,
    {{ own_ratio }}{{ ratio('matched_variable_cost_usd', 'tariffed_output_tokens') }}
        * 1e6{{ ' end' if is_of_rows }} as variable_cost_usd_per_output_mtok,
    {{ ratio('priced_output_tokens', 'matched_output_tokens') }} as cost_coverage_ratio,
    {{ ratio('carbon_known_output_tokens', 'matched_output_tokens') }} as carbon_coverage_ratio,
    unpriced_gpu_seconds = 0 as is_cost_complete,
    carbon_unknown_joules = 0 as is_carbon_complete,
    case when gpu_seconds > claimed_gpu_seconds then 1 else {{ ratio('gpu_seconds', 'claimed_gpu_seconds') }} end as coverage_ratio,
    {{ ratio('error_joules', 'energy_joules') }} as energy_error_ratio,
    cast('{{ var("method_version") }}' as {{ dbt.type_string() }}) as method_version
{% endmacro %}

{# What tenants share of a model's hour: by the tokens of that class, and by all tokens weighted. #}
{% macro tenant_token_facts() -%}
    {{ return(['input_tokens', 'cached_input_tokens', 'computed_input_tokens', 'output_tokens']) }}
{%- endmacro %}
{% macro tenant_facts() %}
    {{ return([
        'claimed_gpu_seconds', 'active_seconds', 'energy_joules', 'location_gco2e', 'variable_cost_usd',
        'compute_cost_usd'
    ]) }}
{% endmacro %}

{# Where an engine served in an hour, and what: one row per hour and engine, of `hours` as int_engine_hours has them. #}
{% macro engine_places(hours) -%}
    select
        hour_start_at,
        engine,
        min(site) as site,
        min(deployment) as deployment,
        min(model) as model
    from {{ hours }}
    group by hour_start_at, engine
{%- endmacro %}
