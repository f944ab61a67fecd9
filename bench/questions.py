"""What is asked of a server and of the warehouse in turn: energy per device on two grids, energy by namespace and hour;
and of a published month, as finance asks.

Add here another question with its aim and the same question on each side. Keep out servers (`sources`, `prometheus`).
"""

from __future__ import annotations

import json
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable
from contextlib import closing
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

import duckdb
import pyarrow.compute as pc

from bench import table

ENERGY = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
TURNS = 5


class Grid(NamedTuple):
    """Windows of so many seconds, from so many seconds after midnight on: the whole ones of a day."""

    step_seconds: int
    offset_seconds: int = 0

    @property
    def windows(self) -> int:
        """How many whole windows a day has."""
        return (86_400 - self.offset_seconds) // self.step_seconds


FIVE_MINUTES, ODD, HOUR = Grid(300), Grid(420, 90), Grid(3600)

# The servers' question: what each counter rose by since the last sample before the window, which is open at its start
# and closed at its end. The last sample of a window is no further from its end than the longest gap, or it is the last
# one of a landed chunk: only those are grouped. Right on every grid; where a gap is longer than a window, all samples
# are read. Counters that only rise: the last value is the highest. The gap is a variable because DuckDB drops rows in
# the scan by a constant, but by another query's answer only after its join (a quarter slower).
EDGE = """
set variable edge_us = (
    select $step_us - ceil(coalesce(max(longest_gap_seconds), 0) * 1e6)::bigint
    from raw.series_chunks join raw.series using (series_id)
    where metric = $metric
)
"""
NEAR_EDGES = """
with energy_series as (
    select
        series_id,
        any_value(json_extract_string(labels, '$.UUID')) as device_uuid,
        any_value(json_extract_string(labels, '$.namespace')) as namespace,
        min(first_value) as first_value
    from raw.series join raw.series_chunks using (series_id)
    where metric = $metric
    group by series_id
),
last_samples as (
    select series_id, epoch_us(observed_at) as observed_us, value
    from raw.power_samples
    where
        (epoch_us(observed_at) - $origin_us - 1) % $step_us >= getvariable('edge_us')
        and series_id in (select series_id from energy_series)
    union all
    select series_id, epoch_us(last_at), last_value
    from raw.series_chunks
    where series_id in (select series_id from energy_series)
),
bucketed as (
    select series_id, (observed_us - $origin_us - 1) // $step_us as interval_number, max(value) as last_value
    from last_samples
    group by all
),
"""
# The same from all samples.
ALL_SAMPLES = """
with energy_series as (
    select
        series_id,
        json_extract_string(labels, '$.UUID') as device_uuid,
        json_extract_string(labels, '$.namespace') as namespace
    from raw.series where metric = $metric
),
bucketed as (
    select
        series_id,
        (epoch_us(observed_at) - $origin_us - 1) // $step_us as interval_number,
        min(value) as first_value, max(value) as last_value
    from raw.power_samples
    where series_id in (select series_id from energy_series)
    group by all
),
"""
RISES = """
rises as (
    select
        series_id,
        interval_number,
        (
            last_value - lag(last_value, 1, first_value) over (partition by series_id order by interval_number)
        ) / 1000 as energy_joules
    from {rows}
)
"""
IN_WINDOWS = RISES.format(rows="bucketed")  # from the first sample of a series' first window
OF_SERIES = RISES.format(rows="bucketed join energy_series using (series_id)")  # from the series' own first sample
PER_DEVICE = """
select device_uuid, interval_number, energy_joules
from rises join energy_series using (series_id)
where interval_number >= $first and interval_number < $end
"""
PER_NAMESPACE = """
select namespace, interval_number, sum(energy_joules) as energy_joules
from rises join energy_series using (series_id)
where interval_number >= $first and interval_number < $end
group by all
"""
# The ledger's question: deltas between the intervals too, shared by time across the edge.
SHARED = """
with energy_series as (
    select series_id, json_extract_string(labels, '$.UUID') as device_uuid from raw.series where metric = $metric
),
bucketed as (
    select
        series_id,
        (epoch_us(observed_at) - $origin_us) // $step_us as interval_number,
        min(value) as first_value, max(value) as last_value,
        min(epoch_us(observed_at)) - $origin_us as first_us, max(epoch_us(observed_at)) - $origin_us as last_us
    from raw.power_samples
    where series_id in (select series_id from energy_series)
    group by all
),
neighboured as (
    select
        *,
        lag(last_value) over device as previous_value, lag(last_us) over device as previous_us,
        lead(first_value) over device as next_value, lead(first_us) over device as next_us
    from bucketed
    window device as (partition by series_id order by interval_number)
)
select
    device_uuid,
    interval_number,
    (
        last_value - first_value
        + coalesce((first_value - previous_value) * (first_us - interval_number * $step_us)
            / (first_us - previous_us), 0)
        + coalesce((next_value - last_value) * ((interval_number + 1) * $step_us - last_us)
            / (next_us - last_us), 0)
    ) / 1000 as energy_joules
from neighboured join energy_series using (series_id)
where interval_number >= $first and interval_number < $end
"""


