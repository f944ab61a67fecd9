-- An engine that falls silent while its board is metered, or whose board does while it goes on: what is left compares
-- nothing, and no total shows it. From four intervals on: at a start, an end and a change of models an interval or two
-- are on one side alone.
with energy as (
    select engine, model, date, sum(energy_joules) as joules, sum(unknown_joules) as unknown_joules,
        count(distinct interval_start_at) filter (unknown_joules > 0) as intervals
    from marts.energy_ledger join run_days using (date) where model <> '__unknown__' group by engine, model, date
),
tokens as (
    select engine, model, date, sum(tokens) as tokens, sum(tokens) filter (not is_matched) as unmatched_tokens,
        count(distinct interval_start_at) filter (not is_matched) as intervals, count(distinct interval_start_at) as all_intervals,
        max_by(coalesce(unmatched_reason, 'board_without_energy'), tokens) filter (not is_matched) as unmatched_reason
    from marts.token_ledger join run_days using (date)
    where has_power and token_class in ('input', 'output') group by engine, model, date
),
found as (
    select engine, model, date, 'energy without tokens' as what, round(unknown_joules / 3.6e6, 3) as amount, 'kWh' as unit,
        round(unknown_joules / joules, 3) as ratio, null as reason
    from energy semi join tokens using (engine, model, date) where unknown_joules > 0.1 * joules and intervals > 3
    union all
    select engine, model, date, 'tokens without energy', unmatched_tokens, 'tokens', round(intervals / all_intervals, 3), unmatched_reason
    from tokens where intervals > 0.1 * all_intervals and intervals > 3 and unmatched_tokens > 0
)
select * from found order by ratio desc, engine, date
