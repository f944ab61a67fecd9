"""What else a request could have been charged by (docs/decisions/README.md, 0046).

`python -m bench.receipt_alternatives --seed 1` prints how far each estimate moves with a request's neighbours, and how
far it is off.

Add an estimate here that is proposed. Keep out the one that the product uses: its row is a plain price per token
of the same total, so that all four are compared alike (`receipt_truth` runs the product's own).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
import pandas as pd

from bench.simulated_engine import INTERVAL_SECONDS, Served, drawn_law, serve

# The input's weight is the product's at four requests at once; the floor is a part of the active energy.
INPUT_WEIGHT, FLOOR_RATIO = 0.03, 0.69


def estimates(served: Served) -> dict[str, np.ndarray]:
    """Joules of each request by each estimate; all add up to what was drawn."""
    computed = served.input_tokens - served.cached_tokens
    tokens = served.output_tokens + INPUT_WEIGHT * (computed + 0.1 * served.cached_tokens)
    total = served.joules.sum()
    interval = np.minimum((served.end // INTERVAL_SECONDS).astype(int), served.interval_joules.size - 1)
    asked = np.bincount(interval, tokens, served.interval_joules.size)
    seconds = served.end - served.start
    floor, work = FLOOR_RATIO * total, (1 - FLOOR_RATIO) * total * tokens / tokens.sum()
    return {
        "joules of the interval, by tokens": served.interval_joules[interval] * tokens / asked[interval],
        "floor of those then running + price": _shared(served, floor) + work,
        "price of a second + price": floor * seconds / seconds.sum() + work,
        "price per weighted token": total * tokens / tokens.sum(),
    }


def _shared(served: Served, floor: float) -> np.ndarray:
    """A floor that is drawn while anything runs, shared equally at each moment: by one running sum over all starts and
    ends, not by pairs of requests."""
    at = np.concatenate([served.start, served.end])
    order = np.argsort(at, kind="stable")
    running = np.cumsum(np.where(order < served.start.size, 1, -1))
    length = np.diff(at[order], append=at[order[-1]])
    watts = floor / length[running > 0].sum()
    borne = np.concatenate([[0], np.cumsum(np.where(running > 0, watts * length / np.maximum(running, 1), 0))[:-1]])
    by_event = np.empty(at.size)
    by_event[order] = borne
    return by_event[served.start.size :] - by_event[: served.start.size]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--laws", type=int, default=24)
    stated = parser.parse_args(arguments)
    rows = []
    for number in range(stated.laws):
        rng = np.random.default_rng([stated.seed, number])
        served = serve(drawn_law(rng), rng, 4, 2400.0)
        for name, joules in estimates(served).items():
            of_kind = pd.Series(joules).groupby(served.shape)
            moves = (of_kind.quantile(0.95) - of_kind.quantile(0.05)) / 2 / of_kind.mean()
            error = np.abs(joules / served.expected_joules - 1)
            rows.append((name, float(moves.median()), float(np.median(error))))
    print(f"{stated.laws} drawn laws, seed {stated.seed}: medians over laws; in brackets the range of the middle half")
    for name, of_name in pd.DataFrame(rows, columns=["estimate", "moves", "error"]).groupby("estimate", sort=False):
        texts = [
            f"{column} {of_name[column].median():.2f} ({of_name[column].quantile(0.25):.2f} to"
            f" {of_name[column].quantile(0.75):.2f})"
            for column in ("moves", "error")
        ]
        print(f"  {name:<38} {'  '.join(texts)}")


if __name__ == "__main__":
    main()
