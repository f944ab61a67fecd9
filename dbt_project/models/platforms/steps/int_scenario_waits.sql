-- How often a request of each scenario waits for a server: one row per scenario, varied input and value. Erlang's
-- formula, from the inverse of its loss: 1 + c/a + c (c − 1)/a² + …, for c servers of which the load keeps a busy.
{# scenario_results alone reads it. #}
{{ config(materialized='view' if target.type == 'duckdb' else 'table') }}

with inputs as (

    select * from {{ ref('int_scenario_inputs') }}

),

server_numbers as (

    select {{ integers_between(1, 1000) }} as server_number

),

loss_terms as (

    select
        inputs.scenario,
        inputs.varied_input,
        inputs.varied_value,
        exp(least(
            sum(ln((inputs.servers - server_numbers.server_number + 1) / inputs.offered_servers)) over (
                partition by inputs.scenario, inputs.varied_input, inputs.varied_value
                order by server_numbers.server_number
            ),
            700
        )) as term
    from inputs
    inner join server_numbers on server_numbers.server_number <= inputs.servers
    where inputs.offered_servers > 0

),

losses as (

    select
        scenario,
        varied_input,
        varied_value,
        1 / (1 + sum(term)) as loss_ratio
    from loss_terms
    group by scenario, varied_input, varied_value

),

final as (

    select
        inputs.scenario,
        inputs.varied_input,
        inputs.varied_value,
        case
            when inputs.offered_servers = 0 and inputs.servers is not null then cast(0 as double)
            when inputs.offered_servers < inputs.servers
                then losses.loss_ratio / (1 - inputs.offered_servers / inputs.servers * (1 - losses.loss_ratio))
        end as waiting_ratio
    from inputs
    left join losses on {{ same_variant('inputs', 'losses') }}

)

select * from final
