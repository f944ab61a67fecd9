"""Families of power, energy and tokens that no row of the catalogue reads: each day lists them and their devices."""

from __future__ import annotations

import re
import time
from datetime import timedelta

import orjson
import pyarrow.parquet as pq
import pytest

from collectors.devices.spool import Spool
from collectors.devices.spool_collector import SpoolCollector
from collectors.devices.spool_writer import SpoolWriter
from collectors.limits import Limits
from collectors.protocols.exposition import ExpositionPage
from collectors.protocols.mapped_files import FileMapping
from collectors.protocols.sample_files import FilesCollector
from collectors.readings import Reading
from collectors.samples import Window
from collectors.series import SeriesRegister
from collectors.unknown_families import device_of, is_drawn_power, is_listed
from tests.collectors.test_prometheus import DAY, FAMILIES, GPU, POWER, START, START_S, collected
from tests.servers import (
    fields_of,
    http_server,
    openmetrics,
    prometheus_with_history,
    reply,
    victoria_metrics_with_history,
)

END_S = START_S + 86_400
WATTS, JOULES, TOKENS = "acme_board_power_watts", "acmeBoardEnergy", "acme_generated_tokens_total"
BOARDS = [{"serial": f"S-{n}", "host": "n7", "slot": "a"} for n in range(3)]
# (metric, labels) of what other programs have: none has the word of a quantity, or none is about a board.
OTHERS = [
    ("http_requests_powered_by_total", {"instance": "web:80"}),
    ("go_memstats_alloc_bytes", {"instance": "web:80"}),
    ("apiserver_powerful_tokenizer_total", {"gpu": "0"}),
    ("kube_secret_type_tokenreview", {"device": "0"}),
]
# With such a word, but without a device's power or energy: they are listed without devices.
WITHOUT_DEVICES = [
    ("node_hwmon_power_average_watt", {"chip": "0000:3b:00_0", "device": "hwmon0", "instance": "n7:9100"}),
    ("node_rapl_core_joules_total", {"index": "0", "instance": "n7:9100"}),
    ("smartctl_device_power_on_seconds", {"device": "sda", "instance": "n7:9633"}),
    ("acme_board_power_limit_watts", {"serial": "S-9", "host": "n7"}),
    ("gateway_token_bucket_fill", {"gpu": "0", "instance": "n7:80"}),
    ("wan_power_watts", {"device": "eth0", "instance": "n7:80"}),
    ("rack_power_kilowatts", {"room": "hall"}),
]
SERIES = [
    (POWER, GPU),
    *((WATTS, board) for board in BOARDS),
    (JOULES, {"gpu": "nvidia3", "instance": "n8:9400"}),
    *((TOKENS, {"model": "m", "gpu": str(n)}) for n in range(2)),
    ("acme_board_power_watts_bucket", {"le": "1", "serial": "S-0"}),
    ("acme_board_energy_joules_created", {"serial": "S-0"}),
    ("pod:acme_power_watts:sum", {"gpu": "0", "node": "n7"}),
    *OTHERS,
    *WITHOUT_DEVICES,
]
LISTED = [
    {"metric": "acmeBoardEnergy", "series": 1},
    {"metric": "acme_board_power_limit_watts", "series": 1},
    {"metric": "acme_board_power_watts", "series": 3},
    {"metric": "acme_generated_tokens_total", "series": 2},
    {"metric": "gateway_token_bucket_fill", "series": 1},
    {"metric": "node_hwmon_power_average_watt", "series": 1},
    {"metric": "node_rapl_core_joules_total", "series": 1},
    {"metric": "rack_power_kilowatts", "series": 1},
    {"metric": "smartctl_device_power_on_seconds", "series": 1},
    {"metric": "wan_power_watts", "series": 1},
]
DEVICES = [
    {"metric": "acmeBoardEnergy", "device_uuid": None, "device_index": "3", "pci_bus_id": None, "node": "n8"},
    {"metric": "acme_board_power_watts", "device_uuid": "S-0", "device_index": None, "pci_bus_id": None, "node": "n7"},
    {"metric": "acme_board_power_watts", "device_uuid": "S-1", "device_index": None, "pci_bus_id": None, "node": "n7"},
    {"metric": "acme_board_power_watts", "device_uuid": "S-2", "device_index": None, "pci_bus_id": None, "node": "n7"},
]


