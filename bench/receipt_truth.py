"""Whether receipts hold: requests of engines whose law is known, priced by the models that a run uses.

`python -m bench.receipt_truth --seed 1 --laws 24` prints, per law, how many receipts contain what a request of that
kind used on average, how wide they are, and how far the middle is off, by length, load and cached share. Add here what
is asked of receipts. Keep out the law (`simulated_engine`), what a receipt costs (`receipt_speed`) and every formula:
the dbt project's models are run, no copies.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd

from bench import receipt_books
from bench.simulated_engine import INTERVAL_SECONDS, Served, drawn_law, serve

COLUMNS = "   n  requests  at once  method       covered  half-width  |error|  moves  realised: covered  moves"


def priced(folder: Path, served: Served) -> pd.DataFrame:
    """The receipts of what was served, in its order, beside the truth: booked as one model of one date."""
    count = served.start.size
    requests = pd.DataFrame(
        {
            "source": "edge",
            "request_id": np.arange(count).astype(str),
            # Within the date, whatever the simulated length.
            "started_at": _at(served.start),
            "ended_at": _at(served.end),
            "ttft_seconds": served.first - served.start,
            "end_to_end_seconds": served.end - served.start,
            "model": "chat",
            "tenant": "acme",
            "input_tokens": served.input_tokens,
            "cached_input_tokens": served.cached_tokens,
            "output_tokens": served.output_tokens,
        }
    )
    intervals = pd.DataFrame(
        {
            "interval_start_at": _at(np.arange(served.interval_joules.size) * INTERVAL_SECONDS),
            "joules": served.interval_joules,
            "computed": served.interval_computed,
            "output": served.interval_output,
        }
    )
    with closing(receipt_books.warehouse(folder)) as connection:
        connection.register("requests", requests)
        connection.register("intervals", intervals)
        connection.execute("insert into raw.requests by name select * from requests")
        running = concurrency(served.start, served.end)
        receipt_books.book(connection, "intervals", float(served.cached_tokens.sum()), concurrency=running)
    receipt_books.make(folder)
    with closing(duckdb.connect(str(folder / "warehouse.duckdb"))) as connection:
        assert connection.execute("select count(*) from intermediate.int_broken_receipts").fetchall() == [(0,)]
        receipts = connection.execute(
            "select cast(request_id as integer) as number, own_energy_joules::double as own,"
            " own_energy_joules_low::double as low, own_energy_joules_high::double as high, quality, method"
            " from intermediate.int_receipts order by number"
        ).df()
    assert len(receipts) == count
    return receipts.assign(
        truth=served.expected_joules,
        realised=served.joules,
        input=served.input_tokens,
        output=served.output_tokens,
        neighbours=served.neighbours,
        cached=served.cached_tokens / served.input_tokens,
        shape=served.shape,
    )


def concurrency(start: np.ndarray, end: np.ndarray) -> float:
    """How many run at once while any runs, as an engine's gauge has it on average."""
    last_end = np.maximum.accumulate(end)
    silent = np.maximum(start[1:] - last_end[:-1], 0).sum()
    return float((end - start).sum() / (last_end[-1] - start[0] - silent))


def _at(seconds: np.ndarray) -> pd.DatetimeIndex:
    start = datetime(receipt_books.ON.year, receipt_books.ON.month, receipt_books.ON.day, tzinfo=UTC)
    return pd.DatetimeIndex(pd.to_datetime(start.timestamp() + seconds, unit="s", utc=True))


# --- what is printed --------------------------------------------------------------------------------------------------


def covered(receipts: pd.DataFrame, of: str = "truth") -> float:
    """The share of receipts whose interval contains it."""
    return float(((receipts["low"] <= receipts[of]) & (receipts[of] <= receipts["high"])).mean())


def half_width(receipts: pd.DataFrame) -> float:
    """The median of half the interval over the middle."""
    return float(((receipts["high"] - receipts["low"]) / 2 / receipts["own"]).median())


def moves(receipts: pd.DataFrame, column: str = "own") -> float:
    """How far a request's figure moves with its neighbours: of the kind that moves most, half of the range from the
    5th to the 95th percentile, over the mean."""
    of_kind = receipts.groupby("shape")[column]
    spread = (of_kind.quantile(0.95) - of_kind.quantile(0.05)) / 2 / of_kind.mean()
    return float(spread.max())


def bias(receipts: pd.DataFrame, by: str, edges: Sequence[float] = (0, 0.25, 0.5, 0.75, 1)) -> list[float]:
    """The receipts' joules over the true ones, minus 1, in the quarters of a column."""
    cuts = receipts[by].quantile(list(edges)).to_numpy()
    found = []
    for low, high in pairwise(cuts):
        part = receipts[(receipts[by] >= low) & (receipts[by] <= high)]
        found.append(float(part["own"].sum() / part["truth"].sum() - 1))
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--laws", type=int, default=12)
    parser.add_argument("--cycles", type=int, default=4)
    parser.add_argument("--folder", type=Path)
    stated = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=stated.folder) as folder:
        print_truth(Path(folder), stated.seed, stated.laws, stated.cycles)


def print_truth(folder: Path, seed: int, laws: int, cycles: int) -> None:
    """A line per law, then the bias over all of them."""
    print(f"receipts of {laws} drawn laws, seed {seed}: how they hold what such a request used on average")
    print(COLUMNS)
    of_all = []
    for number in range(laws):
        rng = np.random.default_rng([seed, number])
        served = serve(drawn_law(rng), rng, cycles, 2400.0)
        at = folder / str(number)
        at.mkdir()
        found = priced(at, served)
        shutil.rmtree(at)
        of_all.append(found.assign(law=number))
        error = (found["own"] / found["truth"] - 1).abs().median()
        texts = [
            f"{number:>4} {len(found):>9,} {found['neighbours'].mean():>8.1f}  {found['method'][0]:<11}",
            f"{covered(found):>7.3f} {half_width(found):>11.3f} {error:>8.3f} {moves(found):>6.3f}",
            f"{covered(found, 'realised'):>18.3f} {moves(found, 'realised'):>6.2f}",
        ]
        print(" ".join(texts), flush=True)
    # Each law weighs the same.
    found = pd.concat(of_all)
    weights = 1 / found.groupby("law")["own"].transform("size")
    inside = (found["low"] <= found["truth"]) & (found["truth"] <= found["high"])
    share = float((inside * weights).sum() / weights.sum())
    print(f"all laws: covered {share:.3f}, median half-width {half_width(found):.3f}")
    totals = found.groupby("law")["truth"].transform("sum")
    scaled = found.assign(own=found["own"] / totals, truth=found["truth"] / totals)
    for column in ("input", "output", "neighbours", "cached"):
        quarters = " ".join(f"{100 * one:+6.1f} %" for one in bias(scaled, column))
        print(f"bias by quarters of {column:<12} {quarters}")


if __name__ == "__main__":
    main()
