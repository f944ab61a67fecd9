-- Tokens per UTC hour, source, exporter, model, team and tenant as gateways and frontends count them, by the labels that
-- the fleet file states. Of a site's model one source and exporter counts, because a router behind a gateway sees the same
-- requests: of a date the one that names who asked, then the one with more tokens; another one in the time of an hour that
-- it does not cover, as where another server takes over. Of a token class one family counts.
{% set classes = tenant_token_facts() %}

with readings as (

    select * from {{ ref('int_tenant_readings') }}

),

series as (

    select *
    from {{ ref('stg_series') }}
    where quantity = 'tokens'
        and level in ('frontend', 'gateway')
        and token_class in ('input', 'cached_input', 'output')
        and source in (select source from {{ source('fleet', 'tenant_labels') }})

),

copies as (

    select * from {{ ref('int_scrape_copies') }}

),

tenant_labels as (

    select * from {{ source('fleet', 'tenant_labels') }}

),

labels as (

    {{ label_rows(ref('stg_raw_series')) }}

),

-- The first label that a series has of those stated.
named_labels as (

    select
        series.series_id,
        tenant_labels.names,
        labels.value
    from (select distinct series_id, source, source_kind from series) as series
    inner join tenant_labels on series.source = tenant_labels.source
    inner join labels on series.series_id = labels.series_id and tenant_labels.label = labels.label
    -- LiteLLM writes the word for a name that it has not.
    where labels.value <> '' and not (series.source_kind = 'litellm' and labels.value = 'None')
    qualify row_number() over (partition by series.series_id, tenant_labels.names order by tenant_labels.entry) = 1

),

named_series as (

    select
        series_id,
        max(case when names = 'team' then value end) as team,
        max(case when names = 'tenant' then value end) as tenant
    from named_labels
    group by series_id

),

counters as (

    select
        series.series_id,
        series.reading_id,
        cast(null as date) as copied_on,
        series.source,
        series.source_kind,
        series.metric,
        series.rank,
        series.token_class,
        series.site,
        series.engine,
        series.model,
        named_series.team,
        named_series.tenant
    from series
    left join named_series on series.series_id = named_series.series_id
    union
    select
        copies.reading_id as series_id,
        copies.reading_id,
        copies.date as copied_on,
        series.source,
        series.source_kind,
        series.metric,
        series.rank,
        series.token_class,
        series.site,
        copies.engine,
        series.model,
        named_series.team,
        named_series.tenant
    from series
    inner join copies on series.series_id = copies.series_id
    left join named_series on series.series_id = named_series.series_id

),

copied_series as (

    select distinct date, series_id from copies

),

{{ counter_step_ctes('readings') }},

{{ counter_cell_ctes(hour_us()) }},

dated_cells as (

    select
        reading_id,
        {{ date_of_us('cell_number * ' ~ hour_us()) }} as date,
        {{ from_epoch_us('cell_number * ' ~ hour_us()) }} as hour_start_at,
        risen,
        covered_us
    from counter_cells

),

hours as (

    select
        dated_cells.date,
        dated_cells.hour_start_at,
        counters.source,
        counters.source_kind,
        counters.site,
        counters.engine,
        counters.model,
        counters.team,
        counters.tenant,
        counters.token_class,
        counters.metric,
        counters.rank,
        {{ exact_sum('dated_cells.risen') }} as tokens,
        min(dated_cells.reading_id) as first_series_id,
        max(dated_cells.covered_us) as covered_us
    from dated_cells
    inner join counters
        on dated_cells.reading_id = counters.reading_id
        and coalesce(counters.copied_on = dated_cells.date, true)
    -- On a date with copies a series has no reading of its own.
    left join copied_series
        on dated_cells.date = copied_series.date
        and counters.series_id = copied_series.series_id
        and counters.copied_on is null
    where copied_series.series_id is null and {{ in_run('dated_cells.date') }}
    group by all

),

-- The same tokens under a newer and an older name, or once as they stream and once at the end.
families as (

    select
        date,
        source,
        source_kind,
        model,
        token_class,
        metric,
        min(rank) as rank,
        count(distinct hour_start_at) as hours
    from hours
    group by date, source, source_kind, model, token_class, metric

),

