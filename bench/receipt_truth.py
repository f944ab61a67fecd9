"""Whether receipts hold: requests of engines whose law is known, priced by the models that a run uses.

`python -m bench.receipt_truth --seed 1 --laws 24` prints, per law, how many receipts contain what a request of that kind
used on average, how wide they are, and how far the middle is off, by length, load and cached share. With `--requests
10000000` it prints what so many requests cost instead: seconds, memory, bytes. Add here what is asked of receipts. Keep
out the law (`simulated_engine`) and every formula: the dbt project's models are run, no copies.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd

from bench import children
from bench.simulated_engine import INTERVAL_SECONDS, Served, drawn_law, serve
from pipelines.booking.dbt_run import run_dbt
from pipelines.warehouse import database
from tests.books import empty_warehouse

ON = date(2026, 10, 1)
MODELS = ("stg_run_dates", "int_requests", "path:models/receipts")
IDLE_JOULES, CO2_GRAMS, USD = 1e6, 1e3, 100.0  # of the date: what a sum needs to be checked with
_PLACE = "'west' as site, 'd' as deployment, 'chat' as model, 'h100' as device_type, 'board' as meter_scope, 'unified' as role"


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
    with closing(_warehouse(folder)) as connection:
        connection.register("requests", requests)
        connection.register("intervals", intervals)
        connection.execute("insert into raw.requests by name select * from requests")
        _book(connection, "intervals", float(served.cached_tokens.sum()))
    make(folder)
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


def _warehouse(folder: Path) -> duckdb.DuckDBPyConnection:
    path = folder / "warehouse.duckdb"
    shutil.copyfile(empty_warehouse(), path)
    return database.connect(path)


def _book(connection: duckdb.DuckDBPyConnection, intervals: str, cached: float) -> None:
    """The marts that receipts read, of a date on which the engine served what `intervals` has."""
    connection.execute(
        f"insert into marts.model_intervals by name select date '{ON}' as date, interval_start_at, {_PLACE},"
        " joules as matched_productive_joules, computed as matched_computed_input_tokens,"
        f" output as matched_output_tokens, computed + output + {cached} / (select count(*) from {intervals})"
        f" as matched_total_tokens from {intervals}"
    )
    facts = (
        f"sum(joules) as productive_joules, {IDLE_JOULES} as idle_joules, sum(joules) + {IDLE_JOULES} as energy_joules,"
        f" 0 as unknown_joules, 0 as carbon_unknown_joules, 0 as error_joules, {CO2_GRAMS} as location_gco2e, {USD} as compute_cost_usd,"
        f" {USD / 10} as idle_compute_cost_usd, 0 as unknown_cost_usd, true as is_cost_complete, sum(computed) as computed_input_tokens,"
        f" {cached} as cached_input_tokens, sum(computed) + {cached} as input_tokens, sum(output) as output_tokens,"
        f" sum(computed) + {cached} + sum(output) as total_tokens"
    )
    connection.execute(
        f"insert into marts.model_daily by name select date '{ON}' as date, {_PLACE}, {facts} from {intervals}"
    )
    connection.execute(
        f"insert into marts.model_hourly by name select date '{ON}' as date, hours.at as hour_start_at,"
        f" date '2026-10-01' as billing_month, {_PLACE}, {facts} from {intervals} cross join (select unnest(generate_series("
        f" timestamptz '{ON} 00:00+00', timestamptz '{ON} 23:00+00', interval 1 hour)) as at) as hours group by hours.at"
    )


def make(folder: Path, threads: int = 2) -> float:
    """Run the models of receipts as a run does; returns the seconds."""
    variables = {
        "start_date": ON.isoformat(),
        "end_date": (ON + timedelta(days=1)).isoformat(),
        "keeps_receipts": True,
    }
    surroundings = {"WATTLEDGER_WAREHOUSE": str(folder / "warehouse.duckdb"), "WATTLEDGER_THREADS": str(threads)}
    began = time.monotonic()
    results = run_dbt(["run", "--select", *MODELS], variables, surroundings, folder / "dbt")
    wrong = [f"{one.node.name}: {one.message}" for one in results if one.status != "success"]
    if wrong:
        raise RuntimeError("; ".join(wrong))
    return time.monotonic() - began


def _at(seconds: np.ndarray) -> pd.DatetimeIndex:
    start = datetime(ON.year, ON.month, ON.day, tzinfo=UTC)
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
    for low, high in zip(cuts[:-1], cuts[1:], strict=True):
        part = receipts[(receipts[by] >= low) & (receipts[by] <= high)]
        found.append(float(part["own"].sum() / part["truth"].sum() - 1))
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--laws", type=int, default=12)
    parser.add_argument("--cycles", type=int, default=4)
    parser.add_argument("--requests", type=int, default=0)
    parser.add_argument("--folder", type=Path)
    stated = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=stated.folder) as folder:
        if stated.requests:
            print_speed(Path(folder), stated.requests)
        else:
            print_truth(Path(folder), stated.seed, stated.laws, stated.cycles)


def print_truth(folder: Path, seed: int, laws: int, cycles: int) -> None:
    """A line per law, then the bias over all of them."""
    print(
        f"receipts of {laws} drawn laws, seed {seed}: covered, half-width and error are of what such a request used on average"
    )
    print("   n  requests  at once  method  covered  half-width  |error|  moves  realised: covered  moves")
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
        print(
            f"{number:>4} {len(found):>9,} {found['neighbours'].mean():>8.1f}  {found['method'][0]:<7} {covered(found):>7.3f}"
            f" {half_width(found):>11.3f} {error:>8.3f} {moves(found):>6.3f} {covered(found, 'realised'):>18.3f} {moves(found, 'realised'):>6.2f}"
        )
    # Each law weighs the same.
    found = pd.concat(of_all)
    weights = 1 / found.groupby("law")["own"].transform("size")
    inside = (found["low"] <= found["truth"]) & (found["truth"] <= found["high"])
    print(
        f"all laws: covered {float((inside * weights).sum() / weights.sum()):.3f}, median half-width {half_width(found):.3f}"
    )
    scaled = found.assign(
        **{name: found[name] / found.groupby("law")["truth"].transform("sum") for name in ("own", "truth")}
    )
    for column in ("input", "output", "neighbours", "cached"):
        quarters = " ".join(f"{100 * one:+6.1f} %" for one in bias(scaled, column))
        print(f"bias by quarters of {column:<12} {quarters}")


def print_speed(folder: Path, requests: int) -> None:
    """What so many requests of a date cost beyond landing."""
    with closing(_warehouse(folder)) as connection:
        connection.execute("set preserve_insertion_order = false")
        connection.execute(
            "insert into raw.requests by name select 'edge' as source, 'chatcmpl-' || md5(i::varchar) as request_id,"
            f" timestamptz '{ON} 00:00+00' + to_microseconds(cast(i * (86300e6 / {requests}) as bigint)) as started_at,"
            " started_at + interval 9 seconds as ended_at, 0.3 + i % 7 * 0.1 as ttft_seconds, 9 as end_to_end_seconds,"
            " true as is_ok, 'm' || i % 8 as model, 't' || i % 400 as tenant, 100 + i % 3001 as input_tokens,"
            " i % 90 as cached_input_tokens, 10 + i % 797 as output_tokens"
            f" from range({requests}) as r(i)"
        )
        connection.execute(
            "create temp table intervals as select model, time_bucket(interval 5 minutes, started_at) as interval_start_at,"
            " sum(output_tokens) * 1.2 as joules, sum(input_tokens - cached_input_tokens) as computed,"
            " sum(output_tokens) as output from raw.requests group by all"
        )
        for (model,) in connection.execute("select distinct model from intervals order by 1").fetchall():
            connection.execute(f"create or replace temp view of_model as from intervals where model = '{model}'")
            connection.execute(f"create or replace temp view named as select * exclude (model) from of_model")
            _book_as(connection, model)
        connection.execute("checkpoint")
    cost, printed = children.python("-m", "bench.receipt_files_leg", folder)
    print(
        f"{requests:,} requests of a date, beyond landing (aims: 90 s, 3 GB): {cost.seconds:.0f} s, {cost.peak_mib:,} MiB"
    )
    print(printed.strip())


def _book_as(connection: duckdb.DuckDBPyConnection, model: str) -> None:
    _book(connection, "named", 1e6)
    for mart in ("model_intervals", "model_daily", "model_hourly"):
        connection.execute(f"update marts.{mart} set model = '{model}' where model = 'chat'")


if __name__ == "__main__":
    main()
