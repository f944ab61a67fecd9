"""How many samples a server holds, by its own account: a cheap question, asked again to find what came late.

Add here what is asked of each family. Keep out how it is asked (`prometheus`) and which answers are compared
(`pipelines.landing.relanding`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

import orjson
import pyarrow as pa

from collectors.protocols.matrix import data_of
from collectors.samples import OBSERVED_AT

# One row per metric and stretch of time with samples. `newest_at` is the newest sample's time, NULL where none is of
# the minutes before the end of the stretch.
COUNTS = pa.schema(
    [("metric", pa.string()), ("start_at", OBSERVED_AT), ("samples", pa.int64()), ("newest_at", OBSERVED_AT)]
)

# By metric: the number of samples, and the time of the newest in milliseconds.
Counts = dict[str, tuple[int, int | None]]


def question(selectors: Mapping[str, str], length_ms: int) -> str:
    """PromQL for the samples of the last `length_ms` of each metric, by its selector. Two values per metric, whose
    labels are the metric and which of the two it is: a sum has no labels of its own."""
    return " or ".join(
        f'label_replace(label_replace({value},"metric",{json.dumps(metric)},"",""),"fact","{fact}","","")'
        for metric, selector in selectors.items()
        for fact, value in (
            ("samples", f"sum(count_over_time({selector}[{length_ms}ms]))"),
            ("newest", f"max(timestamp({selector}))"),
        )
    )


def counts_of(body: bytes) -> Counts:
    """The answer to `question`; ValueError for anything else."""
    facts = {}
    try:
        data = data_of(orjson.loads(body))
        for one in data["result"]:  # type: ignore[index]
            facts[one["metric"]["metric"], one["metric"]["fact"]] = float(one["value"][1])
    except (LookupError, TypeError) as error:
        raise ValueError(f"no numbers of samples: {type(error).__name__}") from error
    newest_ms = {metric: round(value * 1000) for (metric, fact), value in facts.items() if fact == "newest"}
    return {
        metric: (round(value), newest_ms.get(metric)) for (metric, fact), value in facts.items() if fact == "samples"
    }


def added(parts: Iterable[Counts]) -> Counts:
    """The counts of several stretches of time, in order, as of one."""
    whole: Counts = {}
    for part in parts:
        for metric, (samples, newest_ms) in part.items():
            before = whole.get(metric, (0, None))
            whole[metric] = (before[0] + samples, before[1] if newest_ms is None else newest_ms)
    return whole


def table_of(stretches: Mapping[int, Counts]) -> pa.Table:
    """COUNTS of the stretches that begin at these milliseconds."""
    rows = [
        {"metric": metric, "start_at": start_ms * 1000, "samples": samples, "newest_at": newest_ms and newest_ms * 1000}
        for start_ms, counts in sorted(stretches.items())
        for metric, (samples, newest_ms) in sorted(counts.items())
    ]
    return pa.Table.from_pylist(rows, COUNTS)
