-- What a token of a model costs on a date, learned over the date's own lookback (no later dates), with the weights of
-- its interval; and what a joule emits in each hour. One row per UTC hour, model and place: a site and deployment, or
-- `__all__` for all of the model's, which a request without an engine is priced by.
{% set place = ['model', 'site', 'deployment'] %}
{% set parts = [
    'active_joules', 'prefill_joules', 'decode_joules', 'unified_joules', 'output_tokens', 'split_joules', 'split_output_tokens',
    'input_tokens', 'cached_input_tokens'
] %}
{% set rates = [
    'idle_joules', 'weighted_tokens', 'priced_joules', 'priced_tokens', 'own_cost_usd', 'idle_cost_usd', 'energy_joules', 'error_joules'
] %}
{% set hour_columns = [
    'date', 'hour_start_at', 'billing_month', 'energy_joules', 'carbon_unknown_joules', 'location_gco2e', 'output_tokens',
    'total_tokens'
] %}
{% set logs = ['computed_input', 'cached_input', 'output', 'output_context'] %}

with run_dates as (

    select date from {{ ref('stg_run_dates') }} where {{ receipts_are_kept() }}

),

intervals as (

    select
        *,
        coalesce(matched_computed_input_tokens, matched_total_tokens - matched_output_tokens) as counted_input_tokens
    from {{ ref('model_intervals') }}
    where date > date '{{ start_date() }}' - interval {{ var('curve_lookback_days') }} day and date < date '{{ end_date() }}'

),

days as (

    select
        *,
        {{ weighted_tokens('coalesce(computed_input_tokens, input_tokens)', 'cached_input_tokens', 'output_tokens') }} as weighted_tokens
    from {{ ref('model_daily') }}
    where date > date '{{ start_date() }}' - interval {{ var('curve_lookback_days') }} day and date < date '{{ end_date() }}'
        and deployment <> {{ unallocated() }}

),

hours as (

    select * from {{ ref('model_hourly') }} where {{ in_run('date') }} and deployment <> {{ unallocated() }}

),

requests as (

    select * from {{ ref('int_requests') }} where {{ receipts_are_kept() }}

),

fits as (

    select
        date,
        model,
        min(joules_per_computed_input_token / joules_per_output_token) as fitted_weight
    from {{ ref('int_phase_fits') }}
    group by date, model
    having count(*) = 1

),

concurrencies as (

    select * from {{ ref('int_model_concurrency') }}

),

-- Tokens and joules of intervals that have both. Where the engine counts no input, no weight can be applied to it.
day_parts as (

    select
        date,
        {{ place | join(', ') }},
        {{ exact_sum('matched_productive_joules') }} as active_joules,
        {{ exact_sum("case when role = 'prefill' then matched_productive_joules else 0 end") }} as prefill_joules,
        {{ exact_sum("case when role = 'decode' then matched_productive_joules else 0 end") }} as decode_joules,
        {{ exact_sum("case when role = 'unified' then matched_productive_joules else 0 end") }} as unified_joules,
        {{ exact_sum('matched_output_tokens') }} as output_tokens,
        {{ exact_sum('case when counted_input_tokens is not null then matched_productive_joules end') }} as split_joules,
        {{ exact_sum('case when counted_input_tokens is not null then matched_output_tokens end') }} as split_output_tokens,
        {{ exact_sum('counted_input_tokens') }} as input_tokens,
        {{ exact_sum(
            'case when matched_computed_input_tokens is not null then matched_total_tokens - matched_output_tokens'
            ~ ' - matched_computed_input_tokens end'
        ) }} as cached_input_tokens,
        max(case when matched_computed_input_tokens is null and counted_input_tokens > 0 then 1 else 0 end) as lacks_cached
    from intervals
    group by date, {{ place | join(', ') }}

),

