"""Which meter a joule is counted on: closed periods, boards without an identity, limits, scopes. Planted fleets.

Add here a case of metering, with its innocent twin. Keep out who used the energy (`test_claims`).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from pipelines.booking import checks
from pipelines.command_line.headline import headline, one_table
from pipelines.command_line.model_headline import UNMATCHED
from pipelines.publishing.parts import Parts
from tests.books import LEDGER, Book, later_command
from tests.planted import (
    A100,
    DAY,
    DAY_SECONDS,
    ENERGY,
    HOURS,
    INPUT,
    OUTPUT,
    WATTS,
    Samples,
    Series,
    board,
    moment,
    plant,
    pod,
    rising,
    steady,
    vllm,
)
from tests.shapes import Seen, Shape, shape

EARLY, LATE = -630, DAY_SECONDS + 630  # 10.5 minutes around the day: no sample is at a midnight
DAY_ONLY = (30, DAY_SECONDS - 30)


def of_a_day() -> list[Series]:
    """A closed period of one day; the files hold samples around it of boards 2 and 3 only."""
    return [
        (ENERGY, board("GPU-0", "n0", **pod("p0")), rising(100_000, *DAY_ONLY)),
        (WATTS, board("GPU-1", "n0", **pod("p1")), steady(100, *DAY_ONLY)),
        (ENERGY, board("GPU-2", "n0", **pod("p2")), rising(100_000, EARLY, LATE)),
        (WATTS, board("GPU-3", "n0", **pod("p3")), steady(100, EARLY, LATE)),
    ]


CLOSED = shape("closed", of_a_day)


@pytest.fixture(scope="module")
def closed(shared_book: Callable[[Shape], Seen]) -> Seen:
    return shared_book(CLOSED)


def test_a_closed_period_has_all_its_seconds(closed: Seen) -> None:
    daily = "select device_uuid, sum(energy_joules)::double, sum(covered_seconds)::double from marts.energy_ledger"
    assert closed.query(f"{daily} group by 1 order by 1") == [
        ("GPU-0", 100 * (DAY_SECONDS - 60), DAY_SECONDS - 60),
        ("GPU-1", 100 * (DAY_SECONDS - 60), DAY_SECONDS - 60),
        ("GPU-2", 100 * DAY_SECONDS, DAY_SECONDS),
        ("GPU-3", 100 * DAY_SECONDS, DAY_SECONDS),
    ]
    assert closed.query("select distinct date from marts.fleet_daily") == [(DAY,)]
    assert closed.query("select distinct date from marts.reconciliation_daily") == [(DAY,)]


def test_neighbours_of_a_closed_period_are_never_due(closed: Seen) -> None:
    copy = "select date from raw.due_dates where date < ? or date >= ?"
    assert closed.query(copy, [closed.fleet.period.start, closed.fleet.period.end]) == []


# --- boards without an identity of their own --------------------------------------------------------------------------

AMD_WATTS, NVML_WATTS = "gpu_package_power", "nvml_power_watts"
OF_DAY = (EARLY, LATE)


def numbered_boards() -> dict[str, list[Series]]:
    """Boards that their exporters number, and boards with similar UUIDs."""
    half = DAY_SECONDS / 2
    noon_on = rising(100_000, half + 60, LATE, start=1e6 + 100_000 * (half + 60 - EARLY))

    def numbered(host: str, **labels: str) -> dict[str, str]:
        return {"Hostname": host, "modelName": A100, **labels}

    series = [
        # Two hosts, one board each, of the same number and without a UUID: 200 and 100 W.
        (ENERGY, numbered("h1", gpu="0", UUID=""), rising(200_000, *OF_DAY)),
        (ENERGY, numbered("h2", gpu="0", UUID=""), rising(100_000, *OF_DAY)),
        # The number under the label of the UUID, as a file's column often is.
        (NVML_WATTS, {"uuid": "0", "node": "h3", "device_type": A100}, steady(200, *OF_DAY)),
        (NVML_WATTS, {"uuid": "0", "node": "h4", "device_type": A100}, steady(100, *OF_DAY)),
        (NVML_WATTS, {"uuid": "card0", "node": "h5", "device_type": A100}, steady(100, *OF_DAY)),
        (AMD_WATTS, {"gpu_id": "0", "hostname": "h6"}, steady(120, *OF_DAY)),
        (AMD_WATTS, {"gpu_id": "0", "hostname": "h7"}, steady(130, *OF_DAY)),
        (AMD_WATTS, {"gpu_id": "0", "serial_number": "692251001124", "hostname": "h8"}, steady(140, *OF_DAY)),
        # Neither UUID nor host: the address that was scraped.
        (ENERGY, {"gpu": "0", "modelName": A100, "instance": "10.0.2.9:9400"}, rising(150_000, *OF_DAY)),
        # Numbers that are unique are qualified too.
        (WATTS, numbered("h9", gpu="7"), steady(110, *OF_DAY)),
        # A pod comes and goes: one meter, its counter runs on.
        (ENERGY, numbered("h10", gpu="3", **pod("h10-0")), rising(100_000, EARLY, half)),
        (ENERGY, numbered("h10", gpu="3"), noon_on),
        # A board that moved at noon keeps its UUID and its counter.
        (ENERGY, board("GPU-moved", "h11", gpu="0"), rising(100_000, EARLY, half)),
        (
            ENERGY,
            board("GPU-moved", "h12", gpu="1"),
            rising(100_000, half + 60, LATE, start=1e6 + 100_000 * (half + 60 - EARLY)),
        ),
        # Two exporters of one board disagree: dcgm-exporter reports 200 W, the agent 300.
        (WATTS, board("GPU-seen-twice", "h13"), steady(200, *OF_DAY)),
        (NVML_WATTS, {"uuid": "GPU-seen-twice", "node": "h13", "device_type": A100}, steady(300, *OF_DAY)),
    ]
    return {"identities": series[:-1], "agents": series[-1:]}


IDENTITIES = shape("identities", numbered_boards)


@pytest.fixture(scope="module")
def identities(shared_book: Callable[[Shape], Seen]) -> Seen:
    return shared_book(IDENTITIES)


def test_a_board_without_a_uuid_is_qualified_by_its_node_else_its_address(identities: Seen) -> None:
    watts = identities.query(
        "select device_uuid, meter, sum(energy_joules)::double / 86400 from marts.energy_ledger group by all"
    )
    found = {device: joules for device, meter, joules in watts if device == meter}
    assert len(found) == len(watts)
    assert found == pytest.approx(
        {
            "h1/0": 200,
            "h2/0": 100,
            "h3/0": 200,
            "h4/0": 100,
            "h5/card0": 100,
            "h6/0": 120,
            "h7/0": 130,
            "692251001124": 140,
            "10.0.2.9/0": 150,
            "h9/7": 110,
            "h10/3": 100,
            "GPU-moved": 100,
            "GPU-seen-twice": 200,  # not 300, and not 500
        }
    )
    assert identities.broken() == {}


def test_two_exporters_that_disagree_about_one_board_are_named_with_their_watts(identities: Seen) -> None:
    rows = identities.query(
        "select meter, source, cross_check_source, metered_joules::double / 86400, cross_check_joules::double / 86400"
        " from marts.reconciliation_daily where abs(cross_check_ratio) > 0.05"
    )
    assert rows == [("GPU-seen-twice", "identities", "agents", pytest.approx(200), pytest.approx(300, rel=1e-3))]
    assert identities.failed_tests("cross_checks_agree") == {"cross_checks_agree"}


# --- what is refused --------------------------------------------------------------------------------------------------


def beyond_limits() -> list[Series]:
    """Samples that no board can draw, and boards whose limit the seed does not know."""

    def spiked(samples: Samples, value: float, *, every: int, first: int) -> Samples:
        """The samples with `value` in place of five of them."""
        places = range(first, first + 5 * every, every)
        return [(at, value if n in places else original) for n, (at, original) in enumerate(samples)]

    def unknown(uuid: str, node: str, kind: str = "Acme X1") -> dict[str, str]:
        return board(uuid, node) | {"modelName": kind}

    level = steady(100, *OF_DAY)
    invalid = [(at, float("nan") if n in (50, 60) else original) for n, (at, original) in enumerate(level)]
    leap = [(at, original + (1e18 if at >= moment(12 * HOURS) else 0)) for at, original in rising(100_000, *OF_DAY)]
    wraps = [(at, 100 * (at % 1800)) for at, _ in level]  # 100 W; begins anew every half hour
    return [
        # 5 × 700 W of a board that draws up to 600 by its limit, and 2 × NaN.
        (WATTS, board("GPU-seven", "n1"), spiked(invalid, 700, every=100, first=100)),
        # The same of a gauge that only checks a counter.
        (ENERGY, board("GPU-check", "n2"), rising(100_000, *OF_DAY)),
        (WATTS, board("GPU-check", "n2"), spiked(level, 700, every=100, first=100)),
        # Milliwatts read as watts.
        (WATTS, board("GPU-milli", "n3"), steady(100_000, *OF_DAY)),
        # An unknown type: 1500 W are accepted, 10^15 are not, of a gauge, a counter and a node's meter.
        (WATTS, unknown("GPU-acme", "n4"), spiked(steady(1500, *OF_DAY), 1e15, every=100, first=100)),
        (ENERGY, unknown("GPU-leap", "n5"), leap),
        ("wall_power_watts", {"node": "n6"}, spiked(steady(900, *OF_DAY), 1e15, every=100, first=100)),
        # Twice the limit of the seed, all day: the seed is wrong (`test_doubted_limits`).
        (WATTS, board("GPU-double", "n7"), steady(800, *OF_DAY)),
        # A type of the fleet file: 2500 W are within 1.5 × its limit; 4000 are not.
        (WATTS, unknown("GPU-stated", "n8", "Acme X2"), spiked(steady(2500, *OF_DAY), 4000, every=100, first=100)),
        # RAPL begins anew 48 times.
        ("node_rapl_package_joules_total", {"path": "package-0", "instance": "n9:9100"}, wraps),
    ]


ACME = {"name": "acme-x2", "aliases": ["Acme X2"], "power_limit_watts": 2000, "idle_watts_loaded": 200}
LIMITS = shape("limits", beyond_limits, device_types=[ACME])


@pytest.fixture(scope="module")
def limits(shared_book: Callable[[Shape], Seen]) -> Seen:
    return shared_book(LIMITS)


def test_what_no_meter_can_draw_is_refused_and_the_rest_is_booked(limits: Seen) -> None:
    watts = limits.query("select meter, sum(energy_joules)::double / 86400 from marts.energy_ledger group by 1")
    assert dict(watts) == pytest.approx(
        {
            "GPU-seven": 100,
            "GPU-check": 100,
            "GPU-acme": 1500,
            # The step of the leap is unknown: 60 s of the day.
            "GPU-leap": 100 * (DAY_SECONDS - 60) / DAY_SECONDS,
            "n6": 900,
            "GPU-double": 800,
            "GPU-stated": 2500,
            "n9/package-0": 100 * 1770 / 1800,  # of each half hour the 30 s before the counter begins anew
        },
        rel=1e-3,
    )
    assert limits.broken() == {}


def test_refused_samples_are_counted(limits: Seen) -> None:
    rows = limits.query("select meter, rejected_samples from marts.reconciliation_daily where rejected_samples > 0")
    assert dict(rows) == {
        "GPU-seven": 7,
        "GPU-check": 5,
        "GPU-milli": 1440,
        "GPU-acme": 5,
        "n6": 5,
        "GPU-stated": 5,
    }


def test_a_limit_that_is_stated_too_low_is_named_and_a_wrong_unit_is_not(limits: Seen) -> None:
    assert limits.failed_tests("power_limits_fit_their_boards") == {"power_limits_fit_their_boards"}
    assert limits.query(
        "select entity_kind, entity, figure, direction, evidence from marts.doubts where reason = 'limit_too_low'"
    ) == [("board", "GPU-double", "limit", "below", "800.0 W, the limit of a100-sxm4-80gb is 400 W")]
    # Its joules are as measured: no row of them is marked.
    marked = "select * from marts.model_daily where position('limit_too_low' in doubt_reasons) > 0"
    assert limits.query(marked) == []
    found = limits.query("select meter, near_samples, greatest_near_watts from intermediate.int_impossible_samples")
    assert sorted(row for row in found if row[1] >= 0.9 * 1440) == [("GPU-double", 1440, 800)]


def test_a_type_of_the_fleet_file_has_its_idle_watts(limits: Seen) -> None:
    held = "select distinct device_type from marts.energy_ledger where meter = 'GPU-stated'"
    assert limits.query(held) == [("acme-x2",)]
    assert limits.query(
        "select idle_watts_loaded, power_limit_watts, gpus from staging.stg_device_types where device_type = 'acme-x2'"
    ) == [(200, 2000, 1)]
    # The seed's figures stay.
    assert limits.query(
        "select idle_watts_loaded, power_limit_watts from staging.stg_device_types where device_type = 'a100-sxm4-80gb'"
    ) == [(93, 400)]


def test_counters_of_sockets_begin_anew_without_an_alarm(limits: Seen) -> None:
    with limits.connection() as connection:
        landed = checks.landed_series(connection, "test")
    assert landed["falls_per_day"].fillna(0).max() == 0


# --- scopes and names -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def scopes(tmp_path_factory: pytest.TempPathFactory) -> Book:
    """Boards, sockets and wall meters in one fleet; three meters name the host of the boards otherwise than they do."""
    folder = tmp_path_factory.mktemp("scopes")
    noon = DAY_SECONDS / 2

    def sockets(instance: str) -> dict[str, str]:
        return {"path": "package-0", "instance": instance}

    series = [
        (ENERGY, board("GPU-a", "gpu-a", **pod("a-0")), rising(100_000, *OF_DAY)),
        (ENERGY, board("GPU-b", "gpu-b", **pod("b-0")), rising(200_000, *OF_DAY)),
        # 10 tokens a second: of alpha until noon, then its page is silent; of beta all day.
        (INPUT, vllm("a-0", "alpha"), rising(9, EARLY, noon)),
        (OUTPUT, vllm("a-0", "alpha"), rising(1, EARLY, noon)),
        (INPUT, vllm("b-0", "beta"), rising(9, *OF_DAY)),
        (OUTPUT, vllm("b-0", "beta"), rising(1, *OF_DAY)),
        # The sockets and the wall of gpu-a under other names.
        ("node_rapl_package_joules_total", sockets("GPU-A.dc.local:9100"), rising(50, *OF_DAY)),
        ("wall_power_watts", {"node": "bmc-gpu-a"}, steady(300, *OF_DAY)),
        ("ipmi_dcmi_power_consumption_watts", {"instance": "10.0.0.7:9290"}, steady(300, *OF_DAY)),
        # Those of gpu-b under its own: they measure its host. And a node that has nothing but its wall meter.
        ("node_rapl_package_joules_total", sockets("gpu-b:9100"), rising(50, *OF_DAY)),
        ("wall_power_watts", {"node": "gpu-b"}, steady(500, *OF_DAY)),
        ("wall_power_watts", {"node": "storage-1.dc.local"}, steady(400, *OF_DAY)),
    ]
    book = plant(folder, series)
    done = later_command(book.fleet.path, folder / "data")
    assert done.returncode == 0, done.stdout + done.stderr
    return book


@pytest.mark.long
def test_joules_of_different_scopes_are_never_added_in_the_headline(scopes: Book) -> None:
    printed = headline(scopes.fleet)
    lines = {line.split("  ")[0]: line.split() for line in printed.splitlines()}
    # Three wall meters whose hosts nothing names, 300 + 300 + 400 W over a day, may be those of the boards: 24 kWh.
    assert "0.0?" in lines["__unknown__ (node)"]
    assert "not in these figures: 24.0 kWh of 3 wall meters at west" in printed
    assert {"alpha (board)", "beta (board)", "__unknown__ (module)", "__unknown__ (node)", "fleet"} <= lines.keys()
    (total,) = scopes.query("select sum(facility_energy_kwh)::double from marts.fleet_daily")
    # The sockets of gpu-a are there under another name, beside its board.
    assert f"{total[0]:,.1f}?" in lines["fleet"]


@pytest.mark.rest
def test_badly_matched_joules_per_token_are_marked(scopes: Book) -> None:
    lines = one_table(scopes.fleet, "models", Parts()).splitlines()
    alpha, beta = (next(line for line in lines if line.startswith(model)) for model in ("alpha", "beta"))
    # Of alpha half a day is matched: 100 W and 10 tokens a second until 11:59:30, of which 1 is output. It is in doubt.
    assert {"10.0000*?", "100.0000*?"} <= set(alpha.split())
    assert {"20.0000", "200.0000"} <= set(beta.split())
    assert lines.count(UNMATCHED) == 1


@pytest.mark.rest
def test_meters_of_one_host_under_several_names_are_named(scopes: Book) -> None:
    assert scopes.failed_tests("nodes_have_one_name") == {"nodes_have_one_name"}
    assert scopes.query("select entity, evidence from marts.doubts where reason = 'second_name' order by 1") == [
        ("10.0.0.7", "an address; the host of boards such as those of GPU-A.dc.local?"),
        ("GPU-A.dc.local/package-0", "the same host as gpu-a?"),
        ("bmc-gpu-a", "the same host as GPU-A.dc.local?"),
    ]
    booked = scopes.query("select distinct node, meter_scope from marts.energy_ledger where meter_scope <> 'board'")
    # The wall meter and the sockets of gpu-b are booked nowhere: its board is.
    assert sorted(booked) == [
        ("10.0.0.7", "node"),
        ("GPU-A.dc.local", "module"),
        ("bmc-gpu-a", "node"),
        ("storage-1.dc.local", "node"),
    ]


# --- parked watts, run windows ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Book:
    """Boards beside a parked one, and run windows of boards whose gauge agrees with their counter or not."""

    def served(name: str, model: str, per_second: float) -> list[Series]:
        return [(metric, vllm(name, model), rising(per_second, *OF_DAY)) for metric in (INPUT, OUTPUT)]

    def window(name: str, pod_name: str, seconds: int) -> dict[str, object]:
        start_at = datetime.fromtimestamp(moment(10 * HOURS), UTC)
        return {
            "window_id": name,
            "engine": f"llm/{pod_name}",
            "start_at": start_at,
            "end_at": start_at + timedelta(seconds=seconds),
        }

    series = [
        (ENERGY, board("GPU-beside", "n1", **pod("beside-0")), rising(300_000, *OF_DAY)),
        (ENERGY, board("GPU-parked", "n1", **pod("parked-0")), rising(70_000, *OF_DAY)),
        (ENERGY, board("GPU-alone", "n2", **pod("alone-0")), rising(300_000, *OF_DAY)),
        # The gauge has 5.5 % more than the counter, and 4.5 %.
        (WATTS, board("GPU-beside", "n1", **pod("beside-0")), steady(316.5, *OF_DAY)),
        (WATTS, board("GPU-alone", "n2", **pod("alone-0")), steady(313.5, *OF_DAY)),
        *served("beside-0", "alpha", 5),
        *served("parked-0", "beta", 0),
        *served("alone-0", "gamma", 5),
    ]
    windows = {"inline": [window("differs", "beside-0", 1800), window("agrees", "alone-0", 1800)]}
    marts = (*LEDGER, "run_windows", "fleet_daily")
    book = plant(tmp_path_factory.mktemp("measured"), series, run_windows=windows, marts=marts)
    book.run()
    return book


def test_watts_parked_on_the_node_or_in_the_fleet_come_before_the_reference(measured: Book) -> None:
    floors = measured.query(
        "select meter, idle_basis, sum(idle_floor_joules)::double / 86400 from marts.energy_ledger"
        " where state = 'active' group by all order by 1"
    )
    assert floors == [("GPU-alone", "parked_p10_of_fleet", 70), ("GPU-beside", "parked_p10_of_node", 70)]


def test_a_window_whose_counter_and_gauge_differ_is_marked(measured: Book) -> None:
    rows = measured.query(
        "select window_id, is_valid, reason_code, energy_joules::double from marts.run_windows order by 1"
    )
    assert rows == [("agrees", True, "ok", 540_000), ("differs", False, "counter_and_gauge_differ", 540_000)]
