-- Own load tests among the published results for the same model, precision and lengths: the work with the most own results,
-- else the one with the most published ones. Only results that may be compared, each configuration's latest.
with
results as (
    select * from marts.platform_results
    where is_latest and is_comparable and output_tokens_per_second_per_user > 0 and total_tokens_per_second_per_gpu > 0
),

works as (
    select model, precision, compared_input_length_tokens as input_tokens, compared_output_length_tokens as output_tokens
    from results
    group by all
    order by count(*) filter (origin = 'own_window') desc, count(*) desc, model, precision, input_tokens, output_tokens
    limit 1
)

select
    results.model, results.precision, works.input_tokens, works.output_tokens, results.platform,
    results.origin = 'own_window' as is_own, results.result_id, results.measured_on,
    results.output_tokens_per_second_per_user, results.total_tokens_per_second_per_gpu, results.is_on_frontier,
    results.is_on_platform_frontier, results.hyperscaler_usd_per_mtok, results.own_usd_per_mtok,
    results.measured_joules_per_token, results.power_basis, results.source
from results
inner join works
    on results.model = works.model and results.precision is not distinct from works.precision
    and results.compared_input_length_tokens = works.input_tokens
    and results.compared_output_length_tokens = works.output_tokens
where results.is_on_platform_frontier or results.origin = 'own_window'
order by is_own desc, results.platform, results.output_tokens_per_second_per_user