day_rates as (

    select
        date,
        {{ place | join(', ') }},
        {{ exact_sum('idle_joules') }} as idle_joules,
        {{ exact_sum('weighted_tokens') }} as weighted_tokens,
        {{ exact_sum('case when is_cost_complete then productive_joules end') }} as priced_joules,
        {{ exact_sum('case when is_cost_complete then weighted_tokens end') }} as priced_tokens,
        {{ money_sum(
            'case when is_cost_complete then compute_cost_usd - coalesce(idle_compute_cost_usd, 0) - coalesce(unknown_cost_usd, 0) end'
        ) }} as own_cost_usd,
        {{ money_sum('case when is_cost_complete then idle_compute_cost_usd end') }} as idle_cost_usd,
        {{ exact_sum('energy_joules') }} as energy_joules,
        {{ exact_sum('error_joules') }} as error_joules
    from days
    group by date, {{ place | join(', ') }}

),

-- Each place, and all places of a model together.
{% for name, of, columns in [
    ('part_places', 'day_parts', ['date'] + parts + ['lacks_cached']),
    ('rate_places', 'day_rates', ['date'] + rates),
    ('day_places', 'days', ['date', 'weighted_tokens', 'market_gco2e', 'energy_joules']),
    ('hour_places', 'hours', hour_columns)
] -%}
{{ name }} as (

    {{ each_and_all_places(of, columns) }}

),

{% endfor -%}
looked_back_parts as (

    select
        run_dates.date,
        {{ columns_of('part_places', place) }},
        {% for part in parts -%}
        cast(sum(part_places.{{ part }}) as double) as {{ part }},
        {% endfor -%}
        max(part_places.lacks_cached) = 1 as lacks_cached
    from run_dates
    inner join part_places on {{ in_lookback('part_places.date', 'run_dates.date') }}
    group by run_dates.date, {{ columns_of('part_places', place) }}

),

looked_back_rates as (

    select
        run_dates.date,
        {{ columns_of('rate_places', place) }},
        {% for rate in rates -%}
        cast(sum(rate_places.{{ rate }}) as double) as {{ rate }}{{ ',' if not loop.last }}
        {% endfor %}
    from run_dates
    inner join rate_places on {{ in_lookback('rate_places.date', 'run_dates.date') }}
    group by run_dates.date, {{ columns_of('rate_places', place) }}

),

log_parts as (

    select
        date,
        model,
        coalesce(site, {{ all_places() }}) as site,
        coalesce(deployment, {{ all_places() }}) as deployment,
        sum(cast(greatest(coalesce(input_tokens, 0) - coalesce(cached_input_tokens, 0), 0) as double)) as computed_input,
        sum(cast(coalesce(cached_input_tokens, 0) as double)) as cached_input,
        sum(cast(coalesce(output_tokens, 0) as double)) as output,
        {{ exact_sum(exact_large('cast(output_tokens as double) * (coalesce(input_tokens, 0) + output_tokens / 2e0) / 1e3')) }}
        as output_context
    from requests
    group by date, model, coalesce(site, {{ all_places() }}), coalesce(deployment, {{ all_places() }})

),

log_places as (

    select
        date,
        {{ (place + logs) | join(', ') }}
    from log_parts
    where site <> {{ all_places() }}
    union all
    select
        date,
        model,
        {{ all_places() }} as site,
        {{ all_places() }} as deployment,
        {% for log in logs -%}
        sum({{ log }}) as {{ log }}{{ ',' if not loop.last }}
        {% endfor %}
    from log_parts
    group by date, model

),

logged as (

    select
        date,
        {{ place | join(', ') }},
        {{ priced_tokens('computed_input', 'cached_input', 'output', input_token_weight() ~ 'e0') }} as logged_tokens,
        {{ ratio('output_context', 'output') }} * 1e3 as mean_context
    from log_places

),

