"""A condition of one board, engine, window, label or file flags its rows and warns; everything else is published.

One fleet has all of them at once, for six days, and is booked by the command a user types. Samples are five minutes
apart and power is constant, so that joules are watts × seconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from subprocess import CompletedProcess

import pyarrow as pa
import pytest
import yaml

from pipelines.advice import efficiency_fits
from pipelines.publishing import pictures
from pipelines.publishing.publication import DATABASE
from tests.books import Book, at, files_source, later_command, on, record

FIRST, END = on("10-20"), on("10-26")
STEP = timedelta(minutes=5)
TIMES = [at("10-20 00:00") + n * STEP for n in range(6 * 288 + 1)]
DAY_SECONDS = 86_400
A100, B300 = "NVIDIA A100-SXM4-80GB", "NVIDIA B300 SXM6 AC"
LEAP_AT, SILENT_FROM, SILENT_TO = at("10-20 10:00"), at("10-21 12:00"), at("10-25 12:00")

# Board -> type, watts, pod of the namespace, model that the pod serves.
BOARDS = {
    "GPU-b300": (B300, 900, "b300-0", "busy"),  # the idle watts of this type are unknown
    "GPU-leap": (A100, 250, "leap-0", "leap"),
    "GPU-dollar": (A100, 250, "dollar-0", "v$1_$2"),
    "GPU-base": (A100, 250, "base-0", "__base__"),
    "GPU-draft": (A100, 250, "draft-0", "__draft__"),  # the fleet file calls it `draft`
    "GPU-sham": (A100, 250, "sham-0", "__unallocated__"),
}
# Board -> pods that share it with the model of each, its tokens a step, and for MIG its profile and activity.
SHARED = {
    "GPU-mig": [
        ("mig-a-0", 100, ("3g.40gb", 0.5)),
        ("mig-b-0", 100, ("4g.40gb", 0.75)),
    ],  # 3 × 0.5 to 4 × 0.75
    "GPU-slice": [("slice-a-0", 100, None), ("slice-b-0", 300, None)],
}
WATTS_SHARED, WATTS_OUTAGE, WATTS_FREE = 360, 200, 60


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[CompletedProcess[str], Book]:
    folder = tmp_path_factory.mktemp("conditions")
    record(pa.concat_tables([*boards(), *engines()]), folder / "recorded")
    (folder / "round.json").write_text("not what MLPerf publishes")
    contents = {
        "fleet": "conditions",
        "period": {"start": FIRST, "end": END},
        "sources": [files_source("boards", "recorded/*.parquet", interval_seconds=300)],
        # The board without reference is alone at its site: no other idle floor there makes up for its own.
        "sites": [{"name": name, "zone": "US-CAL-CISO", "pue": 1.2} for name in ("west", "lab")],
        "nodes": [{"name": "n0", "site": "lab"}],
        "models": [{"name": "draft", "aliases": ["__draft__"]}],
        "assignments": [{"device_uuid": "GPU-outage", "engine": "10.0.0.4:8000", "start_at": "2026-10-01T00:00:00Z"}],
        "run_windows": {"inline": [window("leap", "09:30", "10:30"), window("calm", "12:00", "13:00")]},
        "benchmarks": [{"name": "round", "kind": "mlperf", "path": "round.json", "as_of": FIRST}],
    }
    path = folder / "fleet.yaml"
    path.write_text(yaml.safe_dump(contents, sort_keys=False))
    return later_command(path, folder / "data"), Book.of(path, folder / "data")


@pytest.fixture(scope="module")
def book(run: tuple[CompletedProcess[str], Book]) -> Book:
    return run[1]


def window(name: str, start: str, end: str) -> dict[str, object]:
    times = {"start_at": at(f"10-20 {start}"), "end_at": at(f"10-20 {end}")}
    return {"window_id": name, "engine": "llm/leap-0", **times}


# --- what is planted --------------------------------------------------------------------------------------------------


def boards() -> Iterator[pa.Table]:
    for n, (uuid, (kind, watts, pod, _)) in enumerate(BOARDS.items()):
        leap = 1e9 if uuid == "GPU-leap" else 0
        yield energy(uuid, f"n{n}", kind, watts, {**of_pod(pod)}, leap=leap)
    for uuid, members in SHARED.items():
        for instance, (pod, _, mig) in enumerate(members, start=1):
            labels = of_pod(pod)
            if mig:
                labels |= {"GPU_I_ID": str(instance), "GPU_I_PROFILE": mig[0]}
                board = {"UUID": uuid, "Hostname": uuid, "modelName": A100, **labels}
                yield samples("DCGM_FI_PROF_GR_ENGINE_ACTIVE", board, [mig[1]] * len(TIMES))
            yield energy(uuid, uuid, A100, WATTS_SHARED, labels)
    yield energy("GPU-outage", "n20", A100, WATTS_OUTAGE, {}, silent=True)
    yield energy("GPU-free", "n21", A100, WATTS_FREE, {})


def engines() -> Iterator[pa.Table]:
    for _, _, pod, model in BOARDS.values():
        yield tokens({"model_name": model, **of_pod(pod)}, 100)
    for members in SHARED.values():
        for pod, per_step, _ in members:
            yield tokens({"model_name": pod.removesuffix("-0"), **of_pod(pod)}, per_step)
    yield tokens({"model_name": "outage", "instance": "10.0.0.4:8000"}, 100)


def of_pod(pod: str) -> dict[str, str]:
    return {"namespace": "llm", "pod": pod, "container": "engine"}


def energy(
    uuid: str, node: str, kind: str, watts: float, labels: dict[str, str], *, leap: float = 0, silent: bool = False
) -> pa.Table:
    """A board's counter in millijoules; it leaps by so many joules once, or has no sample for four days."""
    values = [1e9 + n * 300_000 * watts + (1000 * leap if when >= LEAP_AT else 0) for n, when in enumerate(TIMES)]
    kept = [not silent or not SILENT_FROM < when < SILENT_TO for when in TIMES]
    board = {"UUID": uuid, "Hostname": node, "modelName": kind, **labels}
    return samples("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", board, values).filter(pa.array(kept))