def listing(series=SERIES, *, asked=None, refused=(), status=403, stalled=()):
    """A server with the parts of the query API that a listing needs, over these series; no samples."""

    def answer(handler):
        path, fields = fields_of(handler)
        promql = fields.get("query", fields.get("match[]", ""))
        if asked is not None:
            asked.append((path, fields))
        if any(part in path + promql for part in stalled):
            time.sleep(5)
        if any(part in path + promql for part in refused):
            return reply(handler, status, b"not for you", "text/plain")
        wanted = re.search(r'__name__=~?("(?:[^"\\]|\\.)*")', promql)
        pattern = orjson.loads(wanted[1]) if wanted else ""
        found = [(metric, labels) for metric, labels in series if re.fullmatch(pattern, metric)]
        counts = {metric: sum(one == metric for one, _ in found) for metric, _ in found}
        if path.endswith("/label/__name__/values"):
            data = sorted(counts)[: int(fields.get("limit", 0)) or None]
        elif promql.startswith("count"):
            vector = [{"metric": {"__name__": m}, "value": [0, str(n)]} for m, n in counts.items()]
            data = {"resultType": "vector", "result": vector}
        elif promql.startswith("topk"):
            vector = [{"metric": {"__name__": m, **labels}, "value": [0, "1"]} for m, labels in found]
            data = {"resultType": "vector", "result": vector}
        elif path.endswith("/export"):
            return reply(handler, 404, b"404 page not found", "text/plain")
        else:
            data = {"resultType": "matrix", "result": []}
        return reply(handler, 200, orjson.dumps({"status": "success", "data": data}))

    return http_server(answer)


def test_a_day_lists_every_family_of_power_energy_and_tokens_with_its_devices():
    asked = []
    with listing(asked=asked) as url:
        _, register = collected(url, DAY, matchers=['namespace="llm"'])
    assert register.unknown_table().to_pylist() == LISTED
    assert register.unknown_devices_table().to_pylist() == DEVICES
    assert register.unlisted is None
    more = [(path, fields) for path, fields in asked if "count" in str(fields) or "topk" in str(fields)]
    names = [fields for path, fields in asked if path.endswith("values")]
    assert (len(names), len(more)) == (2, 2)
    assert all('namespace="llm"' in str(fields) for _, fields in more) and 'namespace="llm"' in names[1]["match[]"]
    assert names[1]["limit"] == "1000"


def test_an_hour_beside_the_day_is_not_asked():
    with listing() as url:
        assert collected(url)[1].unknown_table().to_pylist() == []


@pytest.mark.parametrize(
    ("part", "what"),
    [("values", "unknown families"), ("count by", "unknown families"), ("topk", "devices of unknown families")],
)
def test_a_server_that_refuses_the_listing_has_a_line_of_it_and_its_day_is_read(part, what):
    with listing(refused=[part]) as url:
        _, register = collected(url, DAY)
    assert register.unlisted == f"{what} are not listed: HTTP 403: refused: not for you"
    assert register.unknown_table().to_pylist() == (LISTED if part == "topk" else [])
    assert register.unknown_devices_table().num_rows == 0


def test_a_busy_server_is_not_asked_for_its_listing_again():
    asked = []
    with listing(asked=asked, refused=["count by"], status=503) as url:
        _, register = collected(url, DAY)
    assert register.unlisted is not None and "HTTP 503" in register.unlisted
    assert len([fields for _, fields in asked if "count by" in str(fields)]) == 1


def test_a_listing_has_a_tenth_of_the_windows_time():
    limits = Limits(window_seconds=10)
    with listing(stalled=["count by"]) as url:
        started = time.monotonic()
        _, register = collected(url, DAY, limits=limits)
    assert register.unlisted is not None and "unknown families are not listed: " in register.unlisted
    assert time.monotonic() - started < 4


def test_names_and_devices_are_bounded():
    many = [(f"acme{n:04}_power_watts", {"gpu": "0", "node": "n1"}) for n in range(1200)]
    many += [("acme0000_power_watts", {"gpu": str(n), "node": "n1"}) for n in range(1, 400)]
    asked = []
    with listing(many, asked=asked) as url:
        _, register = collected(url, DAY)
    assert register.unknown_table().num_rows == 500
    devices = register.unknown_devices_table().to_pylist()
    assert sum(one["metric"] == "acme0000_power_watts" for one in devices) == 200
    assert len({one["metric"] for one in devices}) == 50
    assert register.unlisted == (
        "unknown families: the source has 1,000 or more, the first 500 are listed, the devices of the first 50 are"
        " looked at; narrow them with matchers"
    )
    assert all(len(fields["query"]) < 60_000 for _, fields in asked if "query" in fields)


