-- Dates of the run that break an invariant, with the evidence. Built after all marts by date, and before the models
-- that sum over dates. A balance that fails for single meters or engines holds nothing back (int_failed_entities).
{{ config(post_hook='{{ hold_back_dates() }}') }}

with broken as (

    {{ broken_rows({
        'accounts_add_up_to_energy':
            'A formula lost joules between accounts: keep the warehouse and report it with these rows.',
        'tokens_are_where_their_energy_is':
            'The tokens of this engine were shared wrongly over its boards: keep the warehouse and report it with these rows.',
        'matched_intervals_are_whole':
            'Joules per token count an interval that lacks a board or tokens: keep the warehouse and report it with these rows.',
        'shares_add_up_to_the_meter':
            'A meter was shared wrongly between its claimants: keep the warehouse and report it with these rows.',
        'hours_add_up_to_days':
            'A step from the book to the fleet lost or doubled rows: keep the warehouse and report it with these rows.',
        'idle_power_adds_up_to_the_ledger':
            'idle_power lost or doubled joules: keep the warehouse and report it with these rows.',
        'dates_have_one_row_per_key':
            'A join doubled or lost rows: keep the warehouse and report it with these rows.'
    }) }}

),

failed_entities as (

    select * from {{ ref('int_failed_entities') }}

),

held_back as (

    select date from broken
    union
    select date from failed_entities where is_held_back

),

{% set evidence = [
    'date', 'invariant', 'table_name', 'row_number', 'row_key', 'found', 'unit', 'expected', 'remedy', 'broken_rows'
] %}

evidence as (

    select {{ evidence | join(', ') }} from broken
    union all
    select {{ columns_of('failed_entities', evidence) }}
    from failed_entities
    inner join held_back on failed_entities.date = held_back.date

),

final as (

    select
        date,
        invariant,
        table_name,
        row_number,
        row_key,
        found,
        unit,
        expected,
        remedy,
        broken_rows
    from evidence
    where row_number <= 5

)

select * from final
