{{ config(
    severity='warn',
    meta={
        'description':
            'Where the fleet file states a reporting currency, it states a rate of every month that the run booked. '
            ~ 'Without one the amounts of the month are NULL in that currency, and known in USD.',
        'dagster': {'ref': {'name': 'model_monthly'}},
        'expected': 'a rate of the reporting currency for each month with a cost',
        'remedy': 'add the month to reporting_currency.rates of the fleet file: month, and usd_per_unit of it'
    }
) }}

select
    months.month,
    any_value(rates.currency) as currency,
    count(*) as rows_without_a_rate
from {{ ref('model_monthly') }} as months
cross join (select distinct currency from {{ source('fleet', 'currency_rates') }}) as rates
where {{ in_run_months('months.month') }}
    and months.month not in (select month from {{ source('fleet', 'currency_rates') }})
group by months.month
