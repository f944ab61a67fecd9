-- Figures of published dates that the publication under way changes, each with its reason: what changed of the date's
-- settings, and what landed for it since the publication before. $1 publication, $2 now, $3 dates that are not
-- compared.
with classes (reason, figures, settings) as (
    values
    ('method', ['cost', 'cost at the bill''s price', 'electricity', 'CO2e'], ['method_version']),
    ('price', ['cost', 'cost at the bill''s price'], ['tariffs', 'site_charges', 'commitments', 'cost_rates', 'spot_rates']),
    ('bill', ['cost at the bill''s price'], ['bills']),
    ('factor', ['CO2e', 'carbon_price'], ['grid', 'grid_factors', 'energy_contracts', 'residual_mixes']),
    ('fleet file', ['cost', 'cost at the bill''s price', 'electricity', 'CO2e'], [
        'assignments', 'devices', 'device_types', 'engines', 'grid_seconds', 'limits.tokens_per_second', 'max_spread_days',
        'models', 'node_gpus', 'nodes', 'sites', 'sources', 'teams'])
),
changes as (
    select
        date, month, site, model, figure, part,
        before.amount as before_amount,
        after.amount as after_amount
    from figures_before as before full join figures_after as after using (date, month, site, model, figure, part)
    where date in (select date from figures_before)
        and not list_contains($3::date[], date)
        -- Amounts that are shared out may differ in their last digits.
        and before.amount is distinct from after.amount
        and coalesce(abs(after.amount - before.amount) >= 0.000001, coalesce(after.amount, before.amount) <> 0)
        -- What is known for the first time restates nothing.
        and (before.amount is not null or (date, site, model, figure) not in (
            select (date, site, model, figure) from figures_before where amount is null))
        and (figure <> 'cost at the bill''s price' or (before.amount is not null and after.amount is not null))
),
changed_settings as (
    select now.date, now.setting
    from warehouse.raw.booked_with as now
    join warehouse.raw.published_with as published using (date, setting)
    where now.value <> published.value
),
landed as (
    select distinct cast(unnest(range(date_trunc('day', window_start_at), window_end_at, interval 1 day)) as date) as date
    from warehouse.raw.landings
    where outcome = 'landed'
        and asset in ('raw/telemetry', 'raw/requests')
        and landed_at > (select max(published_at) from target.published.publication)
),
reasons as (
    select date, reason, figures from changed_settings join classes on list_contains(classes.settings, changed_settings.setting)
    union
    select date, 'method', ['cost', 'cost at the bill''s price', 'electricity', 'CO2e']
    from changed_settings
    where starts_with(setting, 'seed ')
    union
    select date, 'late data', ['cost', 'cost at the bill''s price', 'electricity', 'CO2e'] from landed
),
named as (
    select
        changes.*,
        (
            select string_agg(distinct reasons.reason, ', ' order by reasons.reason)
            from reasons
            where reasons.date = changes.date
                and (list_contains(reasons.figures, changes.figure) or list_contains(reasons.figures, changes.part))
        ) as reason
    from changes
)
select
    $1 as publication_id,
    $2::timestamptz as restated_at,
    month,
    date,
    site,
    model,
    figure,
    nullif(part, '') as part,
    case figure when 'electricity' then 'kWh' when 'CO2e' then 'kg' else 'USD' end as unit,
    before_amount as before,
    after_amount as after,
    coalesce(after_amount, 0) - coalesce(before_amount, 0) as change,
    coalesce(
        reason,
        case when part = 'demand_charge' then 'peak of the month' end,
        -- A counter's difference is also of the dates beside those that landed: of a month at most.
        case when exists (select 1 from landed where abs(landed.date - named.date) <= 31) then 'late data' end,
        -- A month's fee, or its peak, changes dates that were not booked again themselves.
        (
            select string_agg(distinct reasons.reason, ', ' order by reasons.reason)
            from reasons
            where date_trunc('month', reasons.date) = named.month and list_contains(reasons.figures, named.figure)
        ),
        -- Newer code alone changes no figure, unless its method does.
        case when date in (select changed_settings.date from changed_settings where setting in ('formulas', 'columns')) then 'method' end,
        'not known'
    ) as reason
from named
order by all
