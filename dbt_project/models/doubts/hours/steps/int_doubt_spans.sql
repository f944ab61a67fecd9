-- From when to when which figure of which board or engine is in doubt: one row per date, reason, entity and span.
-- `unbooked_tokens` are what the book lacks of them; NULL where that is not known.
{% set lag_seconds = 600 %}

with dates as (

    select * from {{ ref('stg_run_dates') }}

),

parts as (

    select * from {{ ref('stg_series_parts') }} where track is not null

),

series as (

    select distinct
        series_id,
        engine,
        token_class
    from {{ ref('stg_series') }}
    where quantity = 'tokens'

),

token_days as (

    select * from {{ ref('token_reconciliation_daily') }} where {{ in_run('date') }}

),

witnesses as (

    select * from {{ ref('int_token_witnesses') }}

),

tails as (

    select * from {{ ref('int_engine_tails') }} where {{ in_run('date') }} and unseen_tokens > 0

),

ledger as (

    select * from {{ ref('energy_ledger') }} where {{ in_run('date') }}

),

token_ledger as (

    select * from {{ ref('token_ledger') }} where {{ in_run('date') }}

),

-- The last interval of which is known what an engine did whose page ends.
known_ends as (

    select
        ledger.date,
        ledger.engine,
        max(ledger.interval_start_at) as last_start_at
    from ledger
    inner join (select distinct date, engine from tails) as ending
        on ledger.date = ending.date and ledger.engine = ending.engine
    where ledger.state <> 'unknown'
    group by ledger.date, ledger.engine

),

-- A page ends, and the engine holds its boards on for an hour and more.
held_on as (

    select
        ledger.date,
        ledger.engine,
        count(distinct ledger.interval_start_at) * {{ var('grid_seconds') }} as seconds
    from ledger
    inner join known_ends
        on ledger.date = known_ends.date
        and ledger.engine = known_ends.engine
        and ledger.interval_start_at > known_ends.last_start_at
    where ledger.unknown_reason = 'token_telemetry_missing'
    group by ledger.date, ledger.engine
    having count(distinct ledger.interval_start_at) * {{ var('grid_seconds') }} >= 3600

),

unseen as (

    select
        tails.date,
        tails.engine,
        tails.token_class,
        tails.restarts,
        tails.unseen_seconds + coalesce(held_on.seconds, 0) as unseen_seconds,
        cast(tails.unseen_tokens as double) * (1 + coalesce({{ ratio('held_on.seconds', 'tails.unseen_seconds') }}, 0))
            as unbooked_tokens
    from tails
    left join held_on on tails.date = held_on.date and tails.engine = held_on.engine

),

-- How long each engine was at work: a counter that counts a request at its end lags by what is running.
engine_seconds as (

    select
        date,
        engine,
        count(distinct interval_start_at) * {{ var('grid_seconds') }} as seconds
    from token_ledger
    group by date, engine

),

model_intervals as (

    select
        date,
        engine,
        model,
        interval_start_at,
        sum(case when token_class = 'input' then tokens end) as input_tokens,
        sum(case when token_class = 'output' then tokens end) as output_tokens
    from token_ledger
    where engine not like 'gateway:%'
    group by date, engine, model, interval_start_at

),

-- Prompts of a model are counted for hours in which answers are not, or the reverse: one of them has another name there.
half_counted as (

    select
        date,
        engine,
        model,
        {% for own, other in [('input', 'output'), ('output', 'input')] -%}
        {{ var('grid_seconds') }} * sum(case when {{ own }}_tokens is null and {{ other }}_tokens > 0 then 1 else 0 end)
            as {{ own }}_seconds,
        {{ ratio(
            'sum(case when ' ~ own ~ '_tokens is null then ' ~ other ~ '_tokens end)', 'sum(' ~ other ~ '_tokens)'
        ) }} as {{ own }}_ratio{{ ',' if not loop.last }}
        {% endfor %}
    from model_intervals
    group by date, engine, model
    having count(input_tokens) > 0 and count(output_tokens) > 0

),

-- One model of an engine has prompts alone, and another one answers alone: the engine's joules are shared by both names.
halved_engines as (

    select
        date,
        engine
    from (
        select
            date,
            engine,
            sum(coalesce(input_tokens, 0) + coalesce(output_tokens, 0)) as tokens,
            max(case when input_tokens > 0 and output_tokens is null then 1 else 0 end)
            * max(case when output_tokens > 0 and input_tokens is null then 1 else 0 end) as is_halved
        from model_intervals
        group by date, engine, interval_start_at
    ) as intervals
    group by date, engine
    having sum(tokens * is_halved) > {{ doubt_threshold() }} * sum(tokens)

),

