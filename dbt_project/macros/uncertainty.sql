-- How unsure a figure is, by the GUM (JCGM 100:2008): what a part adds, and how parts are combined. Used by
-- energy_evidence_daily, figure_intervals and run_windows; docs/method.md has the formulas and their sources.

{# Variance, in J², that sampling adds to the part of a segment from one sample of a gauge to the next: half the square
   of their difference × the part's share of the segment. Over n steps of equal length this is the standard error
   √(½·mean(Δ²)/n) of the mean, times the time. A counter misses nothing between two readings. `of`: where the columns of
   the segment are from. #}
{% macro sampling_variance(part_us, of='') -%}
    {{ exact_large(
        'coalesce(' ~ of ~ 'slope_watts * ' ~ of ~ 'slope_watts, 0) / 2 * ((' ~ of ~ 'end_us - ' ~ of ~ 'start_us) / 1e6) * (('
        ~ part_us ~ ') / 1e6)'
    ) }}
{%- endmacro %}

{# Standard uncertainty of an error that is equally likely anywhere within ± bound (GUM 4.3.7): bound / √3; here its square. #}
{% macro variance_of_bound(bound) -%}(({{ bound }}) * ({{ bound }}) / 3){%- endmacro %}

{# Half the width of a 95 % interval: so many standard uncertainties, and never more than all errors at their bounds
   together (`bounds`, with what sampling adds). Of one bound alone 1.96 × a / √3 is 1.13 × a, wider than it can err. #}
{% macro half_width(standard_uncertainty, bounds, sampling_uncertainty) -%}
    case
        when {{ standard_uncertainty }} is not null
            then least(
                {{ coverage_factor() }} * {{ standard_uncertainty }}, {{ bounds }} + {{ coverage_factor() }} * {{ sampling_uncertainty }}
            )
    end
{%- endmacro %}

{# A variance as a part of the square of its value, in decimals, whose sums do not depend on the order of their parts.
   Of eighteen places the last may differ between engines, and is nothing beside any part. The greatest that there may be
   is far beyond any interval: it keeps a sum within the type. #}
{% macro relative_variance(variance, value) -%}
    {%- set part = '((' ~ variance ~ ') / nullif((' ~ value ~ ') * (' ~ value ~ '), 0))' -%}
    cast(case when {{ part }} >= 1e15 then 1e15 else {{ part }} end as decimal(38, 18))
{%- endmacro %}

{# The greatest error as a part of its value, in the same decimals. #}
{% macro relative_bound(bound, value) -%}
    {%- set part = 'abs((' ~ bound ~ ') / nullif(' ~ value ~ ', 0))' -%}
    cast(case when {{ part }} >= 1e15 then 1e15 else {{ part }} end as decimal(38, 18))
{%- endmacro %}

{# Half the width of a 95 % interval of a normal distribution, in standard uncertainties. #}
{% macro coverage_factor() %}1.96{% endmacro %}

{# The keys of a sum over one site or all, one model or all, one meter scope or all (`levels`), and what they group by. #}
{% macro level_groups(table) -%}
    case when levels.is_all_sites then {{ whole_fleet() }} else {{ table }}.site end,
    case when levels.is_all_models then {{ whole_fleet() }} else {{ table }}.model end,
    case when levels.is_all_scopes then {{ whole_fleet() }} else {{ table }}.meter_scope end
{%- endmacro %}
{% macro level_keys(table) -%}
    case when levels.is_all_sites then {{ whole_fleet() }} else {{ table }}.site end as site,
    case when levels.is_all_models then {{ whole_fleet() }} else {{ table }}.model end as model,
    case when levels.is_all_scopes then {{ whole_fleet() }} else {{ table }}.meter_scope end as meter_scope
{%- endmacro %}

{# Intervals of figures beside each other, per month and site, or per month, site and model (`marts_key`): the ends, and
   each end over the figure. #}
{% macro intervals_by(figures, has_model=true) -%}
    select
        month,
        {{ "site || ' | ' || model as marts_key" if has_model else plain_name('site', 'site') ~ ' as site' }},
        {% for figure in figures -%}
        {% for end in ['low', 'high'] -%}
        max(case when figure = '{{ figure }}' then value_{{ end }} end) as {{ figure }}_{{ end }},
        max(case when figure = '{{ figure }}' then {{ ratio('value_' ~ end, 'value') }} end) as {{ figure }}_{{ end }}_ratio,
        {% endfor -%}
        {% endfor -%}
        max(metered_ratio) as metered_ratio
    from {{ ref('figure_intervals') }}
    where meter_scope = {{ whole_fleet() }}
        and site <> {{ whole_fleet() }}
        and model {{ '<>' if has_model else '=' }} {{ whole_fleet() }}
    group by 1, 2
{%- endmacro %}
