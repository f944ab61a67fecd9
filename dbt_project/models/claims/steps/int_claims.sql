-- Who claims each booked meter, in slices of a date: one row per date, meter, slice and member, which is an engine with
-- one of its models. A slice is cut where an engine changes its model, where its series fall silent or begin to report
-- within an interval, and where the board moves to another node. `members` claimants share a slice.
{%- set slice = ['date', 'meter_scope', 'meter', 'slice_start_us'] %}
{%- set of_slice = slice + ['slice_end_us', 'held_start_us', 'held_end_us', 'is_unmetered'] %}
{%- set claimed = [
    'claim_basis', 'engine', 'model', 'namespace', 'deployment', 'team', 'role', 'pod', 'held_by', 'is_tokens_complete',
    'work'
] %}

with engine_claimants as (

    select * from {{ ref('int_claimants') }}

),

mig_shares as (

    select * from {{ ref('int_mig_shares') }}

),

slices as (

    select distinct {{ of_slice | join(', ') }} from engine_claimants

),

-- What no instance of a board has is unallocated.
claimants as (

    select
        {{ columns_of('claimants', of_slice + claimed) }},
        claimants.mig_instance,
        mig_shares.mig_slices,
        mig_shares.mig_share,
        mig_shares.is_mig_share_known
    from engine_claimants as claimants
    left join mig_shares
        on {{ equal_keys('claimants', 'mig_shares', slice + ['engine']) }}
        and claimants.mig_instance is not distinct from mig_shares.mig_instance
        and claimants.pod is not distinct from mig_shares.pod
        and (mig_shares.mig_instance is not null or claimants.pod is not null)
    union all
    select
        {{ columns_of('slices', of_slice) }},
        'pod_labels' as claim_basis,
        mig_shares.engine,
        {% for column in ['model', 'namespace', 'deployment', 'team'] -%}
        cast(null as {{ dbt.type_string() }}) as {{ column }},
        {% endfor -%}
        'unified' as role,
        cast(null as {{ dbt.type_string() }}) as pod,
        cast(null as {{ dbt.type_string() }}) as held_by,
        false as is_tokens_complete,
        cast(null as {{ dbt.type_string() }}) as work,
        mig_shares.mig_instance,
        mig_shares.mig_slices,
        mig_shares.mig_share,
        mig_shares.is_mig_share_known
    from mig_shares
    inner join slices on {{ equal_keys('mig_shares', 'slices', slice) }}
    where mig_shares.mig_instance is null and mig_shares.pod is null

),

engine_models as (

    select * from {{ ref('int_engine_models') }}

),

places as (

    select * from {{ ref('int_board_places') }}

),

engine_roles as (

    select * from {{ ref('int_engine_roles') }}

),

engine_intervals as (

    select
        *,
        interval_number * {{ grid_us() }} as interval_start_us,
        -- A silence is longer than the engine's own sampling interval, and than a tenth of the grid's.
        greatest(cap_us / {{ gap_cap_intervals() }}, 0.1 * {{ grid_us() }}) as usual_us,
        lag(seen_to_us) over (partition by date, engine order by interval_number) as previous_us,
        lead(seen_from_us) over (partition by date, engine order by interval_number) as next_us
    from {{ ref('int_engine_intervals') }}

),

-- Where a silence begins or ends within an interval while the engine holds the meter. What is drawn in it is unknown.
silences as (

    select
        claimants.date,
        claimants.meter_scope,
        claimants.meter,
        engine_intervals.seen_to_us as edge_us
    from engine_intervals
    inner join claimants
        on {{ equal_keys('engine_intervals', 'claimants', ['date', 'engine']) }}
        and engine_intervals.seen_to_us > claimants.slice_start_us
        and engine_intervals.seen_to_us < claimants.slice_end_us
    where engine_intervals.seen_to_us < engine_intervals.interval_start_us + {{ grid_us() }}
        and not claimants.is_tokens_complete
        and least(coalesce(engine_intervals.next_us, claimants.held_end_us), claimants.held_end_us) - engine_intervals.seen_to_us
        > engine_intervals.usual_us
    union
    select
        claimants.date,
        claimants.meter_scope,
        claimants.meter,
        engine_intervals.seen_from_us as edge_us
    from engine_intervals
    inner join claimants
        on {{ equal_keys('engine_intervals', 'claimants', ['date', 'engine']) }}
        and engine_intervals.seen_from_us > claimants.slice_start_us
        and engine_intervals.seen_from_us < claimants.slice_end_us
    where engine_intervals.seen_from_us > engine_intervals.interval_start_us
        and not claimants.is_tokens_complete
        and engine_intervals.seen_from_us
            - greatest(coalesce(engine_intervals.previous_us, claimants.held_start_us), claimants.held_start_us)
        > engine_intervals.usual_us

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
    union
    select date, meter_scope, meter from silences

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
    union
    select date, meter_scope, meter, edge_us from silences

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
    'date', 'meter_scope', 'meter', 'engine', 'namespace', 'team', 'pod', 'mig_instance', 'mig_slices', 'mig_share', 'is_mig_share_known',
    'claim_basis', 'held_by', 'is_tokens_complete', 'work', 'is_unmetered'
] %}
{% set cut = ['slice_start_us', 'slice_end_us', 'held_start_us', 'held_end_us'] %}
{% set placed = ['models_of_engine', 'place_node', 'place_rack', 'place_site'] %}
members as (

    select
        {{ (kept + cut) | join(', ') }},
        role,
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
        role,
        deployment,
        coalesce(model_of_slice, model) as model,
        coalesce(models_of_slice, 1) as models_of_engine,
        place_node,
        place_rack,
        place_site
    from recut

),

in_roles as (

    select
        members.*,
        engine_roles.role as engine_role
    from members
    left join engine_roles on members.date = engine_roles.date and members.engine = engine_roles.engine

),

final as (

    select
        {{ (kept + cut + placed) | join(', ') }},
        coalesce(engine_role, role) as role,
        case when engine = {{ unallocated() }} then {{ unallocated() }} else coalesce(model, {{ unknown() }}) end as model,
        case
            when engine = {{ unallocated() }} then {{ unallocated() }}
            when deployment is not null then deployment
            when model is null then {{ unknown() }}
            else coalesce(namespace || '/', '') || model
        end as deployment,
        count(*) over (partition by date, meter_scope, meter, slice_start_us) as members,
        count(*) over (partition by date, meter_scope, meter) as claims_of_day
    from in_roles

)

select * from final
