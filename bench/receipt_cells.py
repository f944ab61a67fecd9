"""Whether receipts hold at each batch and prompt length: engines in a closed loop, priced by a run's own models.

`WATTLEDGER_VALIDATION_DATA=… python -m bench.receipt_cells` prints a line per cell of requests at once × prompt tokens:
how many receipts contain what the request used, and how wide they are beside those of one who knows how the weights
scatter. What an input token takes of an output token is drawn from published configurations (InferenceX: shapes of one
configuration at one concurrency; above 512 at once and 8,192 tokens it is extrapolated). Add here what a cell is asked.
Keep out the law with a floor, waiting and caches (`receipt_truth`).
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd

from bench import receipt_books

BATCHES, PROMPTS = (4, 8, 16, 32, 64, 128, 256, 512), (128, 1024, 4096, 16_000)
CONFIGURATION = (
    "hardware",
    "framework",
    "model",
    "precision",
    "spec_method",
    "decode_tp",
    "decode_ep",
    "decode_dp_attention",
    "conc",
)
REQUESTS, HOURS = 200, 24


def published_weights(data: Path) -> dict[int, np.ndarray]:
    """Requests at once -> accelerator time of an input token over that of an output token, of each configuration that
    was measured with several shapes. Where noise is more than the difference there is none."""
    by_configuration: dict[tuple[object, ...], list[tuple[float, float]]] = defaultdict(list)
    for row in json.loads((data / "inferencex" / "benchmarks.json").read_text(encoding="utf-8")):
        metrics = row["metrics"]
        if row["disagg"] or "input_tput_per_gpu" not in metrics:
            continue
        output = metrics["output_tput_per_gpu"]
        key = tuple(row[name] for name in CONFIGURATION)
        by_configuration[key].append((metrics["input_tput_per_gpu"] / output, 1 / output))
    found: dict[int, list[float]] = defaultdict(list)
    for key, points in by_configuration.items():
        (few, light), (many, heavy) = min(points), max(points)
        if many > few:
            of_input = (heavy - light) / (many - few)
            found[int(str(key[-1]))].append(of_input / (light - of_input * few))
    return {at_once: kept for at_once, all_ in found.items() if (kept := np.array([w for w in all_ if w > 0])).size}


def near(weights: Mapping[int, np.ndarray], batch: int) -> np.ndarray:
    """Those of the concurrencies within a factor of two."""
    return np.concatenate([of for at_once, of in weights.items() if batch / 2 <= at_once <= batch * 2])


def drawn(weights: Mapping[int, np.ndarray], rng: np.random.Generator, laws: int) -> pd.DataFrame:
    """A row per request: its cell, law, tokens and true joules. An output token takes a joule of a law's engine."""
    cells = []
    for batch in BATCHES:
        scatter = near(weights, batch)
        for prompt in PROMPTS:
            for law in range(laws):
                tokens = rng.lognormal(np.log(prompt), 0.5, REQUESTS).clip(8).round()
                answers = rng.lognormal(np.log(400), 0.7, REQUESTS).clip(4).round()
                weight = float(rng.choice(scatter))
                cells.append(
                    pd.DataFrame(
                        {
                            "batch": batch, "prompt": prompt, "model": f"m-{batch}-{prompt}-{law}", "input": tokens,
                            "output": answers, "truth": answers + weight * tokens,
                            "low_weight": np.quantile(scatter, 0.025), "high_weight": np.quantile(scatter, 0.975),
                            "hour": rng.integers(0, HOURS, REQUESTS),
                        }
                    )
                )  # fmt: skip
    return pd.concat(cells, ignore_index=True)


def priced(folder: Path, asked: pd.DataFrame) -> pd.DataFrame:
    """The receipts of the requests, in their order."""
    start = pd.Timestamp(datetime(receipt_books.ON.year, receipt_books.ON.month, receipt_books.ON.day, tzinfo=UTC))
    began = start + pd.to_timedelta(asked["hour"], unit="h")
    requests = pd.DataFrame(
        {
            "source": "edge", "request_id": asked.index.astype(str), "started_at": began,
            "ended_at": began + timedelta(seconds=20), "ttft_seconds": 0.2, "end_to_end_seconds": 20.0,
            "model": asked["model"], "tenant": "acme", "input_tokens": asked["input"].astype(int),
            "cached_input_tokens": 0, "output_tokens": asked["output"].astype(int),
        }
    )  # fmt: skip
    used = asked.assign(interval_start_at=began).groupby(["model", "batch", "interval_start_at"], as_index=False)
    intervals = used.agg(joules=("truth", "sum"), computed=("input", "sum"), output=("output", "sum"))
    with closing(receipt_books.warehouse(folder)) as connection:
        connection.register("requests", requests)
        connection.register("all_intervals", intervals)
        connection.execute("insert into raw.requests by name select * from requests")
        for model, batch in intervals[["model", "batch"]].drop_duplicates().itertuples(index=False):
            connection.execute(
                f"create or replace temp view of_model as select * from all_intervals where model = '{model}'"
            )
            receipt_books.book(connection, "of_model", 0.0, model, concurrency=batch)
    receipt_books.make(folder)
    with closing(duckdb.connect(str(folder / "warehouse.duckdb"))) as connection:
        receipts = connection.execute(
            "select own_energy_joules::double as own, own_energy_joules_low::double as low,"
            " own_energy_joules_high::double as high from intermediate.int_receipts order by request_id::integer"
        ).df()
    return pd.concat([asked, receipts], axis=1)


def known_half_width(found: pd.DataFrame) -> pd.Series:
    """Half the interval, over the truth, of one who knows how the weights scatter: the same joules of each law, shared
    at both ends of 95 % of them."""
    ends = []
    for end in ("low_weight", "high_weight"):
        tokens = found["output"] + found[end] * found["input"]
        totals = found["truth"].groupby(found["model"]).transform("sum")
        ends.append(totals * tokens / tokens.groupby(found["model"]).transform("sum"))
    return (ends[1] - ends[0]).abs() / 2 / found["truth"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--laws", type=int, default=40)
    stated = parser.parse_args(arguments)
    data = Path(os.environ.get("WATTLEDGER_VALIDATION_DATA", "../shared/data"))
    with tempfile.TemporaryDirectory() as folder:
        asked = drawn(published_weights(data), np.random.default_rng(stated.seed), stated.laws)
        found = priced(Path(folder), asked)
    found["holds"] = (found["low"] <= found["truth"]) & (found["truth"] <= found["high"])
    found["half_width"] = (found["high"] - found["low"]) / 2 / found["own"]
    found["known"] = known_half_width(found)
    print(f"{stated.laws} laws a cell, seed {stated.seed}")
    print("requests at once  prompt  covered  half-width  of one who knows the scatter")
    for (batch, prompt), cell in found.groupby(["batch", "prompt"]):
        print(
            f"{batch:>16} {prompt:>7,} {cell['holds'].mean():>8.3f} {cell['half_width'].median():>11.3f}"
            f" {cell['known'].median():>12.3f}"
        )
    print(f"all: covered {found['holds'].mean():.3f}, median half-width {found['half_width'].median():.3f}")


if __name__ == "__main__":
    main()
