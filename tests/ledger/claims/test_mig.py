"""Boards that several share, in MIG instances or by turns: who holds which part, what is free, whose joules they draw.

One fleet of a day at 2.10 USD per board hour, a case per node. Each board draws 90 W until noon, while its engines
wait, and 300 W after it, unless its case states other watts.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.books import Book
from tests.planted import DAY_SECONDS, ENERGY, OUTPUT, WATTS, Series, board, moment, plant, pod, rising, steady, vllm

STEP = 300
NOON = DAY_SECONDS / 2
ACTIVE, UTIL, MEMORY = "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED"  # ratio, %, MiB
PARKED_JOULES = 90 * DAY_SECONDS  # 7,776,000
BUSY_JOULES = 210 * NOON  # 9,072,000 more, after noon
MARTS = (
    "model_daily",
    "energy_ledger",
    "mig_instances_daily",
    "unmetered_devices",
    "goodput_hourly",
    "free_boards",
    "reconciliation_daily",
)


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Book:
    rate = {"device_type": "a100-sxm4-80gb", "usd_per_gpu_hour": 2.1, "source": "planted"}
    series = [one for case in CASES for one in case()]
    made = plant(tmp_path_factory.mktemp("mig"), series, marts=MARTS, cost_rates=[{**rate, "valid_from": "2026-01-01"}])
    made.run()
    return made


# --- what is planted --------------------------------------------------------------------------------------------------


def mig(number: int, profile: str) -> dict[str, str]:
    return {"GPU_I_ID": str(number), "GPU_I_PROFILE": profile}


def meter(labels: dict[str, str], before: float = 90, after: float = 300) -> Series:
    """A board's counter in mJ, of so many watts before and after noon; each instance repeats its board's."""
    morning = rising(before * 1000, 0, NOON, start=1e9, step=STEP)
    evening = rising(after * 1000, NOON, DAY_SECONDS, start=1e9 + before * 1000 * NOON, step=STEP)
    return ENERGY, labels, morning + evening[1:]


def activity(labels: dict[str, str], after: float, before: float = 0.0) -> Series:
    """How busy an instance is, as a part of itself."""
    return ACTIVE, labels, steady(before, 0, NOON - STEP, step=STEP) + steady(after, NOON, DAY_SECONDS, step=STEP)


def engine(name: str, rate: float = 0.0, before: float = 0.0) -> Series:
    """An engine of the model `name`: tokens per second after and before noon."""
    morning = rising(before, 0, NOON, step=STEP)
    evening = rising(rate, NOON, DAY_SECONDS, start=1e6 + before * NOON, step=STEP)
    return OUTPUT, vllm(f"{name}-0", name), morning + evening[1:]


def one_of_seven() -> Iterator[Series]:
    """Seven instances, of which a pod holds one."""
    for number in range(1, 8):
        held = pod("one-0") if number == 1 else {}
        labels = board("GPU-one", "n-one", **mig(number, "1g.10gb"), **held)
        yield meter(labels)
        yield activity(labels, 0.9 if held else 0.0)
    yield engine("one", 20)


def lone() -> Iterator[Series]:
    """The same board, but the exporter shows the instance that is held, alone, and no activity."""
    yield meter(board("GPU-lone", "n-lone", **mig(1, "1g.10gb"), **pod("lone-0")))
    yield engine("lone", 20)


def unnumbered() -> Iterator[Series]:
    """The same, and from noon on the label with its number is gone."""
    labels = board("GPU-unnumbered", "n-unnumbered", GPU_I_PROFILE="1g.10gb", **pod("unnumbered-0"))
    counted = meter(labels)[2]
    yield ENERGY, {**labels, "GPU_I_ID": "1"}, [sample for sample in counted if sample[0] <= moment(NOON)]
    yield ENERGY, labels, [sample for sample in counted if sample[0] > moment(NOON)]
    yield engine("unnumbered", 20)


def parked() -> Iterator[Series]:
    """Two instances of different size, and none works; room for others is left."""
    for number, (name, profile) in enumerate((("large", "3g.40gb"), ("small", "1g.10gb+me"))):
        yield meter(board("GPU-parked", "n-parked", **mig(number, profile), **pod(f"{name}-0")), 100, 100)
        yield engine(name)


def full() -> Iterator[Series]:
    """4/7 of the compute and half of the memory; the smaller one works after noon."""
    for number, (name, profile) in enumerate((("four", "4g.40gb"), ("three", "3g.40gb"))):
        labels = board("GPU-full", "n-full", **mig(number, profile), **pod(f"{name}-0"))
        yield meter(labels)
        yield activity(labels, 0.5 if name == "three" else 0.0)
        yield engine(name, 20 if name == "three" else 0)


def equal() -> Iterator[Series]:
    """Seven engines in seven instances, each as busy as the others, all day long."""
    for number in range(7):
        labels = board("GPU-equal", "n-equal", **mig(number, "1g.10gb"), **pod(f"equal{number}-0"))
        yield meter(labels, 280, 280)
        yield activity(labels, 0.5, 0.5)
        yield engine(f"equal{number}", 20, 20)


def a30() -> Iterator[Series]:
    """A board of four slices, of which one is held."""
    labels = {**board("GPU-a30", "n-a30", **mig(1, "1g.6gb"), **pod("quarter-0")), "modelName": "NVIDIA A30"}
    yield meter(labels, 40, 40)
    yield engine("quarter")


def unknown_type() -> Iterator[Series]:
    """A board whose number of slices is unknown."""
    for number, (name, profile) in enumerate((("odd3", "3g.40gb"), ("odd1", "1g.10gb"))):
        labels = board("GPU-odd", "n-odd", **mig(number, profile), **pod(f"{name}-0"))
        yield meter({**labels, "modelName": "Acme X1"}, 100, 100)
        yield engine(name)


def compute_instances() -> Iterator[Series]:
    """Three compute instances share the memory of a `3g` instance; two are held."""
    for number in range(2):
        labels = board("GPU-cut", "n-cut", **mig(1, "1c.3g.40gb"), **pod(f"cut{number}-0"))
        yield meter(labels, 90, 90)
        yield engine(f"cut{number}")


def repartitioned() -> Iterator[Series]:
    """The whole board as one instance until noon, then one of seven, held by another pod."""
    whole = board("GPU-re", "n-re", **mig(0, "7g.80gb"), **pod("whole-0"))
    seventh = board("GPU-re", "n-re", **mig(0, "1g.10gb"), **pod("seventh-0"))
    counted = meter(whole, 90, 90)[2]
    yield ENERGY, whole, [sample for sample in counted if sample[0] <= moment(NOON)]
    yield ENERGY, seventh, [sample for sample in counted if sample[0] > moment(NOON)]
    yield engine("whole")
    yield engine("seventh")


def gauged() -> Iterator[Series]:
    """The whole board as one instance until noon, then two; each repeats its board's counter and its watts."""
    for cut in (mig(0, "7g.80gb"), mig(1, "4g.40gb"), mig(2, "3g.40gb")):
        labels = board("GPU-gauged", "n-gauged", **cut)
        first, last = (0.0, NOON) if cut["GPU_I_ID"] == "0" else (NOON + STEP, float(DAY_SECONDS))
        yield ENERGY, labels, [one for one in meter(labels)[2] if moment(first) <= one[0] <= moment(last)]
        yield WATTS, labels, steady(90 if cut["GPU_I_ID"] == "0" else 300, first, last, step=STEP)


