-- What became of each landed series: booked, and for which meter or engine, or why not. Its entity and its amount come
-- from a second parsing of raw, independent of the book's: joules and tokens that no booked row accounts for are in the
-- unaccounted columns.
with identities as (

    select * from {{ ref('int_label_identities') }}
    where quantity in ('energy', 'power', 'tokens')

),

measured as (

    select * from {{ ref('int_series_amounts') }}

),

raw_series as (

    select * from {{ ref('stg_raw_series') }}

),

book_series as (

    select * from {{ ref('stg_series') }}

),

meter_choices as (

    select * from {{ ref('int_meter_choices') }}

),

handover_segments as (

    select * from {{ ref('int_handover_segments') }}

),

token_choices as (

    select * from {{ ref('int_token_choices') }}

),

run_dates as (

    select * from {{ ref('stg_run_dates') }}

),

changing_engines as (

    select distinct date, engine from token_choices where from_us is not null or to_us is not null

),

copies as (

    select * from {{ ref('int_scrape_copies') }}

),

handed_over as (

    select
        date,
        engine,
        token_class,
        {{ exact_sum('handed_tokens') }} as tokens,
        max(case when is_whole then 1 else 0 end) = 1 as is_whole
    from {{ ref('int_handed_over_tokens') }}
    group by date, engine, token_class

),

ledger as (

    select * from {{ ref('energy_ledger') }} where {{ in_run('date') }}

),

token_ledger as (

    select * from {{ ref('token_ledger') }} where {{ in_run('date') }}

),

-- What the book made of each reading. Of a meter that is handed over within the date, the seconds that each reading
-- covers.
reading_purposes as (

    select
        date,
        reading_id,
        metric,
        meter_scope,
        meter,
        max(case when purpose = 'booked' then 1 else 0 end) = 1 as is_booked,
        max(case when purpose = 'host' then 1 else 0 end) = 1 as is_host,
        max(case when is_handover then 1 else 0 end) = 1 as is_handover
    from meter_choices
    group by date, reading_id, metric, meter_scope, meter

),

covering_readings as (

    select
        date,
        covering_reading_id as reading_id,
        sum(case when purpose = 'booked' then end_us - start_us else 0 end) as booked_us
    from handover_segments
    where covering_reading_id is not null
    group by date, covering_reading_id

),

power_choices as (

    select
        reading_purposes.date,
        book_series.series_id,
        reading_purposes.reading_id,
        reading_purposes.metric,
        reading_purposes.meter,
        reading_purposes.is_host,
        reading_purposes.is_booked and not reading_purposes.is_handover as is_booked_alone,
        covering_readings.booked_us as handover_us,
        min(case when reading_purposes.is_booked or reading_purposes.is_host then reading_purposes.metric end) over (
            partition by reading_purposes.date, reading_purposes.meter_scope, reading_purposes.meter
        ) as booked_metric
    from reading_purposes
    inner join book_series on reading_purposes.reading_id = book_series.reading_id and book_series.stream = 'power'
    left join covering_readings
        on reading_purposes.date = covering_readings.date and reading_purposes.reading_id = covering_readings.reading_id

),

-- Several series of one reading follow each other (a pod moves) or repeat each other (MIG rows): each moment is the
-- first one's.
power_spans as (

    select
        power_choices.*,
        measured.covered_seconds,
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
        ) as own_us
    from power_choices
    inner join measured on power_choices.date = measured.date and power_choices.series_id = measured.series_id
    where measured.samples > 0

),

booked_spans as (

    select
        *,
        case
            when is_booked_alone then least(own_us / 1e6, covered_seconds)
            when handover_us > 0
                then least(handover_us * {{ ratio('own_us', 'sum(own_us) over (partition by date, reading_id)') }} / 1e6, covered_seconds)
            else 0
        end as booked_seconds
    from power_spans

),

