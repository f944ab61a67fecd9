-- What the next publication adjusts in cost, of closed months: one row per month, row of cost and the open month that gets it.
with known as (

    {{ known_costs() }}

),

closings as (

    {{ active_closings() }}

),

frozen as (

    {{ frozen_rows('closed_costs', cost_names()) }}

),

{{ due_adjustments('adjustments', cost_names()) }}

select * from final
