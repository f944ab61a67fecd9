-- Words that the book uses in more than one model.

{% macro unallocated() %}'__unallocated__'{% endmacro %}
{% macro unknown() %}'__unknown__'{% endmacro %}
{% macro remainder() %}'__remainder__'{% endmacro %}
{% macro unused_commitment() %}'__unused_commitment__'{% endmacro %}
{# Accelerators that a node has and no meter shows. #}
{% macro unmetered() %}'__unmetered__'{% endmacro %}
{# Rows of cost_daily that are no model's: they have no tokens and no tenant. #}
{% macro beside_the_models() %}{{ remainder() }}, {{ unused_commitment() }}, {{ unmetered() }}{% endmacro %}
{% macro unattributed() %}'__unattributed__'{% endmacro %}
{% macro no_requests() %}'__no_requests__'{% endmacro %}

{# A name as a source uses it. Names that begin with two underscores are the book's own (above), so a source's are
   written in double quotes: a model served as `__base__` is `"__base__"`. A name's entry in the fleet file is looked up
   before. #}
{% macro name_of_source(name) %}case when substr({{ name }}, 1, 2) = '__' then '"' || {{ name }} || '"' else {{ name }} end{% endmacro %}

{# A board cannot draw more than this; what implies more is a glitch of the counter, not energy. #}
{% macro possible_power_factor() %}1.5{% endmacro %}
{# An exporter shows what it read last: dcgm-exporter reads a board's counter every 30 s, and scraped every 15 s it repeats
   a value and then rises by twice what the board draws. So a rise is assessed over this long at least, and over all the
   time that the counter had not moved, up to the least standstill. #}
{% macro least_assessed_us() %}{{ return(60000000) }}{% endmacro %}
{# A board's stated limit may be too low: on a date on which the board draws more nearly all the time, up to this many
   times the limit is accepted. Steps over midnight always use the higher limit, because the book of one date must not
   depend on the verdict of the other. #}
{% macro doubted_limit_factor() %}2{% endmacro %}
{% macro accepted_watts(possible_watts, is_doubted, start_us, end_us) -%}
    {{ possible_watts }} * case
        when {{ is_doubted }} or {{ int_div(start_us, day_us()) }} <> {{ int_div(end_us, day_us()) }} then {{ doubted_limit_factor() }}
        else 1
    end
{%- endmacro %}
{# What a working board cannot show. It draws more than half of what it draws idle and empty (`idle_watts_bare`), and its
   counter moves. A standstill under ten minutes is left alone: exporters answer with what they read last, and ten
   minutes are less than a hundredth of a date. Cells are the five minutes in which power and work are compared. #}
{% macro least_standstill_us() %}{{ return(600000000) }}{% endmacro %}
{% macro suspect_cell_us() %}{{ return(300000000) }}{% endmacro %}
{# The least bare idle of the seed, for boards of which none is known. #}
{% macro least_idle_watts() %}10{% endmacro %}
{# The utilisation from which on a board is awake: far above what a driver's own queries show. #}
{% macro awake_activity_ratio() %}0.1{% endmacro %}

{# Watts above which a sample of this scope is rejected where no limit is known: a sentinel, or milliwatts read as
   watts. Far above what existed in 2026: a board of 2 kW, a socket of 0.5, a node of 15 (140 where a whole rack is one
   host), a rack of 140, a site of 1 GW. #}
{% macro ceiling_watts(scope) -%}
    case {{ scope }} when 'board' then 3e4 when 'module' then 5e3 when 'node' then 1e6 when 'rack' then 3e6 else 3e9 end
{%- endmacro %}
{# Tokens that one engine's counter can rise by in a second: a step above it is a broken counter, and is not booked. 2
   million is ten times what the largest racks of 2026 were measured to serve. #}
{% macro most_tokens_per_second() %}cast({{ var('most_tokens_per_second') }} as double){% endmacro %}
{# Whether a counter rose by more between two moments than an engine can count. #}
{% macro is_above_token_limit(risen, from_us, to_us) -%}
    ({{ risen }} > {{ most_tokens_per_second() }} * (({{ to_us }}) - ({{ from_us }})) / 1e6)
{%- endmacro %}
{# The most that a sample of a gauge can mean; above it, it is a sentinel. A ratio: twice the whole, for exporters
   round; requests and bytes: far more than an engine or a board has. #}
{% macro is_believed_gauge(quantity, value) -%}
({{ value }} <= case
            when {{ quantity }} in ('activity', 'kv_cache_usage') then 2
            when {{ quantity }} in ('requests_running', 'requests_waiting', 'preemptions') then 1e12
            when {{ quantity }} in ('requests_finished', 'requests_aborted') then 1e12
            else 1e15
        end)
{%- endmacro %}
{% macro gap_cap_intervals() %}3{% endmacro %}
{# A number as text, rounded. #}
{% macro rounded_text(value, digits=0) -%}
    {%- set rounded = 'round(cast(' ~ value ~ ' as double), ' ~ digits ~ ')' -%}
    cast({{ rounded if digits else 'cast(' ~ rounded ~ ' as bigint)' }} as {{ dbt.type_string() }})
{%- endmacro %}

{# How long the samples of a reading may be apart before it is silent, in microseconds: three of its sampling intervals
   (the larger of the measured and the stated one), but never less than 15 s, because a logger that writes five times a
   second pauses for a second or two and goes on. `otherwise`: the interval in seconds where neither is known. #}
{% macro gap_cap_us(interval_seconds, otherwise=0) -%}
    greatest({{ gap_cap_intervals() }}e6 * coalesce({{ interval_seconds }}, {{ otherwise }}), 15e6)
{%- endmacro %}

{# Host (CPU, DRAM) over accelerator energy where nothing is measured or stated: 0.06 Wh over 0.14 Wh, arXiv 2508.15734
   (2025). #}
{% macro host_energy_ratio() %}0.43{% endmacro %}

{# Joules of a host beside one board. It draws most of its power whether the board works or waits: 0.2 of the board's power
   limit at all times, and so much more with the board's own watts that it reaches that ratio at the limit. 0.2 is an
   assumption. A waiting node of 8 × H200 draws 2,350 W (MLPerf Inference 4.1, entry 4.1-0049), its boards 8 × 82 to 130 W
   (docs/measured.md): 0.23 to 0.30 of their 700 W. A node of 8 × H100 at full load draws 8.5 kW (arXiv 2412.08602), 0.5 of
   its boards' limit beside them. Servers with fewer switches and network cards draw less. #}
{% macro assumed_host_joules() -%}
    0.2 * device_types.power_limit_watts * booked.covered_us / 1e6
    + ({{ host_energy_ratio() }} - 0.2) * cast(booked.energy_joules as double)
{%- endmacro %}

{# Whether a node meter shows less than its boards beyond both errors (± 1 and ± 5 %, seed meter_errors). #}
{% macro is_below_its_boards() %}node_watts * 1.01 < boards_watts * 0.95{% endmacro %}

{# Whether a name equals an entry of the fleet file, or begins with it where the entry is a prefix. #}
{% macro fits(name, pattern, is_prefix) %}
    case when {{ is_prefix }} then substring({{ name }}, 1, length({{ pattern }})) = {{ pattern }} else {{ name }} = {{ pattern }} end
{% endmacro %}

{# Pods of one DaemonSet have one name but for five characters at its end: `ops/dcgm-exporter` of dcgm-exporter-x7k2q.
   #}
{% macro daemon_set(namespace, pod) -%}
    coalesce({{ namespace }}, '') || '/' || regexp_extract({{ pod }}, '^(.*?)(-[a-z0-9]{5})?$', 1)
{%- endmacro %}

{# `moonshotai/Kimi-K2.5` and `together_ai/moonshotai/kimi-k2.5` are one model: the prefixes name the provider. #}
{% macro name_behind_prefixes(name) %}lower(regexp_extract({{ name }}, '([^/]+)$', 1)){% endmacro %}

{# `0`, `card0`, `nvidia1`: the number of a board in its host, of which every host has one. #}
{% macro is_bare_index(value) %}regexp_extract({{ value }}, '^(card|nvidia|gpu|accel)?[0-9]{1,3}$', 0) <> ''{% endmacro %}
{# What exporters write where a board has no serial number or UUID. #}
{% macro is_no_identity(value) %}lower({{ value }}) in ('n/a', '[n/a]', '[not supported]', 'unknown', 'none', 'null'){% endmacro %}

{# Whether watts are no less than half and no more than twice the type's reference. The reference is a board's; what other
   meters read may hold several, and hosts. #}
{% macro is_like_its_type(watts, of) -%}
    (
            {{ of }}.meter_scope <> 'board'
            or device_types.idle_watts_loaded is null
            or {{ watts }} between 0.5 * device_types.idle_watts_loaded and 2 * device_types.idle_watts_loaded
        ) and {{ watts }} is not null
{%- endmacro %}