-- Requests run for an hour, and no counter moves.
unmoved as (

    select
        engine_days.date,
        engine_days.engine
    from (
        select date, engine, sum(active_seconds) as active_seconds from ledger
        group by date, engine
    ) as engine_days
    inner join (select date, engine from token_ledger group by date, engine having max(tokens) = 0) as counters
        on engine_days.date = counters.date and engine_days.engine = counters.engine
    where engine_days.active_seconds >= 3600

),

pairs as (

    select * from {{ ref('int_scrape_pairs') }} where basis = 'suspected'

),

meter_days as (

    select * from {{ ref('reconciliation_daily') }} where {{ in_run('date') }} and abs(cross_check_ratio) > 0.05

),

unread_gauges as (

    select * from {{ ref('int_unread_gauges') }}

),

second_names as (

    select * from {{ ref('int_second_names') }}

),

refuted_meters as (

    select
        date,
        meter_scope,
        meter,
        min(interval_number) * {{ grid_us() }} as from_us,
        (max(interval_number) + 1) * {{ grid_us() }} as to_us,
        max(basis) as basis,
        sum(unknown_seconds) as unknown_seconds
    from {{ ref('int_refuted_intervals') }}
    group by date, meter_scope, meter

),

clock_lags as (

    select * from {{ ref('int_clock_lags') }}

),

unplaced_meters as (

    select * from {{ ref('unplaced_meters') }} where {{ in_run('date') }}

),

-- Watts of a node and of its boards are not read at one moment: ten minutes of a date show nothing.
refuted_hosts as (

    select *
    from (
        select
            date,
            meter_scope,
            meter,
            interval_number * {{ grid_us() }} as from_us,
            max(boards_watts - node_watts) over (partition by date, meter_scope, meter) as watts_below,
            count(*) over (partition by date, meter_scope, meter) * {{ grid_us() }} / 1e6 as refuted_seconds
        from {{ ref('int_host_energy') }}
        where is_host_refuted
    ) as intervals
    where refuted_seconds > {{ lag_seconds }}

),

low_limits as (

    select * from {{ ref('int_doubted_limits') }} where {{ in_run('date') }}

),

-- Where two meters or two counters differ, these have a doubt of their own.
unaccounted as (

    select * from {{ ref('series_daily') }}
    where {{ in_run('date') }}
        and (unaccounted_joules > 0 or unaccounted_tokens > 0)
        and (outcome <> 'cross_check' or unaccounted_joules = own_joules or unaccounted_tokens = own_tokens)

),

failed_entities as (

    select * from {{ ref('int_failed_entities') }} where not is_held_back

),

meter_seconds as (

    select
        date,
        meter_scope,
        meter,
        sum(covered_seconds) as covered_seconds
    from ledger
    group by date, meter_scope, meter

),

limits as (

    select distinct
        date,
        meter_scope,
        meter,
        possible_watts
    from {{ ref('int_meter_choices') }}
    where purpose = 'booked' and possible_watts is not null

),