def whole_board() -> Iterator[Series]:
    """A board without MIG."""
    yield meter(board("GPU-whole", "n-whole", **pod("alone-0")))
    yield engine("alone", 20)


def by_turns() -> Iterator[Series]:
    """Two pods share a board by turns; GPU_UTIL and FB_USED are there for the board and for each of them."""
    labels = board("GPU-turns", "n-turns")
    yield UTIL, labels, steady(80, step=STEP)
    yield MEMORY, labels, steady(70_000, step=STEP)
    for name, percent, memory in (("much", 60, 10_000), ("little", 20, 60_000)):
        yield meter({**labels, **pod(f"{name}-0")}, 360, 360)
        yield UTIL, {**labels, **pod(f"{name}-0")}, steady(percent, step=STEP)
        yield MEMORY, {**labels, **pod(f"{name}-0")}, steady(memory, step=STEP)
        yield engine(name, 20, 20)


def copies() -> Iterator[Series]:
    """The same, but an older exporter repeats the board's utilisation for each pod."""
    labels = board("GPU-copies", "n-copies")
    for name, memory in (("left", 10_000), ("right", 60_000)):
        yield meter({**labels, **pod(f"{name}-0")}, 360, 360)
        yield UTIL, {**labels, **pod(f"{name}-0")}, steady(80, step=STEP)
        yield MEMORY, {**labels, **pod(f"{name}-0")}, steady(memory, step=STEP)
        yield engine(name, 20, 20)


def held_at_noon() -> Iterator[Series]:
    """A board that is free until noon: a series without a pod, then one with it."""
    labels = board("GPU-later", "n-later")
    counted = meter(labels)[2]
    for held, first, last, percent in (({}, 0, NOON - STEP, 0), (pod("later-0"), NOON, DAY_SECONDS, 50)):
        yield ENERGY, {**labels, **held}, [one for one in counted if moment(first) <= one[0] <= moment(last)]
        yield UTIL, {**labels, **held}, steady(percent, first, last, step=STEP)
    yield OUTPUT, vllm("later-0", "later"), rising(20, NOON, DAY_SECONDS, step=STEP)


