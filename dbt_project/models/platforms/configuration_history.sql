-- What software alone gains: the same configuration on the same accelerators, measured again and again.
{{ config(replaces='all') }}
{% set keys = ['origin', 'platform'] + configuration_keys() + ['input_length_tokens', 'output_length_tokens'] %}
{% set lengths = ['input_length_tokens', 'output_length_tokens'] %}

with assumptions as (

    select * from {{ ref('platform_assumptions') }}

),

results as (

    select * from {{ ref('platform_results') }} where measured_on is not null and total_tokens_per_second_per_gpu > 0

),

-- Own requests have other lengths each time: the work that they are compared within is what stays.
measured as (

    select
        origin,
        platform,
        {{ configuration_keys() | join(', ') }},
        {%- for length in lengths %}
        coalesce(compared_{{ length }}, {{ length }}) as {{ length }},
        {%- endfor %}
        measured_on,
        run_url,
        result_id,
        repetition,
        source,
        software,
        total_tokens_per_second_per_gpu,
        output_tokens_per_second_per_user,
        ttft_p99_seconds,
        coalesce(own_usd_per_mtok, hyperscaler_usd_per_mtok) as usd_per_mtok,
        case
            when own_usd_per_mtok is not null then 'own_cost'
            when hyperscaler_usd_per_mtok is not null then 'hyperscaler'
            else 'unknown'
        end as cost_basis,
        measured_joules_per_token,
        power_basis,
        comparable_reason
    from results

),

numbered as (

    select
        *,
        count(*) over (partition by {{ keys | join(', ') }}) as measurements,
        row_number() over (
            partition by {{ keys | join(', ') }}
            order by measured_on, run_url nulls last, result_id, source, repetition
        ) as measurement_number
    from measured

),

repeated as (

    select * from numbered where measurements > 1

),

-- Boards and whole servers are never compared, nor an own cost and a list price: the first measurement with watts or a
-- price is one of the row's own power_basis or cost_basis.
followed as (

    select
        *,
        first_value(measured_on) over (partition by {{ keys | join(', ') }} order by measurement_number) as first_measured_on,
        first_value(total_tokens_per_second_per_gpu) over (
            partition by {{ keys | join(', ') }}
            order by measurement_number
        ) as first_tokens_per_second_per_gpu,
        first_value(output_tokens_per_second_per_user) over (partition by {{ keys | join(', ') }} order by measurement_number)
        as first_output_tokens_per_second_per_user,
        first_value(usd_per_mtok) over (partition by {{ keys | join(', ') }}, cost_basis order by measurement_number) as first_usd_per_mtok,
        max(total_tokens_per_second_per_gpu) over (
            partition by {{ keys | join(', ') }} order by measurement_number rows between unbounded preceding and 1 preceding
        ) as best_before_tokens_per_second_per_gpu,
        first_value(measured_joules_per_token) over (partition by {{ keys | join(', ') }}, power_basis order by measurement_number)
        as first_measured_joules_per_token
    from repeated

),

final as (

    select
        {{ keys | join(', ') }},
        cast(measurement_number as integer) as measurement_number,
        cast(measurements as integer) as measurements,
        measured_on,
        first_measured_on,
        source,
        software,
        total_tokens_per_second_per_gpu,
        first_tokens_per_second_per_gpu,
        {{ ratio('total_tokens_per_second_per_gpu', 'first_tokens_per_second_per_gpu') }} as throughput_multiple,
        greatest(
            total_tokens_per_second_per_gpu,
            coalesce(best_before_tokens_per_second_per_gpu, 0)
        ) as best_so_far_tokens_per_second_per_gpu,
        total_tokens_per_second_per_gpu >= coalesce(best_before_tokens_per_second_per_gpu, 0) as is_best_so_far,
        coalesce(
            total_tokens_per_second_per_gpu < best_before_tokens_per_second_per_gpu * (1 - {{ assumed('regression_ratio') }}),
            false
        ) as is_regression,
        output_tokens_per_second_per_user,
        {{ ratio('output_tokens_per_second_per_user', 'first_output_tokens_per_second_per_user') }} as interactivity_multiple,
        ttft_p99_seconds,
        usd_per_mtok,
        cost_basis,
        {{ ratio('usd_per_mtok', 'first_usd_per_mtok') }} as cost_multiple,
        measured_joules_per_token,
        power_basis,
        {{ ratio('measured_joules_per_token', 'first_measured_joules_per_token') }} as energy_multiple,
        comparable_reason,
        result_id,
        repetition,
        run_url
    from followed

)

select * from final
