"""A spool as an unknown place: the series of the newest files of each host. It is read and left as it is.

Keep out how a landing takes files in: that is `collectors.devices.spool_collector`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date, datetime
from itertools import groupby

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from collectors.devices.spool import UNKNOWN_KEY, Spool
from collectors.probes.observed_series import Observed, ObservedSeries
from collectors.samples import SourceError

# Of each host: an agent writes a file a minute.
FILES = 10


def is_spool(path: str) -> bool:
    """Whether a folder, or a store's URL, holds the folders of hosts that agents make."""
    return bool(Spool(path).hosts())


def unknown_spool(path: str, at: datetime) -> ObservedSeries:
    """The series of the newest files. SourceError where no file waits there that can be read."""
    spool = Spool(path)
    days = spool.days()
    found: dict[tuple[str, str], Observed] = {}
    unknown: dict[str, int] = {}
    for name in _newest(spool, days[-2:]):
        try:
            table = pq.read_table(pa.BufferReader(spool.payload(name)))
        except (FileNotFoundError, pa.ArrowException, OSError):
            continue  # landed meanwhile, or damaged: a landing names these
        unknown |= json.loads((table.schema.metadata or {}).get(UNKNOWN_KEY, b"{}"))
        for one in _observed(table):
            before = found.get((one.metric, json.dumps(one.labels)), one)
            both = one if before is one else _joined(before, one)
            found[one.metric, json.dumps(one.labels)] = both
    if not found:
        raise SourceError(path, None, "no file of an agent waits here: what is landed is removed from a spool")
    return ObservedSeries(path, at, "a spool of agents", [*found.values()], unknown, (at.date() - days[0]).days)


def _newest(spool: Spool, days: list[date]) -> Iterator[str]:
    for _, names in groupby((name for day in days for name in spool.files(day)), lambda n: n.rsplit("/", 3)[1]):
        yield from sorted(names)[-FILES:]


def _observed(table: pa.Table) -> Iterator[Observed]:
    times = pc.cast(table["observed_at"], pa.int64())
    plain = pa.table(
        {"metric": table["metric"].cast(pa.string()), "labels": table["labels"].cast(pa.string()), "at": times}
    )
    grouped = plain.group_by(["metric", "labels"]).aggregate([("at", "min"), ("at", "max"), ("at", "count")])
    for row in grouped.to_pylist():
        labels = json.loads(row["labels"])
        yield Observed(row["metric"], labels, row["at_min"], row["at_max"], row["at_count"])


def _joined(one: Observed, other: Observed) -> Observed:
    first, last = min(one.first_us, other.first_us), max(one.last_us, other.last_us)
    shortest = min((part.interval_us for part in (one, other) if part.interval_us is not None), default=None)
    return Observed(one.metric, one.labels, first, last, one.samples + other.samples, shortest)
