-- What is in doubt of each date's rows, of which entity, how much rests on it, and what to do.
with spans as (

    select * from {{ ref('int_doubt_spans') }}

),

late_doubts as (

    select * from {{ ref('int_late_doubts') }}

),

reasons as (

    select * from {{ ref('doubt_reasons') }}

),

meter_days as (

    select * from {{ ref('reconciliation_daily') }} where {{ in_run('date') }}

),

placing_lines as (

    select * from {{ ref('unplaced_meters') }} where {{ in_run('date') }}

),

token_days as (

    select
        date,
        engine,
        token_class,
        {{ exact_sum('tokens') }} as tokens
    from {{ ref('token_ledger') }}
    where {{ in_run('date') }}
    group by date, engine, token_class

),

-- One row per date, reason and entity; of an engine the classes together.
entities as (

    select
        date,
        reason,
        meter_scope,
        meter,
        engine,
        {{ joined_in_order('token_class') }} as token_classes,
        min(from_us) as from_us,
        max(to_us) as to_us,
        sum(unbooked_tokens) as unbooked_tokens,
        {{ joined_in_order('evidence') }} as evidence
    from spans
    group by date, reason, meter_scope, meter, engine

),

summed_tokens as (

    select
        spans.date,
        spans.reason,
        spans.engine,
        {{ exact_sum('token_days.tokens') }} as doubted_tokens
    from (select distinct date, reason, engine, token_class from spans where engine is not null) as spans
    inner join token_days
        on {{ equal_keys('spans', 'token_days', ['date', 'engine']) }}
        and coalesce(spans.token_class, token_days.token_class) = token_days.token_class
    group by spans.date, spans.reason, spans.engine

),

of_the_ledger as (

    select
        entities.date,
        entities.reason,
        reasons.figure,
        reasons.direction,
        case when entities.engine is not null then 'engine' else entities.meter_scope end as entity_kind,
        coalesce(entities.engine, entities.meter) as entity,
        {{ from_epoch_us('entities.from_us') }} as since_at,
        {{ from_epoch_us('entities.to_us') }} as until_at,
        cast(meter_days.booked_joules as {{ exact_type() }}) as doubted_joules,
        cast(case when entities.unbooked_tokens is null then summed_tokens.doubted_tokens end as {{ exact_type() }}) as doubted_tokens,
        {{ exact('entities.unbooked_tokens') }} as unbooked_tokens,
        cast(null as {{ money_type() }}) as doubted_usd,
        entities.token_classes,
        reasons.meaning,
        entities.evidence,
        replace(
            replace(reasons.remedy, '<engine>', coalesce(entities.engine, '')),
            '<line>',
            coalesce(placing_lines.fleet_file_line, '')
        ) as remedy
    from entities
    inner join reasons on entities.reason = reasons.reason
    left join meter_days on {{ equal_keys('entities', 'meter_days', ['date', 'meter_scope', 'meter']) }}
    left join placing_lines on {{ equal_keys('entities', 'placing_lines', ['date', 'meter_scope', 'meter']) }}
    left join summed_tokens on {{ equal_keys('entities', 'summed_tokens', ['date', 'reason', 'engine']) }}

),

of_the_hours as (

    select
        late_doubts.date,
        late_doubts.reason,
        reasons.figure,
        reasons.direction,
        late_doubts.entity_kind,
        late_doubts.entity,
        {{ from_epoch_us('late_doubts.from_us') }} as since_at,
        {{ from_epoch_us('late_doubts.to_us') }} as until_at,
        cast(null as {{ exact_type() }}) as doubted_joules,
        late_doubts.doubted_tokens,
        cast(null as {{ exact_type() }}) as unbooked_tokens,
        late_doubts.doubted_usd,
        cast(null as {{ dbt.type_string() }}) as token_classes,
        reasons.meaning,
        late_doubts.evidence,
        reasons.remedy
    from late_doubts
    inner join reasons on late_doubts.reason = reasons.reason

),

final as (

    select * from of_the_ledger
    union all
    select * from of_the_hours

)

select * from final
