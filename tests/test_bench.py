"""The bench's load and its floor: the files are a spool, counters run on over days, the floor's joules are right."""

import json
import sqlite3
import urllib.request
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest
import sqlalchemy

from bench import agent, children, fleet_day, floor, questions
from bench.product import Fleet, write_empty
from collectors.devices.spool_collector import SpoolCollector
from collectors.samples import Family, Window
from collectors.series import SeriesRegister
from pipelines.command_line.run import history_kept_open
from pipelines.fleet.fleet_file import load_fleet

DAY = date(2026, 9, 3)
START = datetime(2026, 9, 3, tzinfo=UTC)
POWER = ("DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_DEV_GPU_UTIL")


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    out = tmp_path_factory.mktemp("bench")
    return out, fleet_day.write(out, gpus=16, day=DAY)


def test_the_files_are_a_spool(bench):
    out, written = bench
    assert written == {"power_rows": 16 * 3 * 5760, "token_rows": 2 * 77 * 5760, "files": 2}
    window = Window(START, START + timedelta(days=1))
    register = SeriesRegister("bench", window)
    families = {metric: Family(metric, "power", "dcgm_exporter") for metric in POWER}
    batches = list(SpoolCollector("bench", out / "power").collect(window, families, register))
    assert sum(batch.samples.num_rows for batch in batches) == 16 * 3 * 5760
    chunks = register.chunk_table()
    assert chunks.num_rows == 48
    assert set(chunks["samples"].to_pylist()) == {5760}
    assert set(chunks["typical_interval_seconds"].to_pylist()) == {15.0}
    assert set(chunks["longest_gap_seconds"].to_pylist()) == {15.0}
    for quiet in ("duplicates", "out_of_order", "rejects"):
        assert set(chunks[quiet].to_pylist()) == {0}


def test_an_engine_has_twelve_series_and_the_buckets_of_three_histograms(bench):
    out, _ = bench
    (path,) = (out / "tokens").glob("host=*/date=2026-09-03/*.parquet")
    series = pq.read_table(path, columns=["metric", "labels"]).group_by(["metric", "labels"]).aggregate([])
    labels = [json.loads(text) for text in series["labels"].to_pylist()]
    assert sum("le" not in one for one in labels) == 2 * 12
    assert sum("le" in one for one in labels) == 2 * (22 + 23 + 20)
    this = fleet_day.node(0, DAY)
    previous: dict[str, np.ndarray] = {}
    for series in fleet_day.engine_series(this, 0, DAY):
        if "le" in series.labels:
            assert (np.diff(series.values) >= 0).all()
            if series.metric in previous:
                assert (series.values >= previous[series.metric]).all()
            previous[series.metric] = series.values


def test_counters_run_on_from_one_day_to_the_next():
    today, tomorrow = (fleet_day.node(1, DAY + timedelta(days=days)) for days in (0, 1))
    ends = [
        [series.values for series in fleet_day.board_series(this, 1, 8, day, gauge_only=False)][1::3]
        for this, day in ((today, DAY), (tomorrow, DAY + timedelta(days=1)))
    ]
    for board, (counted, continued) in enumerate(zip(*ends, strict=True)):
        assert continued[0] - counted[-1] == fleet_day.millijoules(today.milliwatts)[board, -1]
    assert tomorrow.observed_us[0] - today.observed_us[-1] == 15_000_000


