-- Which of several engines of one name (int_engine_namesakes) a board is of, by the label that separates them: one
-- row per date, board, container that its labels name and name of engines. A board whose value in it, or whose lack of it,
-- is none of theirs has no row.
{% set key = ['date', 'meter', 'container', 'label_engine'] %}

with board_labels as (

    select * from {{ ref('int_board_labels') }}

),

namesakes as (

    select distinct
        date,
        engine as label_engine,
        engine || '@' || value as engine,
        label,
        attribute,
        value
    from {{ ref('int_engine_namesakes') }}

),

series as (

    select distinct series_id, cluster from {{ ref('stg_series') }} where meter_scope = 'board'

),

raw_series as (

    select * from {{ ref('stg_raw_series') }}

),

separating_labels as (

    select distinct date, label_engine, label, attribute from namesakes

),

-- A board has the cluster or the container under a name of its exporter's.
separated as (

    select distinct
        board_labels.date,
        board_labels.meter,
        coalesce(board_labels.container, '') as container,
        separating_labels.label_engine,
        coalesce(
            nullif(
                case separating_labels.attribute
                    when 'container' then board_labels.container
                    when 'cluster' then series.cluster
                    else {{ label_value('raw_series.labels', 'separating_labels.label') }}
                end,
                ''
            ),
            'no ' || separating_labels.label
        ) as value
    from board_labels
    inner join separating_labels on board_labels.date = separating_labels.date
    inner join series on board_labels.series_id = series.series_id
    inner join raw_series on board_labels.series_id = raw_series.series_id

),

final as (

    select
        {{ columns_of('separated', key) }},
        min(namesakes.engine) as engine
    from separated
    inner join namesakes on {{ equal_keys('separated', 'namesakes', ['date', 'label_engine', 'value']) }}
    group by {{ columns_of('separated', key) }}
    having min(namesakes.engine) = max(namesakes.engine)

)

select * from final
