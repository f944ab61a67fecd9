"""The alarm of devices that only a family without a row of the catalogue reports, and its innocent twins."""

from __future__ import annotations

import pytest

from pipelines.booking.alarms import ALARMS, ask
from pipelines.warehouse import findings
from tests.books import Book
from tests.planted import DAY, ENERGY, WATTS, board, plant, rising, steady

UUID = "GPU-7c9e6679-7425-40de-944b-e07fc1f90ae7"
BOOKED = [
    (ENERGY, board(UUID, "n1", gpu="0", pci_bus_id="00000000:3B:00.0"), rising(90_000)),
    (WATTS, board("GPU-b", "n1", gpu="1"), steady(90)),
    # Without a UUID: n2/0.
    (WATTS, {"gpu": "0", "Hostname": "n2"}, steady(90)),
]
# Family -> labels of its series. What each is about is booked, or it is no device's power.
INNOCENT = {
    "twin_uuid_watts": {"uuid": UUID.lower().removeprefix("gpu-")},
    "twin_place_power": {"gpu": "1", "instance": "n1:9400"},
    "twin_card_power": {"card": "card0", "hostname": "n2"},
    "twin_alias_power": {"device": "nvidia0", "instance": "10.0.0.2:9400"},
    "twin_pci_power": {"pci_bus_id": "0000:3b:00.0", "host": "n1"},
    "twin_serial_joules_total": {"serial_number": "1650921006", "gpu": "1", "node": "n1"},
    "twin_limit_power_limit_watts": {"uuid": "GPU-none", "node": "n1"},
    "twin_room_power_watts": {"room": "hall", "instance": "bms:80"},
    "twin_node_energy_joules": {"instance": "n9:9100"},
    "node_hwmon_power_average_watt": {"chip": "platform", "device": "0", "instance": "n9:9100"},
    "smartctl_device_power_on_seconds": {"device": "sda", "instance": "n9:9100"},
    "http_requests_powered_by_total": {"gpu": "9", "instance": "n9:80"},
    "token_bucket_rate_limiter_tokens": {"gpu": "9", "instance": "n9:80"},
    "kube_secret_type_token": {"uuid": "GPU-z", "node": "n9"},
}
GUILTY = [
    ("acme_board_power_watts", {"serial": "S-1", "host": "n3"}),
    ("acme_board_power_watts", {"serial": "S-2", "host": "n3"}),
    ("acme_board_power_watts", {"uuid": "GPU-b", "host": "n1"}),  # booked
    ("acmeEnergyKwh", {"accelerator": "4", "instance": "n1:9400"}),
    # Another of NVIDIA's boards, where GPU-b is booked.
    ("other_gpu_power", {"UUID": "GPU-c", "gpu": "1", "Hostname": "n1"}),
]
EXPECTED = [
    ("acme_board_power_watts", "cluster", "S-1", 2, DAY),
    ("acmeEnergyKwh", "cluster", "n1/4", 1, DAY),
    ("other_gpu_power", "cluster", "GPU-c", 1, DAY),
]
(ALARM,) = [alarm for alarm in ALARMS if alarm.name == "devices_of_unknown_families_are_booked"]


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Book:
    """A day of three booked boards, and one sample of each family that the catalogue does not know."""
    unknown = [*INNOCENT.items(), *GUILTY]
    made = plant(
        tmp_path_factory.mktemp("unknown"),
        [*BOOKED, *((metric, labels, steady(100, 0, 0)) for metric, labels in unknown)],
        marts=("energy_ledger",),
        nodes=[{"name": "n2", "aliases": ["10.0.0.2"]}],
    )
    made.run()
    return made


def test_families_that_are_not_read_are_listed(book: Book) -> None:
    listed = {metric for (metric,) in book.query("select metric from raw.unknown_families")}
    assert listed == INNOCENT.keys() | {metric for metric, _ in GUILTY}


def test_a_device_that_no_booked_meter_has_is_named_with_its_family_and_the_fix(book: Book) -> None:
    with book.connection(read_only=True) as connection:
        names, rows = ask(connection, ALARM, "test")
    assert rows == EXPECTED
    assert findings.row(names, rows[0]) == (
        "family acme_board_power_watts, source cluster, device S-1, devices 2, last_date 2026-10-15"
    )
    assert "add rows to metric_catalog.csv and label_catalog.csv, see dbt_project/seeds/README.md" in ALARM.remedy


def test_a_run_of_other_days_is_not_warned(book: Book) -> None:
    with book.connection(read_only=True) as connection:
        assert ask(connection, ALARM, "another run")[1] == []
