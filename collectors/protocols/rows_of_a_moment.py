"""Rows of a file that have one time: which label keeps them apart, or that none does.

Add here how rows of one moment are recognised and numbered. Keep out what their columns mean (`mapped_files`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from collectors.cells import NO_TIME
from collectors.samples import SourceError

# More boards than any host has: a time column of whole days looks like thousands of them.
MOST_BOARDS = 1024
# Distances within a tick and between ticks differ by so much at least; ticks are so many, so alike, and so short.
_JUMP, _FEWEST_TICKS, _ALIKE, _SHORT, _MILLISECONDS_US = 3, 4, 0.5, 0.5, 20_000
# The last moment of a batch is held back for the next one, up to so many rows.
HELD_ROWS = 1 << 16
# Columns that name a board, or what else a row is of, as logs write them; the best first.
UNIQUE = ("uuid", "gpu_uuid", "serial", "serial_number")
BOARDS = (
    *UNIQUE, "index", "gpu_index", "gpu_id", "gpu", "minor_number", "device", "device_id", "deviceid", "card",
    "pci.bus_id", "gpu_bus_id",
)  # fmt: skip
IDENTITIES = (*BOARDS, "engine", "pod", "node", "hostname", "host", "instance", "name")


@dataclass(frozen=True)
class Moments:
    """Rows that follow each other with equal labels and one time, sorted by their labels.

    `order` (n,) are the rows in that sorting, `starts` (m,) and `lengths` (m,) the moments within it, `codes` (m,) the
    labels of each moment, `numbers` (n,) the place of each row, in the file's order, within its moment.
    """

    order: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray
    codes: np.ndarray
    numbers: np.ndarray

    @classmethod
    def of(cls, codes: np.ndarray, times_us: np.ndarray) -> Moments:
        """The moments of rows with these labels (n,) and times (n,)."""
        order = np.argsort(codes, kind="stable")
        sorted_codes, sorted_times = codes[order], times_us[order]
        is_first = np.ones(len(codes), bool)
        is_first[1:] = (np.diff(sorted_codes) != 0) | (np.diff(sorted_times) != 0)
        # A row without a time has no moment.
        is_first |= sorted_times == NO_TIME
        starts = np.flatnonzero(is_first)
        lengths = np.diff(starts, append=len(codes))
        numbers = np.empty(len(codes), np.int64)
        numbers[order] = np.arange(len(codes)) - np.repeat(starts, lengths)
        return cls(order, starts, lengths, sorted_codes[starts], numbers)

    def usual_lengths(self) -> dict[int, int]:
        """Code -> how many rows most of its moments have; of two such numbers the larger."""
        found = {}
        for code in np.unique(self.codes).tolist():
            counts = np.bincount(self.lengths[self.codes == code])
            found[code] = len(counts) - 1 - int(counts[::-1].argmax())
        return found

    def lengths_of_rows(self) -> np.ndarray:
        """How many rows the moment of each row has (n,), in the file's order."""
        found = np.empty(len(self.order), np.int64)
        found[self.order] = np.repeat(self.lengths, self.lengths)
        return found

    def first_indistinct(self, values: Iterable[np.ndarray]) -> int | None:
        """The first row of the first moment whose rows differ in a column of `values` (n,), NaN for none, where that
        is so in at least two moments of equal labels and in most of them; else None. Rows that are equal are a row
        that was written twice, and a few that differ are a fault of single rows."""
        differs = np.zeros(len(self.order), bool)
        for column in values:
            held = column[self.order]
            differs[1:] |= np.abs(np.diff(held)) > 0
        differs[self.starts] = False
        is_indistinct = np.logical_or.reduceat(differs, self.starts)
        size = int(self.codes.max()) + 1
        moments, indistinct = (
            np.bincount(self.codes, minlength=size),
            np.bincount(self.codes[is_indistinct], minlength=size),
        )
        is_refused = (indistinct >= 2) & (2 * indistinct > moments)
        found = self.starts[is_indistinct & is_refused[self.codes]]
        return int(self.order[found].min()) if len(found) else None


