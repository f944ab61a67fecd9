-- Which entity each landed series of power, energy or tokens is about, by a second, independent parsing of its raw
-- labels (int_label_names). The balances and series_daily use this model and the book uses stg_series, so that a
-- mistake in either shows. One row per series and token class.
with series as (

    select * from {{ ref('stg_raw_series') }}

),

metric_catalog as (

    select * from {{ ref('stg_metric_catalog') }}
    where quantity in ('energy', 'power', 'power_limit', 'device_info', 'tokens', 'process_start')

),

label_catalog as (

    select * from {{ ref('label_catalog') }}

),

device_type_aliases as (

    select * from {{ ref('stg_device_type_aliases') }}

),

sources as (

    select * from {{ source('fleet', 'sources') }}

),

nodes as (

    select * from {{ source('fleet', 'nodes') }}

),

devices as (

    select * from {{ source('fleet', 'devices') }}

),

engines as (

    select * from {{ source('fleet', 'engines') }}

),

engine_targets as (

    select * from {{ source('fleet', 'engine_targets') }}

),

model_aliases as (

    select * from {{ source('fleet', 'model_aliases') }}

),

only_site as (

    select min(site) as site from {{ source('fleet', 'sites') }} having count(*) = 1

),

names as (

    select * from {{ ref('int_label_names') }}

),

known_series as (

    select
        series.series_id,
        series.source,
        series.source_kind,
        series.labels,
        metric_catalog.metric,
        metric_catalog.stream,
        metric_catalog.quantity,
        metric_catalog.kind,
        metric_catalog.factor,
        metric_catalog.token_class,
        coalesce(metric_catalog.level, 'engine') as level,
        metric_catalog.meter_scope,
        metric_catalog.rank,
        metric_catalog.needs_labels
    from metric_catalog
    inner join series
        on metric_catalog.source_kind = series.source_kind
        and metric_catalog.metric = series.metric
        and (metric_catalog.source is null or metric_catalog.source = series.source)
        and coalesce({{ label_value('series.labels', 'metric_catalog.match_label') }}, '')
            = coalesce(metric_catalog.match_value, '')

),

-- Series whose name alone does not show their exporter, and that have no label of that exporter.
strangers as (

    select
        asked.series_id,
        asked.metric
    from (
        select distinct series_id, metric, needs_labels from known_series where needs_labels is not null
    ) as asked
    inner join ({{ label_rows(ref('stg_raw_series')) }}) as own on asked.series_id = own.series_id
    group by asked.series_id, asked.metric
    having max(
        case
            when own.value <> '' and ' ' || asked.needs_labels || ' ' like '% ' || own.label || ' %' then 1
            else 0
        end
    ) = 0

),

named as (

    select
        known_series.*,
        coalesce(names.device_uuid, coalesce(names.own_node, known_series.source) || '/' || names.device_index) as device,
        coalesce(names.module, names.device_uuid, names.device_index) as module,
        names.pdu,
        names.pdu_input,
        names.namespace,
        names.rack as named_rack,
        names.facility,
        coalesce(names.data_rank, '0') as data_rank,
        -- Eleven digits for each: in the order of this text a number comes before a name.
        {% for rank in ['pipeline', 'tensor'] -%}
        coalesce(
            ':' || names.{{ rank }}_name,
            lpad(cast(coalesce(names.{{ rank }}_number, 0) as {{ dbt.type_string() }}), 11, '0')
        )
        {{ "|| ' ' ||" if not loop.last }}
        {%- endfor %} as place_among_ranks,
        coalesce(names.pipeline_name, names.tensor_name) is null as has_numbered_ranks,
        coalesce(devices.node, names.own_node) as named_node,
        coalesce(
            devices.device_type,
            device_type_aliases.device_type,
            {{ name_of_source('names.device_type') }}
        ) as named_device_type,
        coalesce(model_aliases.model, {{ name_of_source('names.model') }}) as named_model,
        coalesce(
            engine_targets.engine,
            names.engine,
            names.namespace || '/' || names.pod,
            names.pod,
            names.instance,
            known_series.source
        ) as engine_by_labels
    from known_series
    left join names on known_series.series_id = names.series_id
    left join devices
        on coalesce(names.device_uuid, coalesce(names.own_node, known_series.source) || '/' || names.device_index)
            = devices.device_uuid
    left join engine_targets on names.instance = engine_targets.target
    left join device_type_aliases on names.device_type = device_type_aliases.alias
    left join model_aliases on names.model = model_aliases.alias

),

-- The fleet file's word about an engine, by its whole name or the beginning of it; the first entry that fits.
engine_entries as (

    select
        named.engine_by_labels,
        min(engines.entry) as entry
    from (select distinct engine_by_labels from named where stream = 'tokens') as named
    inner join engines on {{ fits('named.engine_by_labels', 'engines.engine', 'engines.is_prefix') }}
    group by named.engine_by_labels

),

described as (

    select
        named.*,
        case
            when named.stream = 'tokens' then coalesce(engines.node, named.named_node)
            else named.named_node
        end as node,
        case when named.stream = 'tokens' then coalesce(engines.model, named.named_model) end as model
    from named
    left join engine_entries on named.engine_by_labels = engine_entries.engine_by_labels
    left join engines on engine_entries.entry = engines.entry

),

