"""What is worth a trial, in words: which deployment, which size or power limit, why, for how long, what decides.

Add here a sentence about an experiment. Keep out what is recommended with a saving (`advice_figures`), and how long a
trial takes (`pipelines.analysis.trials`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from pipelines.report.figures import Row
from pipelines.report.markup import named, number
from pipelines.report.sentences import counted, percent

TRY_IT = "try_it"
WHAT_TO_TRY = "Try {deployment} with {trial}"
WHY_LIMIT = "In the last 28 dates no board of its kind had another limit: nothing shows what a lower one does"
LEAST_DAYS = 7
WHY_COPY = "As it is, half of the GPUs do not hold it"
CACHE = "trial_kv_bytes_per_token"
WHY = "Only the data sheet's memory bandwidth shows that it may be enough"
NO_OBJECTIVE, NOT_SHOWN = "no_latency_objective", "latency_not_shown"
NOT_TESTED = "no_load_was_too_much"


def of(found: Sequence[Row]) -> list[Row]:
    """The rows that are only to be tried."""
    return [row for row in found if row["kind"] == TRY_IT]


def size(row: Row) -> str:
    """The size or limit to try, against today's: `engines on 4 GPUs instead of 8`."""
    if row["trial_power_limit_watts"] is not None:
        now = number(row["current_power_limit_watts"], 0)
        return f"a power limit of {number(row['trial_power_limit_watts'], 0)} W instead of {now}"
    if row["trial_precision"] is not None:
        gpus, now = row["trial_gpus_per_replica"], number(row["current_gpus_per_replica"], 0)
        return f"a copy in {row['trial_precision']} on {counted(round(gpus), 'GPU')} an engine instead of {now}"
    if row["trial_gpus_per_replica"] is None or row["trial_replicas"] is None:
        return "a smaller size"
    if row["trial_gpus_per_replica"] != row["current_gpus_per_replica"]:
        now = number(row["current_gpus_per_replica"], 0)
        return f"engines on {counted(round(row['trial_gpus_per_replica']), 'GPU')} instead of {now}"
    return f"{counted(round(row['trial_replicas']), 'engine')} instead of {number(row['current_replicas'], 0)}"


def steps(found: Sequence[Row]) -> str:
    """The trials as HTML, below the changes; nothing without any."""
    rows = of(found)
    if not rows:
        return ""
    items = "".join(f"<li><b>{_what(row)}</b>. {_why(row)} {_how(row)}</li>" for row in rows)
    return f"<p>{sentence(found).strip()}</p><ul>{items}</ul>"


def sentence(found: Sequence[Row]) -> str:
    """How many sizes may be tried, after another sentence; nothing without any."""
    limits = sum(row["trial_power_limit_watts"] is not None for row in of(found))
    sizes = len(of(found)) - limits
    named_counts = [counted(sizes, "smaller size")] if sizes else []
    named_counts += [counted(limits, "lower power limit")] if limits else []
    return f" {' and '.join(named_counts)} may be tried; no saving of it is counted." if named_counts else ""


def _what(row: Row) -> str:
    return WHAT_TO_TRY.format(deployment=named(row["deployment"]), trial=size(row))


def _why(row: Row) -> str:
    facts = json.loads(row["evidence"] or "{}")
    if row["trial_power_limit_watts"] is not None:
        felt, limit = facts.get("limited_token_ratio"), number(row["trial_power_limit_watts"], 0)
        share = "" if felt is None else f" It draws more than {limit} W at loads with {percent(felt)} of its tokens."
        return f"{WHY_LIMIT}.{share}"
    if row["trial_precision"] is not None:
        weights, cache = (number(row[name], unit) for name, unit in (("trial_weights_gib", 1), (CACHE, 0)))
        return (
            f"{WHY_COPY}: its weights take {weights} GiB then, and the KV cache {cache} bytes a token, which has room"
            " for as many tokens as are known to be needed. No telemetry shows whether its answers are good enough:"
            " compare them first."
        )
    if row["reason_code"] in (NO_OBJECTIVE, NOT_SHOWN):
        return _why_pace(row, facts)
    if row["reason_code"] == NOT_TESTED:
        more = number(100 / row["trial_replicas"], 0)
        return (
            "Its engines share the load, and no load was seen to be too much: nothing shows how much one serves. Each"
            f" of those left has {more} % more."
        )
    low, high = (row[f"capacity_{end}_tokens_per_second"] for end in ("low", "high"))
    asked = facts.get("demand_tokens_per_second_p99")
    why = f"{WHY}."
    if low is not None:
        why += (
            f" In proportion to the GPUs, the best load of its own engines is {number(low, 2)} tokens a second on that"
        )
        why += f" size, and their own rates allow at most {number(high, 2)}." if high is not None else " size."
    if asked is not None:
        why += f" In 99 % of the intervals it is asked for up to {number(asked, 2)}."
    waited = facts.get("queued_intervals")
    if waited:
        why += f" Requests waited in {counted(round(waited), 'interval')} with the GPUs of today."
    return why


