-- What a run window reads: the meters and engines that it names, and which of their readings.

{# A window names a node, an engine or a model. The first of these that it names selects the rows of the ledger, and so
   the meters, that count. #}
{% macro is_of_window(ledger, windows) -%}
case
            when {{ windows }}.node is not null then {{ ledger }}.node = {{ windows }}.node
            when {{ windows }}.engine is not null then {{ ledger }}.engine = {{ windows }}.engine
            else {{ ledger }}.model = {{ windows }}.model
        end
{%- endmacro %}

{# CTEs from `windows` and the models that they name to `window_readings` (window_id, start_us, end_us, meter_scope,
   meter, engine, purpose, reading_id, quantity, possible_watts, sampling_interval_seconds, window_reading): of each meter the reading
   that books it (`energy`) and its best gauge (`watts`), of each engine its counters of tokens (`tokens`), for the
   part of the window that they count. #}
{% macro window_reading_ctes(ledger, meters, reading_days, series, scrape_copies, token_choices, engine_days, engine_roles) %}
window_meters as (

    select distinct
        windows.window_id,
        windows.start_us,
        windows.end_us,
        ledger.meter_scope,
        ledger.meter
    from windows
    inner join {{ ledger }} as ledger
        on {{ epoch_us('ledger.interval_start_at') }} < windows.end_us
        and {{ epoch_us('ledger.interval_start_at') }} + cast(ledger.interval_seconds as bigint) * 1000000 > windows.start_us
        and {{ is_of_window('ledger', 'windows') }}
    where ledger.date >= (select cast(min(start_at) as date) from windows)
        and ledger.date <= (select cast(max(end_at) as date) from windows)

),

booked_meters as (

    select * from {{ meters }} where purpose = 'booked'

),

energy_readings as (

    select
        window_meters.window_id,
        window_meters.start_us,
        window_meters.end_us,
        window_meters.meter_scope,
        window_meters.meter,
        cast(null as {{ dbt.type_string() }}) as engine,
        'energy' as purpose,
        booked_meters.reading_id,
        booked_meters.quantity,
        booked_meters.possible_watts,
        booked_meters.sampling_interval_seconds
    from window_meters
    inner join booked_meters on window_meters.meter_scope = booked_meters.meter_scope and window_meters.meter = booked_meters.meter
    qualify row_number() over (
        partition by window_meters.window_id, window_meters.meter_scope, window_meters.meter order by booked_meters.date desc
    ) = 1

),

gauge_readings as (

    select
        window_meters.window_id,
        window_meters.start_us,
        window_meters.end_us,
        window_meters.meter_scope,
        window_meters.meter,
        cast(null as {{ dbt.type_string() }}) as engine,
        'watts' as purpose,
        reading_days.reading_id,
        reading_days.quantity,
        booked_meters.possible_watts,
        cast(null as double) as sampling_interval_seconds
    from window_meters
    inner join {{ reading_days }} as reading_days
        on window_meters.meter_scope = reading_days.meter_scope and window_meters.meter = reading_days.meter
    left join booked_meters
        on reading_days.date = booked_meters.date
        and reading_days.meter_scope = booked_meters.meter_scope
        and reading_days.meter = booked_meters.meter
    where reading_days.quantity = 'power' and reading_days.samples > 0
    qualify row_number() over (
        partition by window_meters.window_id, window_meters.meter_scope, window_meters.meter
        order by reading_days.rank, reading_days.date desc, reading_days.reading_id
    ) = 1

),

-- Of a process that is scraped more than once, the target that gives its name is read here.
token_readings as (

    select
        windows.window_id,
        greatest(windows.start_us, max(token_choices.from_us)) as start_us,
        least(windows.end_us, min(token_choices.to_us)) as end_us,
        cast(null as {{ dbt.type_string() }}) as meter_scope,
        cast(null as {{ dbt.type_string() }}) as meter,
        series.engine,
        'tokens' as purpose,
        series.reading_id,
        series.token_class as quantity,
        cast(null as double) as possible_watts,
        cast(null as double) as sampling_interval_seconds
    from windows
    inner join {{ engine_days }} as engine_days on coalesce(windows.engine = engine_days.engine, windows.model is not null)
    inner join {{ token_choices }} as token_choices on engine_days.engine = token_choices.engine and engine_days.date = token_choices.date
    inner join {{ series }} as series
        on token_choices.engine = series.engine
        and token_choices.token_class = series.token_class
        and token_choices.source = series.source
        and token_choices.metric = series.metric
    left join {{ engine_roles }} as engine_roles
        on engine_days.engine = engine_roles.engine and engine_days.date = engine_roles.date
    left join (select distinct series_id from {{ scrape_copies }} where is_redundant) as redundant on series.series_id = redundant.series_id
    where series.quantity = 'tokens'
        and series.token_class in ('input', 'output')
        and redundant.series_id is null
        -- A prompt counts at the engine that computed it, output where it was decoded.
        and coalesce(engine_roles.role, 'unified') <> case series.token_class when 'input' then 'decode' else 'prefill' end
        and (windows.engine is not null or coalesce(series.model, engine_days.model) = windows.model)
    group by windows.window_id, windows.start_us, windows.end_us, series.reading_id, series.engine, series.token_class
    having greatest(windows.start_us, max(token_choices.from_us)) < least(windows.end_us, min(token_choices.to_us))

),

window_readings as (

    select *, window_id || ' ' || purpose || ' ' || quantity || ' ' || cast(reading_id as {{ dbt.type_string() }}) as window_reading
    from (select * from energy_readings union all select * from gauge_readings union all select * from token_readings) as readings

)
{% endmacro %}
