"""Hours of the local week without requests: which of them are a habit and not chance, and what sleeping saves; and what
sleeping after so many idle seconds would have saved.

Add here what depends on the hour of the week, or on how long a gap is. Keep out how hours are counted (SQL) and what is
recommended (`right_sizing`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

WEEK = 168
LEAST_SEEN_RATIO = 0.5  # of the weeks, in which an hour of the week was seen
CHANCE = 0.05  # with which hours idle at random would have shown such a window somewhere in the week
LEAST_SAVING_RATIO = 0.05  # of a deployment's energy, below which sleep is not worth a recommendation
COLD_START_SECONDS = 300.0  # where the fleet file does not state it
SLEEP_AFTER_SECONDS = (60, 300, 900, 1800, 3600)  # what is replayed: a minute to an hour
LOADING_POWER_RATIO = 0.3  # of the power limit, while weights are loaded: bound by storage
MOST_WAITING_RATIO = 0.01  # of the requests, that may wait for a start, where the fleet file does not state it
# Columns of `Waiting`.
WAITING = ("waiting_requests_ratio_low", "waiting_requests_ratio_high", "waiting_tokens_ratio")


class Asked(NamedTuple):
    """What was asked of a deployment: `tokens` by interval, `finished_requests` by hour. NaN: not known."""

    tokens: np.ndarray
    finished_requests: np.ndarray


class Waiting(NamedTuple):
    """Shares of what was asked that would have waited for a start: of the requests, at least and at most (NaN: they
    are not counted), and of the tokens, at most."""

    requests_low: float
    requests_high: float
    tokens: float

    @property
    def most(self) -> float:
        """What decides: the upper end of the requests; that of the tokens, where no requests are counted."""
        return self.tokens if np.isnan(self.requests_high) else self.requests_high


def parked_watts(usage: pd.DataFrame) -> pd.Series:
    """Parked watts of one GPU, never more than the mean that was measured."""
    return np.minimum(usage["parked_watts_per_gpu"].astype(float), usage["mean_watts"].astype(float) / usage["gpus"])


def bare_watts(usage: pd.DataFrame) -> pd.Series:
    """Watts of one GPU that is on without a model. A meter of more than the board has no such reference."""
    return usage["idle_watts_bare"].astype(float).where(usage["meter_scope"] == "board")


def with_break_even(usage: pd.DataFrame) -> pd.DataFrame:
    """`usage` with what unloading a model is about, per GPU: `parking_watts_per_gpu` (parked less those of a board
    without a model), `cold_start_seconds` by `cold_start_basis`, `loading_joules_per_gpu` and `break_even_seconds`, the
    idle time after which starting again has paid for itself; NaN where it never does, or is not known."""
    stated = usage["cold_start_seconds"].astype(float) > 0
    start = usage["cold_start_seconds"].astype(float).where(stated, COLD_START_SECONDS)
    loading = LOADING_POWER_RATIO * usage["power_limit_watts"].astype(float) * start
    parking = parked_watts(usage) - bare_watts(usage)
    return usage.assign(
        parking_watts_per_gpu=parking,
        cold_start_seconds=start,
        cold_start_basis=np.where(stated, "fleet_file", "assumed"),
        loading_joules_per_gpu=loading,
        break_even_seconds=(loading / parking).where(parking > 0),
    )


def sleepers(usage: pd.DataFrame) -> pd.DataFrame:
    """Deployments that would save by sleeping, by row of `usage`, `with_break_even`. Two replicas or more that the
    fleet file asks for are asked for at night, too."""
    made = with_break_even(usage)
    return made[(made["busy_intervals"] > 0) & ~(made["min_replicas"] > 1) & made["break_even_seconds"].notna()]


def windows(asleep: pd.DataFrame, hours: pd.DataFrame, weeks: str, idle_weeks: str) -> pd.DataFrame:
    """One row per hour to sleep through: `usage`, `slot`, `window`, and `window_hours`, the length of its window.

    A window is an unbroken run of hours that were idle each time that they were seen, in half of the weeks at least.
    It has to outlast starting and its break-even time, and what was seen has to be a habit: hours idle at random
    (`random_idle_ratio`) would show such a run in fewer than CHANCE of the cases. All windows of a deployment together
    have to save LEAST_SAVING_RATIO of its energy. `hours` has one row per `usage` and
    `slot` (0-167 of the local week): on how many dates it was seen, and on how many of them it was idle.
    """
    rows = []
    for number, own in hours[hours["usage"].isin(asleep.index)].groupby("usage"):
        seen, idle = np.zeros(WEEK), np.zeros(WEEK)
        seen[own["slot"].to_numpy(int)] = own[weeks].to_numpy(float)
        idle[own["slot"].to_numpy(int)] = own[idle_weeks].to_numpy(float)
        least = max(round(LEAST_SEEN_RATIO * seen.sum() / WEEK), 1)
        one = asleep.loc[number]
        chance = random_idle_ratio(seen, idle)
        for start, length in idle_runs((idle == seen) & (seen >= least)):
            slots = np.arange(start, start + length) % WEEK
            is_long = length * 3600 > one["cold_start_seconds"] + one["break_even_seconds"]
            if is_long and WEEK / length * chance ** seen[slots].sum() < CHANCE:
                rows.append(pd.DataFrame({"usage": number, "slot": slots, "window": start, "window_hours": length}))
    nothing = pd.DataFrame({"usage": [], "slot": [], "window": [], "window_hours": []}, dtype=int)
    found = pd.concat([nothing, *rows], ignore_index=True)
    saved = saved_watts(asleep, found)["saved_watts"]
    worth = saved.index[saved >= LEAST_SAVING_RATIO * asleep["mean_watts"].reindex(saved.index)]
    return found[found["usage"].isin(worth)].reset_index(drop=True)


def random_idle_ratio(seen: np.ndarray, idle: np.ndarray) -> float:
    """How often hours are idle by chance, from the hours that worked in some week; never more than all hours were.

    Hours that were idle each time are what is assessed: a model that works eight hours of the week, always the
    same, idles by habit and not in 160 of 168 cases by chance. Leaving them out hides what chance made of them, so the
    ratio is the one under which hours that worked at least once would be idle as often as these were. Hours that were
    seen once cannot show it.
    """
    overall = float(idle.sum() / max(seen.sum(), 1.0))
    n, k = (times[(idle < seen) & (seen >= 2)] for times in (seen, idle))
    if not len(n):
        return overall
    low, high = 0.0, 1.0
    for _ in range(50):
        ratio = (low + high) / 2
        expected = (n * ratio * (1 - ratio ** (n - 1)) / (1 - ratio**n)).sum()
        low, high = (ratio, high) if expected < k.sum() else (low, ratio)
    return min(high, overall)


def saved_watts(asleep: pd.DataFrame, found: pd.DataFrame) -> pd.DataFrame:
    """Per deployment (index) of the windows found: `idle_hours_per_week` and, as a mean over the week, `saved_watts` of
    all its GPUs: from the end of work until a start in time for the window's end, less the joules of loading."""
    each = found.drop_duplicates(["usage", "window"]).groupby("usage")["window_hours"].agg(["sum", "count"])
    one = asleep.loc[each.index]
    asleep_seconds = each["sum"] * 3600 - each["count"] * one["cold_start_seconds"]
    joules = asleep_seconds * one["parking_watts_per_gpu"] - each["count"] * one["loading_joules_per_gpu"]
    watts = joules * one["gpus"] / (WEEK * 3600)
    return pd.DataFrame({"idle_hours_per_week": each["sum"].astype(float), "saved_watts": watts})


