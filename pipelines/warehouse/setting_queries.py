"""Which rows of the fleet file, the grid and the seeds count on a date: one query per setting, for `settings`.

Each gives (date, setting, text of a row) for the dates of the temp table setting_dates (date, start_us, end_us), of
the names in raw.booked_names, which are those that the date's book has. Validity is cut to the date: a rate that ends
in December and one without an end give the same text for October. Add a query here when a new table affects a date's
rows: budgets do not, as every run makes budget_monthly anew. Keep out comparing (`settings`).
"""

from __future__ import annotations

# Seeds of which a row counts where and when it is valid; the others count whole, on every date.
DATED_SEEDS = frozenset({"cost_rates", "grid_factors", "grid_zones"})
# No date is booked with these: scenario_results is of no fleet, and a run makes it anew when they change.
UNDATED_SEEDS = frozenset({"scenarios", "scenario_sensitivities"})


def _named(kind: str, on: str) -> str:
    """Joins a table to the dates that name it."""
    return f"join raw.booked_names as named on named.kind = '{kind}' and {on} join setting_dates as dates using (date)"


# Of a UTC date at a site, the first and the last local date.
_FIRST = "cast(make_timestamptz(start_us) at time zone sites.time_zone as date)"
_LAST = "cast(make_timestamptz(end_us - 1) at time zone sites.time_zone as date)"
_NEVER = "date '9999-01-01'"
_NEVER_US = 9_000_000_000_000_000_000

