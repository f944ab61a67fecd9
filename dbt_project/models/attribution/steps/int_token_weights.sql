-- What a token of an engine weighs: one row per date and engine. `is_shared`: it shares a board or serves several models at
-- once.
-- It is a function of the date's own samples, the fleet file and seeds, so that the order of booking makes no difference.
with claims as (

    select distinct
        date,
        engine,
        model,
        models_of_engine,
        claims_of_day > 1 or models_of_engine > 1 as is_shared
    from {{ ref('int_claims') }}
    where engine not in ({{ unallocated() }}, {{ unknown() }})

),

series as (

    select * from {{ ref('stg_series') }} where quantity = 'requests_running' and level <> 'frontend'

),

copies as (

    select * from {{ ref('int_scrape_copies') }}

),

model_aliases as (

    select * from {{ source('fleet', 'model_aliases') }}

),

published as (

    select * from {{ ref('models') }}

),

weight_precisions as (

    select * from {{ ref('weight_precisions') }}

),

served_models as (

    select distinct model from claims where model is not null

),

{{ described_models_ctes('served_models') }},

engines as (

    select
        claims.date,
        claims.engine,
        max(claims.models_of_engine) as models_of_engine,
        max(case when claims.is_shared then 1 else 0 end) = 1 as is_shared,
        -- Several models of one engine are one base model and what is added to it.
        max(sqrt(described.parameters * described.active_parameters) / 1e9) as model_size
    from claims
    left join described on claims.model = described.model
    group by claims.date, claims.engine

),

-- Under its own name, and on a date with copies under theirs.
running_series as (

    select
        engines.date,
        engines.engine,
        series.series_id,
        series.factor
    from engines
    inner join series on engines.engine = series.engine
    union
    select
        engines.date,
        engines.engine,
        series.series_id,
        series.factor
    from engines
    inner join copies on {{ equal_keys('engines', 'copies', ['date', 'engine']) }}
    inner join series on copies.series_id = series.series_id

),

samples as (

    select
        series_id,
        cast(observed_at as date) as date,
        value
    from {{ ref('stg_token_samples') }}
    where series_id in (select series_id from running_series)
        and observed_at >= {{ run_start_at() }}
        and observed_at < {{ run_end_at() }}
        and {{ is_valid_sample('value') }}
        and {{ is_believed_gauge("'requests_running'", 'value') }}
        and value > 0

),

-- Ranks have a batch each: the mean over them, as long as anything runs.
running as (

    select
        running_series.date,
        running_series.engine,
        greatest({{ ratio(exact_sum(exact('samples.value * running_series.factor')), 'count(*)') }}, 1e0) as concurrency
    from samples
    inner join running_series on {{ equal_keys('samples', 'running_series', ['date', 'series_id']) }}
    group by running_series.date, running_series.engine

),

final as (

    select
        engines.date,
        engines.engine,
        engines.models_of_engine,
        engines.is_shared,
        round(engines.model_size, 6) as model_size,
        round(running.concurrency, 3) as concurrency,
        {% for end in ['low', 'middle', 'high'] -%}
        {{ input_energy_weight_at(end, 'running.concurrency') }} as energy_weight_{{ end }},
        {% endfor -%}
        round({{ input_time_weight(concurrency_at('middle', 'running.concurrency')) }}, 6) as time_weight
    from engines
    left join running on {{ equal_keys('engines', 'running', ['date', 'engine']) }}

)

select * from final
