-- Published results, each run once: a row whose values another row of the same benchmark and configuration has, too, is
-- that run again, from a file that several entries or a glob name, or from one with fewer columns. Rows that differ in
-- one published value are two runs. One row per benchmark, source, result_id, run_url, measured_on and repetition.
{%- set published = [
    'submitter', 'system', 'accelerator', 'accelerators', 'model', 'architecture', 'precision', 'framework', 'software',
    'scenario', 'configuration',
    'is_disaggregated', 'speculation', 'input_length_tokens', 'output_length_tokens', 'concurrency', 'output_tokens_per_second',
    'total_tokens_per_second', 'total_tokens_per_second_per_gpu', 'output_tokens_per_second_per_user',
    'output_tokens_per_second_per_user_basis',
    'ttft_seconds', 'ttft_p99_seconds', 'tpot_p99_seconds', 'end_to_end_seconds', 'watts', 'watts_basis',
    'result_value', 'result_unit', 'measured_on',
    'run_url'
] %}

with results as (

    select
        *,
        {% for column in published -%}
        case when {{ column }} is null then 0 else 1 end{{ ' + ' if not loop.last }}
        {%- endfor %} as published_values
    from {{ source('raw', 'benchmark_results') }}

),

-- Of equal rows the one that was published last.
unequal as (

    select
        *,
        count(*) over (partition by benchmark, result_id, {{ published | join(', ') }}) as equal_rows
    from results
    qualify row_number() over (
        partition by benchmark, result_id, {{ published | join(', ') }}
        order by as_of desc nulls last, source, file
    ) = 1

),

numbered as (

    select
        *,
        row_number() over (
            partition by benchmark, result_id
            order by published_values desc, {{ published | join(' nulls last, ') }} nulls last
        ) as result_number
    from unequal

),

-- A row with fewer values is the row that has all of these and more; of several such, the fullest.
repeated as (

    select
        narrower.benchmark,
        narrower.result_id,
        narrower.result_number,
        min(wider.result_number) as kept_number
    from numbered as narrower
    inner join numbered as wider
        on narrower.benchmark = wider.benchmark
        and narrower.result_id = wider.result_id
        and narrower.published_values < wider.published_values
        {%- for column in published %}
        and (narrower.{{ column }} is null or narrower.{{ column }} = wider.{{ column }})
        {%- endfor %}
    group by narrower.benchmark, narrower.result_id, narrower.result_number

),

counted as (

    select
        numbered.*,
        repeated.kept_number is null as is_kept,
        sum(numbered.equal_rows) over (
            partition by numbered.benchmark, numbered.result_id, coalesce(repeated.kept_number, numbered.result_number)
        ) as copies
    from numbered
    left join repeated
        on numbered.benchmark = repeated.benchmark
        and numbered.result_id = repeated.result_id
        and numbered.result_number = repeated.result_number

),

ranked as (

    select
        *,
        row_number() over (
            partition by benchmark, source, result_id, run_url, measured_on
            order by
                coalesce(total_tokens_per_second_per_gpu, {{ ratio('total_tokens_per_second', 'accelerators') }}) desc nulls last,
                {{ ratio('output_tokens_per_second', 'accelerators') }} desc nulls last,
                {{ ratio('watts', 'accelerators') }} nulls last,
                result_number
        ) as nth
    from counted
    where is_kept

),

final as (

    select
        benchmark,
        source,
        result_id,
        {{ published | join(',\n        ') }},
        as_of,
        cast(nth as integer) as repetition,
        cast(copies as integer) as copies
    from ranked

)

select * from final
