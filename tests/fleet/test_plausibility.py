"""Values that are probably in another unit are warned of, and what only looks like it is not."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pipelines.command_line.main import main
from pipelines.fleet.fleet_file import FleetError, load_fleet, read_fleet
from pipelines.fleet.plausibility import usual_rate
from tests.fleet.test_fleet import SMALLEST, load, problems, write


def site(rest: str) -> str:
    return f"{SMALLEST}sites: [{{name: dc1, zone: ES, pue: 1.2, {rest}}}]\n"


def found(folder: Path, text: str) -> list[tuple[str, str]]:
    """Key and text of each finding."""
    _, findings = read_fleet(write(folder, text), {"WATTLEDGER_DATA": str(folder / "data")})
    return [(finding.key, finding.text) for finding in findings]


TODAY = datetime.now(UTC).date()
SERVERS = (
    "fleet: mine\nperiod: {{start: 2026-10-01}}\nsources:\n"
    "  - {{name: a, kind: prometheus, url: 'http://prometheus:9090', interval_seconds: 15{first}}}\n"
    "  - {{name: b, kind: prometheus, url: 'http://Prometheus:9090/', interval_seconds: 15{second}}}\n"
)
RATE = "device_type: h100-sxm5-80gb, source: x"
# h100-sxm5-80gb costs 1.99 to 5 USD on demand and 1.30 in the seed: 1.3 / 5 = 0.26, 5 × 5 = 25. b200-sxm-180gb costs
# 1.95 in the seed alone: 1.95 × 20 = 39. The dearest of the seed is 2.652.
ODD = [
    (
        f"{SMALLEST}sites: [{{name: dc1, zone: ES, pue: 3.5}}]",
        "sites[dc1].pue",
        "got 3.5, expected 1 to 3 (the site's electricity over that of its computers; most are 1.1 to 1.6)",
    ),
    (
        site("tariff: [{usd_per_kwh: 12}]"),
        "sites[dc1].tariff[0].usd_per_kwh",
        "got 12, expected 0.005 to 1 USD per kWh (12 cents are 0.12, 80 USD per MWh are 0.08)",
    ),
    (
        site("tariff: [{usd_per_kwh: 0.00012}]"),
        "sites[dc1].tariff[0].usd_per_kwh",
        "got 0.00012, expected 0.005 to 1 USD per kWh (12 cents are 0.12, 80 USD per MWh are 0.08)",
    ),
    (
        site(
            "tariff: [{usd_per_kwh: 0.1, local_hours: [8, 20]}, {usd_per_kwh: 0.1, local_hours: [0, 8]},"
            " {usd_per_kwh: 0.1, local_hours: [20, 24]}]"
        ),
        "sites[dc1].time_zone",
        "got none, which is UTC, expected the site's IANA time zone, such as Europe/Oslo, because its tariff has"
        " local_hours (UTC, if they are hours of UTC)",
    ),
    (
        SMALLEST.replace("interval_seconds: 15", "interval_seconds: 0.03"),
        "sources[cluster].interval_seconds",
        "got 0.03, expected 0.05 to 900 seconds between samples (30 s, not 0.5 minutes or 30000 ms)",
    ),
    (
        SMALLEST.replace("interval_seconds: 15", "interval_seconds: 3000"),
        "sources[cluster].interval_seconds",
        "got 3000, expected 0.05 to 900 seconds between samples (30 s, not 0.5 minutes or 30000 ms)",
    ),
    (
        f"{SMALLEST}nodes: [{{name: n1, host_watts: 35000}}]",
        "nodes[n1].host_watts",
        "got 35000, expected 10 to 20000 W of one node, without its accelerators (0.6 kW are 600 W)",
    ),
    (
        f"{SMALLEST}cost_rates: [{{{RATE}, usd_per_gpu_hour: 210}}]",
        "cost_rates[0].usd_per_gpu_hour",
        "got 210, expected 0.26 to 25 USD per GPU-hour (h100-sxm5-80gb costs 1.99 to 5 on demand, 1.3 in the seed; USD,"
        " not cents)",
    ),
    (
        f"{SMALLEST}cost_rates: [{{device_type: a6000, source: x, usd_per_gpu_hour: 60}}]",
        "cost_rates[0].usd_per_gpu_hour",
        "got 60, expected at most 53.04 USD per GPU-hour (no seed has its price; USD, not cents)",
    ),
    (
        f"{SMALLEST}cost_rates: [{{{RATE}, price_usd_per_gpu: 25, life_years: 5}}]",
        "cost_rates[0].price_usd_per_gpu",
        "got 25 USD over 5 years, which is 0.0005707762557, expected 0.26 to 25 USD per GPU-hour (h100-sxm5-80gb costs"
        " 1.99 to 5 on demand, 1.3 in the seed; USD, not cents)",
    ),
    (
        f"{SMALLEST}cost_rates: [{{{RATE}, price_usd_per_gpu: 200000, life_years: 48}}]",
        "cost_rates[0].life_years",
        "got 48, expected 1 to 15 years (48 months are 4 years)",
    ),
    (
        f"{SMALLEST}device_types: [{{name: x, power_limit_watts: 700, idle_watts_bare: 800}}]",
        "device_types[x].idle_watts_bare",
        "got 800 W, expected at most power_limit_watts, which is 700 W",
    ),
    (
        # 17 hours are without a price.
        site(
            "time_zone: Europe/Oslo, tariff: [{usd_per_kwh: 0.1, local_hours: [22, 24]},"
            " {usd_per_kwh: 0.1, local_hours: [0, 5]}]"
        ),
        "sites[dc1].tariff",
        "got prices for 7 of 24 hours, expected a price for each: electricity of the local hours 5 to 22 has no cost"
        " from 2026-10-01 on",
    ),
    (
        # The night's price ends a month before the day's.
        site(
            "time_zone: Europe/Oslo, tariff: [{usd_per_kwh: 0.1, local_hours: [6, 22]},"
            " {usd_per_kwh: 0.1, local_hours: [22, 24]}, {usd_per_kwh: 0.1, local_hours: [0, 6], valid_to: 2026-10-02}]"
        ),
        "sites[dc1].tariff",
        "got prices for 18 of 24 hours, expected a price for each: electricity of the local hours 0 to 6 has no cost"
        " from 2026-10-02 on",
    ),
    (
        site("tariff: [{usd_per_kwh: 0.1, valid_from: 2099-01-01}]"),
        "sites[dc1].tariff[0].valid_from",
        f"got 2099-01-01, expected one of {TODAY} or before: until then nothing has this price. Is its year right?",
    ),
    (
        f"{SMALLEST}cost_rates: [{{{RATE}, usd_per_gpu_hour: 2, valid_from: 2099-01-01}}]",
        "cost_rates[0].valid_from",
        f"got 2099-01-01, expected one of {TODAY} or before: until then nothing has this price. Is its year right?",
    ),
    (
        f"{SMALLEST}models: [{{name: m, contract_prices: [{{output_usd_per_mtok: 2, valid_from: 2099-01-01}}]}}]",
        "models[m].contract_prices[0].valid_from",
        f"got 2099-01-01, expected one of {TODAY} or before: until then nothing has this price. Is its year right?",
    ),
    (
        SERVERS.format(first="", second=", matchers: ['job=\"vllm\"']"),
        "sources[b].url",
        "got the place of sources[a] again, expected one source for one place, or matchers that divide its series: all"
        " of them are read twice",
    ),
    (
        SMALLEST.replace("sources:\n", "sources:\n  - {name: s, kind: spool}\n  - {name: t, kind: spool}\n"),
        "sources[t].path",
        "got the place of sources[s] again, expected one source for one place, or matchers that divide its series: all"
        " of them are read twice",
    ),
    (
        f"{SMALLEST}models: [{{name: m, slo: {{ttft_seconds: 2000}}}}]",
        "models[m].slo.ttft_seconds",
        "got 2000, expected 0.001 to 600 seconds (2000 ms are 2)",
    ),
]


@pytest.mark.parametrize(("text", "key", "why"), ODD)
def test_a_value_in_another_unit_is_a_finding_with_what_was_expected(
    tmp_path: Path, text: str, key: str, why: str
) -> None:
    assert found(tmp_path, text) == [(key, why)]


@pytest.mark.parametrize(("text", "key", "why"), ODD)
def test_an_accepted_value_is_none(tmp_path: Path, text: str, key: str, why: str) -> None:
    assert found(tmp_path, f'{text}\naccepted: ["{key}"]\n') == []


@pytest.mark.parametrize(
    "text",
    [
        # Spot prices fall to zero and below; a generating set is dear, and stated to be so.
        site("tariff: [{usd_per_kwh: -0.03, local_hours: [0, 12]}, {usd_per_kwh: 0, local_hours: [12, 24]}]").replace(
            "pue: 1.2", "pue: 1.2, time_zone: UTC"
        ),
        site("tariff: [{usd_per_kwh: 1.5}]") + 'accepted: ["sites[dc1].tariff[0].usd_per_kwh"]\n',
        f"{SMALLEST}sites: [{{name: dc1, zone: ES, pue: 1.0}}]",
        f"{SMALLEST}sites: [{{name: dc1, zone: ES, pue: 3}}]",
        # Prices and contracts that follow those of today.
        site("tariff: [{usd_per_kwh: 0.1, valid_to: 2099-01-01}, {usd_per_kwh: 0.2, valid_from: 2099-01-01}]")
        + "energy_contracts: [{contract: c, site: dc1, share_ratio: 1, gco2e_per_kwh: 0, source: s,"
        " valid_from: 2099-01-01}]\n"
        + "commitments: [{commitment: c, site: dc1, device_type: h100-sxm5-80gb, gpus: 8, usd_per_gpu_hour: 1.7,"
        " valid_from: 2099-01-01}]\n",
        f"{SMALLEST}cost_rates: [{{{RATE}, usd_per_gpu_hour: 2}}, {{{RATE}, usd_per_gpu_hour: 3,"
        " valid_from: 2099-01-01}]",
        # One server by parts, for two tenants, and by another prefix.
        SERVERS.format(first=", matchers: ['cluster=\"a\"']", second=", matchers: ['cluster=\"b\"']"),
        SERVERS.format(first=", headers: {X-Scope-OrgID: a}", second=", headers: {X-Scope-OrgID: b}"),
        SERVERS.format(first="", second=", metric_prefix: amd_"),
        # Dates before the first tariff are dates without a price, not hours.
        site("tariff: [{usd_per_kwh: 0.1, valid_from: 2026-10-05}]"),
        # What the seed's price of another contract, a written-off board or an old card may be.
        f"{SMALLEST}cost_rates: [{{{RATE}, usd_per_gpu_hour: 0}}]",
        f"{SMALLEST}cost_rates: [{{{RATE}, usd_per_gpu_hour: 12.3}}]",
        f"{SMALLEST}cost_rates: [{{device_type: t4, source: x, price_usd_per_gpu: 900, life_years: 6}}]",
        f"{SMALLEST}nodes: [{{name: n1, host_watts: 0}}]",  # its wall meter has all of it
        SMALLEST.replace("interval_seconds: 15", "interval_seconds: 900"),  # meters of a building
    ],
)
def test_what_only_looks_odd_is_no_finding(tmp_path: Path, text: str) -> None:
    assert found(tmp_path, text) == []


def test_an_accepted_key_that_silences_nothing_is_a_finding(tmp_path: Path) -> None:
    text = f'{SMALLEST}accepted: ["sites[dc1].pue"]\n'
    assert found(tmp_path, text) == [
        (
            "accepted[0]",
            "got 'sites[dc1].pue', expected the key of a finding, as `wattledger check` prints it: it silences nothing,"
            " so remove it",
        )
    ]
    # Only telemetry shows whether a node is there.
    assert found(tmp_path, f'{SMALLEST}nodes: [{{name: n1}}]\naccepted: ["nodes[n1].name"]\n') == []


def test_a_run_warns_of_the_same(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        load(tmp_path, f"{SMALLEST}sites: [{{name: dc1, zone: ES, pue: 3.5}}]")
    assert caplog.messages == [
        "fleet.yaml: sites[dc1].pue: got 3.5, expected 1 to 3 (the site's electricity over that of its computers; most"
        ' are 1.1 to 1.6). If it is right: accepted: ["sites[dc1].pue"]'
    ]


@pytest.mark.parametrize(
    ("pue", "expected"),
    [
        ("0.9", "expected 1 to 10: "),
        ("130", "expected 1 to 10 (a percentage? 130 % is 1.3): "),
        ("10.5", "expected 1 to 10: "),
    ],
)
def test_a_pue_that_cannot_be_is_refused(tmp_path: Path, pue: str, expected: str) -> None:
    (problem,) = problems(tmp_path, f"{SMALLEST}sites: [{{name: dc1, zone: ES, pue: {pue}}}]")
    assert problem == (
        f"sites[dc1].pue: got {pue}, {expected}all electricity of the facility over that of its computers, 1.3 for 30 %"
        " of overhead"
    )


def test_a_period_that_begins_in_the_future_is_refused(tmp_path: Path) -> None:
    today = datetime.now(UTC).date()
    tomorrow = today + timedelta(days=1)
    (problem,) = problems(tmp_path, SMALLEST.replace("2026-10-01", tomorrow.isoformat()))
    assert problem.startswith(f"period.start: got {tomorrow}, expected at most today, which is {today} in UTC: ")
    assert load(tmp_path, SMALLEST.replace("2026-10-01", today.isoformat())).period.start == today
    # A period that is to end one day.
    assert load(tmp_path, SMALLEST.replace("2026-10-01}", "2026-10-01, end: 2099-01-01}")).days(today) != []


@pytest.mark.parametrize(
    ("typed", "written"),
    [
        ("http://p:9090/api/v1/query?query=up", "http://p:9090"),
        ("http://p:9090/api/v1", "http://p:9090"),
        ("http://p:9090/graph?g0.expr=up&g0.tab=1", "http://p:9090"),
        ("https://m/prometheus/api/v1/", "https://m/prometheus"),
        ("https://v/select/0/prometheus/graph", "https://v/select/0/prometheus"),
        (
            "https://v/api/v1/series?extra_filters[]=x&match[]=up",
            "https://v, with its extra_filters[]",
        ),
    ],
)
def test_a_url_of_a_page_is_refused_with_the_url_to_write(tmp_path: Path, typed: str, written: str) -> None:
    (problem,) = problems(tmp_path, SMALLEST.replace("http://prometheus:9090", typed))
    assert problem.endswith(
        f"expected the URL of the server alone, to which requests add /api/v1 and more: write {written}"
    )


@pytest.mark.parametrize(
    "url",
    [
        "http://p:9090/",
        "https://m/prometheus",
        "https://v/select/0/prometheus",
        "https://g/api/datasources/proxy/uid/abc-1",
        "https://g.net/api/prom",
        "https://thanos/graphite",
    ],
)
def test_the_url_of_a_server_behind_a_path_is_right(tmp_path: Path, url: str) -> None:
    assert len(load(tmp_path, SMALLEST.replace("http://prometheus:9090", url)).sources) == 1


def test_norway_is_not_false(tmp_path: Path) -> None:
    assert problems(tmp_path, f"{SMALLEST}sites: [{{name: dc1, zone: NO, pue: 1.2}}]") == [
        'sites[dc1].zone: got false, expected text: YAML reads NO as false, so quote it: zone: "NO"'
    ]
    for zone in ('"NO"', "NO-NO1", "NO-NO5"):
        assert found(tmp_path, f"{SMALLEST}sites: [{{name: dc1, zone: {zone}, pue: 1.2}}]") == []


@pytest.mark.parametrize(
    ("part", "key"),
    [
        ("cost_rates: [{device_type: NVIDIA H200, usd_per_gpu_hour: 2, source: x}]", "cost_rates[0].device_type"),
        ("nodes: [{name: n1, device_type: NVIDIA H200}]", "nodes[n1].device_type"),
        ("devices: [{device_uuid: GPU-1, device_type: NVIDIA H200}]", "devices[0].device_type"),
        (
            "cost_rate_files: [{path: p.csv, source: s, device_types: {H200: NVIDIA H200}}]",
            "cost_rate_files[0].device_types[H200]",
        ),
    ],
)
def test_an_alias_of_a_device_type_is_refused_with_its_type(tmp_path: Path, part: str, key: str) -> None:
    assert problems(tmp_path, f"{SMALLEST}{part}\n") == [
        f"{key}: got 'NVIDIA H200', which is an alias, expected its device type: h200-sxm5-141gb"
    ]


def test_a_type_of_the_file_is_no_alias_of_the_seed(tmp_path: Path) -> None:
    own = "device_types: [{name: NVIDIA H200}]\n"
    rate = "cost_rates: [{device_type: NVIDIA H200, usd_per_gpu_hour: 2, source: x}]\n"
    assert load(tmp_path, SMALLEST + own + rate).cost_rates[0].device_type == "NVIDIA H200"


@pytest.mark.parametrize("text", [SMALLEST.replace("\n", "\r\n"), "\ufeff" + SMALLEST, "\ufeff" + SMALLEST.lstrip()])
def test_what_editors_of_windows_add_is_read(tmp_path: Path, text: str) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_bytes(text.encode())
    assert load_fleet(path, {}).fleet == "mine"


def test_a_file_in_another_encoding_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_bytes((SMALLEST + "description: Gr\xfc\xdfe\n").encode("latin-1"))
    with pytest.raises(FleetError) as wrong:
        load_fleet(path, {})
    assert wrong.value.problems == ["is not UTF-8 text (byte 0xfc in line 6): save it again with the encoding UTF-8"]
    path.write_bytes(SMALLEST.encode("utf-16"))
    with pytest.raises(FleetError, match="is not UTF-8 text"):
        load_fleet(path, {})


@pytest.mark.parametrize(
    ("device_type", "rate", "is_usual"),
    [
        # Spot, owned, on demand now and in 2023 (98.32 USD for eight).
        *[("h100-sxm5-80gb", rate, True) for rate in (0.52, 1.30, 6.88, 12.29)],
        # A node of eight at 6.88, cents, a month at 2 USD an hour, per minute.
        *[("h100-sxm5-80gb", rate, False) for rate in (55.04, 199, 1460, 0.03)],
        *[("a100-sxm4-80gb", rate, is_usual) for rate, is_usual in ((0.4, True), (5.12, True), (32.77, False))],
        # Without public prices: twenty times the seed's 1.95.
        *[("b200-sxm-180gb", rate, is_usual) for rate, is_usual in ((14.24, True), (38, True), (40, False))],
    ],
)
def test_a_rate_is_near_the_public_prices_of_its_device(device_type: str, rate: float, is_usual: bool) -> None:
    usual = usual_rate(device_type)
    assert (usual.low <= rate <= usual.high) is is_usual


# --- the command ------------------------------------------------------------------------------------------------------


def test_check_prints_a_line_per_finding_and_how_to_silence_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, site("tariff: [{usd_per_kwh: 12}]") + f"cost_rates: [{{{RATE}, usd_per_gpu_hour: 210}}]\n")
    assert main(["check", "--offline", "--fleet", str(path)]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert shown.out.splitlines()[1:] == [
        "finding  key                               what",
        "-------  --------------------------------  " + "-" * 121,
        "warning  sites[dc1].tariff[0].usd_per_kwh  got 12, expected 0.005 to 1 USD per kWh (12 cents are 0.12, 80 USD"
        " per MWh are 0.08)",
        "warning  cost_rates[0].usd_per_gpu_hour    got 210, expected 0.26 to 25 USD per GPU-hour (h100-sxm5-80gb"
        " costs 1.99 to 5 on demand, 1.3 in the seed; USD, not cents)",
        'If it is right: accepted: ["sites[dc1].tariff[0].usd_per_kwh", "cost_rates[0].usd_per_gpu_hour"]',
    ]


def test_check_names_the_type_that_a_rate_was_probably_meant_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, f"{SMALLEST}cost_rates: [{{device_type: H100, usd_per_gpu_hour: 2, source: x}}]\n")
    assert main(["check", "--offline", "--json", "--fleet", str(path)]) == 0
    assert json.loads(capsys.readouterr().out) == [
        {
            "key": "cost_rates[0].device_type",
            "got": "'H100'",
            "expected": "a device type of the seed device_types or of device_types in this file, or the name that its"
            " exporter gives it; nearest: h100-nvl-94gb",
            "severity": "warning",
        }
    ]


def test_a_wrong_file_is_a_list_of_errors_for_a_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, SMALLEST + "grid_seconds: 7\n")
    assert main(["check", "--offline", "--json", "--fleet", str(path)]) == 2
    assert json.loads(capsys.readouterr().out) == [
        {"key": "grid_seconds", "got": "got 7, expected a divisor of 3600", "expected": "", "severity": "error"}
    ]