def dark() -> Iterator[Series]:
    """Seven instances of a board without a power meter, of which one is held."""
    for number in range(1, 8):
        labels = board("GPU-dark", "n-dark", **mig(number, "1g.10gb"), **(pod("dark-0") if number == 1 else {}))
        yield activity(labels, 0.8 if number == 1 else 0.0, 0.4 if number == 1 else 0.0)
        yield MEMORY, labels, steady(9_000 if number == 1 else 15, step=STEP)
    yield engine("dark", 20, 20)


CASES = (
    one_of_seven, lone, unnumbered, parked, full, equal, a30, unknown_type, compute_instances, repartitioned, gauged,
    whole_board, by_turns, copies, held_at_noon, dark,
)  # fmt: skip


# --- what comes of it -------------------------------------------------------------------------------------------------


def daily(book: Book, *models: str) -> dict[str, tuple[float, float]]:
    """Model -> joules and board hours; the unallocated are those of the node that the first model is on."""
    rows = book.query(
        "select model, sum(energy_joules)::double, sum(gpu_seconds)::double / 3600 from marts.energy_ledger"
        " where meter in (select meter from marts.energy_ledger where model = ?) group by model order by model",
        [models[0]],
    )
    return {model: (joules, hours) for model, joules, hours in rows}


def held(book: Book, *models: str) -> set[tuple[str, str]]:
    rows = book.query(
        "select distinct attribution_method, attribution_confidence from marts.energy_ledger"
        " where list_contains(?, model)",
        [list(models)],
    )
    return set(rows)


def about(joules: float, hours: float) -> tuple[object, object]:
    return pytest.approx(joules, rel=1e-7), pytest.approx(hours, rel=1e-7)


@pytest.mark.parametrize("model", ["one", "lone", "unnumbered"])
def test_one_of_seven_slices_pays_a_seventh_and_its_own_work(book: Book, model: str) -> None:
    assert daily(book, model) == {
        model: about(PARKED_JOULES / 7 + BUSY_JOULES, 24 / 7),
        "__unallocated__": about(PARKED_JOULES * 6 / 7, 24 * 6 / 7),
    }
    dollars = "select sum(capacity_cost_usd)::double, sum(coverage_ratio) from marts.model_daily where model = ?"
    assert book.query(dollars, [model]) == [(pytest.approx(7.2), pytest.approx(1))]


def test_of_a_slice_the_floor_is_idle_and_its_work_is_productive(book: Book) -> None:
    rows = book.query(
        "select productive_joules::double, idle_joules::double from marts.model_daily where model = 'one'"
    )
    assert rows == [(pytest.approx(BUSY_JOULES), pytest.approx(PARKED_JOULES / 7))]


def test_parked_slices_pay_by_their_size(book: Book) -> None:
    # 3g.40gb has half of the memory, 1g.10gb a seventh of the compute; 5/14 are left, in which a 1g.10gb fits.
    joules = 100 * DAY_SECONDS
    assert daily(book, "large") == {
        "large": about(joules / 2, 12),
        "small": about(joules / 7, 24 / 7),
        "__unallocated__": about(joules * 5 / 14, 24 * 5 / 14),
    }


def test_slices_of_more_than_a_board_are_scaled_to_it(book: Book) -> None:
    # 4/7 and 1/2 are 15/14: 8/15 and 7/15 of the 90 W; what is drawn above them is the one's that works.
    assert daily(book, "four") == {
        "four": about(PARKED_JOULES * 8 / 15, 12.8),
        "three": about(PARKED_JOULES * 7 / 15 + BUSY_JOULES, 11.2),
    }
    assert held(book, "three", "four") == {("mig_activity", "medium")}


def test_seven_equal_slices_have_a_seventh_each(book: Book) -> None:
    models = [f"equal{number}" for number in range(7)]
    assert daily(book, *models) == {model: about(40 * DAY_SECONDS, 24 / 7) for model in models}
    assert held(book, *models) == {("mig_activity", "medium")}


def test_an_a30_has_four_slices(book: Book) -> None:
    joules = 40 * DAY_SECONDS
    assert daily(book, "quarter") == {"quarter": about(joules / 4, 6), "__unallocated__": about(joules * 3 / 4, 18)}


def test_slices_of_an_unknown_board_share_it_evenly(book: Book) -> None:
    joules = 100 * DAY_SECONDS
    assert daily(book, "odd3") == {"odd3": about(joules / 2, 12), "odd1": about(joules / 2, 12)}
    assert {confidence for _, confidence in held(book, "odd3", "odd1")} == {"low"}


