-- Which published figures of a date changed later: what they were, what they are and why.
with restatements as (

    select * from {{ source('published', 'restated_figures') }}

),

final as (

    select
        month,
        date,
        {{ plain_name('site', 'site') }} as site,
        {{ plain_name('model', 'model') }} as model,
        figure,
        part,
        unit,
        before,
        after,
        change,
        reason,
        restated_at,
        publication_id
    from restatements

)

select * from final