def idle_runs(idle: np.ndarray) -> list[tuple[int, int]]:
    """(First hour, length) of the unbroken runs of true hours; the week is a ring."""
    if idle.all():
        return [(0, len(idle))]
    first = int(np.argmin(idle))  # a busy hour
    turned = np.roll(idle, -first)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], turned, [False]]).astype(int)))
    runs = zip(edges[::2], edges[1::2], strict=True)
    return [(int(start + first) % len(idle), int(end - start)) for start, end in runs]


def gaps(idle: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lengths, in intervals, of the unbroken runs of 1 in a row of the grid, and the interval after each."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], idle == 1, [0]]).astype(np.int8)))
    return edges[1::2] - edges[::2], edges[1::2]


def waiting(
    idle: np.ndarray, asked: Asked, interval_seconds: int, after_seconds: float, start_seconds: float
) -> Waiting:
    """Who would have waited for a start of `start_seconds`, had the model slept after `after_seconds` of idleness.

    A gap ends in an interval in which a first request came, at any time of it, and what came until the start was over
    waited, too: what ended in that interval and in those of `start_seconds` after it. Requests are counted by the hour:
    of each start at least one waits, at most all that ended in the hours of these intervals. Of a gap that telemetry
    ends it is not known what came.
    """
    lengths, ends = gaps(idle)
    ends = ends[(lengths * interval_seconds > after_seconds) & (np.append(idle, -1)[ends] == 0)]
    span = 1 + int(np.ceil(start_seconds / interval_seconds))
    is_waiting = np.convolve(np.bincount(ends, minlength=len(idle)), np.ones(span))[: len(idle)] > 0
    tokens = np.nan_to_num(asked.tokens)
    hour = np.arange(len(idle)) * interval_seconds // 3600
    requests = asked.finished_requests
    all_requests = requests.sum(where=~np.isnan(requests)) or np.nan
    if np.isnan(requests[hour[idle == 0]]).any():
        all_requests = np.nan
    high = float(np.nansum(requests[np.unique(hour[is_waiting])]) / all_requests)
    all_tokens = tokens.sum() or np.nan
    return Waiting(min(float(len(ends) / all_requests), high), high, float(tokens[is_waiting].sum() / all_tokens))


def after(usage: pd.DataFrame, idle: np.ndarray, asked: Asked, interval_seconds: int) -> pd.DataFrame:
    """What sleeping after so many idle seconds would have saved: a row per deployment (`usage`, `with_break_even`, and
    `refusal`: why it cannot be assessed) and number of SLEEP_AFTER_SECONDS that the grid's intervals can show.

    A gap is counted from its first to its last interval without a token; one that ends before the lookback does, or in
    intervals that are not known, ends with a wake-up. NaN where a deployment is refused. Columns: `usage`,
    `sleep_after_seconds`, `known_hours`, `asleep_hours`, `wakes`, `waiting_ratio`, WAITING of `asked` (deployments ×
    intervals and hours), `saved_watts` of all its GPUs.
    """
    rows = []
    for number, one in usage.iterrows():
        lengths, ends = gaps(idle[number])
        own = Asked(asked.tokens[number], asked.finished_requests[number])
        seconds = float(np.count_nonzero(idle[number] >= 0) * interval_seconds)
        is_known = one["refusal"] is None and seconds > 0
        for after_seconds in SLEEP_AFTER_SECONDS:
            if after_seconds < interval_seconds:
                continue
            slept = lengths * float(interval_seconds) - after_seconds
            asleep, wakes = (
                float(slept[slept > 0].sum()),
                int(np.count_nonzero((ends < len(idle[number])) & (slept > 0))),
            )
            joules = asleep * one["parking_watts_per_gpu"] - wakes * one["loading_joules_per_gpu"]
            made = (
                (
                    *(seconds / 3600, asleep / 3600, wakes, wakes * one["cold_start_seconds"] / seconds),
                    *waiting(idle[number], own, interval_seconds, after_seconds, one["cold_start_seconds"]),
                )
                if is_known
                else (np.nan,) * 7
            )
            rows.append((number, after_seconds, *made, joules * one["gpus"] / seconds if is_known else np.nan))
    columns = ["usage", "sleep_after_seconds", "known_hours", "asleep_hours", "wakes", "waiting_ratio"]
    return pd.DataFrame(rows, columns=[*columns, *WAITING, "saved_watts"])