def _why_pace(row: Row, facts: dict[str, float]) -> str:
    """Its capacity is enough; a request may wait too long for its tokens."""
    enough = "In proportion to the GPUs, the best load of its own engines is enough on that size"
    if row["trial_gpus_per_replica"] is None or not row["current_gpus_per_replica"]:
        return f"{enough}. How fast a request is served there is not known."
    ratio = row["trial_gpus_per_replica"] / row["current_gpus_per_replica"]
    slower = f"{enough}, but each token of a request takes {number(1 / ratio, 1)} times as long"
    if row["reason_code"] == NO_OBJECTIVE:
        return (
            f"{slower}. The fleet file states no objective for that: state tpot_seconds in the slo of the model"
            f" {named(row['model'])}, the seconds that a token may take."
        )
    seconds, pace = facts.get("tpot_slo_seconds"), facts.get("busiest_request_tokens_per_second")
    if seconds is None or pace is None:
        return f"{slower}, and how fast a request is served now is not known."
    return (
        f"{slower}. When most was asked for, a running request had {number(pace, 2)} tokens a second, which leaves"
        f" {number(pace * ratio, 2)}; the model's objective (tpot_seconds {number(seconds, 3)}) asks for"
        f" {number(1 / seconds, 2)}."
    )


def _how(row: Row) -> str:
    if row["trial_power_limit_watts"] is not None:
        days = number(row["trial_days"] or LEAST_DAYS, 0)
        return (
            f"Set it on all boards of one engine for {days} days, or on all engines if there is one. The intervals with"
            " requests decide, compared at the same load: the next run computes what it saved. Keep it if requests"
            " wait in at most 1 % of them and the first token comes in time."
        )
    if row["reason_code"] == NOT_TESTED:
        return (
            "Send one of them no requests for a day, a busy one, and leave it running. Watch the requests that wait,"
            " preemptions, and the time to the first token and per token. Stop, and send it its part again, as soon as"
            " a request is preempted, misses the model's objective, or waits in more than 1 % of the intervals of an"
            " hour. If the day holds, the next run has a higher load that was served: follow its advice."
        )
    to = row["move_to_node"]
    where = "beside it" if to is None else f"on {named(to)}"
    beside = (
        f"It is the only engine: start the smaller one {where}, and send it all requests."
        if row["current_replicas"] == 1
        else "Let one part of the requests go to that size."
    )
    if to is not None:
        beside += f" Other advice empties {named(to)}: hand that node back only after the trial."
    days = "for a week" if row["trial_days"] is None else f"for {number(row['trial_days'], 0)} days"
    low = row["capacity_low_tokens_per_second"]
    is_pace = row["reason_code"] in (NO_OBJECTIVE, NOT_SHOWN)
    above = "with requests" if low is None or is_pace else f"with more than {number(low, 2)} tokens a second"
    in_time = "the first token comes in time"
    if is_pace:
        in_time += ", and so do the others"
    return (
        f"{beside} Run it {days}. The intervals {above} decide: keep it if requests wait in at most 1 % of them,"
        f" none is preempted, and {in_time}."
        + (
            ""
            if to is None
            else f" Then hand back {named(row['move_frees_node'])} instead of {named(to)}:"
            f" {counted(round(row['move_frees_gpus']), 'GPU')} more."
        )
    )