def tokens(labels: dict[str, str], per_step: float) -> pa.Table:
    counts = [1000 + n * per_step for n in range(len(TIMES))]
    return samples("vllm:generation_tokens_total", {"engine": "0", **labels}, counts)


def samples(metric: str, labels: dict[str, str], values: list[float]) -> pa.Table:
    return pa.table(
        {
            "metric": [metric] * len(values),
            "labels": [json.dumps(labels)] * len(values),
            "observed_at": pa.array(TIMES, pa.timestamp("us", "UTC")),
            "value": pa.array(values, pa.float64()),
        }
    )


# --- what comes of it -------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_everything_is_published_and_only_the_unreadable_file_fails_its_check(
    run: tuple[CompletedProcess[str], Book],
) -> None:
    done, book = run
    failed = [line.strip() for line in done.stdout.splitlines() if line.strip().startswith("FAILED")]
    assert len(failed) == 1, done.stdout + done.stderr
    assert failed[0].startswith("FAILED raw/benchmark_results benchmark_round_is_read: ")
    assert "round.json" in failed[0]
    assert (done.returncode, done.stderr) == (1, "")
    assert (book.fleet.published / DATABASE).exists()
    assert "v$1_$2" in done.stdout  # in the table of models


@pytest.mark.rest
def test_a_device_type_without_reference_has_no_idle_floor(book: Book) -> None:
    # 900 W for a day, all of it productive: the board's idle watts are unknown.
    columns = "productive_joules::double, idle_floor_joules::double, idle_joules::double"
    assert book.query(f"select {columns} from marts.model_daily where model = 'busy' and date = ?", [FIRST]) == [
        (900 * DAY_SECONDS, 0, 0)
    ]
    assert book.query("select distinct idle_basis from marts.energy_ledger where model = 'busy'") == [("none",)]
    held = "select model, idle_joules::double from marts.idle_power where date = ? and account = 'idle_floor'"
    rows = dict(book.query(held, [FIRST]))
    assert rows["busy"] == 0
    # An A100 that was never parked has its type's 93 W.
    assert rows["v$1_$2"] == 93 * DAY_SECONDS


@pytest.mark.rest
def test_models_that_share_a_board_are_covered_as_well_as_the_board(book: Book) -> None:
    # 7/15 and 8/15 of the time and of 93 W, and 1.5 to 3 of the other 267 W: 132.4 and 227.6 W. 100 to 300 tokens: 90
    # and 270 W. No sample is missing.
    rows = book.query(
        "select model, energy_joules::double / 86400, gpu_seconds::double, coverage_ratio from marts.model_daily"
        " where date = ? and (model like 'mig-%' or model like 'slice-%') order by 1",
        [FIRST],
    )
    assert rows == [
        ("mig-a", pytest.approx(132.4), pytest.approx(40_320), 1),
        ("mig-b", pytest.approx(227.6), pytest.approx(46_080), 1),
        ("slice-a", pytest.approx(90), pytest.approx(21_600), 1),
        ("slice-b", pytest.approx(270), pytest.approx(64_800), 1),
    ]


