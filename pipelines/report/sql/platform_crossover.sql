-- Where the cheapest platform changes as users ask for more speed: all results, prices of hyperscalers, the newest models.
select
    model, precision, compared_input_length_tokens as input_tokens, compared_output_length_tokens as output_tokens,
    from_platform, to_platform, at_output_tokens_per_second_per_user,
    at_output_tokens_per_second_per_user_low as low, at_output_tokens_per_second_per_user_high as high,
    from_usd_per_mtok, to_usd_per_mtok, has_nearby_points
from marts.platform_crossover
where kind = 'interactivity' and is_change_of_leader and selection = 'all' and ownership = 'hyperscaler'
order by model, precision, input_tokens, output_tokens, at_output_tokens_per_second_per_user