def test_a_compute_instance_has_its_part_of_the_memory(book: Book) -> None:
    # A third of 3g.40gb: 1/7 of the compute, 1/6 of the memory.
    assert daily(book, "cut0") == {
        "cut0": about(PARKED_JOULES / 6, 4),
        "cut1": about(PARKED_JOULES / 6, 4),
        "__unallocated__": about(PARKED_JOULES * 2 / 3, 16),
    }


def test_a_board_that_is_cut_anew_is_held_as_it_is_cut(book: Book) -> None:
    # The first sample of the new cut is five minutes after noon.
    first, second = 12 + 1 / 12, 12 - 1 / 12
    assert daily(book, "whole") == {
        "whole": about(90 * first * 3600, first),
        "seventh": about(90 * second * 3600 / 7, second / 7),
        "__unallocated__": about(90 * second * 3600 * 6 / 7, second * 6 / 7),
    }


def test_watts_of_a_board_that_is_cut_anew_check_its_counter(book: Book) -> None:
    """A moment counts once, however many instances report it: 145 samples of 90 W and 143 of 300 W (midnight is not of
    the date)."""
    (found,) = book.query(
        "select metered_joules::double, cross_check_joules::double from marts.reconciliation_daily"
        " where meter = 'GPU-gauged'"
    )
    assert found == pytest.approx((195 * DAY_SECONDS, (145 * 90 + 143 * 300) / 288 * DAY_SECONDS), rel=1e-9)


def test_a_board_without_instances_is_held_whole(book: Book) -> None:
    assert daily(book, "alone") == {"alone": about(PARKED_JOULES + BUSY_JOULES, 24)}
    assert held(book, "alone") == {("exclusive", "high")}


def test_pods_by_turns_share_by_what_their_processes_use(book: Book) -> None:
    # 60 and 20 %; memory is 10 to 60.
    joules = 360 * DAY_SECONDS
    assert daily(book, "much") == {"much": about(joules * 3 / 4, 18), "little": about(joules / 4, 6)}
    assert held(book, "much", "little") == {("process_activity", "medium")}


def test_copies_of_a_boards_utilisation_weigh_nothing(book: Book) -> None:
    joules = 360 * DAY_SECONDS
    assert daily(book, "left") == {"left": about(joules / 2, 12), "right": about(joules / 2, 12)}
    assert held(book, "left", "right") == {("token_share", "low")}


@pytest.mark.parametrize(
    ("name", "busy", "hours"), [("much", 0.8, 18), ("little", 0.8, 6), ("left", 0.8, 12), ("later", 0.5, 12)]
)
def test_the_activity_of_a_board_is_the_boards_own(book: Book, name: str, busy: float, hours: float) -> None:
    rows = book.query(
        "select sum(busy_gpu_seconds)::double / 3600, sum(observed_gpu_seconds)::double / 3600"
        " from intermediate.int_engine_hours where engine = ?",
        [f"llm/{name}-0"],
    )
    assert rows == [(pytest.approx(busy * hours), pytest.approx(hours))]


def test_an_instance_without_a_meter_holds_its_part_of_the_board(book: Book) -> None:
    rows = book.query(
        "select model, sum(gpu_seconds)::double / 3600 from marts.unmetered_devices group by model order by model"
    )
    assert rows == [("__unallocated__", pytest.approx(24 * 6 / 7)), ("dark", pytest.approx(24 / 7))]


@pytest.mark.parametrize(("meter", "busy", "memory"), [("GPU-one", 0.45, None), ("GPU-dark", 0.6, 9_000 * 2**20)])
def test_each_instance_is_published_with_what_it_reports(
    book: Book, meter: str, busy: float, memory: float | None
) -> None:
    rows = book.query(
        "select mig_instance, mig_profile, board_ratio, models, held_seconds::double, free_seconds::double,"
        " activity_ratio, memory_used_bytes from marts.mig_instances_daily where device_uuid = ? order by 1 limit 2",
        [meter],
    )
    seventh, model = pytest.approx(1 / 7), meter.removeprefix("GPU-")
    free = None if memory is None else 15 * 2**20
    assert rows == [
        ("1", "1g.10gb", seventh, model, DAY_SECONDS, 0, pytest.approx(busy), memory),
        ("2", "1g.10gb", seventh, None, 0, DAY_SECONDS, 0, free),
    ]


def test_a_board_with_one_slice_held_is_not_free(book: Book) -> None:
    # Only the six sevenths of a day are free capacity, and no board can be given up.
    free = "select gpus_now, saving_usd_month_if_released from marts.free_boards where device_type = 'a100-sxm4-80gb'"
    assert book.query(f"{free} and meter_scope = 'board'") == [(0, 0)]
    assert book.query("select count(*) from intermediate.int_free_boards") == [(0,)]
