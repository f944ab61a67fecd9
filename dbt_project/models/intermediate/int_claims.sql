-- Who claims each booked meter, in slices of a date: one row per date, meter, slice and member, which is an engine with one of its models. A slice
-- is cut where an engine changes its model, and where the board moves to another node. `members` claimants share a slice.
with claimants as (

    select * from {{ ref('int_claimants') }}

),

engine_models as (

    select * from {{ ref('int_engine_models') }}

),

places as (

    select * from {{ ref('int_board_places') }}

),

models_of_claims as (

    select
        claimants.date,
        claimants.meter_scope,
        claimants.meter,
        claimants.engine,
        engine_models.slice_start_us,
        engine_models.slice_end_us,
        engine_models.model,
        engine_models.models
    from (select distinct date, meter_scope, meter, engine from claimants) as claimants
    inner join engine_models on claimants.date = engine_models.date and claimants.engine = engine_models.engine

),

cut_meters as (

    select date, meter_scope, meter from models_of_claims
    union
    select date, meter_scope, meter from places

),

edges as (

    {% for edge in ['slice_start_us', 'slice_end_us'] -%}
    select claimants.date, claimants.meter_scope, claimants.meter, claimants.{{ edge }} as edge_us
    from claimants
    inner join cut_meters on {{ equal_keys('claimants', 'cut_meters', ['date', 'meter_scope', 'meter']) }}
    union
    {% endfor -%}
    -- Where an engine changes its model while it holds the meter.
    select claimants.date, claimants.meter_scope, claimants.meter, engine_models.slice_start_us as edge_us
    from claimants
    inner join engine_models
        on claimants.date = engine_models.date
        and claimants.engine = engine_models.engine
        and engine_models.slice_start_us > claimants.slice_start_us
        and engine_models.slice_start_us < claimants.slice_end_us
    union
    select date, meter_scope, meter, slice_start_us as edge_us from places

),

elements as (

    select
        date,
        meter_scope,
        meter,
        edge_us as start_us,
        lead(edge_us) over (partition by date, meter_scope, meter order by edge_us) as end_us
    from edges

),

recut as (

    select
        claimants.*,
        elements.start_us as element_start_us,
        elements.end_us as element_end_us,
        models_of_claims.model as model_of_slice,
        models_of_claims.models as models_of_slice,
        places.node as place_node,
        places.rack as place_rack,
        places.site as place_site
    from elements
    inner join claimants
        on {{ equal_keys('elements', 'claimants', ['date', 'meter_scope', 'meter']) }}
        and elements.start_us >= claimants.slice_start_us
        and elements.end_us <= claimants.slice_end_us
    left join models_of_claims
        on {{ equal_keys('elements', 'models_of_claims', ['date', 'meter_scope', 'meter']) }}
        and claimants.engine = models_of_claims.engine
        and elements.start_us >= models_of_claims.slice_start_us
        and elements.end_us <= models_of_claims.slice_end_us
    left join places
        on {{ equal_keys('elements', 'places', ['date', 'meter_scope', 'meter']) }}
        and elements.start_us >= places.slice_start_us
        and elements.end_us <= places.slice_end_us

),

uncut as (

    select claimants.*
    from claimants
    left join cut_meters on {{ equal_keys('claimants', 'cut_meters', ['date', 'meter_scope', 'meter']) }}
    where cut_meters.meter is null

),

{% set kept = [
    'date', 'meter_scope', 'meter', 'engine', 'namespace', 'team', 'role', 'pod', 'mig_instance', 'mig_slices', 'claim_basis', 'held_by',
    'is_tokens_complete', 'work', 'is_unmetered'
] %}
{% set cut = ['slice_start_us', 'slice_end_us', 'held_start_us', 'held_end_us'] %}
{% set placed = ['models_of_engine', 'place_node', 'place_rack', 'place_site'] %}
members as (

    select
        {{ (kept + cut) | join(', ') }},
        deployment,
        model,
        1 as models_of_engine,
        cast(null as {{ dbt.type_string() }}) as place_node,
        cast(null as {{ dbt.type_string() }}) as place_rack,
        cast(null as {{ dbt.type_string() }}) as place_site
    from uncut
    union all
    select
        {{ kept | join(', ') }},
        element_start_us as slice_start_us,
        element_end_us as slice_end_us,
        least(greatest(held_start_us, element_start_us), element_end_us) as held_start_us,
        greatest(least(held_end_us, element_end_us), element_start_us) as held_end_us,
        deployment,
        coalesce(model_of_slice, model) as model,
        coalesce(models_of_slice, 1) as models_of_engine,
        place_node,
        place_rack,
        place_site
    from recut

),

final as (

    select
        {{ (kept + cut + placed) | join(', ') }},
        case when engine = {{ unallocated() }} then {{ unallocated() }} else coalesce(model, {{ unknown() }}) end as model,
        case
            when engine = {{ unallocated() }} then {{ unallocated() }}
            when deployment is not null then deployment
            when model is null then {{ unknown() }}
            else coalesce(namespace || '/', '') || model
        end as deployment,
        count(*) over (partition by date, meter_scope, meter, slice_start_us) as members,
        count(*) over (partition by date, meter_scope, meter) as claims_of_day
    from members

)

select * from final
