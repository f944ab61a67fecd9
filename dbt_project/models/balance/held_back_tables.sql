-- Tables over several dates, or without dates, that break an invariant, with the evidence. Built after all these
-- tables.
{{ config(replaces='all', post_hook='{{ hold_back_tables() }}') }}

with broken as (

    {{ broken_rows({
        'days_add_up_to_months':
            'The month is not the sum of its hours: run again; if it stays, keep the warehouse and report it with these rows.',
        'phases_add_up_to_productive_energy':
            'A phase lost joules: keep the warehouse and report it with these rows.',
        'tables_have_one_row_per_key':
            'A join doubled or lost rows: keep the warehouse and report it with these rows.'
    }) }}

),

final as (

    select
        invariant,
        table_name,
        row_number,
        row_key,
        found,
        unit,
        expected,
        remedy,
        broken_rows
    from broken
    where row_number <= 5

)

select * from final