@pytest.mark.parametrize("gauge_only", [False, True])
def test_the_floor_books_every_joule_between_first_and_last_sample(tmp_path, gauge_only):
    fleet_day.write(tmp_path, gpus=10, day=DAY, gauge_only=gauge_only, with_tokens=False)
    printed = floor.run([tmp_path / "power"], tmp_path / "floor.duckdb")
    milliwatts = [fleet_day.node(number, DAY).milliwatts for number in (0, 1)]
    # The counter ticks in whole millijoules; the gauge's trapezoid also has halves.
    trapezoid = [7.5 * (watts[:, 1:] + watts[:, :-1]) for watts in milliwatts]
    between = trapezoid if gauge_only else [fleet_day.millijoules(watts)[:, :-1] for watts in milliwatts]
    metered = (between[0].sum() + between[1][:2].sum()) / 1000
    assert printed["rows"] == 10 * (2 if gauge_only else 3) * 5760
    assert printed["intervals"] == 10 * 288
    assert printed["energy_joules"] == pytest.approx(metered, rel=1e-9)
    # One interval by hand: node 1 is scraped 7.919 s after each quarter of a minute.
    with duckdb.connect(str(tmp_path / "floor.duckdb"), read_only=True) as connection:
        connection.execute("set TimeZone = 'UTC'")
        query = """
            select energy_joules from energy
            where device_uuid = 'GPU-00000001-0000-4000-8000-000000000001'
                and interval_start_at = timestamptz '2026-09-03 06:00:00+00'
        """
        ((energy_joules,),) = connection.execute(query).fetchall()
    first = 6 * 3600 // 15
    segments = between[1][1] / 1000
    inside = segments[first : first + 19].sum()
    edges = segments[first - 1] * 7.919 / 15 + segments[first + 19] * (15 - 7.919) / 15
    assert energy_joules == pytest.approx(inside + edges, rel=1e-12)


def test_a_leg_is_a_process_of_its_own_whose_cost_and_last_words_are_known():
    cost, text = children.python(
        "-c", "import json; held = b'x' * (300 << 20); print('first'); print(json.dumps({'a': 1}))"
    )
    assert children.printed_json(text) == {"a": 1}
    assert cost.peak_mib >= 300
    assert cost.cpu_seconds > 0
    with pytest.raises(RuntimeError, match=r"ended with 3:\nwhy\n"):
        children.python("-c", "print('why'); raise SystemExit(3)")


def test_the_benchs_fleet_files_are_fleet_files(tmp_path):
    write_empty(tmp_path / "empty")
    fleet = Fleet(tmp_path, "some", "empty", days=31, streams=("power", "tokens"))
    loaded = load_fleet(fleet.path, environ={"WATTLEDGER_DATA": str(fleet.data)})
    assert (loaded.period.start, loaded.period.end) == (date(2026, 9, 1), date(2026, 10, 2))
    window = Window(datetime(2026, 9, 1, tzinfo=UTC), datetime(2026, 9, 2, tzinfo=UTC))
    for collector in loaded.collectors():
        register = SeriesRegister(collector.source, window)
        assert list(collector.collect(window, {}, register)) == []


def test_the_agents_pages_have_five_hundred_series_each():
    with agent.pages() as urls:
        texts = [urllib.request.urlopen(url).read().decode() for url in urls]
    series = [sum(not line.startswith("#") for line in text.splitlines()) for text in texts]
    assert series == [505, 505]


def test_a_run_holds_dagsters_files_open_so_that_they_are_not_written_back_each_time(tmp_path):
    path = tmp_path / "history.db"
    with sqlite3.connect(path) as connection:
        connection.execute("pragma journal_mode = wal")
        connection.execute("create table events (event text)")
    connection.close()
    engine = sqlalchemy.create_engine(f"sqlite:///{path}", poolclass=sqlalchemy.pool.NullPool)
    with history_kept_open(tmp_path):
        for _ in range(3):
            with engine.begin() as opened:
                opened.execute(sqlalchemy.text("insert into events values ('one')"))
            assert path.with_name("history.db-wal").stat().st_size > 0
    assert not path.with_name("history.db-wal").exists()
    with sqlite3.connect(path) as connection:
        assert connection.execute("select count(*) from events").fetchall() == [(3,)]
    connection.close()


def test_a_run_leaves_other_databases_of_the_process_alone(tmp_path):
    history, other = tmp_path / "history", tmp_path / "other"
    for folder in (history, other):
        folder.mkdir()
        with sqlite3.connect(folder / "a.db") as connection:
            connection.execute("pragma journal_mode = wal")
        connection.close()

    with history_kept_open(history):
        for folder in (history, other):
            engine = sqlalchemy.create_engine(f"sqlite:///{folder}/a.db", poolclass=sqlalchemy.pool.NullPool)
            with engine.begin() as opened:
                opened.execute(sqlalchemy.text("create table events (event text)"))
                synchronous = opened.execute(sqlalchemy.text("pragma synchronous")).scalar()
                assert synchronous == {history: 1, other: 2}[folder]
        assert (history / "a.db-wal").exists() and not (other / "a.db-wal").exists()


