-- Energy, host energy and tokens are the same from the books through hours and days to the fleet, per date and site;
-- what a join doubled or dropped on the way shows here. Exact. The fleet's joules of unplaced meters have a column of
-- their own.
{% set steps = ['model_hourly', 'model_daily', 'fleet_daily'] %}

with books as (

    select
        date,
        sum(energy_joules) as energy_joules,
        sum(host_overhead_joules) as host_overhead_joules,
        sum(gpu_seconds) as gpu_seconds,
        cast(null as {{ exact_type() }}) as output_tokens,
        cast(null as {{ exact_type() }}) as input_tokens
    from {{ ref('energy_ledger') }}
    where {{ in_run('date') }}
    group by date
    union all
    select
        date,
        cast(null as {{ exact_type() }}) as energy_joules,
        cast(null as {{ exact_type() }}) as host_overhead_joules,
        cast(null as {{ exact_type() }}) as gpu_seconds,
        sum(case when token_class = 'output' then tokens end) as output_tokens,
        sum(case when token_class = 'input' then tokens end) as input_tokens
    from {{ ref('token_ledger') }}
    where {{ in_run('date') }}
    group by date

),

levels as (

    select 'books' as level, * from books
    {%- for step in steps %}
    union all
    select
        '{{ step }}' as level,
        date,
        sum({{ 'energy_joules + unplaced_joules' if step == 'fleet_daily' else 'energy_joules' }}) as energy_joules,
        sum(host_overhead_joules) as host_overhead_joules,
        sum(gpu_seconds) as gpu_seconds,
        sum(output_tokens) as output_tokens,
        sum(input_tokens) as input_tokens
    from {{ ref(step) }}
    where {{ in_run('date') }}
    group by date
    {%- endfor %}

),

facts as (

    {% for fact in ['energy_joules', 'host_overhead_joules', 'gpu_seconds', 'output_tokens', 'input_tokens'] -%}
    select
        date,
        '{{ fact }}' as fact,
        {# For an engine that reports only the parts of its input, hours have their sum: the books have no row to compare it with. -#}
        sum(case when level = '{{ 'model_hourly' if fact == 'input_tokens' else 'books' }}' then {{ fact }} end) as books
        {%- for step in steps %},
        sum(case when level = '{{ step }}' then {{ fact }} end) as {{ step }}
        {%- endfor %}
    from levels
    group by date
    {% if not loop.last %}union all{% endif %}
    {% endfor %}

)

select
    date,
    case
        when (books is distinct from model_hourly) then 'model_hourly'
        when (books is distinct from model_daily) then 'model_daily'
        else 'fleet_daily'
    end as table_name,
    'sum of ' || fact as row_key,
    cast(case
        when (books is distinct from model_hourly) then model_hourly
        when (books is distinct from model_daily) then model_daily
        else fleet_daily
    end as double) as found,
    fact as unit,
    coalesce(cast(books as {{ dbt.type_string() }}), 'none') || ' in the book' as expected
from facts
where books is distinct from model_hourly
    or books is distinct from model_daily
    or books is distinct from fleet_daily
