-- Grams of CO2e by standard: what several models compute the same way.

{# Manufacture, spread evenly over the device's life (four years, unless the fleet file states another): ISO/IEC 21031's
   M = TE × TiR ÷ EL, with a year of 8,766 hours. #}
{% macro embodied_gco2e(gpu_seconds) -%}
    embodied_kgco2e * 1000 * cast({{ gpu_seconds }} as double) / 3600 / (embodied_life_years * 8766)
{%- endmacro %}

{# The days of a local date's year, over which MWh of a year are spread. #}
{% macro days_of_year(local_date) -%}
case
    when extract(year from {{ local_date }}) % 4 <> 0 then 365
    when extract(year from {{ local_date }}) % 100 = 0 and extract(year from {{ local_date }}) % 400 <> 0 then 365
    else 366
end
{%- endmacro %}