class Question(NamedTuple):
    """A query, and the statement that sets the variables that it reads."""

    query: str
    before: str | None = None


NEAR_EDGES_PER_DEVICE = Question(NEAR_EDGES + OF_SERIES + PER_DEVICE, EDGE)
ALL_SAMPLES_PER_DEVICE = Question(ALL_SAMPLES + IN_WINDOWS + PER_DEVICE)
SHARED_PER_DEVICE = Question(SHARED)
NEAR_EDGES_PER_NAMESPACE = Question(NEAR_EDGES + OF_SERIES + PER_NAMESPACE, EDGE)
ALL_SAMPLES_PER_NAMESPACE = Question(ALL_SAMPLES + IN_WINDOWS + PER_NAMESPACE)

# The same question of the book, in a publication; by model, which no label of a board names, the book alone answers.
BOOK_BY = """
select {key}, hour_start_at, sum(energy_joules)::double as energy_joules
from marts.model_hourly where date = $date group by all
"""

BOOK_PER_METER = """
select meter, interval_start_at, sum(energy_joules)::double as energy_joules
from marts.energy_ledger where date = $date group by all
"""

# What finance asks of a month.
MONTH = {
    "cost of each model, finance.cost": """
        select model, sum(known_cost_usd) as known_cost_usd, sum(idle_cost_usd) as idle_cost_usd
        from finance.cost where month = $month group by all order by known_cost_usd desc
    """,
    "cost per million tokens, finance.unit_cost": """
        select site, model, token_kind, tokens, known_cost_usd, known_cost_usd_per_mtok
        from finance.unit_cost where month = $month order by all
    """,
    "cost and J/token of each model and day, marts.model_daily": """
        select
            date, model, sum(compute_cost_usd) as compute_cost_usd,
            sum(matched_joules) / nullif(sum(matched_output_tokens), 0) as joules_per_output_token
        from marts.model_daily where date >= $month and date < $month + interval 1 month group by all order by all
    """,
}


class Answer(NamedTuple):
    """Energies: what they took, how many figures, their sum."""

    seconds: float
    figures: int
    energy_joules: float


def by_server(url: str, query: str, day: date, grid: Grid) -> Answer:
    """What the server takes for the query at the end of each whole window of the day, to the answer's last byte."""
    start = int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) + grid.offset_seconds
    fields = {
        "query": query,
        "start": start + grid.step_seconds,
        "end": start + grid.windows * grid.step_seconds,
        "step": grid.step_seconds,
        # VictoriaMetrics remembers answers; Prometheus ignores the field.
        "nocache": 1,
    }
    began = time.perf_counter()
    with urllib.request.urlopen(f"{url}/api/v1/query_range?{urllib.parse.urlencode(fields)}", timeout=600) as answer:
        body = answer.read()
    seconds = time.perf_counter() - began
    values = [float(value) for one in json.loads(body)["data"]["result"] for _, value in one["values"]]
    return Answer(seconds, len(values), sum(values) / 1000)


def by_sql(connection: duckdb.DuckDBPyConnection, question: Question, day: date, grid: Grid) -> Answer:
    """What DuckDB takes for the question over the day's whole windows in the rows that were landed, to the last row."""
    values = parameters(day, grid)
    began = time.perf_counter()
    if question.before:
        connection.execute(question.before, {name: values[name] for name in ("metric", "step_us")})
    rows = connection.sql(question.query, params=values).to_arrow_table()
    return Answer(time.perf_counter() - began, rows.num_rows, pc.sum(rows["energy_joules"]).as_py())


def by_book(connection: duckdb.DuckDBPyConnection, query: str, day: date) -> Answer:
    """What DuckDB takes for the query over a published day."""
    began = time.perf_counter()
    rows = connection.sql(query, params={"date": day}).to_arrow_table()
    return Answer(time.perf_counter() - began, rows.num_rows, pc.sum(rows["energy_joules"]).as_py())


