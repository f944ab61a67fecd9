-- Two meters of one device tell the same energy within 5 %, or one of them is wrong. A warning: the book stands on the better one.
{{ config(severity='warn', meta={'expected': 'at most 5 % between the two meters', 'remedy': 'compare both readings of this meter with what the board reports itself (nvidia-smi); a wrong one can be left out by the source\'s matchers'}) }}

select
    date,
    meter_scope,
    meter,
    source,
    metric,
    metered_joules,
    cross_check_source,
    cross_check_joules,
    cross_check_ratio
from {{ ref('reconciliation_daily') }}
where {{ in_run('date') }} and abs(cross_check_ratio) > 0.05
