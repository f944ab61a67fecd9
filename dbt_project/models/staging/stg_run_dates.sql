-- The UTC dates that this run books.
with final as (

    select
        {{ date_of_us('day_number * ' ~ day_us()) }} as date,
        day_number * {{ day_us() }} as start_us,
        (day_number + 1) * {{ day_us() }} as end_us
    from (
        select {{ integers_between(int_div(run_start_us(), day_us()), int_div(run_end_us(), day_us()) ~ ' - 1') }} as day_number
    ) as days

)

select * from final
