"""What one replica of a size serves, low and high, and on what evidence.

Add here a source of capacity, with the reason why it holds for this engine. Keep out which sizes are proposed (`sizes`)
and whether they are recommended (`right_sizing`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

BANDWIDTH_SHARE = 0.1  # of the memory bandwidth's bound on a batch of one, as a floor of what a replica may serve
BENCHMARK_SHARE = 0.5  # of a published benchmark's throughput, as what production reaches
# Of a request's pace, what a smaller engine has to keep where no objective states how slow a token may come. A choice,
# and not measured: each halving of an engine is below it.
LEAST_PACE_RATIO = 0.8
SLO_BASES = ("requests_within_slo", "histogram_within_slo")
MEASURED_COLUMNS = ["model", "device_type", "role", "accelerators", "tokens_per_second"]


@dataclass(frozen=True)
class Capacity:
    """Tokens per second of one replica, by row of the usage that it was made from (arrays of its length).

    `low` is what evidence shows, `basis` the kind of evidence, NaN and "unknown" where there is none. `high` is the
    most that the engine's own telemetry or a published result leaves possible; NaN: not known. `on_paper` follows from
    data sheets alone and is no evidence; NaN where it is not known, or an SLO was measured, which decides alone.
    """

    low: np.ndarray
    high: np.ndarray
    basis: np.ndarray
    on_paper: np.ndarray


def unchanged(usage: pd.DataFrame, benchmarks: pd.DataFrame) -> Capacity:
    """A replica of the size that each deployment has now.

    A capacity under the model's SLO is used alone. What was merely seen is a lower bound, where no request waited: a
    replica carried no more than that. A published benchmark of the model (× BENCHMARK_SHARE) may be a higher one.
    """
    gpus = usage["gpus_per_replica"].to_numpy(float)
    best = usage["capacity_tokens_per_second_per_gpu"].to_numpy(float)
    unpressed = usage["unpressed_tokens_per_second_per_gpu"].to_numpy(float)
    best = np.where(_is_under_slo(usage), best, np.minimum(best, unpressed)) * gpus
    basis = np.where(best > 0, usage["capacity_basis"].fillna("unknown").to_numpy(object), "unknown")
    published = _published(usage, benchmarks, gpus)
    is_published = (published > np.nan_to_num(best)) & ~_is_under_slo(usage)
    return Capacity(
        low=_known(np.where(is_published, published, best)),
        high=np.where(is_published, published / BENCHMARK_SHARE, np.nan),
        basis=np.where(is_published, "published_benchmark", basis),
        on_paper=_on_paper(usage, gpus),
    )


def smaller(usage: pd.DataFrame, benchmarks: pd.DataFrame, measured: pd.DataFrame, gpus: np.ndarray) -> Capacity:
    """A replica of `gpus` accelerators where each deployment has more, of the same device type.

    A measurement of the model on that size is used alone. Else the engine's own best (under its SLO where one was
    measured) counts in proportion to the memory bandwidth, which is that of the accelerators: nothing shows that it
    scales better. Where no SLO was measured, a published benchmark (× BENCHMARK_SHARE) may show more than was ever
    asked for, up to the same share of `own_most`: an engine that is slower than the published one stays so.
    """
    own = usage["capacity_tokens_per_second_per_gpu"].to_numpy(float) * gpus
    most = own_most(usage)
    published = _published(usage, benchmarks, gpus)
    calibrated = np.fmin(published, most * gpus / usage["gpus_per_replica"].to_numpy(float))
    is_published = (calibrated > np.nan_to_num(own)) & ~_is_under_slo(usage)
    low = _known(np.where(is_published, calibrated, own))
    basis = np.where(is_published, "published_benchmark", np.where(low > 0, "scaled_by_bandwidth", "unknown"))
    high = np.where(is_published, np.fmin(published / BENCHMARK_SHARE, most), most)
    seen = _measured(usage, measured, gpus)
    is_seen = seen > 0
    return Capacity(
        low=np.where(is_seen, seen, low),
        high=np.where(is_seen, np.nan, high),
        basis=np.where(is_seen, "measured_on_size", basis),
        on_paper=np.where(is_seen, np.nan, _on_paper(usage, gpus)),
    )


def own_most(usage: pd.DataFrame) -> np.ndarray:
    """The most tokens per second that one replica of today's size can serve, by its own telemetry; NaN: not known.

    No engine serves each of several requests faster than the fastest that one was ever served
    (`request_tokens_per_second`), and it runs no more at once than it ever ran. Where requests waited it was full: then
    its best interval was its most.
    """
    replicas = usage["replicas"].to_numpy(float)
    at_once = (usage["request_tokens_per_second"] * usage["running_requests_max"]).to_numpy(float)
    best = usage["demand_tokens_per_second_max"].to_numpy(float) / replicas
    most: np.ndarray = np.fmin(at_once, np.where(usage["queued_intervals"].to_numpy(float) > 0, best, np.nan))
    return _known(most)


def pace_doubts(usage: pd.DataFrame, basis: np.ndarray, gpus: np.ndarray) -> np.ndarray:
    """Why it is not shown that a request is served fast enough on `gpus` accelerators; "" where it is.

    A measurement or a published result of that size was at a pace that users bear. In proportion, half of the
    bandwidth gives each request half of its tokens per second: enough if the model's `tpot_slo_seconds` allows that at
    the loads at which most was asked for (`busiest_request_tokens_per_second`). Without that objective the pace has to
    stay at LEAST_PACE_RATIO of today's. Of a prefill engine no output token shows the pace.
    """
    ratio = gpus / usage["gpus_per_replica"].to_numpy(float)
    pace = usage["busiest_request_tokens_per_second"].to_numpy(float) * ratio
    slo = usage["tpot_slo_seconds"].to_numpy(float)
    is_prefill = (usage["role"] == "prefill").to_numpy(bool)
    is_kept = np.where(is_prefill, False, np.where(slo > 0, pace * slo >= 1, ratio >= LEAST_PACE_RATIO))
    doubt = np.where((slo > 0) | is_prefill, "latency_not_shown", "no_latency_objective")
    doubts: np.ndarray = np.where((basis != "scaled_by_bandwidth") | is_kept, "", doubt)
    return doubts


def _on_paper(usage: pd.DataFrame, gpus: np.ndarray) -> np.ndarray:
    """The memory bandwidth over the weights that one step reads, × BANDWIDTH_SHARE."""
    bound = usage["memory_bandwidth_gb_per_second"].to_numpy(float) * 1e9 * gpus
    floor = BANDWIDTH_SHARE * bound / (usage["active_weights_gib"].to_numpy(float) * 2**30)
    return np.where(_is_under_slo(usage), np.nan, _known(floor))


def _is_under_slo(usage: pd.DataFrame) -> np.ndarray:
    is_measured = usage["capacity_basis"].isin(SLO_BASES) & (usage["capacity_tokens_per_second_per_gpu"] > 0)
    is_under: np.ndarray = is_measured.to_numpy(bool)
    return is_under


def _published(usage: pd.DataFrame, benchmarks: pd.DataFrame, gpus: np.ndarray) -> np.ndarray:
    """The best published throughput on no more than so many accelerators, × BENCHMARK_SHARE; 0 where there is none."""
    pairs = usage[["model", "device_type", "role"]].assign(gpus=gpus, row=np.arange(len(usage)))
    pairs = pairs[pairs["role"] != "prefill"].merge(benchmarks, on=["model", "device_type"])
    pairs = pairs[pairs["accelerators"] <= pairs["gpus"]]
    each = BENCHMARK_SHARE * pairs["tokens_per_second_per_gpu"] * pairs["accelerators"]
    best: np.ndarray = each.groupby(pairs["row"]).max().reindex(range(len(usage)), fill_value=0.0).to_numpy(float)
    return best


def _measured(usage: pd.DataFrame, measured: pd.DataFrame, gpus: np.ndarray) -> np.ndarray:
    """What was measured of the model on just so many of the same accelerators; NaN where nothing was."""
    keys = ["model", "device_type", "role"]
    found = measured.groupby([*keys, "accelerators"])["tokens_per_second"].max()
    named = pd.MultiIndex.from_arrays([*(usage[key] for key in keys), gpus])
    values: np.ndarray = found.reindex(named).to_numpy(float)
    return values


def _known(values: np.ndarray) -> np.ndarray:
    return np.where(values > 0, values, np.nan)
