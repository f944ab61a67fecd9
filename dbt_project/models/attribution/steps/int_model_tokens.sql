-- What each engine moved that shares a board or serves several models at once, weighed as output tokens of its own: one
-- row per date, engine, model and interval with tokens; `model` is NULL where the engine serves one. Without tokens in an
-- interval, models of an engine share it as they share the date: a LoRA that is seldom asked for is not charged half of
-- the waiting.
{% set ends = ['low', 'middle', 'high'] %}

with weights as (

    select * from {{ ref('int_token_weights') }} where is_shared

),

-- What another engine is booked with is no work of this one.
token_intervals as (

    select
        one.date,
        one.engine,
        one.model,
        one.interval_number,
        one.token_class,
        one.tokens - coalesce(handed_over.handed_tokens, 0) as tokens
    from {{ ref('int_token_intervals') }} as one
    left join {{ ref('int_handed_over_tokens') }} as handed_over
        on {{ equal_keys('one', 'handed_over', ['date', 'engine', 'model', 'interval_number', 'token_class']) }}

),

counted as (

    select
        token_intervals.date,
        token_intervals.engine,
        case when weights.models_of_engine > 1 then token_intervals.model end as model,
        token_intervals.interval_number,
        {% for token_class in ['output', 'input', 'computed_input'] -%}
        {{ exact_sum("case when token_intervals.token_class = '" ~ token_class ~ "' then token_intervals.tokens else 0 end") }}
        as {{ token_class }}_tokens,
        {% endfor -%}
        max(case when token_intervals.token_class = 'computed_input' then 1 else 0 end) = 1 as is_computed_known
    from token_intervals
    inner join weights on token_intervals.date = weights.date and token_intervals.engine = weights.engine
    group by
        token_intervals.date,
        token_intervals.engine,
        case when weights.models_of_engine > 1 then token_intervals.model end,
        token_intervals.interval_number

),

-- As in int_engine_intervals: some engines count all input, some only what they computed of it. Where only all input is
-- counted, caches may have had it all.
by_class as (

    select
        *,
        case when is_computed_known then computed_input_tokens else input_tokens end as computed_tokens,
        case when is_computed_known then greatest(input_tokens - computed_input_tokens, 0) else 0 end as cached_tokens,
        output_tokens + greatest(input_tokens, computed_input_tokens) as moved_tokens
    from counted

),

weighed as (

    select
        by_class.date,
        by_class.engine,
        by_class.model,
        by_class.interval_number,
        by_class.moved_tokens,
        {% for end in ends -%}
        {% set computed = 'by_class.computed_tokens' if end != 'low' else
            'case when by_class.is_computed_known then 1e0 else ' ~ cached_of_computed() ~ ' end * by_class.computed_tokens' -%}
        {{ exact(
            'by_class.output_tokens + weights.energy_weight_' ~ end ~ ' * (' ~ computed
            ~ ' + ' ~ cached_of_computed() ~ ' * by_class.cached_tokens)'
        ) }} as energy_tokens_{{ end }},
        {% endfor -%}
        {{ exact(
            'by_class.output_tokens + weights.time_weight * (by_class.computed_tokens + '
            ~ cached_of_computed() ~ ' * by_class.cached_tokens)'
        ) }} as time_tokens
    from by_class
    inner join weights on by_class.date = weights.date and by_class.engine = weights.engine

),

final as (

    select
        *,
        sum(energy_tokens_middle) over (partition by date, engine, model) as energy_tokens_of_date
    from weighed

)

select * from final
