-- Engines of one name that are there at once and are not one process: pods of one name in two clusters, containers of
-- one pod, bare engines whose address was replaced by their host's name. One row per date and scrape target of such a
-- name, with the label that separates them, and what the target has in it, also where that is nothing. Decided from that
-- date alone.
{# A pod has one address. Its ports separate data-parallel ranks, which are one engine. #}
{% set labels_of_addresses = ['instance', 'job', 'endpoint', 'port', 'service'] %}
{% set named = ['date', 'source', 'engine'] %}

with targets as (

    select * from {{ ref('int_scrape_targets') }} where level = 'engine'

),

engine_targets as (

    select * from {{ source('fleet', 'engine_targets') }}

),

series_days as (

    select * from {{ ref('stg_series_days') }} where is_in_run

),

series as (

    select distinct series_id, model from {{ ref('stg_series') }} where stream = 'tokens'

),

pairs as (

    select * from {{ ref('int_scrape_pairs') }}

),

label_catalog as (

    select distinct label, attribute
    from {{ ref('label_catalog') }}
    where attribute in ('cluster', 'container')

),

labels as (

    {{ label_rows(ref('stg_raw_series')) }}

),

-- Engines that a label of their own names, or the fleet file, may have several targets.
target_days as (

    select
        series_days.date,
        targets.source,
        targets.engine,
        targets.target,
        targets.scrape_labels,
        min(targets.series_id) as series_id,
        max(targets.cluster) as cluster,
        max(targets.pod) as pod,
        min(series_days.first_us) as first_us,
        max(series_days.last_us) as last_us,
        {{ gap_cap_us('max(series_days.sampling_interval_seconds)', var('grid_seconds')) }} as cap_us
    from targets
    inner join series_days on targets.series_id = series_days.series_id
    left join engine_targets on targets.instance = engine_targets.target
    where engine_targets.target is null
        and targets.engine = coalesce(
            targets.namespace || '/' || targets.pod, targets.pod, {{ name_of_source('targets.instance') }}
        )
    group by series_days.date, targets.source, targets.engine, targets.target, targets.scrape_labels
    qualify count(*) over (partition by series_days.date, targets.source, targets.engine) > 1

),

counters as (

    select distinct
        {{ columns_of('target_days', named) }},
        target_days.target,
        targets.metric,
        targets.exporter_labels,
        series.model
    from target_days
    inner join targets on target_days.target = targets.target and target_days.engine = targets.engine
    inner join series_days on target_days.date = series_days.date and targets.series_id = series_days.series_id
    inner join series on targets.series_id = series.series_id
    where targets.quantity = 'tokens'

),

met as (

    select
        {{ columns_of('one', named) }},
        one.target,
        other.target as other_target,
        coalesce(one.cluster <> other.cluster, false) as is_elsewhere
    from target_days as one
    inner join target_days as other on {{ equal_keys('one', 'other', named) }} and one.target < other.target
    where least(one.last_us, other.last_us) - greatest(one.first_us, other.first_us) > greatest(one.cap_us, other.cap_us)

),

compared as (

    select
        {{ columns_of('met', named) }},
        met.target,
        met.other_target,
        met.is_elsewhere,
        max(case when one.metric = other.metric then 1 else 0 end) = 1 as is_one_kind,
        max(case when one.metric = other.metric and one.exporter_labels = other.exporter_labels then 1 else 0 end) = 1 as has_equal_labels,
        max(case when one.model = other.model then 1 else 0 end) = 1 as has_equal_models
    from met
    inner join counters as one on {{ equal_keys('met', 'one', named) }} and met.target = one.target
    inner join counters as other on {{ equal_keys('met', 'other', named) }} and met.other_target = other.target
    group by {{ columns_of('met', named) }}, met.target, met.other_target, met.is_elsewhere

),

-- Of targets with equal labels of the exporter that have no pair, the process starts differ.
apart as (

    select compared.*
    from compared
    left join pairs on {{ equal_keys('compared', 'pairs', ['date', 'target', 'other_target']) }}
    where compared.is_elsewhere
        or (compared.is_one_kind and not compared.has_equal_models)
        or (
            compared.has_equal_labels
            and (pairs.date is null or (pairs.basis = 'apart' and pairs.contradictions > 0.5 * pairs.increments))
        )

),

present_labels as (

    select
        {{ columns_of('target_days', named) }},
        target_days.target,
        labels.label,
        labels.value
    from target_days
    inner join (select distinct {{ named | join(', ') }} from apart) as separated on {{ equal_keys('target_days', 'separated', named) }}
    inner join labels
        on target_days.series_id = labels.series_id
        and position(',' || labels.label || '=' || labels.value || ',' in ',' || target_days.scrape_labels || ',') > 0
    where labels.label <> 'instance'
        and (target_days.pod is null or labels.label not in ('{{ labels_of_addresses | join("', '") }}'))

),

target_labels as (

    select
        {{ columns_of('named_labels', named) }},
        targets_of_names.target,
        named_labels.label,
        coalesce(present_labels.value, 'no ' || named_labels.label) as value,
        case when present_labels.target is null then 1 else 0 end as is_missing
    from (select distinct {{ named | join(', ') }}, label from present_labels) as named_labels
    inner join (select distinct {{ named | join(', ') }}, target from present_labels) as targets_of_names
        on {{ equal_keys('named_labels', 'targets_of_names', named) }}
    left join present_labels
        on {{ equal_keys('named_labels', 'present_labels', named) }}
        and targets_of_names.target = present_labels.target
        and named_labels.label = present_labels.label

),

differing_labels as (

    select
        apart.date,
        apart.engine,
        one.label,
        min(label_catalog.attribute) as attribute,
        max(greatest(one.is_missing, other.is_missing)) as is_missing,
        count(*) as separated
    from apart
    inner join target_labels as one on {{ equal_keys('apart', 'one', named) }} and apart.target = one.target
    inner join target_labels as other
        on {{ equal_keys('apart', 'other', named) }}
        and apart.other_target = other.target
        and one.label = other.label
        and one.value <> other.value
    left join label_catalog on one.label = label_catalog.label
    group by apart.date, apart.engine, one.label

),

-- Of labels that separate as many: one that all have, the cluster's, the container's, the first by name.
separating_labels as (

    select *
    from differing_labels
    qualify row_number() over (
        partition by date, engine order by separated desc, is_missing, coalesce(attribute, 'other'), label
    ) = 1

),

final as (

    select distinct
        target_labels.date,
        target_labels.target,
        target_labels.engine,
        separating_labels.label,
        separating_labels.attribute,
        target_labels.value
    from target_labels
    inner join separating_labels on {{ equal_keys('target_labels', 'separating_labels', ['date', 'engine', 'label']) }}

)

select * from final
