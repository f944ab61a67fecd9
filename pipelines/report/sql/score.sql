-- What became of advice: what was followed or withdrawn, the newest first, then what is open.
select *
from finance.advice_score
order by outcome = 'open', coalesce(changed_on, last_advised_on) desc, deployment, advice nulls last