def test_names_of_any_text_do_not_stop_a_day():
    odd = [('acme power "watts" {é}', {"gpu": "0"}), ("x" * 10_000 + "_watts", {"gpu": "0"}), ("w_power", {"gpu": ""})]
    with listing(odd) as url:
        _, register = collected(url, DAY)
    assert [row["metric"] for row in register.unknown_table().to_pylist()] == ['acme power "watts" {é}', "w_power"]


@pytest.mark.parametrize(
    "server",
    [
        pytest.param(prometheus_with_history, marks=pytest.mark.needs("prometheus")),
        pytest.param(victoria_metrics_with_history, marks=pytest.mark.needs("prometheus", "victoria-metrics")),
    ],
)
def test_a_real_server_lists_the_same(tmp_path, server):
    at = END_S - 30
    series = sorted(SERIES, key=lambda one: one[0])
    lines = openmetrics([(metric, labels, [(at, 1.0)]) for metric, labels in series])
    with server(tmp_path, lines) as url:
        _, register = collected(url, DAY)
        _, narrowed = collected(url, DAY, matchers=['__name__!~"acme.*"', 'instance="n7:80"'])
    assert register.unlisted is None
    assert register.unknown_table().to_pylist() == LISTED
    assert register.unknown_devices_table().to_pylist() == DEVICES
    assert narrowed.unknown_table()["metric"].to_pylist() == ["gateway_token_bucket_fill", "wan_power_watts"]


@pytest.mark.needs("prometheus")
def test_a_family_that_ended_at_midday_is_listed_by_a_real_server(tmp_path):
    lines = openmetrics([(WATTS, {"serial": "S-0"}, [(START_S + s, 1.0) for s in range(0, 43_260, 60)])])
    with prometheus_with_history(tmp_path, lines) as url:
        _, register = collected(url, Window(START, START + timedelta(days=1)))
    assert register.unknown_table().to_pylist() == [{"metric": WATTS, "series": 1}]
    assert register.unknown_devices_table()["device_uuid"].to_pylist() == ["S-0"]


# --- sources that are whole pages or files ----------------------------------------------------------------------------


PAGE = b"""# TYPE acme_board_power_watts gauge
acme_board_power_watts{serial="S-0"} 300
acme_board_power_watts{serial="S-1"} 310
acme_board_power_watts{room="hall"} 900
acme_board_power_limit_watts{serial="S-9"} 700
# TYPE DCGM_FI_DEV_POWER_USAGE gauge
DCGM_FI_DEV_POWER_USAGE{UUID="GPU-a"} 250
"""


def test_the_devices_of_a_page_come_through_the_spool(tmp_path):
    kinds = {POWER: "dcgm_exporter"}
    with http_server(lambda handler: reply(handler, 200, PAGE, "text/plain")) as url:
        page = ExpositionPage(url, kinds, host="n7", clock_ns=lambda: int((START_S + 60) * 1e9))
        readings = page.look()
    writer = SpoolWriter(Spool(tmp_path), "n7")
    writer.add(readings, page.unknown, page.unknown_labels)
    assert writer.flush()
    register = SeriesRegister("agents", DAY)
    rows = sum(batch.samples.num_rows for batch in SpoolCollector("agents", tmp_path).collect(DAY, FAMILIES, register))
    assert rows == 1
    assert register.unknown_table().to_pylist() == [
        {"metric": "acme_board_power_limit_watts", "series": 1},
        {"metric": "acme_board_power_watts", "series": 3},
    ]
    assert register.unknown_devices_table().to_pylist() == [
        {"metric": WATTS, "device_uuid": "S-0", "device_index": None, "pci_bus_id": None, "node": "n7"},
        {"metric": WATTS, "device_uuid": "S-1", "device_index": None, "pci_bus_id": None, "node": "n7"},
    ]


def test_a_page_that_is_kept_whole_has_its_devices_too(tmp_path):
    with http_server(lambda handler: reply(handler, 200, PAGE, "text/plain")) as url:
        readings = ExpositionPage(url, None, host="n7", clock_ns=lambda: int((START_S + 60) * 1e9)).look()
    writer = SpoolWriter(Spool(tmp_path), "n7")
    writer.add(readings)
    assert writer.flush()
    register = SeriesRegister("agents", DAY)
    list(SpoolCollector("agents", tmp_path).collect(DAY, FAMILIES, register))
    assert register.unknown_devices_table()["device_uuid"].to_pylist() == ["S-0", "S-1"]


