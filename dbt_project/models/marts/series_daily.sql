-- What became of each landed series: booked, and for whom, or why not. Who a series is about and what it measured come from raw by another road
-- than the book's: joules and tokens that no booked row accounts for stand in the unaccounted columns.
with identities as (

    select * from {{ ref('int_label_identities') }}
    where quantity in ('energy', 'power', 'tokens', 'tokens_handed_over')

),

measured as (

    select * from {{ ref('int_series_amounts') }}

),

raw_series as (

    select * from {{ source('raw', 'series') }}

),

book_series as (

    select * from {{ ref('stg_series') }}

),

meter_choices as (

    select * from {{ ref('int_meter_choices') }}

),

token_choices as (

    select * from {{ ref('int_token_choices') }}

),

ledger as (

    select * from {{ ref('energy_ledger') }} where {{ in_run('date') }}

),

token_ledger as (

    select * from {{ ref('token_ledger') }} where {{ in_run('date') }}

),

-- What the book made of it. Several series of one reading follow each other (a pod moves) or repeat each other (MIG rows): each moment is the
-- first one's.
power_choices as (

    select
        meter_choices.date,
        book_series.series_id,
        meter_choices.reading_id,
        meter_choices.metric,
        meter_choices.meter_scope,
        meter_choices.meter,
        meter_choices.purpose,
        min(case when meter_choices.purpose in ('booked', 'host') then meter_choices.metric end)
            over (partition by meter_choices.date, meter_choices.meter_scope, meter_choices.meter) as booked_metric
    from meter_choices
    inner join book_series on meter_choices.reading_id = book_series.reading_id and book_series.stream = 'power'

),

power_spans as (

    select
        power_choices.*,
        greatest(
            measured.last_us - greatest(
                measured.first_us,
                coalesce(
                    max(measured.last_us) over (
                        partition by power_choices.date, power_choices.reading_id
                        order by measured.first_us, measured.series_id
                        rows between unbounded preceding and 1 preceding
                    ),
                    0
                )
            ),
            0
        ) / 1e6 as own_seconds,
        measured.covered_seconds
    from power_choices
    inner join measured on power_choices.date = measured.date and power_choices.series_id = measured.series_id
    where measured.samples > 0

),

power_outcomes as (

    select
        date,
        series_id,
        meter as booked_for,
        case
            when purpose = 'booked' and own_seconds > 0 then 'booked'
            when purpose = 'booked' then 'redundant'
            when purpose = 'host' or booked_metric is null then 'coarser_scope'
            when metric = booked_metric then 'redundant'
            else 'cross_check'
        end as outcome,
        case
            when purpose = 'booked' and own_seconds > 0 then null
            when purpose = 'booked' then 'repeats_a_series'
            when purpose = 'host' then 'measures_the_host'
            when booked_metric is null then 'finer_scope_speaks'
            when metric = booked_metric then 'another_source_speaks'
            else 'better_metric_speaks'
        end as reason,
        case when purpose = 'booked' then least(own_seconds, covered_seconds) else 0 end as booked_seconds
    from power_spans

),

class_outcomes as (

    select
        measured.date,
        measured.series_id,
        book_series.engine,
        case
            when token_choices.source = book_series.source and token_choices.metric = book_series.metric then 1
            when token_choices.metric = book_series.metric then 2
            when token_choices.metric is not null then 3
            when book_series.quantity = 'tokens_handed_over' then 4
            when book_series.level <> 'engine' then 5
            else 6
        end as place
    from measured
    inner join book_series on measured.series_id = book_series.series_id and book_series.stream = 'tokens'
    left join token_choices
        on measured.date = token_choices.date
        and book_series.engine = token_choices.engine
        and book_series.token_class = token_choices.token_class
        and book_series.quantity = 'tokens'
    where measured.samples > 0

),

token_outcomes as (

    select
        date,
        series_id,
        max(engine) as booked_for,
        case min(place)
            when 1 then 'booked' when 2 then 'redundant' when 3 then 'cross_check' when 5 then 'coarser_scope' else 'unused'
        end as outcome,
        case min(place)
            when 2 then 'another_source_speaks'
            when 3 then 'better_metric_speaks'
            when 4 then 'counted_at_the_other_role'
            when 5 then 'nearer_source_speaks'
            when 6 then 'not_read'
        end as reason
    from class_outcomes
    group by date, series_id

),