engine_days as (

    select distinct
        parts.date,
        case parts.basis
            when 'values' then 'hidden_processes' when 'sum' then 'part_left_a_sum' when 'unknown' then 'unclear_falls' else 'no_counter'
        end as reason,
        series.engine,
        series.token_class,
        cast(null as double) as unbooked_tokens,
        case
            when parts.basis in ('values', 'sum') then {{ rounded_text('parts.tracks') }} || ' lines of values in one counter'
            else 'falls of one counter'
        end as evidence
    from parts
    inner join series on parts.landed_series_id = series.series_id
    where parts.basis not in ('process_start', 'delta', 'blank')
    union all
    select
        date,
        'unseen_tokens' as reason,
        engine,
        token_class,
        unbooked_tokens,
        {{ rounded_text('restarts') }} || ' restarts, ' || {{ rounded_text('unseen_seconds') }}
            || ' s unseen' as evidence
    from unseen
    union all
    select
        token_days.date,
        'token_counters_disagree' as reason,
        token_days.engine,
        token_days.token_class,
        cast(null as double) as unbooked_tokens,
        token_days.cross_check_metric || ' has ' || {{ rounded_text('100 * token_days.cross_check_ratio', 1) }} || ' %' as evidence
    from token_days
    left join engine_seconds on token_days.date = engine_seconds.date and token_days.engine = engine_seconds.engine
    where abs(token_days.cross_check_ratio) > greatest(0.05, coalesce({{ lag_seconds }} / engine_seconds.seconds, 0))
        and (token_days.engine not like 'gateway:%' or token_days.cross_check_ratio > 0)
        -- The output of what is not booked: int_token_witnesses.
        and (token_days.source is not null or token_days.token_class <> 'output')
    union all
    select
        witnesses.date,
        'token_counters_disagree' as reason,
        witnesses.engine,
        'output' as token_class,
        cast(null as double) as unbooked_tokens,
        witnesses.witness || ' has ' || {{ rounded_text('witnesses.witness_tokens') }}
            || ' of the model''s output tokens, its engines have ' || {{ rounded_text('witnesses.booked_tokens') }} as evidence
    from witnesses
    left join engine_seconds on witnesses.date = engine_seconds.date and witnesses.engine = engine_seconds.engine
    where witnesses.witness_tokens < witnesses.booked_tokens
        or witnesses.witness_tokens - witnesses.booked_tokens
            > greatest(0.05, coalesce({{ lag_seconds }} / engine_seconds.seconds, 0)) * witnesses.booked_tokens
    union all
    {% for token_class in ['input', 'output'] -%}
    select
        date,
        'uncounted_class' as reason,
        engine,
        '{{ token_class }}' as token_class,
        cast(null as double) as unbooked_tokens,
        {{ rounded_text('max(' ~ token_class ~ '_seconds)') }} || ' s without its {{ token_class }} tokens' as evidence
    from half_counted
    where {{ token_class }}_seconds >= 3600 and {{ token_class }}_ratio >= {{ doubt_threshold() }}
    group by date, engine
    union all
    {% endfor -%}
    select
        date,
        'no_counter' as reason,
        engine,
        cast(null as {{ dbt.type_string() }}) as token_class,
        cast(null as double) as unbooked_tokens,
        'requests run, and no counter moves' as evidence
    from unmoved
    union all
    select distinct
        date,
        'conflicting_role' as reason,
        engine,
        'input' as token_class,
        cast(null as double) as unbooked_tokens,
        'role of ' || engine as evidence
    from token_ledger
    where role_basis = 'conflicting'
    union all
    {% for engine, other in [('engine', 'other_engine'), ('other_engine', 'engine')] -%}
    select
        date,
        'scraped_twice' as reason,
        {{ engine }} as engine,
        cast(null as {{ dbt.type_string() }}) as token_class,
        cast(null as double) as unbooked_tokens,
        'as ' || {{ other }} || ' over ' || {{ rounded_text('increments') }} || ' increments' as evidence
    from pairs
    {% if not loop.last %}union all{% endif %}
    {% endfor %}
    union all
    select
        date,
        'unbalanced_tokens' as reason,
        engine,
        cast(null as {{ dbt.type_string() }}) as token_class,
        cast(null as double) as unbooked_tokens,
        coalesce({{ rounded_text('found', 3) }}, 'no') || ' ' || unit || ', ' || expected as evidence
    from failed_entities
    where engine is not null
    union all
    select
        date,
        'unaccounted_tokens' as reason,
        engine,
        cast(null as {{ dbt.type_string() }}) as token_class,
        cast(null as double) as unbooked_tokens,
        metric || ' has ' || {{ rounded_text('sum(unaccounted_tokens)') }} || ' tokens more' as evidence
    from unaccounted
    where engine is not null and unaccounted_tokens > 0
    group by date, engine, metric

),

