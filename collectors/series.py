"""The series of one landing: their identities, and facts counted in one pass over the samples.

Add a fact here when SQL needs it to decide which series to read sample by sample. Keep out meaning (units, resets,
gaps that matter): that is in SQL.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping

import numpy as np
import pyarrow as pa

from collectors.facts import ALWAYS, Facts
from collectors.limits import DEFAULTS
from collectors.personal_labels import PersonalLabels
from collectors.rows import Rejects
from collectors.runs import heads
from collectors.samples import OBSERVED_AT, Family, SourceError, Window
from collectors.unknown_families import MOST_DEVICES, MOST_FAMILIES_WITH_DEVICES, Device, device_of, is_drawn_power

_IDENTITY = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"))
_LABELS = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def canonical_labels(labels: Mapping[str, str], dropped: Collection[str] = ()) -> dict[str, str]:
    """Labels sorted by name, without `dropped` and without empty values (Prometheus holds those to be absent)."""
    return {name: labels[name] for name in sorted(labels) if labels[name] != "" and name not in dropped}


def series_id(source: str, metric: str, labels: Mapping[str, str]) -> int:
    """The signed 64-bit identity of a series: blake2b of the canonical JSON [source, metric, labels].

    Equal for labels in any order and with or without empty values. `metric` is not among the labels.
    """
    text = _IDENTITY.encode([source, metric, canonical_labels(labels)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)


class SeriesRegister:
    """Identity and per-series facts of one (source, window).

    Facts are over valid samples and do not depend on how the rows were cut into batches, only on their order within
    each series. Among rows of one time the largest value counts. A series that arrives in time order, or in ascending
    runs that do not overlap in time (a later file first, a file written backwards), has exact facts. Where late runs
    overlap earlier ones (`overlapping_series`), steps are those along each run and from one run's end to the next
    run's start: `longest_gap_seconds` is then an upper bound, `duplicates` a lower one, `falls` and
    `steepest_rise_per_second` near.
    """

    def __init__(
        self,
        source: str,
        window: Window,
        replica_labels: Collection[str] = (),
        most_series: int = DEFAULTS.series,
        tenant_labels: Collection[str] = (),
    ) -> None:
        self.source = source
        self.window = window
        self.most_series = most_series
        # How far the times of what is observed are ahead (`corrected_clock`).
        self.clock_offset_us = 0
        self.replica_labels = frozenset(replica_labels)
        self._personal = PersonalLabels(tenant_labels)
        self._ids_by_key: dict[tuple[str, tuple[tuple[str, str], ...]], int] = {}
        self._rows: dict[int, int] = {}  # series_id -> row in the arrays below
        self._identities: list[tuple[str, str, str]] = []  # source_kind, metric, labels JSON
        self._unknown: dict[str, int] = {}
        self._unknown_devices: dict[str, set[Device]] = {}
        # Why the source's unknown families, or some of them, are not known.
        self.unlisted: str | None = None
        # Rows that could not become samples, whether or not they belong to a series, and what is wrong with the first.
        self.rejects = Rejects()
        self._runs: list[np.ndarray] = []  # closed ascending runs
        self._facts = Facts(0)

    def series_id(self, family: Family, labels: Mapping[str, str]) -> int:
        """The identity of a series of this source, remembered; replica labels do not enter it, nor do those that name
        persons.

        SourceError beyond `most_series`.
        """
        key = (family.metric, tuple(sorted(labels.items())))
        known = self._ids_by_key.get(key)
        if known is not None:
            return known
        kept = canonical_labels(self._personal.without(family.source_kind, labels), self.replica_labels)
        identity = (family.source_kind, family.metric, _LABELS.encode(kept))
        new_id = series_id(self.source, family.metric, kept)
        row = self._rows.setdefault(new_id, len(self._identities))
        if row == len(self._identities):
            if row >= self.most_series:
                more = f"more than {self.most_series:,} series, now of {family.metric}"
                reason = f"{more}: does a label change all the time? If not, raise limits.series"
                raise SourceError(self.source, None, reason)
            self._identities.append(identity)
        elif self._identities[row][1:] != identity[1:]:
            raise ValueError(f"two series share the hash {new_id}: {self._identities[row]} and {identity}")
        self._ids_by_key[key] = new_id
        return new_id

    def observe(self, samples: pa.RecordBatch) -> None:
        """Count one batch of SAMPLE_SCHEMA. ValueError for a series that was never registered."""
        if samples.num_rows == 0:
            return
        self._facts.grow(len(self._identities))
        ids = samples.column(0).to_numpy()
        times = samples.column(1).cast(pa.int64()).to_numpy() - self.clock_offset_us
        values = samples.column(2).to_numpy()
        starts = heads(ids)
        encoded = pa.array(ids[starts]).dictionary_encode()
        try:
            rows_of_codes = np.array([self._rows[i] for i in encoded.dictionary.to_pylist()], dtype=np.int64)
        except KeyError as unknown:
            raise ValueError(f"samples of a series that was not registered: {unknown}") from None
        codes = encoded.indices.to_numpy()
        if len(starts) > len(rows_of_codes):  # interleaved: bring each series together, keeping its arrival order
            codes = np.repeat(codes, np.diff(starts, append=len(ids)))
            narrow = codes.astype(np.uint16) if len(rows_of_codes) < 2**16 else codes
            order = np.argsort(narrow, kind="stable")
            codes, times, values = codes[order], times[order], values[order]
            starts = heads(codes)
            codes = codes[starts]
        rows = rows_of_codes[codes]
        self._runs.extend(self._facts.count(rows, starts, times, values))

    def reject(self, series_id: int, rows: int) -> None:
        """Count rows of a registered series that could not become samples at all, such as one without a time."""
        self._facts.grow(len(self._identities))
        self._facts.rejects[self._rows[series_id]] += rows

    def unknown(self, metric: str, series: int) -> None:
        """Remember that the source holds a metric which the catalogue does not know, with its number of series."""
        self._unknown[metric] = max(series, self._unknown.get(metric, 0))

    def unknown_device(self, metric: str, labels: Mapping[str, str]) -> None:
        """Remember the device that a series of an unknown family of power or energy is about, if its labels name one;
        bounded in families and in devices of each."""
        if metric not in self._unknown_devices:
            if len(self._unknown_devices) >= MOST_FAMILIES_WITH_DEVICES or not is_drawn_power(metric):
                return
            self._unknown_devices[metric] = set()
        devices = self._unknown_devices[metric]
        if len(devices) < MOST_DEVICES and (device := device_of(labels)):
            devices.add(device)

    def overlapping_series(self) -> list[int]:
        """Sorted ids of the series whose late runs overlap earlier ones in time, see the class."""
        ids = self._ids()
        return sorted(
            int(ids[row])
            for row, runs in self._runs_by_row().items()
            if (runs["first_at"][1:] <= np.maximum.accumulate(runs["last_at"])[:-1]).any()
        )

    def series_table(self) -> pa.Table:
        """One row per series that was seen, valid or not; without times if none of its rows had a readable one."""
        self._facts.grow(len(self._identities))
        seen = self._seen()
        is_untimed = self._facts.first_seen[seen] == ALWAYS
        kinds, metrics, labels = zip(*(self._identities[row] for row in seen), strict=True) if len(seen) else ([],) * 3
        return pa.table(
            {
                "series_id": pa.array(self._ids()[seen], pa.int64()),
                "source": pa.array([self.source] * len(seen), pa.string()),
                "source_kind": pa.array(kinds, pa.string()),
                "metric": pa.array(metrics, pa.string()),
                "labels": pa.array(labels, pa.string()),
                "first_seen_at": _times(self._facts.first_seen[seen], is_untimed),
                "last_seen_at": _times(self._facts.last_seen[seen], is_untimed),
            }
        )

    def chunk_table(self) -> pa.Table:
        """One row per series that was seen: the columns of raw.series_chunks."""
        facts = self._facts
        facts.grow(len(self._identities))
        seen = self._seen()
        samples = facts.samples[seen]
        first_at, first_value = facts.run_first_at[seen], facts.run_first_value[seen]
        last_at, last_value = facts.last_at[seen], facts.last_value[seen]
        falls, duplicates, gap_us = facts.falls[seen], facts.duplicates[seen], facts.longest_gap_us[seen]
        rises = facts.steepest_rise[seen]
        interval_us = facts.steps.medians(seen)
        place = {int(row): i for i, row in enumerate(seen)}
        for row, runs in self._runs_by_row().items():
            i = place[row]
            first_at[i], first_value[i], last_at[i], last_value[i] = _ends(runs)
            seams_us, seam_falls, seam_duplicates, seam_rises = _seams(runs)
            falls[i] += seam_falls
            duplicates[i] += seam_duplicates
            gap_us[i] = max([gap_us[i], *seams_us])
            rises[i] = max([rises[i], *seam_rises])
            interval_us[i] = facts.steps.median_with(row, seams_us)
        is_empty, is_single = samples == 0, np.isnan(interval_us)
        start, end = self.window.start_us, self.window.end_us
        return pa.table(
            {
                "series_id": pa.array(self._ids()[seen], pa.int64()),
                "source": pa.array([self.source] * len(seen), pa.string()),
                "chunk_start_at": _times(np.full(len(seen), start)),
                "chunk_end_at": _times(np.full(len(seen), end)),
                "samples": pa.array(samples, pa.int64()),
                "first_at": _times(first_at, is_empty),
                "first_value": pa.array(first_value, pa.float64(), mask=is_empty),
                "last_at": _times(last_at, is_empty),
                "last_value": pa.array(last_value, pa.float64(), mask=is_empty),
                "falls": pa.array(falls, pa.int64()),
                "duplicates": pa.array(duplicates, pa.int64()),
                "out_of_order": pa.array(facts.out_of_order[seen], pa.int64()),
                "rejects": pa.array(facts.rejects[seen], pa.int64()),
                "longest_gap_seconds": pa.array(gap_us / 1e6, pa.float64(), mask=is_empty),
                "typical_interval_seconds": pa.array(interval_us / 1e6, pa.float64(), mask=is_single),
                "steepest_rise_per_second": pa.array(rises, pa.float64(), mask=np.isneginf(rises)),
            }
        )

    def unknown_table(self) -> pa.Table:
        """metric, series: the families that were seen and not landed, sorted by name."""
        names = sorted(self._unknown)
        return pa.table(
            {
                "metric": pa.array(names, pa.string()),
                "series": pa.array([self._unknown[name] for name in names], pa.int64()),
            }
        )

    def unknown_devices_table(self) -> pa.Table:
        """metric and the fields of Device: what the unknown families of power and energy are about, sorted."""
        rows = [(metric, *device) for metric, devices in self._unknown_devices.items() for device in devices]
        rows.sort(key=lambda row: [field or "" for field in row])
        columns = zip(*rows, strict=True) if rows else [()] * (1 + len(Device._fields))
        return pa.table(
            {name: pa.array(held, pa.string()) for name, held in zip(("metric", *Device._fields), columns, strict=True)}
        )

    def _seen(self) -> np.ndarray:
        return np.flatnonzero((self._facts.first_seen != ALWAYS) | (self._facts.rejects > 0))

    def _ids(self) -> np.ndarray:
        return np.fromiter(self._rows, dtype=np.int64, count=len(self._rows))

    def _runs_by_row(self) -> dict[int, np.ndarray]:
        """Of each series with more than one ascending run: all its runs, by start (and, for equal starts, by end)."""
        if not self._runs:
            return {}
        closed = np.concatenate(self._runs)
        rows = np.unique(closed["row"])
        runs = np.concatenate([closed, self._facts.open_runs(rows)])
        runs = runs[np.lexsort((runs["last_at"], runs["first_at"], runs["row"]))]
        cuts = np.flatnonzero(np.diff(runs["row"])) + 1
        return dict(zip(rows.tolist(), np.split(runs, cuts), strict=True))


def _ends(runs: np.ndarray) -> tuple[int, float, int, float]:
    first_at, last_at = runs["first_at"].min(), runs["last_at"].max()
    return (
        first_at,
        runs["first_value"][runs["first_at"] == first_at].max(),
        last_at,
        runs["last_value"][runs["last_at"] == last_at].max(),
    )


def _seams(runs: np.ndarray) -> tuple[list[int], int, int, list[float]]:
    """Steps in microseconds, falls, duplicates and rises per second between the runs of one series, by their start."""
    newest_at, newest_value = int(runs["last_at"][0]), float(runs["last_value"][0])
    steps_us, falls, duplicates, rises = [], 0, 0, []
    for run in runs[1:]:
        if run["first_at"] > newest_at:
            steps_us.append(int(run["first_at"]) - newest_at)
            falls += int(run["first_value"] < newest_value)
            rises.append((float(run["first_value"]) - newest_value) / (steps_us[-1] / 1e6))
        elif run["first_at"] == newest_at:
            duplicates += 1
        if run["last_at"] >= newest_at:
            newest_value = max(run["last_value"], newest_value) if run["last_at"] == newest_at else run["last_value"]
            newest_at = int(run["last_at"])
    return steps_us, falls, duplicates, rises


def _times(microseconds: np.ndarray, mask: np.ndarray | None = None) -> pa.Array:
    return pa.array(microseconds, pa.int64(), mask=mask).view(OBSERVED_AT)