def parameters(day: date, grid: Grid) -> dict[str, object]:
    """What the queries above are given. Windows are counted from 1970 on, so that no time is before the first one."""
    step_us = grid.step_seconds * 1_000_000
    midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
    start_us = int(midnight.timestamp() + grid.offset_seconds) * 1_000_000
    first = start_us // step_us
    return {
        "metric": ENERGY,
        "step_us": step_us,
        "origin_us": start_us % step_us,
        "first": first,
        "end": first + grid.windows,
    }


def ask_in_turn(server: str, url: str, landed: Path, published: Path, day: date) -> None:
    """Ask the server, the landed samples and the book's publication the same, in turn; print seconds and ratios."""
    with (
        closing(duckdb.connect(str(landed), read_only=True)) as samples,
        closing(duckdb.connect(str(published), read_only=True)) as book,
    ):
        near, every = "DuckDB, samples near an edge", "DuckDB, all samples"
        increase = f"increase({ENERGY}[{{}}s])"
        for title, grid, query, of_samples, of_book in (
            (
                "energy per device and 5 minutes of the day",
                FIVE_MINUTES,
                increase,
                {
                    near: NEAR_EDGES_PER_DEVICE,
                    every: ALL_SAMPLES_PER_DEVICE,
                    "DuckDB, edges shared by time": SHARED_PER_DEVICE,
                },
                {"the book's, by meter and 5 minutes": BOOK_PER_METER},
            ),
            (
                "energy per device and 7 minutes from 00:01:30 on",
                ODD,
                increase,
                {near: NEAR_EDGES_PER_DEVICE, every: ALL_SAMPLES_PER_DEVICE},
                {},
            ),
            (
                "energy by namespace and hour",
                HOUR,
                f"sum by (namespace) ({increase})",
                {near: NEAR_EDGES_PER_NAMESPACE, every: ALL_SAMPLES_PER_NAMESPACE},
                {f"the book's, by {key} and hour": BOOK_BY.format(key=key) for key in ("namespace", "model")},
            ),
        ):
            sides: dict[str, Callable[[], Answer]] = {
                server: partial(by_server, url, query.format(grid.step_seconds), day, grid)
            }
            sides |= {name: partial(by_sql, samples, sql, day, grid) for name, sql in of_samples.items()}
            sides |= {name: partial(by_book, book, sql, day) for name, sql in of_book.items()}
            _print_turns(title, sides)


def _print_turns(title: str, sides: dict[str, Callable[[], Answer]]) -> None:
    answers = [{name: ask() for name, ask in sides.items()} for _ in range(TURNS)]
    print(f"  {title}, in turn:")
    asked = answers[0][next(iter(sides))]
    for name in sides:
        result = answers[0][name]
        beyond = result.energy_joules / asked.energy_joules - 1
        kwh = f"{result.energy_joules / 3.6e6:.3f} kWh ({beyond:+.4%})"
        what = f"  {name}: {result.figures} figures, {kwh}; s"
        table.median(what, (answer[name].seconds for answer in answers))
    server, *others = sides
    for name in others:
        ratios = (answer[name].seconds / answer[server].seconds for answer in answers)
        table.median(f"  {name} / {server}, aim 1", ratios)


def ask_month(published: Path, month: date) -> None:
    """Ask a publication what finance asks of a month, in a connection of its own each time and in an open one."""
    for name, query in MONTH.items():
        fresh, processors = [], []
        for _ in range(TURNS):
            began, cpu_began = time.perf_counter(), time.process_time()
            with closing(duckdb.connect(str(published), read_only=True)) as connection:
                rows = connection.execute(query, {"month": month}).fetchall()
            fresh.append((time.perf_counter() - began) * 1e3)
            processors.append((time.process_time() - cpu_began) * 1e3)
        with closing(duckdb.connect(str(published), read_only=True)) as connection:
            opened = list(_milliseconds(connection, query, month))
        print(f"  {name}: {len(rows)} rows")
        table.median("  ms with a new connection, aim 100", fresh)
        table.median("    the same by processor milliseconds", processors)
        table.median("  ms in an open one", opened)


def _milliseconds(connection: duckdb.DuckDBPyConnection, query: str, month: date) -> Iterable[float]:
    for _ in range(TURNS):
        began = time.perf_counter()
        connection.execute(query, {"month": month}).fetchall()
        yield (time.perf_counter() - began) * 1e3
