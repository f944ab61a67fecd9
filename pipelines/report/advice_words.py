"""One piece of advice in words: what to do, why, and how to go about it.

Add here the sentence of a kind of advice. Keep out amounts (`advice_figures`) and experiments (`trial_steps`).
"""

from __future__ import annotations

from pipelines.analysis import lookback
from pipelines.report import trial_steps
from pipelines.report.figures import Row
from pipelines.report.markup import named, number
from pipelines.report.sentences import counted

# What to do, and how; {deployment}, {now}, {then} and the like are filled in.
WHAT_TO_DO = {
    "spin_down": ("Stop {deployment}", "It served no token from {since} to {until}."),
    "fewer_replicas": (
        "Run fewer engines of {deployment}: {then} GPUs instead of {now}",
        "They carry all demand seen from {since} to {until}.",
    ),
    "fewer_gpus": (
        "Run {deployment} on {then} GPUs instead of {now}",
        "Fewer GPUs per engine carry all demand seen from {since} to {until}.",
    ),
    "smaller_device": (
        "Move {deployment} to {device}",
        "A smaller accelerator carries all demand seen from {since} to {until}.",
    ),
    "newer_device": ("Move {deployment} to {device}", "It takes fewer joules there."),
    "power_cap": ("Lower the power limit of {deployment} to {watts} W", "It worked under that limit before."),
    "sleep_outside_hours": ("Unload {deployment} in the hours without requests", "The same hours were idle each week."),
    "sleep_when_idle": ("Unload {deployment} whenever it is idle for long", "Its gaps are longer than a reload costs."),
    "colocate": ("Let {deployment} share accelerators with {others}", "Their loads fit together."),
    "move": ("Move {deployment} as it is to {node}", "It needs no more than that smaller node has."),
    trial_steps.TRY_IT: (trial_steps.WHAT_TO_TRY, f"{trial_steps.WHY}."),
    "keep": ("Leave {deployment} as it is", "{reason}."),
    "insufficient_data": ("No advice for {deployment}", "{reason}."),
}
NEXT_STEP = {
    "high": "Do it now.",
    "medium": "Do it for one engine first, and look at its waiting requests for a day.",
    "low": "Try it before you rely on it: run one engine that way for a week and compare with its SLO.",
}
# Where there is no other engine that serves meanwhile.
ONE_ENGINE = {
    "medium": "It is the only engine: change it when few requests come, and look at its waiting requests for a day.",
    "low": "Try it before you rely on it. It is the only engine: start the new one beside it and compare with its SLO.",
}
# What a size rests on where no load was measured on it.
THEORY = {
    "scaled_by_bandwidth": "computed from the best of today's engines and the memory bandwidth, not measured",
    "published_benchmark": "by a published benchmark, not measured here",
}


def what_to_do(row: Row) -> str:
    """The change as a sentence without its full stop, as HTML."""
    return WHAT_TO_DO[row["kind"]][0].format(**_filled(row))


def why(row: Row) -> str:
    """Why, as a sentence, as HTML."""
    reason = WHAT_TO_DO[row["kind"]][1].format(**_filled(row))
    theory = THEORY.get(row["evidence_basis"])
    return (f"{reason.removesuffix('.')}: {theory}." if theory else reason) + _moved(row)


def _moved(row: Row) -> str:
    """Where its engines start, and what that frees; empty where they stay on their node."""
    if row["move_to_node"] is None:
        return ""
    to, left = named(row["move_to_node"]), named(row["move_frees_node"])
    more = counted(round(row["move_frees_gpus"]), "GPU")
    return f" Start it on {to} once that is empty, and hand back {left} instead: {more} more."


def next_step(row: Row) -> str:
    """How to go about it, by the confidence of the advice."""
    steps = NEXT_STEP | ONE_ENGINE if row["current_replicas"] == 1 else NEXT_STEP
    return steps.get(row["confidence"], "")


def _filled(row: Row) -> dict[str, str]:
    return {
        "deployment": named(row["deployment"]),
        "now": number(row["current_gpus"], 0),
        "then": number(row["recommended_gpus"], 0),
        "device": named(row["recommended_device_type"] or "another accelerator"),
        "watts": number(row["recommended_power_limit_watts"], 0),
        "node": named(row["move_to_node"] or "a smaller node"),
        "others": named(row["shares_with"] or "others"),
        "since": f"{row['lookback_start_at']:%Y-%m-%d}",
        "until": f"{row['as_of_date']:%Y-%m-%d}",
        "trial": trial_steps.size(row),
        "reason": lookback.words(row["reason_code"]).capitalize(),
    }
