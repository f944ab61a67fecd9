-- What the next publication adjusts in chargeback, of closed months: one row per month, row of chargeback and the open month that gets it.
with known as (

    {{ known_chargebacks() }}

),

closings as (

    {{ active_closings() }}

),

frozen as (

    {{ frozen_rows('closed_chargebacks', chargeback_names()) }}

),

{{ due_adjustments('chargeback_adjustments', chargeback_names()) }}

select * from final