power_outcomes as (

    select
        date,
        series_id,
        meter as booked_for,
        case
            when booked_seconds > 0 and booked_seconds >= 0.5 * covered_seconds then 'booked'
            when is_booked_alone then 'redundant'
            when is_host or booked_metric is null then 'coarser_scope'
            when metric = booked_metric then 'redundant'
            else 'cross_check'
        end as outcome,
        case
            when booked_seconds > 0 and booked_seconds >= 0.5 * covered_seconds then null
            when is_booked_alone then 'repeats_a_series'
            when is_host then 'measures_the_host'
            when booked_metric is null then 'finer_scope_speaks'
            when metric = booked_metric then 'another_source_speaks'
            else 'better_metric_speaks'
        end as reason,
        booked_seconds,
        is_host
    from booked_spans

),

class_outcomes as (

    select
        measured.date,
        measured.series_id,
        coalesce(copies.engine, book_series.engine) as engine,
        case
            when copies.is_redundant then 2
            when handed_over.is_whole then 5
            when token_choices.source = book_series.source and token_choices.metric = book_series.metric then 1
            when token_choices.metric = book_series.metric then 3
            when token_choices.metric is not null then 4
            when changing_engines.engine is not null and book_series.quantity = 'tokens' then 8
            when book_series.level <> 'engine' then 6
            else 7
        end as place,
        case when token_choices.source = book_series.source and token_choices.metric = book_series.metric
            then coalesce(token_choices.to_us, run_dates.end_us) - coalesce(token_choices.from_us, run_dates.start_us)
        end as chosen_us
    from measured
    inner join book_series on measured.series_id = book_series.series_id and book_series.stream = 'tokens'
    inner join run_dates on measured.date = run_dates.date
    left join copies on measured.date = copies.date and measured.series_id = copies.series_id
    left join token_choices
        on measured.date = token_choices.date
        and coalesce(copies.engine, book_series.engine) = token_choices.engine
        and book_series.token_class = token_choices.token_class
        and book_series.quantity = 'tokens'
    left join changing_engines
        on measured.date = changing_engines.date and coalesce(copies.engine, book_series.engine) = changing_engines.engine
    left join handed_over
        on measured.date = handed_over.date
        and coalesce(copies.engine, book_series.engine) = handed_over.engine
        and book_series.token_class = handed_over.token_class
    where measured.samples > 0 and coalesce(book_series.token_class, '') <> 'transferred_input'

),

token_outcomes as (

    select
        date,
        series_id,
        max(engine) as booked_for,
        case min(place)
            when 1 then 'booked' when 2 then 'redundant' when 3 then 'redundant' when 4 then 'cross_check' when 6 then 'coarser_scope'
            else 'unused'
        end as outcome,
        case min(place)
            when 2 then 'scraped_twice'
            when 3 then 'another_source_speaks'
            when 4 then 'better_metric_speaks'
            when 5 then 'counted_at_the_other_role'
            when 6 then 'nearer_source_speaks'
            when 7 then 'not_read'
            when 8 then 'covers_a_part_of_the_date'
        end as reason,
        max(chosen_us) / 1e6 as chosen_seconds
    from class_outcomes
    group by date, series_id

),

booked_joules as (

    select
        date,
        meter_scope,
        meter,
        {{ exact_sum('energy_joules') }} as energy_joules
    from (
        select date, meter_scope, meter, energy_joules from ledger
        union all
        -- What is refuted is accounted for.
        select date, meter_scope, meter, {{ exact('shown_joules') }} as energy_joules from {{ ref('int_refuted_stretches') }}
        where not is_caught_up
    ) as known
    group by date, meter_scope, meter

),

-- A copy is accounted for by what is booked for the process that it copies.
engines_of_series as (

    select distinct
        measured.date,
        measured.series_id,
        identities.token_class,
        coalesce(copies.engine, identities.engine) as engine
    from measured
    inner join identities on measured.series_id = identities.series_id
    left join copies on measured.date = copies.date and measured.series_id = copies.series_id
    where measured.stream = 'tokens'

),

booked_tokens as (

    select
        engines_of_series.series_id,
        token_ledger.date,
        {{ exact_sum('token_ledger.tokens') }} as tokens
    from (
        select date, engine, token_class, tokens from token_ledger
        union all
        select date, engine, token_class, tokens from handed_over
    ) as token_ledger
    inner join engines_of_series on {{ equal_keys('token_ledger', 'engines_of_series', ['date', 'engine', 'token_class']) }}
    group by engines_of_series.series_id, token_ledger.date, token_ledger.token_class

),