def least_gap_us(times_us: np.ndarray) -> int:
    """The least distance of two rows that follow each other, of times (n,), and are of two ticks of their log: a query
    may write its boards some milliseconds apart. 0 where only rows of one time are one tick.

    A distance parts the ticks where most of them have then equally many rows, and are short against their distance; of
    two such distances the larger. So a log in which single queries hung is not cut into few long ticks.
    """
    gaps = np.diff(times_us[times_us != NO_TIME])
    sizes = np.unique(gaps[gaps > 0])
    jumps = np.flatnonzero(sizes[1:] >= _JUMP * sizes[:-1])
    for jump in jumps[::-1]:
        parted = np.flatnonzero((gaps > sizes[jump]) | (gaps < 0))
        if len(parted) < _FEWEST_TICKS:
            continue
        rows = np.diff(parted)
        usual = int(np.bincount(rows).argmax())
        # From the first row of a tick to its last one, and to the first one of the next.
        lasted = np.add.reduceat(gaps[: parted[-1] + 1], parted[:-1] + 1) - gaps[parted[1:]]
        steps = lasted + gaps[parted[1:]]
        if usual > 1 and np.mean(rows == usual) >= _ALIKE and np.median(lasted) <= _SHORT * np.median(steps):
            return int(sizes[jump]) + 1
    # Of fewer ticks, such as those before a second header, all have equally many rows, milliseconds apart.
    for jump in jumps[::-1]:
        rows = np.diff([-1, *np.flatnonzero((gaps > sizes[jump]) | (gaps < 0)), len(gaps)])
        if len(rows) <= _FEWEST_TICKS and rows.min() == rows.max() > 1 and sizes[jump] <= _MILLISECONDS_US:
            return int(sizes[jump]) + 1
    return 0


def in_ticks(
    batches: Iterable[tuple[pa.RecordBatch, np.ndarray]],
) -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
    """The same rows, those of one tick with the time of its first one; how ticks part is taken from the first rows."""
    least: int | None = None
    last_us, tick_us = NO_TIME, NO_TIME
    for rows, times_us in batches:
        least = least_gap_us(times_us) if least is None else least
        if not least:
            yield rows, times_us
            continue
        is_timed = times_us != NO_TIME
        timed = times_us[is_timed]
        if len(timed):
            gaps = np.diff(timed, prepend=timed[0] if last_us == NO_TIME else last_us)
            begins = (gaps >= least) | (gaps < 0)
            begins[0] |= tick_us == NO_TIME
            firsts = np.maximum.accumulate(np.where(begins, np.arange(len(timed)), -1))
            ticks = np.where(firsts >= 0, timed[firsts], tick_us)
            last_us, tick_us = int(timed[-1]), int(ticks[-1])
            times_us = times_us.copy()  # noqa: PLW2901
            times_us[is_timed] = ticks
        yield rows, times_us


def whole_moments(
    batches: Iterable[tuple[pa.RecordBatch, np.ndarray]],
) -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
    """The same rows with their times, but no moment is divided between two batches. What makes the file unreadable is
    raised after the rows before it."""
    held: tuple[pa.RecordBatch, np.ndarray] | None = None
    damage: SourceError | None = None
    try:
        for rows, times_us in batches:
            if held is not None:
                table = pa.Table.from_batches([held[0], rows]).combine_chunks()
                rows, times_us = table.to_batches()[0], np.concatenate([held[1], times_us])  # noqa: PLW2901
            earlier = np.flatnonzero(times_us != times_us[-1])
            cut = int(earlier[-1]) + 1 if len(earlier) else 0
            cut = len(times_us) if len(times_us) - cut > HELD_ROWS else cut
            if cut:
                yield rows.slice(0, cut), times_us[:cut]
            held = (rows.slice(cut), times_us[cut:]) if cut < len(times_us) else None
    except SourceError as found:
        damage = found
    if held is not None:
        yield held
    if damage is not None:
        raise damage


def missing_identity(present: Sequence[str], mapped: Iterable[str]) -> str:
    """What to do about rows with equal labels, given the file's columns and those that are mapped."""
    used = {column.strip() for column in mapped}
    bare = {column.strip().lower(): column.strip() for column in present if column.strip() not in used}
    column = next((bare[name] for name in IDENTITIES if name in bare), None)
    if column is not None:
        return f"Column {column!r} is not mapped: add it under labels, {{{column}: {column}}}"
    return (
        "The file has no column such as uuid or index: log it too (nvidia-smi --query-gpu=timestamp,uuid,…)."
        " If each moment has the same boards in the same order, write rows_are: boards"
    )
