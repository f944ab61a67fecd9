-- What of each bill falls into a span of time.

{# USD that a bill has accumulated up to a moment, evenly over its time. The parts of a bill are differences of this
   rounded line, so they add up to the bill however it is cut. #}
{% macro billed_up_to(us) -%}
    {{ money('bills.usd * ((' ~ us ~ ' - bills.start_us) / cast(bills.end_us - bills.start_us as double))') }}
{%- endmacro %}

{# Of spans (a CTE with `keys`, site, start_us, end_us) and bills (a CTE): what was billed in each per kind, `billed_us`
   of its time, and whether a bill is also of other time. Bills of one time are added; its time counts once, and a
   credit alone does not make it billed. #}
{% macro billed_in(spans, keys) %}
    select
        {{ keys | join(',\n        ') }},
        kind,
        {{ money_sum('usd') }} as billed_usd,
        sum(new_us) as billed_us,
        max(is_prorated) = 1 as is_prorated
    from (
        select
            *,
            case
                when is_credit = 0
                    then greatest(0, piece_end_us - greatest(piece_start_us, coalesce(
                        max(case when is_credit = 0 then piece_end_us end) over (
                            partition by {{ keys | join(', ') }}, kind
                            order by piece_start_us, piece_end_us, is_credit, usd
                            rows between unbounded preceding and 1 preceding
                        ),
                        piece_start_us
                    )))
                else 0
            end as new_us
        from (
            select
                {{ columns_of('spans', keys) }},
                bills.kind,
                greatest(spans.start_us, bills.start_us) as piece_start_us,
                least(spans.end_us, bills.end_us) as piece_end_us,
                case when bills.usd < 0 then 1 else 0 end as is_credit,
                case when bills.start_us < spans.start_us or bills.end_us > spans.end_us then 1 else 0 end as is_prorated,
                {{ billed_up_to('least(spans.end_us, bills.end_us)') }}
                    - {{ billed_up_to('greatest(spans.start_us, bills.start_us)') }} as usd
            from {{ spans }} as spans
            inner join bills on spans.site = bills.site and bills.start_us < spans.end_us and bills.end_us > spans.start_us
        ) as cut
    ) as counted
    group by {{ keys | join(', ') }}, kind
{% endmacro %}
