-- Series of processes that are scraped more than once, or whose engine has another one's name: one row per date and such
-- series, with the engine that the date's copies are together and the reading that they share. Copies of one counter are
-- one counter: the union of their samples. The target that names namespace and pod gives the name; what separates engines of
-- one name apart is added to it. A day without copies and namesakes has no row.
{% set identity = ['engine', 'model', 'namespace', 'pod', 'container', 'node', 'site', 'deployment', 'team', 'role'] %}

with pairs as (

    select * from {{ ref('int_scrape_pairs') }} where basis in ('fleet_file', 'same_process', 'same_address')

),

targets as (

    select * from {{ ref('int_scrape_targets') }}

),

namesakes as (

    select * from {{ ref('int_engine_namesakes') }}

),

series as (

    select distinct
        series_id,
        reading_id,
        {{ identity | join(',\n        ') }}
    from {{ ref('stg_series') }}
    where stream = 'tokens'

),

series_days as (

    select distinct
        date,
        series_id
    from {{ ref('stg_series_days') }}
    where is_in_run

),

names as (

    select
        target,
        case when max(namespace) is not null and max(pod) is not null then 0 when max(pod) is not null then 1 else 2 end as name_rank
    from targets
    group by target

),

partners as (

    select date, target, target as partner from pairs
    union
    select date, other_target as target, other_target as partner from pairs
    union
    select date, target, other_target as partner from pairs
    union
    select date, other_target as target, target as partner from pairs
    union
    select date, target, target as partner from namesakes

),

best_partners as (

    select
        partners.date,
        partners.target,
        partners.partner
    from partners
    inner join names on partners.partner = names.target
    qualify row_number() over (partition by partners.date, partners.target order by names.name_rank, partners.partner) = 1

),

-- A copy of a copy is a copy.
members as (

    select
        best_partners.date,
        best_partners.target,
        further.partner as kept_target
    from best_partners
    inner join best_partners as further on best_partners.date = further.date and best_partners.partner = further.target

),

-- A copy may lack the label that separates engines of one name.
separated as (

    select
        members.date,
        members.kept_target,
        max(namesakes.value) as value
    from members
    inner join namesakes on members.date = namesakes.date and members.target = namesakes.target
    group by members.date, members.kept_target

),

-- One process of several that answer for a page is copied by the same one on the other page.
tracks as (

    select series_id, max(track) as track from {{ ref('stg_series_parts') }} where track is not null group by series_id

),

member_series as (

    select
        members.date,
        members.target,
        members.kept_target,
        targets.series_id,
        targets.level,
        coalesce(tracks.track, 1) as track,
        row_number() over copies as copy_number,
        first_value(targets.series_id) over copies as kept_series_id
    from members
    inner join targets on members.target = targets.target
    inner join series_days on members.date = series_days.date and targets.series_id = series_days.series_id
    left join tracks on targets.series_id = tracks.series_id
    window copies as (
        partition by
            members.date, members.kept_target, targets.source, targets.metric, targets.exporter_labels, coalesce(tracks.track, 1)
        order by case when members.target = members.kept_target then 0 else 1 end, members.target
    )

),

-- What the kept target calls the engine of a series that only another one has; the page of a Ray agent holds several
-- engines.
kept_engines as (

    select
        targets.target,
        max(targets.engine) as engine
    from targets
    where targets.level = 'engine'
    group by targets.target
    having min(targets.engine) = max(targets.engine)

),

labelled as (

    select
        member_series.date,
        member_series.series_id,
        member_series.target,
        member_series.kept_target,
        -- A date's own: the day before may have had other copies. Ids of processes of a page are next to each other.
        {{ int_div('member_series.kept_series_id', '2') }}
        + {{ int_div(epoch_us('cast(member_series.date as ' ~ timestamp_type() ~ ')'), day_us()) }}
        + 64 * (member_series.track - 1) as reading_id,
        member_series.copy_number > 1 as is_redundant,
        case
            when kept.series_id <> own.series_id then kept.engine
            when member_series.level = 'engine' then coalesce(kept_engines.engine, own.engine)
            else own.engine
        end as label_engine,
        case when member_series.level = 'engine' then separated.value end as separated_by,
        {% for name in identity if name != 'engine' -%}
        coalesce(kept.{{ name }}, own.{{ name }}) as {{ name }}{{ ',' if not loop.last }}
        {% endfor %}
    from member_series
    inner join series as own on member_series.series_id = own.series_id
    inner join series as kept on member_series.kept_series_id = kept.series_id
    left join kept_engines on member_series.kept_target = kept_engines.target
    left join separated on member_series.date = separated.date and member_series.kept_target = separated.kept_target

),

final as (

    select
        *,
        label_engine || coalesce('@' || separated_by, '') as engine
    from labelled

)

select * from final