meter_doubts as (

    select
        meter_days.date,
        'meters_disagree' as reason,
        meter_days.meter_scope,
        meter_days.meter,
        dates.start_us as from_us,
        dates.end_us as to_us,
        {{ rounded_text(ratio('meter_days.metered_joules', 'meter_seconds.covered_seconds')) }} || ' W, ' || meter_days.cross_check_source
            || ' has ' || {{ rounded_text(ratio('meter_days.cross_check_joules', 'meter_seconds.covered_seconds')) }} || ' W' as evidence
    from meter_days
    inner join dates on meter_days.date = dates.date
    inner join meter_seconds on {{ equal_keys('meter_days', 'meter_seconds', ['date', 'meter_scope', 'meter']) }}
    union all
    select
        failed_entities.date,
        'unbalanced_joules' as reason,
        failed_entities.meter_scope,
        failed_entities.meter,
        dates.start_us as from_us,
        dates.end_us as to_us,
        coalesce({{ rounded_text('failed_entities.found', 3) }}, 'no') || ' ' || failed_entities.unit || ', '
            || failed_entities.expected as evidence
    from failed_entities
    inner join dates on failed_entities.date = dates.date
    where failed_entities.meter is not null
    union all
    select
        second_names.date,
        'second_name' as reason,
        second_names.meter_scope,
        second_names.meter,
        dates.start_us as from_us,
        dates.end_us as to_us,
        second_names.evidence
    from second_names
    inner join dates on second_names.date = dates.date
    union all
    select
        date,
        'unread_gauge' as reason,
        meter_scope,
        meter,
        from_us,
        to_us,
        {{ rounded_text('100 * covered_ratio', 1) }} || ' % of its time' as evidence
    from unread_gauges
    union all
    select
        date,
        'refuted_meter' as reason,
        meter_scope,
        meter,
        from_us,
        to_us,
        {{ rounded_text('unknown_seconds') }} || ' s unknown: ' || case
            when basis = 'standstill' then 'its counter does not move' else 'its watts are below half of idle'
        end as evidence
    from refuted_meters
    union all
    select distinct
        ledger.date,
        'clocks_apart' as reason,
        ledger.meter_scope,
        ledger.meter,
        dates.start_us as from_us,
        dates.end_us as to_us,
        'its watts are ' || {{ rounded_text('abs(clock_lags.lag_seconds)') }} || ' s '
            || case when clock_lags.lag_seconds > 0 then 'later' else 'earlier' end || ' than the tokens of ' || clock_lags.engine
        as evidence
    from clock_lags
    inner join dates on clock_lags.date = dates.date
    inner join ledger on clock_lags.date = ledger.date and clock_lags.engine = ledger.engine
    union all
    select distinct
        ledger.date,
        'unclear_shares' as reason,
        ledger.meter_scope,
        ledger.meter,
        dates.start_us as from_us,
        dates.end_us as to_us,
        ledger.engine || ' counts prompts of one model and answers of another' as evidence
    from halved_engines
    inner join dates on halved_engines.date = dates.date
    inner join ledger on halved_engines.date = ledger.date and halved_engines.engine = ledger.engine
    union all
    select
        unplaced_meters.date,
        'unplaced_meter' as reason,
        unplaced_meters.meter_scope,
        unplaced_meters.meter,
        dates.start_us as from_us,
        dates.end_us as to_us,
        coalesce({{ rounded_text('unplaced_meters.mean_watts') }} || ' W', 'no second covered') || case
            when unplaced_meters.proposal_basis = 'correlation' then ', which move with those of ' || unplaced_meters.proposed_node
            else ''
        end as evidence
    from unplaced_meters
    inner join dates on unplaced_meters.date = dates.date
    union all
    select
        date,
        'refuted_host' as reason,
        meter_scope,
        meter,
        from_us,
        from_us + {{ grid_us() }} as to_us,
        {{ rounded_text('refuted_seconds') }} || ' s, up to ' || {{ rounded_text('watts_below') }} || ' W less' as evidence
    from refuted_hosts
    union all
    select
        low_limits.date,
        'limit_too_low' as reason,
        'board' as meter_scope,
        low_limits.meter,
        dates.start_us as from_us,
        dates.end_us as to_us,
        {{ rounded_text('low_limits.watts_seen', 1) }} || ' W, the limit of ' || low_limits.device_type || ' is '
            || {{ rounded_text('low_limits.power_limit_watts') }} || ' W' as evidence
    from low_limits
    inner join dates on low_limits.date = dates.date
    union all
    -- A series whose labels name no meter is its source's.
    select
        unaccounted.date,
        'unaccounted_joules' as reason,
        case when unaccounted.meter is null then 'source' else unaccounted.meter_scope end as meter_scope,
        coalesce(unaccounted.meter, unaccounted.source) as meter,
        dates.start_us as from_us,
        dates.end_us as to_us,
        unaccounted.metric || ' has ' || {{ rounded_text('sum(unaccounted.unaccounted_joules)') }} || ' J more' as evidence
    from unaccounted
    inner join dates on unaccounted.date = dates.date
    where unaccounted.unaccounted_joules > 0
    group by 1, 2, 3, 4, 5, 6, unaccounted.metric
    union all
    select
        ledger.date,
        'above_limit' as reason,
        ledger.meter_scope,
        ledger.meter,
        {{ epoch_us('ledger.interval_start_at') }} as from_us,
        {{ epoch_us('ledger.interval_start_at') }} + {{ grid_us() }} as to_us,
        'more than ' || {{ rounded_text('limits.possible_watts') }} || ' W' as evidence
    from ledger
    inner join limits on {{ equal_keys('ledger', 'limits', ['date', 'meter_scope', 'meter']) }}
    where cast(ledger.energy_joules as double) > limits.possible_watts * cast(ledger.covered_seconds as double) + 1e-3

),

final as (

    select
        engine_days.date,
        engine_days.reason,
        cast(null as {{ dbt.type_string() }}) as meter_scope,
        cast(null as {{ dbt.type_string() }}) as meter,
        engine_days.engine,
        engine_days.token_class,
        dates.start_us as from_us,
        dates.end_us as to_us,
        engine_days.unbooked_tokens,
        engine_days.evidence
    from engine_days
    inner join dates on engine_days.date = dates.date
    union all
    select
        date,
        reason,
        meter_scope,
        meter,
        cast(null as {{ dbt.type_string() }}) as engine,
        cast(null as {{ dbt.type_string() }}) as token_class,
        from_us,
        to_us,
        cast(null as double) as unbooked_tokens,
        evidence
    from meter_doubts

)

select * from final
