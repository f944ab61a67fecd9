"""Wall meters that only a BMC's address names: beside boards without a wall meter they are in no total of the fleet.

West has two nodes with boards, two addresses, and a node whose own meter has its name; east has wall meters alone;
every board of north has a wall meter; at south one node and one address are left, and a storage host that the fleet
file names.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import yaml

from pipelines.command_line import model_headline
from pipelines.named_figures import unplaced_hosts
from pipelines.named_figures.unplaced_hosts import UnplacedMeter
from tests.planted import DAY, DAY_SECONDS, HOURS, WATTS, Samples, Series, board, plant, steady
from tests.shapes import Seen, Shape, shape

NOON = 12 * HOURS
WALL = "wall_power_watts"
# 300 W until noon and 100 W from a minute later on; between the two samples it is their mean.
FALLING = 300 * NOON + 200 * 60 + 100 * (DAY_SECONDS - NOON - 60)
RISING = 100 * NOON + 200 * 60 + 300 * (DAY_SECONDS - NOON - 60)
KWH = 3.6e6


def turning(before: float, after: float) -> Samples:
    """Watts until noon, and from a minute later on."""
    return [*steady(before, last=NOON), *steady(after, NOON + 60)]


def wall(node: str, samples: Samples) -> Series:
    return WALL, {"node": node}, samples


def by_site() -> dict[str, list[Series]]:
    return {
        "west": [
            (WATTS, board("GPU-u1", "u1"), turning(300, 100)),
            (WATTS, board("GPU-u2", "u2"), turning(100, 300)),
            (WATTS, board("GPU-u3", "u3"), steady(200)),
            wall("u3", steady(500)),
            # The other way around than their names.
            wall("10.0.4.1", turning(300, 500)),
            wall("10.0.4.2", turning(500, 300)),
        ],
        "east": [wall("e1", steady(1_000)), wall("10.0.5.1", steady(2_000))],
        "north": [
            (WATTS, board("GPU-u4", "u4"), steady(200)),
            wall("u4", steady(500)),
            wall("10.0.6.1", steady(700)),
        ],
        "south": [
            (WATTS, board("GPU-u5", "u5"), steady(200)),
            wall("10.0.7.1", steady(600)),
            wall("storage", steady(400)),
        ],
    }


STATED = {"zone": "US-CAL-CISO", "pue": 1.2, "tariff": [{"usd_per_kwh": 0.1}]}
UNPLACED = shape(
    "unplaced",
    by_site,
    sites=[{"name": site, **STATED} for site in ("west", "east", "north", "south")],
    nodes=[{"name": "storage", "site": "south"}],
)


@pytest.fixture(scope="module")
def book(shared_book: Callable[[Shape], Seen]) -> Seen:
    return shared_book(UNPLACED)


def test_the_meter_is_unknown_with_its_reason(book: Seen) -> None:
    assert book.query(
        "select meter, model, engine, state, unknown_reason, sum(energy_joules)::double, sum(gpu_seconds)::double"
        " from marts.energy_ledger where meter_scope = 'node' group by all order by meter"
    ) == [
        ("10.0.4.1", *["__unknown__"] * 2, "unknown", "unplaced_meter", RISING + 200 * DAY_SECONDS, 0),
        ("10.0.4.2", *["__unknown__"] * 2, "unknown", "unplaced_meter", FALLING + 200 * DAY_SECONDS, 0),
        # Booked as before: nothing at east has boards, and all boards at north have a wall meter.
        ("10.0.5.1", *["__unknown__"] * 2, "unknown", "no_claimant", 2_000 * DAY_SECONDS, DAY_SECONDS),
        ("10.0.6.1", *["__unknown__"] * 2, "unknown", "no_claimant", 700 * DAY_SECONDS, DAY_SECONDS),
        ("10.0.7.1", *["__unknown__"] * 2, "unknown", "unplaced_meter", 600 * DAY_SECONDS, 0),
        ("e1", *["__unknown__"] * 2, "unknown", "no_claimant", 1_000 * DAY_SECONDS, DAY_SECONDS),
        ("storage", *["__unknown__"] * 2, "unknown", "no_claimant", 400 * DAY_SECONDS, DAY_SECONDS),
    ]


def test_the_fleets_energy_does_not_include_it(book: Seen) -> None:
    rows = book.query(
        "select site, meter_scope, energy_joules::double, unknown_joules::double, unplaced_joules::double,"
        " facility_energy_kwh::double from marts.fleet_daily order by site, meter_scope"
    )
    day = DAY_SECONDS
    boards = FALLING + RISING
    assert rows == [
        ("east", "node", 3_000 * day, 3_000 * day, 0, pytest.approx(3_000 * day * 1.2 / KWH, abs=1e-3)),
        # 200 W and 300 W of its measured host.
        ("north", "board", 200 * day, 200 * day, 0, pytest.approx(500 * day * 1.2 / KWH, abs=1e-3)),
        ("north", "node", 700 * day, 700 * day, 0, pytest.approx(700 * day * 1.2 / KWH, abs=1e-3)),
        ("south", "board", 200 * day, 200 * day, 0, pytest.approx((200 * 1.23 + 80) * day * 1.2 / KWH, abs=1e-3)),
        ("south", "node", 400 * day, 400 * day, 600 * day, pytest.approx(400 * day * 1.2 / KWH, abs=1e-3)),
        # Those of u1 and u2 are assumed: 0.2 of the 400 W of an A100 and 0.23 of its watts. That of u3 is measured.
        ("west", "board", boards + 200 * day, boards + 200 * day, 0,
         pytest.approx((boards * 1.23 + 2 * 80 * day + 500 * day) * 1.2 / KWH, abs=1e-3)),
        ("west", "node", 0, 0, boards + 400 * day, 0),
    ]  # fmt: skip


def test_it_costs_nothing_twice(book: Seen) -> None:
    # All electricity at 0.1 USD, that of facility_energy_kwh above.
    ((usd,),) = book.query(
        "select sum(cost_usd)::double from marts.cost_daily where basis = 'fully_loaded'"
        " and part in ('energy', 'cooling', 'overhead')"
    )
    ((kwh,),) = book.query("select sum(facility_energy_kwh)::double from marts.fleet_daily")
    assert usd == pytest.approx(kwh * 0.1, abs=1e-3)


def test_a_host_is_proposed_by_its_watts_or_where_one_of_each_is_left(book: Seen) -> None:
    assert book.query(
        "select meter, proposed_node, proposal_basis, watts_correlation, unplaced_meters, nodes_without_wall_meter,"
        " fleet_file_line from marts.unplaced_meters order by meter"
    ) == [
        ("10.0.4.1", "u2", "correlation", 1.0, 2, 2, 'nodes: [{name: u2, site: west, aliases: ["10.0.4.1"]}]'),
        ("10.0.4.2", "u1", "correlation", 1.0, 2, 2, 'nodes: [{name: u1, site: west, aliases: ["10.0.4.2"]}]'),
        ("10.0.7.1", "u5", "count", None, 1, 1, 'nodes: [{name: u5, site: south, aliases: ["10.0.7.1"]}]'),
    ]


def test_the_balance_holds_and_a_check_names_the_meters(book: Seen) -> None:
    assert book.broken() == {}
    assert book.failed_tests("node_meters_are_placed") == {"node_meters_are_placed"}


def test_its_joules_are_in_doubt_and_those_of_placed_meters_are_not(book: Seen) -> None:
    """What u3 and the storage host draw is in no doubt, nor what 10.0.5.1 does, where no host has boards; 10.0.6.1 may
    be a host's second name, as the three are. No total of the fleet has a joule of the three."""
    assert book.query(
        "select entity_kind, entity, figure, direction, doubted_joules::double, evidence, remedy from marts.doubts"
        " where reason = 'unplaced_meter' order by entity"
    ) == [
        ("node", entity, "energy", "either", joules, evidence,
         f"write `nodes: [{{name: {node}, site: {site}, aliases: [\"{entity}\"]}}]` into the fleet file, with the node"
         " that the meter measures, and book the date again; a host without boards is named alone,"
         " `nodes: [{name: <meter>}]`")
        for entity, node, site, joules, evidence in (
            ("10.0.4.1", "u2", "west", RISING + 200 * DAY_SECONDS, "400 W, which move with those of u2"),
            ("10.0.4.2", "u1", "west", FALLING + 200 * DAY_SECONDS, "400 W, which move with those of u1"),
            ("10.0.7.1", "u5", "south", 600 * DAY_SECONDS, "600 W"),
        )
    ]  # fmt: skip
    marks = "select site, meter_scope, doubted_joules::double, doubted_energy_ratio, doubt_reasons"
    assert book.query(f"{marks} from marts.model_daily where doubt_reasons <> '' order by site") == [
        ("north", "node", 700 * DAY_SECONDS, 1, "second_name"),
        # With the storage host's 400 W.
        ("south", "node", 600 * DAY_SECONDS, 0.6, "second_name,unplaced_meter"),
        ("west", "node", FALLING + RISING + 400 * DAY_SECONDS, 1, "second_name,unplaced_meter"),
    ]
    assert book.query(f"{marks} from marts.fleet_daily where doubt_reasons <> '' or doubted_joules > 0") == [
        ("north", "node", 700 * DAY_SECONDS, 1, "second_name")
    ]