def test_processor_seconds_of_a_childs_steps_are_read_along():
    program = (
        "import time, json; sleeping = time.time(); time.sleep(0.6); busy = time.time();"
        " exec('while time.process_time() < 0.8: pass'); print(json.dumps([sleeping, busy, time.time()]))"
    )
    cost, text = children.python("-c", program)
    sleeping, busy, end = children.printed_json(text)
    asleep, awake = cost.cpu_between(sleeping, busy), cost.cpu_between(busy, end)
    assert asleep is not None and awake is not None
    assert asleep < 0.2 < awake < 1.0
    assert cost.held_between(busy, end) > 1
    assert children.Cost(1.0, 1.0, 1).cpu_between(busy, end) is None


# A counter every 15 s, but: silent from 00:04:00 to 00:13:00 (longer than a window), and a sample at 00:15:00 exactly.
SECONDS = [*range(0, 241, 15), *range(780, 1801, 15)]
RISES = [
    # (samples, grid, millijoules of each whole window); the counter is 1000 × seconds.
    (SECONDS, questions.Grid(300), {0: 240_000, 2: 660_000, 3: 300_000, 4: 300_000, 5: 300_000}),
    # The innocent twin: no silence.
    (range(0, 1801, 15), questions.Grid(300), dict.fromkeys(range(6), 300_000)),
    # From 00:01:30 on: the last sample before each edge is at 90, 510, 930, 1350, 1770.
    (range(0, 1801, 15), questions.Grid(420, 90), {0: 420_000, 1: 420_000, 2: 420_000, 3: 420_000, 4: 30_000}),
    (SECONDS, questions.Grid(420, 90), {0: 150_000, 1: 690_000, 2: 420_000, 3: 420_000, 4: 30_000}),
]


@pytest.mark.parametrize(("seconds", "grid", "expected"), RISES)
@pytest.mark.parametrize("question", [questions.NEAR_EDGES_PER_DEVICE, questions.ALL_SAMPLES_PER_DEVICE])
def test_samples_near_an_edge_answer_as_all_samples_do(question, seconds, grid, expected):
    seconds = list(seconds)
    gaps = [after - before for before, after in pairwise(seconds)]
    with duckdb.connect() as connection:
        connection.execute("create schema raw")
        connection.execute(
            'create table raw.series as select 7 as series_id, ? as metric, \'{"UUID": "GPU-a"}\' as labels',
            [questions.ENERGY],
        )
        connection.execute("create table raw.power_samples (series_id bigint, observed_at timestamptz, value double)")
        for second in seconds:
            at = START + timedelta(seconds=second)
            connection.execute("insert into raw.power_samples values (7, ?, ?)", [at, 1000.0 * second])
        connection.execute(
            "create table raw.series_chunks as select 7 as series_id, ?::timestamptz as last_at,"
            " ?::double as last_value, ?::double as first_value, ?::double as longest_gap_seconds",
            [START + timedelta(seconds=seconds[-1]), 1000.0 * seconds[-1], 0.0, max(gaps)],
        )
        first = questions.parameters(DAY, grid)["first"]
        if question.before:
            values = questions.parameters(DAY, grid)
            connection.execute(question.before, {name: values[name] for name in ("metric", "step_us")})
        rows = connection.sql(question.query, params=questions.parameters(DAY, grid)).fetchall()
    assert {number - first: joules * 1000 for _, number, joules in rows} == expected


def test_a_days_whole_windows_are_counted_from_its_own_start():
    assert questions.FIVE_MINUTES.windows == 288
    assert questions.Grid(420, 90).windows == 205  # 86,310 s have 205 whole windows of 420 s
    assert questions.HOUR.windows == 24


def test_counters_of_a_year_before_start_from_zero_at_its_first_day():
    day = date(2025, 11, 26)
    this = fleet_day.node(0, day)
    counter = [series.values for series in fleet_day.board_series(this, 0, 1, day, gauge_only=False, zero=day)][1]
    assert counter[0] == 0
    assert (np.diff(counter) >= 0).all()