OF_FLEET = {
    "sources": f"""
        select date, 'sources', cast((source, interval_seconds, tokens_complete, site) as varchar)
            || coalesce(' ' || metric_prefix, '') || case when temporality = 'delta' then ' delta' else '' end
        from fleet.sources {_named("source", "named.name = source")}
        union all
        select date, 'sources', cast((source, names, entry, label) as varchar)
        from fleet.tenant_labels {_named("source", "named.name = source")}
    """,
    # A fleet's only site is also the site of everything that neither a node nor a source places.
    "sites": f"""
        select date, 'sites', cast((site, zone, time_zone, pue, wue_litres_per_kwh,
            cooling_share_of_overhead) as varchar)
        from fleet.sites {_named("site", "named.name = site")}
        union all
        select distinct date, 'sites', 'only ' || (select min(site) from fleet.sites having count(*) = 1)
        from fleet.sources {_named("source", "named.name = source")} where site is null
    """,
    "tariffs": f"""
        select dates.date, 'tariffs', cast((
            site, greatest(valid_from, {_FIRST}), least(coalesce(valid_to, {_NEVER}), {_LAST} + 1),
            local_hour_from, local_hour_to, usd_per_kwh) as varchar)
        from fleet.tariffs join fleet.sites as sites using (site)
        {_named("site", "named.name = site")}
        where valid_from <= {_LAST} and coalesce(valid_to, {_NEVER}) > {_FIRST}
    """,
    "site_charges": f"""
        select dates.date, 'site_charges', cast((
            site, part, usd, provisioned_kw, interval_minutes, device_type,
            greatest(valid_from, {_FIRST}), least(coalesce(valid_to, {_NEVER}), {_LAST} + 1)) as varchar)
        from fleet.site_charges join fleet.sites as sites using (site)
        {_named("site", "named.name = site")}
        where valid_from <= {_LAST} and coalesce(valid_to, {_NEVER}) > {_FIRST}
    """,
    "commitments": f"""
        select dates.date, 'commitments', cast((
            commitment, site, device_type, commitments.gpus, usd_per_gpu_hour,
            greatest(valid_from, {_FIRST}), least(coalesce(valid_to, {_NEVER}), {_LAST} + 1)) as varchar)
        from fleet.commitments join fleet.sites as sites using (site)
        {_named("site", "named.name = site")}
        where valid_from <= {_LAST} and coalesce(valid_to, {_NEVER}) > {_FIRST}
    """,
    # Which of a site's contracts is used first matters, so its place among them counts.
    "energy_contracts": f"""
        select dates.date, 'energy_contracts', cast((
            row_number() over (partition by dates.date, site order by entry), contract, site, matching, gco2e_per_kwh,
            is_renewable, share_ratio, mwh_per_year, local_hour_from, local_hour_to,
            greatest(valid_from, {_FIRST}), least(coalesce(valid_to, {_NEVER}), {_LAST} + 1)) as varchar)
        from fleet.energy_contracts join fleet.sites as sites using (site)
        {_named("site", "named.name = site")}
        where valid_from <= {_LAST} and coalesce(valid_to, {_NEVER}) > {_FIRST}
    """,
    "residual_mixes": f"""
        select dates.date, 'residual_mixes', cast((
            site, gco2e_per_kwh, greatest(valid_from, {_FIRST}), least(coalesce(valid_to, {_NEVER}), {_LAST} + 1))
            as varchar)
        from fleet.residual_mixes join fleet.sites as sites using (site)
        {_named("site", "named.name = site")}
        where valid_from <= {_LAST} and coalesce(valid_to, {_NEVER}) > {_FIRST}
    """,
    # As int_spot_hours: an open price ends where the next one begins.
    "spot_rates": f"""
        with stated as (
            select *, epoch_us(start_at) as from_us, coalesce(epoch_us(end_at), lead(epoch_us(start_at)) over (
                partition by site, device_type order by start_at), {_NEVER_US}) as until_us
            from fleet.spot_rates
        )
        select dates.date, 'spot_rates', cast((
            site, device_type, gpus, usd_per_gpu_hour, greatest(from_us, start_us), least(until_us, end_us)) as varchar)
        from stated {_named("site", "named.name = site")}
        where from_us < end_us and until_us > start_us
    """,
    # By site, not by node: a node of which nothing is metered is not named in the book.
    "node_gpus": f"""
        select dates.date, 'node_gpus', cast((
            node, site, device_type, node_gpus.gpus,
            greatest(valid_from, {_FIRST}), least(coalesce(valid_to, {_NEVER}), {_LAST} + 1)) as varchar)
        from fleet.node_gpus join fleet.sites as sites using (site)
        {_named("site", "named.name = site")}
        where valid_from <= {_LAST} and coalesce(valid_to, {_NEVER}) > {_FIRST}
    """,
    "nodes": f"""
        select distinct date, 'nodes', cast((node, site, rack, device_type, host_watts, alias) as varchar)
        from fleet.nodes left join fleet.node_aliases using (node)
        {_named("node", "named.name in (node, alias)")}
    """,
    "devices": f"""
        select date, 'devices', cast((device_uuid, node, device_type) as varchar)
        from fleet.devices {_named("device", "named.name = device_uuid")}
    """,
    "device_types": f"""
        select distinct date, 'device_types', cast((
            device_type, gpus, memory_gib, memory_bandwidth_gb_per_second, power_limit_watts, idle_watts_bare,
            idle_watts_loaded, embodied_kgco2e, embodied_life_years, alias) as varchar)
        from fleet.device_types join fleet.device_type_aliases using (device_type)
        {_named("device_type", "named.name in (device_type, alias)")}
    """,
    "models": f"""
        select distinct date, 'models', cast((
            alias, model, ttft_slo_seconds, tpot_slo_seconds, list_price_source, list_price_name) as varchar)
        from fleet.models join fleet.model_aliases using (model)
        {_named("model", "named.name in (model, alias)")}
    """,
    # Of several entries that fit an engine the first one counts, so their order matters only there.
    "engines": f"""
        select date, 'engines', cast((named.name, model, deployment, team, role, node) as varchar)
        from fleet.engines
        {_named("engine", "(named.name = engine or is_prefix and starts_with(named.name, engine))")}
        qualify row_number() over (partition by date, named.name order by entry) = 1
        union all
        select distinct date, 'engines', cast((pod, is_prefix, engine, deployment, team, role) as varchar)
        from fleet.engine_pods
        {_named("engine", "(named.name in (engine, pod) or is_prefix and starts_with(named.name, pod))")}
        union all
        select distinct date, 'engines', cast((target, engine) as varchar)
        from fleet.engine_targets {_named("engine", "named.name in (engine, target)")}
    """,
    "teams": f"""
        select date, 'teams', cast((namespace, team) as varchar)
        from fleet.teams {_named("namespace", "named.name = namespace")}
    """,
    # A place with an assignment at some time is unallocated, not unknown, at all others: so it counts on every date.
    "assignments": f"""
        with stated as (
            select *, if(device_uuid is null, 'node', 'device') as kind, coalesce(device_uuid, node) as name,
                epoch_us(start_at) as from_us, coalesce(epoch_us(end_at), {_NEVER_US}) as until_us
            from fleet.assignments
        ),
        placed as (
            select date, stated.*, greatest(from_us, start_us) as first_us, least(until_us, end_us) as last_us
            from stated join raw.booked_names using (kind, name) join setting_dates using (date)
        )
        select distinct date, 'assignments', cast((device_uuid, node) as varchar) from placed
        union all
        select date, 'assignments', cast((
            device_uuid, node, engine, model, deployment, namespace, team, role, first_us, last_us) as varchar)
        from placed where first_us < last_us
    """,
    "run_windows": """
        select dates.date, 'run_windows', cast((
            window_id, node, engine, model, epoch_us(start_at), epoch_us(end_at), output_tokens,
            total_tokens) as varchar)
        from raw.run_windows join setting_dates as dates on epoch_us(start_at) < end_us and epoch_us(end_at) > start_us
    """,
    # A month that is not over is made anew every night. For an earlier one the last date that a bill has in it is
    # enough: whichever of its dates is booked again, the whole month is made anew.
    "bills": f"""
        select dates.date, 'bills', cast((site, bills.kind, epoch_us(start_at), epoch_us(end_at), usd) as varchar)
        from raw.bills {_named("site", "named.name = site")}
        where epoch_us(start_at) < end_us and epoch_us(end_at) > start_us
            and (epoch_us(end_at) <= end_us or dates.date = last_day(dates.date))
    """,
    "grid": f"""
        select date, 'grid', cast((
            zone, epoch_us(start_at), direct_gco2e_per_kwh, lifecycle_gco2e_per_kwh, marginal_gco2e_per_kwh,
            is_estimated, source) as varchar)
        from (select *, cast(start_at as date) as date from raw.grid_intensity)
        join (select distinct date, zone from fleet.sites {_named("site", "named.name = site")}) using (date, zone)
    """,
    "prices": f"""
        select dates.date, 'prices', cast((
            source, model, provider, input_usd_per_mtok, cached_input_usd_per_mtok, output_usd_per_mtok,
            as_of) as varchar)
        from raw.model_prices
        join (
            select source, valid_from,
                coalesce(lead(valid_from) over (partition by source order by valid_from), {_NEVER}) as until
            from (select distinct source, valid_from from raw.model_prices)
        ) using (source, valid_from)
        join setting_dates as dates on dates.date >= valid_from and dates.date < until
    """,
}