@pytest.mark.rest
def test_joules_of_unknown_time_leave_coverage_a_ratio(book: Book) -> None:
    # The counter of `outage` is silent for four days, more than max_spread: its joules are real, and who used them is
    # unknown. They join the board without a claimant, and both are covered. The model held its board all the time.
    rows = book.query(
        "select date, model, gpu_seconds::double, coverage_ratio from marts.model_daily"
        " where model in ('outage', '__unknown__') and energy_joules is not null order by date, model"
    )
    own, half = float(DAY_SECONDS), DAY_SECONDS / 2
    assert rows == [
        (on("10-20"), "__unknown__", own, 1),
        (on("10-20"), "outage", own, 1),
        (on("10-21"), "__unknown__", own + half, 1),
        (on("10-21"), "outage", half, 0.5),
        (on("10-22"), "__unknown__", 2 * own, 1),
        (on("10-23"), "__unknown__", 2 * own, 1),
        (on("10-24"), "__unknown__", 2 * own, 1),
        # The sample at the midnight that ends the period closes its last interval.
        (on("10-25"), "__unknown__", own + half, 1),
        (on("10-25"), "outage", half, 0.5),
    ]
    ((joules,),) = book.query("select sum(energy_joules)::double from marts.model_daily where model = '__unknown__'")
    assert joules == WATTS_FREE * 6 * DAY_SECONDS + WATTS_OUTAGE * 4 * DAY_SECONDS
    # `outage` served tokens all the time. On which joules is unknown, so they have no active time; the 7
    # boards whose use is known were active all day.
    day = "select known_seconds::double, active_seconds::double, idle_time_ratio from marts.fleet_daily"
    where = "where site = 'west' and meter_scope = 'board' and date = ?"
    assert book.query(f"{day} {where}", [on("10-22")]) == [(7 * own, 7 * own, 0)]


@pytest.mark.rest
def test_a_leap_of_a_counter_marks_the_windows_that_contain_it(book: Book) -> None:
    # 1 GJ in 300 s; a board of 400 W draws 0.18 MJ at most (1.5 × its limit).
    rows = book.query("select window_id, is_valid, reason_code from marts.run_windows order by 1")
    assert rows == [("calm", True, "ok"), ("leap", False, "impossible_counter_step")]
    assert book.query("select energy_joules::double from marts.run_windows where window_id = 'calm'") == [(250 * 3600,)]


@pytest.mark.rest
def test_names_of_a_source_are_never_names_of_the_book(book: Book) -> None:
    held = "select distinct model, engine, deployment from marts.energy_ledger where device_uuid = ?"
    assert book.query(held, ["GPU-base"]) == [('"__base__"', "llm/base-0", 'llm/"__base__"')]
    assert book.query(held, ["GPU-sham"]) == [('"__unallocated__"', "llm/sham-0", 'llm/"__unallocated__"')]
    # The fleet file's alias is looked up with the name as it was served.
    assert book.query(held, ["GPU-draft"]) == [("draft", "llm/draft-0", "llm/draft")]
    assert book.query(held, ["GPU-free"]) == [("__unknown__", "__unknown__", "__unknown__")]
    # A model each of 5 boards, 2 each of the 2 shared ones, and `outage`; `__unknown__` is no model.
    assert book.query("select models from marts.fleet_daily where date = ? and site = 'west'", [FIRST]) == [
        (len(BOARDS) - 1 + 4 + 1,)
    ]
    fitted = "select count(*) from marts.efficiency_fit where model = '\"__base__\"'"
    assert book.query(fitted) == [(1,)]


@pytest.mark.rest
def test_every_picture_of_such_names_is_drawn(book: Book) -> None:
    with book.connection() as connection:
        levels, fits = efficiency_fits.write_fits(connection)
        models = connection.execute("select * from marts.model_daily where energy_joules is not null").df()
    shown = levels[levels["model"].isin(["v$1_$2", '"__base__"'])]
    assert len(shown) == 2
    assert pictures.efficiency_curves(shown, fits, "curves").startswith("![curves](data:image/png;base64,")
    assert pictures.energy_accounts(models, "energy").startswith("![energy](data:image/png;base64,")


@pytest.mark.rest
def test_no_other_data_test_than_the_conditions_own_finds_anything(book: Book) -> None:
    assert book.failed_tests() == set()
