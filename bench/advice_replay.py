"""What following advice would have led to: the same requests on the recommended size, beside those on today's.

Add here a kind of change, with what is done to engines and requests. Keep out the engine itself (`served_load`), which
advice was given and how it is counted (`advice`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bench.served_fleet import COLD_START_SECONDS, DAY, FIRST_TOKEN_SECONDS, Deployment
from bench.served_load import Requests, Served, serve
from bench.served_telemetry import ATTAINMENT_RATIO

INTERVAL_SECONDS = 300
WAIT_SECONDS = 5.0  # for a place in the batch, from which a request counts as one that waited
HURT_RATIO = 0.01  # share of the intervals, beyond that without the change, from which a change hurt
WEEK_HOURS = 168
LOADING_RATIO = 0.3  # of the power limit that a board takes while weights are loaded


@dataclass(frozen=True)
class Change:
    """A size to run instead; 0 replicas: none. `asleep`: hours of the week (0: Monday 0:00) without an engine."""

    replicas: int
    boards: int
    asleep: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Month:
    """What a span was like: share of its intervals in which a request waited, and in which too few kept the SLO (NaN:
    there is none); joules of the boards; median seconds per token of an answer."""

    waiting_ratio: float
    late_ratio: float
    joules: float
    token_seconds: float

    def hurts(self, before: Month) -> tuple[bool, bool]:
        """Whether this is worse than `before`: by waiting, by the SLO."""
        return (
            self.waiting_ratio - before.waiting_ratio > HURT_RATIO,
            self.late_ratio - before.late_ratio > HURT_RATIO,
        )


class Replays:
    """Deployments on any size, with the requests from `first_day` to `days`. `served` is what is known of each today;
    what was replayed once is kept."""

    def __init__(self, served: dict[str, list[Served]], first_day: int, days: int, monday_day: int) -> None:
        self.served, self.first_day, self.days, self.monday_day = served, first_day, days, monday_day
        self._replayed: dict[tuple[str, Change], list[Served]] = {}

    def month(self, one: Deployment, change: Change | None, first_day: int, last_day: int) -> Month:
        """The days [first_day, last_day) with a change, or as they were."""
        span = first_day * DAY, last_day * DAY
        if change is None:
            return month_of(self.served[one.name], one.slo_seconds, *span)
        idle_joules = (one.boards - change.replicas * change.boards) * one.engine.bare_watts * (span[1] - span[0])
        if not change.replicas:
            return _refused(one.requests.between(*span), *span, idle_joules)
        requests = one.requests.between(self.first_day * DAY, self.days * DAY)
        if (one.name, change) not in self._replayed:
            self._replayed[one.name, change] = self._serve(one, change, requests)
        found = month_of(self._replayed[one.name, change], one.slo_seconds, *span, came=requests.arrived_at)
        return replace(found, joules=found.joules + idle_joules - self._asleep_joules(one, change, first_day, last_day))

    def _serve(self, one: Deployment, change: Change, requests: Requests) -> list[Served]:
        woken = requests._replace(arrived_at=self._woken(requests.arrived_at, change.asleep))
        sampled_at = np.arange(0, self.days + 1) * DAY
        return [serve(one.engine.on(change.boards), part, sampled_at) for part in woken.dealt(change.replicas)]

    def _slot(self, seconds: np.ndarray) -> np.ndarray:
        """Hour of the week of a moment."""
        return ((seconds // 3600).astype(int) - self.monday_day * 24) % WEEK_HOURS

    def _woken(self, arrived_at: np.ndarray, asleep: frozenset[int]) -> np.ndarray:
        """When an engine is there for a request: at the end of the hours asleep in which it arrives."""
        if not asleep:
            return arrived_at
        ends = np.zeros(WEEK_HOURS)  # hours until an engine is there, from the start of an hour of the week
        for slot in asleep:
            hours = 0
            while (slot + hours) % WEEK_HOURS in asleep:
                hours += 1
            ends[slot] = hours
        hours = ends[self._slot(arrived_at)]
        return np.where(hours > 0, (arrived_at // 3600 + hours) * 3600, arrived_at)

    def _asleep_joules(self, one: Deployment, change: Change, first_day: int, last_day: int) -> float:
        """What boards take less in hours asleep: bare instead of parked, but for the weights loaded at the end."""
        hours = np.arange(first_day * 24, last_day * 24)
        is_asleep = np.isin(self._slot(hours * 3600.0), list(change.asleep))
        starts = int((is_asleep & ~np.append(is_asleep[1:], False)).sum())
        engine = one.engine
        parked = (engine.parked_watts - engine.bare_watts) * is_asleep.sum() * 3600
        loading = (LOADING_RATIO * engine.limit_watts - engine.bare_watts) * starts * COLD_START_SECONDS
        return float(one.boards * (parked - loading))


def month_of(
    served: list[Served], slo_seconds: float, first: float, last: float, *, came: np.ndarray | None = None
) -> Month:
    """What the seconds [first, last) were like for the requests that came in them, on all replicas together. `came`:
    when all requests came, where an engine was there for some of them only later.

    An interval counts as waiting where a request that came in it waited WAIT_SECONDS for its first place, or never had
    one; as late where more than 1 − ATTAINMENT_RATIO of its requests broke the SLO.
    """
    names = ("started_at", "first_token_at", "finished_at")
    there = np.concatenate([one.requests.arrived_at for one in served])
    order = np.argsort(there, kind="stable")  # who comes while no engine is there is not overtaken
    came = there[order] if came is None else came
    chosen = slice(*np.searchsorted(came, [first, last]))
    came = came[chosen]
    started, first_token, finished = (
        np.concatenate([getattr(one, name) for one in served])[order][chosen] for name in names
    )
    output = np.concatenate([one.requests.output for one in served])[order][chosen]
    intervals = round((last - first) / INTERVAL_SECONDS)
    number = ((came - first) // INTERVAL_SECONDS).astype(int)
    each = (finished - first_token) / output
    waited = ~(started - came <= WAIT_SECONDS)
    late = ~((first_token - came <= FIRST_TOKEN_SECONDS) & (each <= slo_seconds))
    counts = np.bincount(number, minlength=intervals)
    is_late = np.bincount(number, late, intervals) > (1 - ATTAINMENT_RATIO) * np.maximum(counts, 1)
    return Month(
        waiting_ratio=float((np.bincount(number, waited, intervals) > 0).mean()),
        late_ratio=np.nan if np.isnan(slo_seconds) else float(is_late.mean()),
        joules=sum(float(np.diff(np.interp([first, last], one.sampled_at, one.joules))[0]) for one in served),
        token_seconds=float(np.nanmedian(each)) if len(each) else np.nan,
    )


def _refused(requests: Requests, first: float, last: float, joules: float) -> Month:
    """No engine is there: each interval with a request is one in which a request waits."""
    intervals = round((last - first) / INTERVAL_SECONDS)
    number = ((requests.arrived_at - first) // INTERVAL_SECONDS).astype(int)
    ratio = float((np.bincount(number, minlength=intervals) > 0).mean())
    return Month(ratio, ratio, joules, np.nan)