@pytest.mark.parametrize("metadata", [b"[]", b'{"acme_power": "x"}', b"{", b'{"acme_power": [3]}'])
def test_a_spool_file_with_other_metadata_is_named_and_the_others_land(tmp_path, metadata):
    reading = Reading(int((START_S + 60) * 1e6), "dcgm_exporter", POWER, '{"UUID":"GPU-a"}', 250.0)
    for host in ("n1", "n2"):
        writer = SpoolWriter(Spool(tmp_path), host)
        writer.add([reading], {"acme_power": 1})
        assert writer.flush()
    (path,) = (tmp_path / "host=n1").rglob("*.parquet")
    table = pq.read_table(path)
    labels = {b"wattledger_unknown_families": b'{"acme_power": 1}', b"wattledger_unknown_labels": metadata}
    pq.write_table(table.replace_schema_metadata(labels), path)
    collector, register = SpoolCollector("agents", tmp_path), SeriesRegister("agents", DAY)
    assert sum(batch.samples.num_rows for batch in collector.collect(DAY, FAMILIES, register)) == 1
    assert [problem.partition(":")[0] for problem in collector.problems] == [str(path)]


def test_the_devices_of_a_file_are_those_of_its_labels(tmp_path):
    (tmp_path / "long.csv").write_text(
        "at,name,board,value\n2026-10-01T00:01:00Z,DCGM_FI_DEV_POWER_USAGE,GPU-a,250\n"
        "2026-10-01T00:01:00Z,acme_board_power_watts,S-0,300\n2026-10-01T00:01:00Z,acme_tokens,S-0,300\n"
    )
    labels = {"serial": "board"}
    mapping = FileMapping(str(tmp_path / "long.csv"), time="at", metric="name", value="value", labels=labels)
    register = SeriesRegister("files", DAY)
    list(FilesCollector("files", [mapping]).collect(DAY, FAMILIES, register))
    assert register.unknown_table()["metric"].to_pylist() == [WATTS, "acme_tokens"]
    assert register.unknown_devices_table()["device_uuid"].to_pylist() == ["S-0"]


# --- names and labels -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metric", "listed", "drawn"),
    [
        ("acme_power_watts", True, True),
        ("acme_energy_kwh_total", True, True),
        ("acme_watt_seconds_total", True, True),
        ("acmePowerDraw", True, True),
        ("POWER", True, True),
        ("gpu.power.draw", True, True),
        ("gpu_memory_power_milliwatts", True, True),
        ("nvidia_smi_power_draw_watts", True, True),
        ("acme_microjoules", True, True),
        ("acme_tokens_total", True, False),
        ("nvidia_smi_enforced_power_limit_watts", True, False),
        ("acme_power_state", True, False),
        ("acme_joules_per_token", True, False),
        ("node_power_supply_power_watt", True, False),
        ("node_rapl_core_joules_total", True, False),
        ("transceiver_rx_power_dbm", True, False),
        ("acme_powered", False, False),
        ("tokenizer_seconds", False, False),
        ("acme_wattage", True, True),
        ("overpower", False, False),
        ("rack_powerDraw", True, False),
        ("acme_energyUsed", True, True),
        ("acme_powerful", False, False),
        ("acme_power_watts_bucket", False, False),
        ("node:acme_power_watts:sum", False, False),
        ("vllm:new_tokens_total", True, False),
    ],
)
def test_a_name_is_read_by_its_words(metric, listed, drawn):
    assert (is_listed(metric), is_drawn_power(metric)) == (listed, drawn)


@pytest.mark.parametrize(
    ("labels", "device"),
    [
        ({"UUID": "GPU-1", "gpu": "3", "Hostname": "n1", "instance": "10.0.0.1:9400"}, ("GPU-1", "3", None, "n1")),
        ({"gpu": "GPU-1", "node": "n1"}, ("GPU-1", None, None, "n1")),
        ({"uuid": "0", "node": "n1"}, (None, "0", None, "n1")),
        ({"device": "/dev/nvidia2", "instance": "n1:9400"}, (None, "2", None, "n1")),
        ({"exported_gpu": "card1", "exported_node": "n1"}, (None, "1", None, "n1")),
        ({"gpu": "NVIDIA A100", "index": "5", "node": "n1"}, (None, "5", None, "n1")),
        ({"serial_number": "N/A", "pciBusId": "0000:3b:00.0"}, (None, None, "0000:3b:00.0", None)),
        ({"device": "sda", "node": "n1"}, None),
        ({"device": "eth0", "node": "n1"}, None),
        ({"node": "n1", "instance": "n1:9400"}, None),
        ({"uuid": "", "model": "A100"}, None),
        ({"uuid": "x" * 300}, None),
    ],
)
def test_labels_name_a_device(labels, device):
    assert device_of(labels) == device