booked_joules as (

    select
        date,
        meter_scope,
        meter,
        {{ exact_sum('energy_joules') }} as energy_joules
    from ledger
    group by date, meter_scope, meter

),

booked_tokens as (

    select
        identities.series_id,
        token_ledger.date,
        {{ exact_sum('token_ledger.tokens') }} as tokens
    from token_ledger
    inner join identities on token_ledger.engine = identities.engine and token_ledger.token_class = identities.token_class
    group by identities.series_id, token_ledger.date, token_ledger.token_class

),

most_booked_tokens as (

    select
        series_id,
        date,
        max(tokens) as tokens
    from booked_tokens
    group by series_id, date

),

judged as (

    select
        measured.*,
        case when outcomes.outcome = 'booked' then outcomes.booked_for end as booked_for,
        case
            when measured.samples = 0 then 'refused'
            when outcomes.outcome is not null then outcomes.outcome
            when not measured.is_heard then 'redundant'
            else 'unused'
        end as outcome,
        case
            when measured.samples = 0 then 'no_valid_sample'
            when outcomes.outcome is not null then outcomes.reason
            when not measured.is_heard then 'rank_repeats_another'
            when measured.stream = 'power' and measured.meter is null then 'names_no_meter'
            else 'not_read'
        end as reason,
        coalesce(outcomes.booked_seconds, 0) as booked_seconds,
        case when measured.stream = 'power' then coalesce(measured.risen, measured.mean_watts * measured.covered_seconds) end as own_joules,
        case when measured.stream = 'tokens' then measured.risen end as own_tokens,
        booked_joules.energy_joules as meter_joules,
        most_booked_tokens.tokens as engine_tokens
    from measured
    left join (
        select * from power_outcomes
        union all
        select
            token_outcomes.date,
            token_outcomes.series_id,
            token_outcomes.booked_for,
            token_outcomes.outcome,
            token_outcomes.reason,
            case when token_outcomes.outcome = 'booked' then measured.covered_seconds else 0 end as booked_seconds
        from token_outcomes
        inner join measured on token_outcomes.date = measured.date and token_outcomes.series_id = measured.series_id
    ) as outcomes
        on measured.date = outcomes.date and measured.series_id = outcomes.series_id
    left join booked_joules
        on measured.date = booked_joules.date
        and measured.meter_scope = booked_joules.meter_scope
        and measured.meter = booked_joules.meter
    left join most_booked_tokens
        on measured.date = most_booked_tokens.date and measured.series_id = most_booked_tokens.series_id

),

-- A meter above finer ones, a frontend before engines and the other role's tokens are in the book under other names.
final as (

    select
        judged.date,
        judged.series_id,
        judged.source,
        raw_series.source_kind,
        judged.metric,
        raw_series.labels,
        case judged.quantity when 'tokens_handed_over' then 'tokens' else judged.quantity end as quantity,
        judged.meter_scope,
        judged.meter,
        judged.engine,
        judged.outcome,
        judged.reason,
        judged.booked_for,
        cast({{ exact('judged.booked_seconds') }} as {{ exact_type() }}) as booked_seconds,
        cast({{ exact('judged.covered_seconds') }} as {{ exact_type() }}) as covered_seconds,
        cast(judged.samples as bigint) as samples,
        cast(judged.rejected_samples as bigint) as rejected_samples,
        cast({{ exact('judged.own_joules') }} as {{ exact_type() }}) as own_joules,
        cast({{ exact('judged.own_tokens') }} as {{ exact_type() }}) as own_tokens,
        case
            when judged.own_joules is null or judged.outcome in ('refused', 'coarser_scope') then null
            when judged.own_joules > 1.05 * coalesce(cast(judged.meter_joules as double), 0)
                then cast({{ exact('judged.own_joules - coalesce(cast(judged.meter_joules as double), 0)') }} as {{ exact_type() }})
            else cast(0 as {{ exact_type() }})
        end as unaccounted_joules,
        case
            when judged.own_tokens is null
                or judged.outcome in ('refused', 'coarser_scope')
                or judged.reason = 'counted_at_the_other_role'
                then null
            when judged.own_tokens > 1.05 * coalesce(cast(judged.engine_tokens as double), 0)
                then cast({{ exact('judged.own_tokens - coalesce(cast(judged.engine_tokens as double), 0)') }} as {{ exact_type() }})
            else cast(0 as {{ exact_type() }})
        end as unaccounted_tokens
    from judged
    inner join raw_series on judged.series_id = raw_series.series_id

)

select * from final