-- The type of a board that a series of its own names.
typed_devices as (

    select
        device,
        min(named_device_type) as device_type
    from named
    where quantity = 'device_info'
    group by device

),

placed as (

    select
        described.*,
        strangers.series_id is not null as is_stranger,
        coalesce(nodes.site, sources.site, only_site.site, {{ unknown() }}) as site,
        coalesce(nodes.rack, described.named_rack) as rack,
        coalesce(described.named_device_type, typed_devices.device_type, nodes.device_type) as meter_device_type,
        case
            when strangers.series_id is not null then null
            when described.meter_scope = 'board' then described.device
            when described.meter_scope = 'module' then described.node || '/' || described.module
            when described.meter_scope = 'node' then described.node
            when described.meter_scope = 'rack'
                then coalesce(described.named_rack, {{ unknown() }})
                    || coalesce('/' || described.pdu, '') || coalesce('/' || described.pdu_input, '')
            when described.meter_scope = 'facility'
                then coalesce(described.facility, sources.site, {{ unknown() }})
        end as meter,
        case
            when described.stream = 'power' then null
            when described.level = 'engine' then described.engine_by_labels
            else described.level || ':'
                || coalesce(described.namespace || '/', '') || coalesce(described.named_model, {{ unknown() }})
        end as engine
    from described
    left join strangers on described.series_id = strangers.series_id and described.metric = strangers.metric
    left join typed_devices on described.device = typed_devices.device
    left join nodes on described.node = nodes.node
    left join sources on described.source = sources.source
    left join only_site on true

),

first_ranks as (

    select
        source,
        metric,
        engine,
        data_rank,
        min(place_among_ranks) as first_place
    from placed
    where stream = 'tokens' and has_numbered_ranks
    group by source, metric, engine, data_rank

),

-- A series whose rank has no digits repeats another one, of a number or a lesser name, whose labels are the same but
-- for the ranks.
named_groups as (

    select distinct
        one.series_id,
        one.source_kind,
        one.place_among_ranks,
        one.has_numbered_ranks,
        one.source,
        one.metric,
        one.engine,
        one.data_rank
    from placed as one
    inner join (
        select distinct engine from placed where stream = 'tokens' and not has_numbered_ranks
    ) as odd
        on one.engine = odd.engine

),

compared_labels as (

    select
        named_groups.series_id,
        entries.label || ' ' || entries.value as entry
    from named_groups
    inner join ({{ label_rows(ref('stg_raw_series')) }}) as entries on named_groups.series_id = entries.series_id
    left join label_catalog
        on named_groups.source_kind = label_catalog.source_kind
        and entries.label = label_catalog.label
        and label_catalog.attribute in ('tensor_rank', 'pipeline_rank')
    where label_catalog.label is null

),

rank_pairs as (

    select
        later.series_id,
        earlier.series_id as earlier_id
    from named_groups as later
    inner join named_groups as earlier
        on {{ equal_keys('later', 'earlier', ['source', 'metric', 'engine', 'data_rank']) }}
        and earlier.place_among_ranks < later.place_among_ranks
    where not later.has_numbered_ranks

),

-- Labels are equal if each side has as many as both share.
repeated_series as (

    select distinct series_id
    from (
        select
            rank_pairs.series_id,
            rank_pairs.earlier_id,
            count(case when own.entry = others.entry then 1 end) as shared,
            count(distinct own.entry) as entries,
            count(distinct others.entry) as earlier_entries
        from rank_pairs
        inner join compared_labels as own on rank_pairs.series_id = own.series_id
        inner join compared_labels as others on rank_pairs.earlier_id = others.series_id
        group by rank_pairs.series_id, rank_pairs.earlier_id
    ) as compared
    where shared = entries and shared = earlier_entries

),

-- Labels of a board change with its pod, its counter runs on: the series of one meter and metric are one reading.
meter_readings as (

    select
        source,
        metric,
        meter_scope,
        meter,
        min(series_id) as reading_id
    from placed
    where stream = 'power'
    group by source, metric, meter_scope, meter

),

final as (

    select
        placed.series_id,
        placed.source,
        placed.metric,
        placed.stream,
        placed.quantity,
        placed.kind,
        placed.factor,
        placed.token_class,
        placed.level,
        placed.meter_scope,
        placed.rank,
        placed.node,
        placed.namespace,
        placed.model,
        placed.engine,
        placed.meter,
        placed.site,
        placed.rack,
        placed.meter_device_type,
        case
            when placed.stream <> 'tokens' then true
            when placed.is_stranger then false
            when placed.has_numbered_ranks
                then coalesce(placed.place_among_ranks = first_ranks.first_place, true)
            else repeated_series.series_id is null
        end as is_counted,
        coalesce(meter_readings.reading_id, placed.series_id) as reading_id
    from placed
    left join meter_readings
        on placed.stream = 'power'
        and {{ equal_keys('placed', 'meter_readings', ['source', 'metric', 'meter_scope', 'meter']) }}
    left join first_ranks
        on placed.stream = 'tokens'
        and {{ equal_keys('placed', 'first_ranks', ['source', 'metric', 'engine', 'data_rank']) }}
    left join repeated_series on placed.series_id = repeated_series.series_id

)

select * from final
