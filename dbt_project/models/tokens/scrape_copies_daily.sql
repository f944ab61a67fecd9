-- Which processes were scraped more than once, and the evidence: the redundant target beside the one that gives the
-- engine its name.
with copies as (

    select * from {{ ref('int_scrape_copies') }}

),

pairs as (

    select * from {{ ref('int_scrape_pairs') }}

),

targets as (

    select distinct
        target,
        source,
        scrape_labels
    from {{ ref('int_scrape_targets') }}

),

redundant as (

    select
        date,
        engine,
        kept_target,
        target,
        count(distinct series_id) as series
    from copies
    where target <> kept_target
    group by date, engine, kept_target, target

),

final as (

    select
        redundant.date,
        redundant.engine,
        kept.source,
        kept.scrape_labels as kept_labels,
        other.source as redundant_source,
        other.scrape_labels as redundant_labels,
        -- A copy of a copy has no pair of its own.
        coalesce(pairs.basis, 'copy_of_a_copy') as basis,
        cast(redundant.series as bigint) as redundant_series
    from redundant
    inner join targets as kept on redundant.kept_target = kept.target
    inner join targets as other on redundant.target = other.target
    left join pairs
        on redundant.date = pairs.date
        and least(redundant.target, redundant.kept_target) = pairs.target
        and greatest(redundant.target, redundant.kept_target) = pairs.other_target
        and pairs.basis not in ('apart', 'suspected')

)

select * from final