def test_the_first_table_has_it_apart_with_the_lines_to_write(book: Seen) -> None:
    with book.connection(read_only=True) as connection:
        shown = model_headline.unplaced(connection)
    kwh = (FALLING + RISING + 1_000 * DAY_SECONDS) / KWH
    assert shown == (
        f"not in these figures: {kwh:,.1f} kWh of 3 wall meters at south, west. Boards there have no wall meter, and"
        " nothing names the hosts of these; the fleet file does:\n"
        "nodes:\n"
        '  - {name: u5, site: south, aliases: ["10.0.7.1"]}  # the one meter and the one host that are left\n'
        '  - {name: u1, site: west, aliases: ["10.0.4.2"]}  # its watts move with those of the boards: 1.00\n'
        '  - {name: u2, site: west, aliases: ["10.0.4.1"]}  # its watts move with those of the boards: 1.00'
    )
    # One block, as a file takes it: three of one key are none that YAML reads.
    block = yaml.safe_load(shown.partition("\n")[2])
    assert block["nodes"][1] == {"name": "u1", "site": "west", "aliases": ["10.0.4.2"]}
    unknown = UnplacedMeter("west", "10.0.9.9", 1.0, 1.0, 'nodes: [{name: <node>, aliases: ["10.0.9.9"]}]', None, None)
    assert unplaced_hosts.block([unknown]) == [
        "nodes:",
        '  # - {name: <node>, aliases: ["10.0.9.9"]}  # which host is it?',
    ]


def test_the_line_of_the_message_places_the_meters(book: Seen, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("placed")
    lines = dict(book.query("select proposed_node, meter from marts.unplaced_meters"))
    series: list[Series] = [
        (WATTS, board("GPU-u1", "u1"), turning(300, 100)),
        wall(lines["u1"], turning(500, 300)),
    ]
    placed = plant(
        folder,
        series,
        nodes=[{"name": "u1", "site": "west", "aliases": [lines["u1"]]}],
        marts=("fleet_daily", "unplaced_meters"),
    )
    placed.run()
    assert placed.query("select * from marts.unplaced_meters") == []
    # 200 W of its host, measured.
    assert placed.query(
        "select meter_scope, energy_joules::double, host_overhead_joules::double, unplaced_joules::double"
        " from marts.fleet_daily where date = ?",
        [DAY],
    ) == [("board", FALLING, 200 * DAY_SECONDS, 0)]