most_booked_tokens as (

    select
        series_id,
        date,
        max(tokens) as tokens
    from booked_tokens
    group by series_id, date

),

assessed as (

    select
        measured.*,
        case when outcomes.booked_seconds > 0 then outcomes.booked_for end as booked_for,
        coalesce(outcomes.is_host, false) as is_host,
        case
            when measured.samples = 0 then 'refused'
            when outcomes.outcome is not null then outcomes.outcome
            when not measured.is_counted then 'redundant'
            else 'unused'
        end as outcome,
        case
            when measured.samples = 0 then 'no_valid_sample'
            when outcomes.outcome is not null then outcomes.reason
            when not measured.is_counted then 'rank_repeats_another'
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
            case
                when token_outcomes.outcome = 'booked' then least(measured.covered_seconds, token_outcomes.chosen_seconds)
                else 0
            end as booked_seconds,
            false as is_host
        from token_outcomes
        inner join measured on token_outcomes.date = measured.date and token_outcomes.series_id = measured.series_id
    ) as outcomes
        on measured.date = outcomes.date and measured.series_id = outcomes.series_id
    left join booked_joules on {{ equal_keys('measured', 'booked_joules', ['date', 'meter_scope', 'meter']) }}
    left join most_booked_tokens
        on measured.date = most_booked_tokens.date and measured.series_id = most_booked_tokens.series_id

),

-- What several processes counted under one series is that series' own.
landed as (

    select
        assessed.date,
        raw_series.landed_series_id as series_id,
        raw_series.source_kind,
        raw_series.labels,
        {% for column in [
            'source', 'metric', 'quantity', 'meter_scope', 'meter', 'engine', 'outcome', 'reason', 'booked_for', 'is_host',
            'booked_seconds', 'covered_seconds', 'own_joules', 'meter_joules', 'engine_tokens'
        ] -%}
        max(assessed.{{ column }}) as {{ column }},
        {% endfor -%}
        {% for column in ['samples', 'rejected_samples', 'own_tokens'] -%}
        sum(assessed.{{ column }}) as {{ column }}{{ ',' if not loop.last }}
        {% endfor %}
    from assessed
    inner join raw_series on assessed.series_id = raw_series.series_id
    group by assessed.date, raw_series.landed_series_id, raw_series.source_kind, raw_series.labels

),

-- A meter above finer ones, a frontend before engines and the other role's tokens are in the book under other names.
final as (

    select
        assessed.date,
        assessed.series_id,
        assessed.source,
        assessed.source_kind,
        assessed.metric,
        assessed.labels,
        assessed.quantity,
        assessed.meter_scope,
        assessed.meter,
        assessed.engine,
        assessed.outcome,
        assessed.reason,
        assessed.booked_for,
        cast({{ exact('assessed.booked_seconds') }} as {{ exact_type() }}) as booked_seconds,
        cast({{ exact('assessed.covered_seconds') }} as {{ exact_type() }}) as covered_seconds,
        cast(assessed.samples as bigint) as samples,
        cast(assessed.rejected_samples as bigint) as rejected_samples,
        {{ exact_large('assessed.own_joules') }} as own_joules,
        {{ exact_large('assessed.own_tokens') }} as own_tokens,
        case
            when assessed.own_joules is null or assessed.is_host or assessed.outcome in ('refused', 'coarser_scope') then null
            when assessed.own_joules > 1.05 * coalesce(cast(assessed.meter_joules as double), 0)
                then {{ exact_large('assessed.own_joules - coalesce(cast(assessed.meter_joules as double), 0)') }}
            else cast(0 as {{ exact_type() }})
        end as unaccounted_joules,
        case
            when assessed.own_tokens is null
                or assessed.outcome in ('refused', 'coarser_scope')
                or assessed.reason in ('counted_at_the_other_role', 'covers_a_part_of_the_date')
                then null
            when assessed.own_tokens > 1.05 * coalesce(cast(assessed.engine_tokens as double), 0)
                then {{ exact_large('assessed.own_tokens - coalesce(cast(assessed.engine_tokens as double), 0)') }}
            else cast(0 as {{ exact_type() }})
        end as unaccounted_tokens
    from landed as assessed

)

select * from final
