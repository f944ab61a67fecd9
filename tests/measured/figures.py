"""What the recordings of fleets/measured show, worked out from their files alone: no code of Wattledger is used.

Add here a figure of docs/measured.md. Keep out what the ledger books: the test compares it with this.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from tests.optional import PROJECT

FOLDER = PROJECT / "fleets" / "measured"
RUNS = {"first": "h200-a", "second": "h200-b"}


@cache
def samples(run: str, metric: str) -> tuple[np.ndarray, np.ndarray]:
    """Times (n,) in seconds since 1970 and values (n,) of the one series of a metric."""
    rows = pd.read_parquet(FOLDER / run / "spool.parquet", filters=[("metric", "=", metric)]).sort_values("observed_at")
    return rows["observed_at"].astype("datetime64[us, UTC]").astype("int64").to_numpy() / 1e6, rows["value"].to_numpy()


def counter(run: str) -> tuple[np.ndarray, np.ndarray]:
    """The board's counter: times (n,) and joules (n,)."""
    at, millijoules = samples(run, "nvml_total_energy_millijoules")
    return at, millijoules / 1e3


def changes(run: str) -> tuple[np.ndarray, np.ndarray]:
    """The counter's readings that differ from the one before: times (n,) and joules (n,)."""
    at, joules = counter(run)
    is_new = np.append(False, np.diff(joules) > 0)
    return at[is_new], joules[is_new]


def log_of_nvidia_smi(run: str) -> pd.DataFrame:
    """`at` in seconds since 1970 and `watts` of nvidia-smi's log."""
    rows = pd.read_csv(FOLDER / run / "nvidia_smi.csv.gz", skipinitialspace=True)
    at = pd.to_datetime(rows["timestamp"], utc=True).astype("datetime64[us, UTC]").astype("int64") / 1e6
    return pd.DataFrame({"at": at, "watts": rows["power.draw [W]"].str.removesuffix(" W").astype(float)})


def tokens(run: str) -> pd.DataFrame:
    """Input and output tokens of each stretch, as its requests have them; one row per stretch."""
    rows = pd.read_json(FOLDER / run / "requests.jsonl.gz", lines=True)
    counts = pd.DataFrame(rows["usage"].to_list())
    return counts.groupby(rows["tenant"])[["prompt_tokens", "completion_tokens"]].sum()


@cache
def windows() -> pd.DataFrame:
    """One row per idle time and stretch: what counter, gauge and nvidia-smi have of it, and its tokens."""
    found = []
    stated = pd.read_csv(FOLDER / "windows.csv", dtype=str, keep_default_na=False)
    for row in stated.itertuples():
        run = "first" if row.window_id.endswith("_a") or "44007" in row.engine else "second"
        start, end = (pd.Timestamp(moment).timestamp() for moment in (row.start_at, row.end_at))
        at, joules = counter(run)
        gauge_at, watts = samples(run, "nvml_power_watts")
        inside = (gauge_at >= start) & (gauge_at < end)
        smi = log_of_nvidia_smi(run)
        counts = tokens(run)
        output, computed = (
            counts.loc[row.window_id, ["completion_tokens", "prompt_tokens"]]
            if row.window_id in counts.index
            else (0, 0)
        )
        found.append(
            {
                "window_id": row.window_id,
                "run": run,
                "seconds": end - start,
                "joules": np.interp(end, at, joules) - np.interp(start, at, joules),
                "gauge_watts": watts[inside].mean(),
                "smi_watts": smi.loc[(smi["at"] >= start) & (smi["at"] < end), "watts"].mean(),
                "output_tokens": int(output),
                "input_tokens": int(computed),
            }
        )
    table = pd.DataFrame(found).set_index("window_id")
    table["watts"] = table["joules"] / table["seconds"]
    table["output_tokens_per_second"] = table["output_tokens"] / table["seconds"]
    table["joules_per_output_token"] = table["joules"] / table["output_tokens"].where(table["output_tokens"] > 0)
    return table


def gauge_error_watts(run: str, window_seconds: float, lag_seconds: float = 0.05) -> float:
    """How far the gauge is from the counter's mean over so many seconds before: root of the mean square."""
    at, joules = changes(run)
    gauge_at, watts = samples(run, "nvml_power_watts")
    ends = gauge_at - lag_seconds
    mean = (np.interp(ends, at, joules) - np.interp(ends - window_seconds, at, joules)) / window_seconds
    later = gauge_at > at[0] + 3
    return float(np.sqrt(np.mean((mean[later] - watts[later]) ** 2)))


def first_look(run: str) -> dict[str, dict]:
    """What `make measure` wrote of each window itself."""
    results = json.loads((Path(FOLDER) / run / "results.json").read_text())
    return {window["window_id"]: window for window in results["windows"]}