chosen_families as (

    select *
    from (
        select
            *,
            max(hours) over (partition by date, source, source_kind, model, token_class) as most_hours
        from families
    ) as compared
    qualify row_number() over (
        partition by date, source, source_kind, model, token_class
        order by case when hours >= 0.5 * most_hours then 0 else 1 end, rank, hours desc, metric
    ) = 1

),

counted as (

    select
        hours.date,
        hours.hour_start_at,
        hours.source,
        hours.source_kind,
        hours.site,
        hours.engine,
        hours.model,
        hours.team,
        hours.tenant,
        case when hours.team is not null or hours.tenant is not null then 1 else 0 end as names_who_asked,
        max(hours.covered_us) as covered_us,
        min(hours.first_series_id) as first_series_id,
        {{ exact_sum("case when hours.token_class = 'input' then hours.tokens end") }} as input_tokens,
        {{ exact_sum("case when hours.token_class = 'cached_input' then hours.tokens end") }} as cached_input_tokens,
        {{ exact_sum("case when hours.token_class = 'output' then hours.tokens end") }} as output_tokens
    from hours
    inner join chosen_families
        on {{ equal_keys('hours', 'chosen_families', ['date', 'source', 'source_kind', 'token_class', 'metric']) }}
        and hours.model is not distinct from chosen_families.model
    group by all

),

watched as (

    select
        date,
        hour_start_at,
        source,
        source_kind,
        site,
        model,
        max(covered_us) as covered_us,
        max(max(names_who_asked)) over (partition by date, source, source_kind, site, model) as names_who_asked,
        sum({{ exact_sum('coalesce(input_tokens, 0) + coalesce(output_tokens, 0)') }}) over (
            partition by date, source, source_kind, site, model
        ) as tokens
    from counted
    group by date, hour_start_at, source, source_kind, site, model

),

preferred as (

    select
        *,
        row_number() over preference as place,
        sum(covered_us) over (
            partition by hour_start_at, site, model
            order by names_who_asked desc, tokens desc, source, source_kind
            rows between unbounded preceding and current row
        ) as known_us,
        first_value(source_kind) over preference as preferred_kind
    from watched
    window preference as (
        partition by hour_start_at, site, model order by names_who_asked desc, tokens desc, source, source_kind
    )

),

-- Where two servers read a gateway for some minutes, the second one counts for those that the first one does not cover.
chosen_sources as (

    select
        *,
        case
            when place = 1 or known_us <= {{ hour_us() }} then 1
            else greatest(0, {{ hour_us() }} - (known_us - covered_us)) / cast(covered_us as double)
        end as part
    from preferred
    where place = 1 or known_us <= {{ hour_us() }} or (source_kind = preferred_kind and known_us - covered_us < {{ hour_us() }})

),

counted_parts as (

    select
        counted.date,
        counted.hour_start_at,
        counted.source,
        counted.engine,
        counted.model,
        counted.team,
        counted.tenant,
        counted.names_who_asked,
        counted.first_series_id,
        {% for fact in ['input_tokens', 'cached_input_tokens', 'output_tokens'] -%}
        case
            when chosen_sources.part = 1 then counted.{{ fact }}
            else {{ exact('counted.' ~ fact ~ ' * chosen_sources.part') }}
        end as {{ fact }}{{ ',' if not loop.last }}
        {% endfor %}
    from counted
    inner join chosen_sources
        on {{ equal_keys('counted', 'chosen_sources', ['hour_start_at', 'source', 'source_kind', 'site']) }}
        and counted.model is not distinct from chosen_sources.model

),

final as (

    select
        date,
        hour_start_at,
        source,
        engine,
        model,
        {{ name_of_source('team') }} as request_team,
        coalesce({{ name_of_source('tenant') }}, {{ unknown() }}) as tenant,
        names_who_asked,
        first_series_id,
        input_tokens,
        least(input_tokens, coalesce(cached_input_tokens, 0)) as cached_input_tokens,
        input_tokens - least(input_tokens, coalesce(cached_input_tokens, 0)) as computed_input_tokens,
        output_tokens
    from counted_parts
    where coalesce(input_tokens, 0) + coalesce(output_tokens, 0) > 0

)

select * from final