based as (

    select
        looked_back_parts.*,
        logged.logged_tokens,
        logged.mean_context,
        fits.fitted_weight,
        concurrencies.concurrency,
        case
            when prefill_joules > 0 and decode_joules > 0 and unified_joules = 0 and input_tokens > 0 then 'measured_role'
            when fits.fitted_weight is not null then 'regression'
            when concurrencies.concurrency is not null then 'concurrency'
            else 'prior'
        end as method
    from looked_back_parts
    left join logged on {{ equal_keys('looked_back_parts', 'logged', ['date'] + place) }}
    left join fits on {{ equal_keys('looked_back_parts', 'fits', ['date', 'model']) }}
    left join concurrencies on {{ equal_keys('looked_back_parts', 'concurrencies', ['date', 'model']) }}

),

weighed as (

    select
        *,
        {% for name in ['low', 'middle', 'high'] -%}
        case
            when input_tokens is null then 0
            when method = 'measured_role' then (prefill_joules / input_tokens) / nullif(decode_joules / nullif(output_tokens, 0), 0)
            when method = 'regression' then fitted_weight * {{ fitted_input_weights()[loop.index0] }}
            else {{ input_energy_weight_at(name, 'concurrency') }}
        end as {{ name }}_weight{{ ',' if not loop.last }}
        {% endfor %}
    from based

),

priced as (

    select
        *,
        {% for name in ['low', 'middle', 'high'] -%}
        case
            when input_tokens is null then active_joules / nullif(output_tokens, 0)
            else split_joules
                / nullif({{ priced_tokens(
                    'input_tokens', 'coalesce(cached_input_tokens, 0)', 'split_output_tokens', name ~ '_weight'
                ) }}, 0)
        end as {{ name }}_price{{ ',' if not loop.last }}
        {% endfor %}
    from weighed

),

-- What the engines counted on the date, for a log that has more.
counted as (

    select
        date,
        {{ place | join(', ') }},
        sum(cast(weighted_tokens as double)) as counted_tokens,
        {{ ratio(exact_sum('market_gco2e'), exact_sum('case when market_gco2e is not null then energy_joules end')) }}
        as market_gco2e_per_joule
    from day_places
    where {{ in_run('date') }}
    group by date, {{ place | join(', ') }}

),

served as (

    select
        date,
        hour_start_at,
        {{ place | join(', ') }},
        min(billing_month) as billing_month,
        {{ ratio(
            exact_sum('location_gco2e'),
            exact_sum('case when location_gco2e is not null then energy_joules - carbon_unknown_joules end')
        ) }}
        as location_gco2e_per_joule,
        coalesce(max(coalesce(total_tokens, output_tokens)), 0) > 0 as has_tokens
    from hour_places
    group by date, hour_start_at, {{ place | join(', ') }}

),

final as (

    select
        served.date,
        served.hour_start_at,
        {{ columns_of('served', place) }},
        served.billing_month,
        served.has_tokens,
        served.location_gco2e_per_joule,
        counted.market_gco2e_per_joule,
        priced.method,
        priced.low_weight,
        priced.middle_weight,
        priced.high_weight,
        priced.low_price,
        priced.middle_price,
        priced.high_price,
        priced.input_tokens is not null as counts_input,
        not coalesce(priced.lacks_cached, false) as counts_cached,
        priced.mean_context,
        {{ ratio('priced.logged_tokens', 'counted.counted_tokens') }} as logged_ratio,
        sqrt(
            {{ receipt_error_ratio() }} * {{ receipt_error_ratio() }}
            + power(coalesce({{ ratio('rates.error_joules', 'rates.energy_joules') }}, 0), 2)
        ) as error_ratio,
        {{ ratio('rates.idle_joules', 'rates.weighted_tokens') }} as idle_joules_per_token,
        {{ ratio('rates.own_cost_usd', 'rates.priced_joules') }} as own_usd_per_joule,
        {{ ratio('rates.idle_cost_usd', 'rates.priced_tokens') }} as idle_usd_per_token
    from served
    inner join run_dates on served.date = run_dates.date
    left join priced on {{ equal_keys('served', 'priced', ['date'] + place) }}
    left join looked_back_rates as rates on {{ equal_keys('served', 'rates', ['date'] + place) }}
    left join counted on {{ equal_keys('served', 'counted', ['date'] + place) }}

)

select * from final
