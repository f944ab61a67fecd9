-- What the newest publication that changed published figures changed, by month, figure and reason.
select
    month,
    figure,
    unit,
    reason,
    min(date) as first_date,
    max(date) as last_date,
    count(distinct date) as dates,
    sum(before) as before,
    sum(after) as after,
    sum(change) as change,
    max(restated_at) as restated_at
from finance.restatements
where publication_id = (select max_by(publication_id, restated_at) from finance.restatements)
group by month, figure, unit, reason
order by month desc, figure, abs(sum(change)) desc, reason
