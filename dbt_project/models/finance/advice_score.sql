-- What became of advice: each episode of it, from the first evening on which it was given to the last, with the change
-- that followed and what that saved by the meters; and the changes that were not advised.
{% set keys = ['site', 'deployment', 'role', 'meter_scope'] %}
{# Days without the same advice after which it is a new episode; and after which a change no longer follows from it. #}
{% set apart_days = 7 %}
{# By how much requests wait more, or fewer keep the SLO, where a change has cost service. #}
{% set hurt_ratio = 0.01 %}
{# Kind of advice: what of a change carries it out. #}
{% set carried_out = {
    'fewer_replicas': ['fewer_replicas', 'fewer_gpus', 'engines'], 'fewer_gpus': ['fewer_gpus', 'fewer_replicas', 'engines'],
    'colocate': ['fewer_gpus', 'fewer_replicas', 'device'], 'spin_down': ['off'], 'power_cap': ['power_cap'],
    'sleep_outside_hours': ['sleep'], 'sleep_when_idle': ['sleep'], 'smaller_device': ['device'], 'newer_device': ['device'],
    'try_it': ['fewer_gpus', 'fewer_replicas', 'power_cap']
} %}

with given as (

    select *
    from {{ source('published', 'advice_given') }}
    qualify row_number() over (partition by recommendation_id order by given_at desc) = 1

),

measured as (

    select *
    from {{ source('published', 'measured_changes') }}
    qualify row_number() over (partition by change_id order by measured_at desc) = 1

),

-- Also a night on which nothing was advised has its rows here.
newest as (

    select max(as_of_date) as as_of_date
    from (
        select as_of_date from {{ source('published', 'right_sizing') }}
        union all
        select as_of_date from given
    )

),

apart as (

    select
        *,
        as_of_date - lag(as_of_date) over (partition by {{ keys | join(', ') }}, kind order by as_of_date) as days_since
    from given

),

numbered as (

    select
        *,
        sum(case when days_since <= {{ apart_days }} then 0 else 1 end) over (
            partition by {{ keys | join(', ') }}, kind order by as_of_date
        ) as episode
    from apart

),

{% set promised = [
    'recommendation_id', 'model', 'current_gpus', 'recommended_gpus', 'recommended_power_limit_watts', 'saving_kwh_month', 'saving_low',
    'saving_high', 'saving_now_usd_month', 'confidence'
] %}
episodes as (

    select
        {{ keys | join(', ') }},
        kind,
        episode,
        min(as_of_date) as first_advised_on,
        max(as_of_date) as last_advised_on,
        {% for column in promised -%}
        arg_max_null({{ column }}, as_of_date) as {{ column }}{{ ',' if not loop.last }}
        {% endfor %}
    from numbered
    group by {{ keys | join(', ') }}, kind, episode

),

-- A change follows the newest advice that it carries out, an episode has the first such change.
followed as (

    select
        episodes.*,
        measured.change_id
    from episodes
    inner join measured
        on {{ equal_keys('episodes', 'measured', keys) }}
        and measured.changed_on > episodes.first_advised_on
        and measured.started_on <= episodes.last_advised_on + {{ apart_days }}
        and case episodes.kind
            {% for kind, whats in carried_out.items() -%}
            when '{{ kind }}' then list_has_any(string_split(measured.what, '+'), {{ whats }})
            {% endfor -%}
            else false
        end
    qualify row_number() over (
        partition by measured.change_id
        order by episodes.last_advised_on desc, episodes.saving_kwh_month desc nulls last, episodes.kind
    ) = 1
    and row_number() over (
        partition by {{ columns_of('episodes', keys) }}, episodes.kind, episodes.episode order by measured.changed_on
    ) = 1

),

advised as (

    select
        episodes.*,
        followed.change_id
    from episodes
    left join followed on {{ equal_keys('episodes', 'followed', keys + ['kind', 'episode']) }}

),

joined as (

    select
        {% for key in keys -%}
        coalesce(advised.{{ key }}, measured.{{ key }}) as {{ key }},
        {% endfor -%}
        coalesce(advised.model, measured.model_before, measured.model_after) as model,
        advised.kind,
        advised.first_advised_on,
        advised.last_advised_on,
        {{ columns_of('advised', promised | reject('equalto', 'model') | list) }},
        measured.* exclude ({{ keys | join(', ') }}, saving_kwh_month, saving_low, saving_high),
        measured.saving_kwh_month as measured_kwh_month,
        measured.saving_low as measured_low,
        measured.saving_high as measured_high,
        coalesce(measured.queued_ratio_after - measured.queued_ratio_before > {{ hurt_ratio }}, false)
        or coalesce(measured.good_request_ratio_before - measured.good_request_ratio_after > {{ hurt_ratio }}, false) as is_hurt
    from advised
    full outer join measured on advised.change_id = measured.change_id

),

final as (

    select
        {{ plain_name('joined.site', 'site') }} as site,
        joined.deployment,
        {{ plain_name('joined.model', 'model') }} as model,
        joined.role,
        joined.meter_scope,
        joined.kind as advice,
        case
            when joined.change_id is null and joined.last_advised_on = newest.as_of_date then 'open'
            when joined.change_id is null then 'withdrawn'
            when joined.kind is null then 'not_advised'
            when joined.measured_low is null then 'not_measured'
            when joined.is_hurt or joined.measured_high < 0 then 'gone_wrong'
            when joined.measured_low > 0 then 'realised'
            else 'unclear'
        end as outcome,
        joined.first_advised_on,
        joined.last_advised_on,
        joined.saving_kwh_month as promised_kwh_per_month,
        joined.saving_low as promised_kwh_per_month_low,
        joined.saving_high as promised_kwh_per_month_high,
        joined.saving_now_usd_month as promised_usd_per_month,
        joined.confidence,
        joined.what as what_changed,
        joined.changed_on,
        joined.gpus_before as accelerators_before,
        joined.gpus_after as accelerators_after,
        joined.days_before,
        joined.days_after,
        joined.measured_kwh_month as measured_kwh_per_month,
        joined.measured_low as measured_kwh_per_month_low,
        joined.measured_high as measured_kwh_per_month_high,
        case
            when joined.kind is not null
                then joined.measured_low <= joined.saving_high and joined.measured_high >= joined.saving_low
        end as is_promise_held,
        joined.queued_ratio_before,
        joined.queued_ratio_after,
        joined.good_request_ratio_before,
        joined.good_request_ratio_after,
        joined.realised_energy_usd_month as realised_energy_usd_per_month,
        joined.realised_capacity_usd_month as realised_accelerator_usd_per_month,
        joined.recommendation_id,
        joined.change_id
    from joined
    cross join newest

)

select * from final
