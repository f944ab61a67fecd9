"""Facts of many series at once, carried from batch to batch: the arithmetic behind `series.SeriesRegister`.

Add here what must be counted sample by sample. Everything is an array with one entry per series ("row"), so that a
batch costs a few passes of numpy however many series it holds. Keep out identity and tables: those are `series`.
"""

from __future__ import annotations

import numpy as np

from collectors.samples import valid

# Steps kept per series for the median: enough that a day at 15 s has 213 of them, spread over the whole day.
STEPS_KEPT = 256
# Medians are taken for so many series at once: the kept steps of a million series would be 2 GB more.
MEDIANS_AT_ONCE = 1 << 14

NEVER = np.iinfo(np.int64).min
ALWAYS = np.iinfo(np.int64).max

RUN = np.dtype([("row", "i8"), ("first_at", "i8"), ("first_value", "f8"), ("last_at", "i8"), ("last_value", "f8")])


class Facts:
    """Arrays with one entry per series, carried from batch to batch; times in microseconds."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.samples = np.zeros(size, np.int64)
        self.falls = np.zeros(size, np.int64)
        self.duplicates = np.zeros(size, np.int64)
        self.out_of_order = np.zeros(size, np.int64)
        self.rejects = np.zeros(size, np.int64)
        self.longest_gap_us = np.zeros(size, np.int64)
        # Per second between consecutive times, of any sign; minus infinity where there are no two.
        self.steepest_rise = np.full(size, -np.inf)
        self.first_seen = np.full(size, ALWAYS)
        self.last_seen = np.full(size, NEVER)
        # The open ascending run. `before_value` is the value one time before the last one (NaN: none) and
        # `before_us` that time's distance: a later row of the last time may still raise that time's value, and with it
        # undo the fall that led there or make its rise steeper.
        self.run_first_at = np.full(size, NEVER)
        self.run_first_value = np.full(size, np.nan)
        self.before_value = np.full(size, np.nan)
        self.before_us = np.ones(size, np.int64)
        self.last_at = np.full(size, NEVER)
        self.last_value = np.full(size, np.nan)
        self.steps = _Steps(size)

    def grow(self, needed: int) -> None:
        """Make room for `needed` series."""
        if needed <= self.size:
            return
        size = max(needed, 2 * self.size, 64)
        more = Facts(size - self.size)
        for name, array in vars(self).items():
            if isinstance(array, np.ndarray):
                setattr(self, name, np.concatenate([array, getattr(more, name)]))
        self.steps.grow(more.steps)
        self.size = size

    def count(self, rows: np.ndarray, starts: np.ndarray, times: np.ndarray, values: np.ndarray) -> list[np.ndarray]:
        """Count the rows of a batch, valid or not; arguments and result as of `advance`."""
        self.first_seen[rows] = np.minimum(self.first_seen[rows], np.minimum.reduceat(times, starts))
        self.last_seen[rows] = np.maximum(self.last_seen[rows], np.maximum.reduceat(times, starts))
        is_valid = valid(values)
        if not is_valid.all():
            self.rejects[rows] += np.add.reduceat(~is_valid, starts, dtype=np.int64)
            rows, starts = regroup(rows, starts, is_valid)
            times, values = times[is_valid], values[is_valid]
            if not len(times):
                return []
        self.samples[rows] += np.diff(starts, append=len(times))
        return self.advance(rows, starts, times, values)

    def open_runs(self, rows: np.ndarray) -> np.ndarray:
        """The ascending runs that have not ended yet, one per series in `rows`."""
        runs = np.empty(len(rows), RUN)
        runs["row"] = rows
        runs["first_at"], runs["first_value"] = self.run_first_at[rows], self.run_first_value[rows]
        runs["last_at"], runs["last_value"] = self.last_at[rows], self.last_value[rows]
        return runs

    def advance(self, rows: np.ndarray, starts: np.ndarray, times: np.ndarray, values: np.ndarray) -> list[np.ndarray]:
        """Carry every series over its rows of this batch; the ascending runs that ended within it come back.

        `rows` (g,) and `starts` (g,) name the series and first position of each group of `times` and `values` (n,).
        """
        is_new = self.last_at[rows] == NEVER
        # A new series begins its first run: a step of -1 that is not counted as out of order.
        steps = np.diff(times, prepend=times[0])
        steps[starts] = np.where(is_new, -1, times[starts] - self.last_at[rows])
        is_repeat = steps == 0
        if is_repeat.any():
            self.duplicates[rows] += np.add.reduceat(is_repeat, starts, dtype=np.int64)
            values = self._merge_repeats(rows, starts, is_repeat, values)
            keep = ~is_repeat
            rows, starts = regroup(rows, starts, keep)
            times, values, steps = times[keep], values[keep], steps[keep]
            if not len(times):
                return []
            is_new = self.last_at[rows] == NEVER

        is_break = steps < 0
        before = np.roll(values, 1)
        before[starts] = self.last_value[rows]
        is_fall = values < before
        is_fall &= ~is_break
        self.falls[rows] += np.add.reduceat(is_fall, starts, dtype=np.int64)
        self.longest_gap_us[rows] = np.maximum(self.longest_gap_us[rows], np.maximum.reduceat(steps, starts))
        ends = np.append(starts[1:], len(times)) - 1
        self.before_value[rows] = np.where(is_break[ends], np.nan, before[ends])
        self.before_us[rows] = steps[ends]
        # In place: a new array of a batch's size costs more than its arithmetic.
        rises = np.subtract(values, before, out=before)
        rises /= steps / 1e6
        rises[is_break] = -np.inf
        self.steepest_rise[rows] = np.maximum(self.steepest_rise[rows], np.maximum.reduceat(rises, starts))

        breaks = np.flatnonzero(is_break)
        late = np.add.reduceat(is_break, starts, dtype=np.int64) - is_new
        closed = []
        if late.any():
            self.out_of_order[rows] += late
            closed = self._close_runs(rows, starts, times, values, breaks)
            self.steps.take(*_regroup_with(rows, starts, ~is_break, steps))
        else:
            # Only the -1 at the head of a new series is no step.
            self.steps.take(rows, starts + is_new, ends + 1, steps)

        if len(breaks):
            group_of_break = np.searchsorted(starts, breaks, side="right") - 1
            # Later breaks of a group overwrite earlier ones: the open run begins at its last break.
            self.run_first_at[rows[group_of_break]] = times[breaks]
            self.run_first_value[rows[group_of_break]] = values[breaks]
        self.last_at[rows] = times[ends]
        self.last_value[rows] = values[ends]
        return closed

    def _merge_repeats(
        self, rows: np.ndarray, starts: np.ndarray, is_repeat: np.ndarray, values: np.ndarray
    ) -> np.ndarray:
        """Give each time its largest value; times that began in an earlier batch are corrected in the state."""
        is_cut = ~is_repeat
        is_cut[starts] = True
        cuts = np.flatnonzero(is_cut)
        largest = np.maximum.reduceat(values, cuts)
        merged = values.copy()
        merged[cuts] = largest
        groups = np.flatnonzero(is_repeat[starts])
        row = rows[groups]
        raised = np.maximum(self.last_value[row], merged[starts[groups]])
        was_fall = self.last_value[row] < self.before_value[row]
        self.falls[row] += (raised < self.before_value[row]).astype(np.int64) - was_fall
        rises = (raised - self.before_value[row]) / (self.before_us[row] / 1e6)
        self.steepest_rise[row] = np.fmax(self.steepest_rise[row], rises)
        is_first = self.run_first_at[row] == self.last_at[row]
        self.run_first_value[row[is_first]] = raised[is_first]
        self.last_value[row] = raised
        return merged

    def _close_runs(
        self, rows: np.ndarray, starts: np.ndarray, times: np.ndarray, values: np.ndarray, breaks: np.ndarray
    ) -> list[np.ndarray]:
        """The runs that end right before a break: those of earlier batches, and those within this one."""
        is_new = self.last_at[rows] == NEVER
        is_head = np.zeros(len(times), bool)
        is_head[starts] = True
        group = np.searchsorted(starts, breaks, side="right") - 1
        at_head = is_head[breaks]
        carried = rows[group[at_head & ~is_new[group]]]
        within = np.flatnonzero(~at_head)
        runs = np.empty(len(within), RUN)
        ends = breaks[within] - 1
        runs["row"] = rows[group[within]]
        runs["last_at"], runs["last_value"] = times[ends], values[ends]
        # The run began at the break before, if that is in the same group, else in an earlier batch.
        before = np.maximum(within - 1, 0)
        is_inside = (within > 0) & (group[before] == group[within])
        begin = breaks[before]
        runs["first_at"] = np.where(is_inside, times[begin], self.run_first_at[runs["row"]])
        runs["first_value"] = np.where(is_inside, values[begin], self.run_first_value[runs["row"]])
        return [self.open_runs(carried), runs]


class _Steps:
    """A bounded, evenly spread choice of each series' steps, for the median.

    Step number k of a series is kept when k is a multiple of its stride, the smallest power of three that leaves at
    most STEPS_KEPT: so the choice depends on the steps alone, covers the whole window, and (the stride being odd) sees
    both halves of the alternating steps that two redundant scrapers give.
    """

    def __init__(self, size: int) -> None:
        self.counts = np.zeros(size, np.int64)
        self.strides = np.ones(size, np.int64)
        # The n-th steps of all series are stored together: a flood of short series touches few of these pages.
        self.kept = np.zeros((STEPS_KEPT, size), np.int64)
        self.deepest = 0

    def grow(self, more: _Steps) -> None:
        self.counts = np.concatenate([self.counts, more.counts])
        self.strides = np.concatenate([self.strides, more.strides])
        kept = np.zeros((STEPS_KEPT, len(self.counts)), np.int64)
        kept[: self.deepest, : self.kept.shape[1]] = self.kept[: self.deepest]
        self.kept = kept

    def take(self, rows: np.ndarray, starts: np.ndarray, ends: np.ndarray, steps: np.ndarray) -> None:
        """Add steps[starts[i]:ends[i]] to series rows[i]."""
        old = self.counts[rows]
        new = old + (ends - starts)
        strides = self.strides[rows]
        while True:
            is_full = -(-new // strides) > STEPS_KEPT
            if not is_full.any():
                break
            thinned = self.kept[::3, rows[is_full]]
            self.kept[: len(thinned), rows[is_full]] = thinned
            strides[is_full] *= 3
        self.strides[rows] = strides
        self.counts[rows] = new
        filled = -(-old // strides)
        fresh = -(-new // strides) - filled
        total = int(fresh.sum())
        if not total:
            return
        nth = np.arange(total) - np.repeat(np.cumsum(fresh) - fresh, fresh)
        source = np.repeat(starts + filled * strides - old, fresh) + nth * np.repeat(strides, fresh)
        self.kept[np.repeat(filled, fresh) + nth, np.repeat(rows, fresh)] = steps[source]
        self.deepest = max(self.deepest, int((filled + fresh).max()))

    def medians(self, rows: np.ndarray) -> np.ndarray:
        """The median step of each series in microseconds, NaN where there is none: (n,) float64."""
        if len(rows) > MEDIANS_AT_ONCE:
            parts = [rows[first : first + MEDIANS_AT_ONCE] for first in range(0, len(rows), MEDIANS_AT_ONCE)]
            return np.concatenate([self.medians(part) for part in parts])
        kept = -(-self.counts[rows] // self.strides[rows])
        depth = int(kept.max(initial=1))
        ordered = np.where(np.arange(depth)[:, None] < kept, self.kept[:depth, rows], ALWAYS)
        ordered.sort(axis=0)
        nth = np.arange(len(rows))
        middle = (ordered[np.maximum(kept - 1, 0) // 2, nth] + ordered[kept // 2 % depth, nth]) / 2
        return np.where(kept == 0, np.nan, middle)

    def median_with(self, row: int, seams_us: list[int]) -> float:
        """The median step of one series when the steps between its runs are counted too; NaN if there is no step."""
        stride = int(self.strides[row])
        kept = self.kept[: -(-int(self.counts[row]) // stride), row]
        steps = np.concatenate([np.repeat(kept, stride)[: self.counts[row]], np.array(seams_us, np.int64)])
        return float(np.median(steps)) if len(steps) else float("nan")


def regroup(rows: np.ndarray, starts: np.ndarray, keep: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows and starts of the groups after only the positions in `keep` are left; empty groups go."""
    left = np.add.reduceat(keep, starts, dtype=np.int64)
    is_left = left > 0
    return rows[is_left], (np.cumsum(left) - left)[is_left]


def _regroup_with(
    rows: np.ndarray, starts: np.ndarray, keep: np.ndarray, steps: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rows, starts = regroup(rows, starts, keep)
    steps = steps[keep]
    return rows, starts, np.append(starts[1:], len(steps)), steps