# As int_cost_rates and int_carbon_factors choose: an open rate ends where the next one begins.
WITH_SEED = {
    "cost_rates": f"""
        with stated as (
            select device_type, includes, usd_per_gpu_hour, price_usd_per_gpu, residual_value_usd_per_gpu, life_years,
                cost_of_capital_ratio, valid_from, valid_to
            from fleet.cost_rates
            union all
            select device_type, includes, usd_per_gpu_hour, null, null, null, null, valid_from, null
            from reference.cost_rates
            where device_type not in (select device_type from fleet.cost_rates)
        ),
        rates as (
            select *, coalesce(
                valid_to, lead(valid_from) over (partition by device_type order by valid_from), {_NEVER}) as until
            from stated
        ),
        -- A rate holds by the local date of each site: UTC's own where there is none.
        local_dates as (
            select date, min(first_local) as first_local, max(last_local) as last_local
            from (
                select dates.date, {_FIRST} as first_local, {_LAST} as last_local
                from fleet.sites as sites {_named("site", "named.name = site")}
                union all
                select date, date, date from setting_dates
            )
            group by date
        )
        select dates.date, 'cost_rates', cast((
            device_type, includes, usd_per_gpu_hour, price_usd_per_gpu, residual_value_usd_per_gpu, life_years,
            cost_of_capital_ratio,
            case when valid_from > first_local then valid_from end,
            case when until <= last_local then until end) as varchar)
        from rates {_named("device_type", "named.name = device_type")}
        join local_dates on dates.date = local_dates.date
        where valid_from <= last_local and until > first_local
    """,
    "grid_factors": f"""
        with factors as (
            select *, coalesce(
                valid_to, lead(valid_from) over (partition by zone order by valid_from), {_NEVER}) as until
            from reference.grid_factors
        ),
        zones as (
            select distinct date, zone from fleet.sites {_named("site", "named.name = site")}
        ),
        wider as (
            select zone, zone as of_zone from (select distinct zone from zones)
            union all
            select zone, wider_zone from reference.grid_zones
        )
        select date, 'grid_factors', cast((
            zones.zone, of_zone, direct_gco2e_per_kwh, lifecycle_gco2e_per_kwh, basis, source) as varchar)
        from zones join wider using (zone) join factors on factors.zone = of_zone
        where date >= valid_from and date < until
    """,
}
