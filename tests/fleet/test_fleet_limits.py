"""What a fleet file may cost, what it may hold and what its messages may show."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from collectors.limits import Limits
from pipelines.fleet.fleet_file import FleetError, load_fleet
from tests.fleet.test_fleet import SMALLEST, load, problems

URL = 'url: "http://prometheus:9090"'


def test_limits_have_defaults_and_are_set_per_source(tmp_path: Path) -> None:
    fleet = load(
        tmp_path,
        """
fleet: mine
period: {start: 2026-10-01}
sources:
  - {name: a, kind: prometheus, url: "http://a:9090", interval_seconds: 15}
  - name: b
    kind: prometheus
    url: "http://b:9090"
    interval_seconds: 15
    limits: {answer_bytes: 1000000, answer_seconds: 5, window_bytes: 2000000, window_seconds: 20, series: 7}
  - {name: c, kind: spool, limits: {series: 9}}
sites: [{name: s, zone: GB, pue: 1}]
grid_intensity:
  sources: [{name: neso, kind: uk_carbon_intensity, zone: GB, limits: {answer_seconds: 3}}]
""",
    )
    a, b, _ = fleet.collectors()
    assert a.limits == Limits(64 << 20, 60.0, 16 << 30, 300.0, 500_000) == Limits()
    assert b.limits == b.server.limits == Limits(1_000_000, 5.0, 2_000_000, 20.0, 7)
    assert [source.limits.series for source in fleet.sources] == [500_000, 7, 9]
    grid = fleet.grid_intensity.sources[0].collector()
    assert (grid.limits.answer_bytes, grid.limits.answer_seconds, grid.limits.window_seconds) == (8 << 20, 3.0, 120.0)


@pytest.mark.parametrize(
    ("limits", "problem"),
    [
        ("{series: 0}", "sources[cluster].limits.series: got 0, expected greater than 0"),
        ("{answer_seconds: -1}", "sources[cluster].limits.answer_seconds: got -1, expected greater than 0"),
        ("{answer_bytes: 1.5}", "sources[cluster].limits.answer_bytes: got 1.5, expected a valid integer"),
        ("{answer_byte: 1}", "sources[cluster].limits.answer_byte: unknown key, did you mean 'answer_bytes'?"),
        (
            "{answer_seconds: 400}",
            "sources[cluster].limits: answer_seconds: got 400, expected at most window_seconds, which is 300",
        ),
    ],
)
def test_limits_are_validated(tmp_path: Path, limits: str, problem: str) -> None:
    assert problems(tmp_path, SMALLEST.replace(URL, f"{URL}, limits: {limits}")) == [problem]


def test_twenty_thousand_nodes_are_checked(tmp_path: Path) -> None:
    nodes = "\n".join(
        f"  - {{name: node-{n}, aliases: ['10.0.{n // 250}.{n % 250}', bmc-{n}], rack: r{n // 40}, host_watts: 800}}"
        for n in range(20_000)
    )
    text = f"{SMALLEST}nodes:\n{nodes}\n"
    assert len(load(tmp_path, text).nodes) == 20_000
    assert problems(tmp_path, f"{text}  - {{name: bmc-7}}\n") == [
        "nodes: 'bmc-7' is there more than once, expected unique names"
    ]


def test_yaml_means_what_it_meant(tmp_path: Path) -> None:
    fleet = load(
        tmp_path,
        """
fleet: "mine"
description: |
  two
  lines
period: &p {start: 2026-10-01, end: 2026-10-08}
sources: [&cluster {name: cluster, kind: prometheus, url: 'http://a:9090', interval_seconds: 15, tokens_complete: yes},
          {<<: *cluster, name: other, site: null}]
teams: {"1": one, '~': none}
nodes: [{name: '0x10', host_watts: 0x10}, {name: n2, host_watts: 1_000}, {name: n3, host_watts: 1.5e+2}]
run_windows: {inline: [{window_id: w, node: n2, start_at: 2026-10-01T00:00:00Z, end_at: 2026-10-01 02:00:00+01:00}]}
""",
    )
    assert fleet.description == "two\nlines\n"
    assert fleet.period.end == date(2026, 10, 8)
    assert [(s.name, s.tokens_complete, s.interval_seconds) for s in fleet.sources] == [
        ("cluster", True, 15),
        ("other", True, 15),
    ]
    assert fleet.teams == {"1": "one", "~": "none"}
    assert [(node.name, node.host_watts) for node in fleet.nodes] == [("0x10", 16), ("n2", 1000), ("n3", 150)]
    assert (fleet.run_windows.inline[0].end_at - fleet.run_windows.inline[0].start_at).total_seconds() == 3600


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f"{SMALLEST}---\nfleet: other\n", "is not YAML: line 6, column 1: a second document, expected one"),
        *(
            (text, "is not YAML: line 7 begins with a tab, expected spaces: YAML indents by spaces alone")
            for text in (f"{SMALLEST}sites:\n\t- name: a\n", f"{SMALLEST}teams:\n\t llm: a\n")
        ),
        *(
            (
                f"{SMALLEST}cost_rates: [{{device_type: t4, usd_per_gpu_hour: {text}, source: x}}]\n",
                f"cost_rates[0].usd_per_gpu_hour: got {got} and, after a comma, {rest}, expected a number with a"
                " decimal point, such as 2.1: in YAML a comma ends the value",
            )
            for text, got, rest in (("2,1", "2", "1"), ("0,12", "0", "12"), ("1.000,5", "1.0", "5"))
        ),
        (
            SMALLEST.replace("interval_seconds: 15", "interval_seconds: 2,5"),
            "sources[cluster].interval_seconds: got 2 and, after a comma, 5, expected a number with a decimal point,"
            " such as 2.1: in YAML a comma ends the value",
        ),
        (
            f"{SMALLEST}cost_rates:\n  - device_type: t4\n    usd_per_gpu_hour: 2,1\n    source: x\n",
            "cost_rates[0].usd_per_gpu_hour: got '2,1', expected a number with a decimal point: 2.1",
        ),
        # A namespace that is a number, and a host.
        (f"{SMALLEST}teams: {{12: x}}\n", 'teams: got the key 12, expected text: quote it, "12"'),
        (f"{SMALLEST}nodes: [{{name: 33}}]\n", 'nodes[0].name: got 33, expected text: quote it, "33"'),
        (f"{SMALLEST}teams: *nowhere\n", "is not YAML: line 6, column 8: no anchor 'nowhere' before this alias"),
        (f"{SMALLEST}teams: !!python/object:os.system x\n", "unknown tag 'tag:yaml.org,2002:python/object:os.system'"),
        (f"{SMALLEST}teams: !thing {{}}\n", "unknown tag '!thing'"),
        (f"{SMALLEST}teams: {{[1]: a}}\n", "a key that is a list or a mapping"),
        (f"{SMALLEST}teams: {{<<: 1}}\n", "expected a mapping behind <<"),
        ("", "expected a mapping with the keys fleet, period, sources"),
    ],
)
def test_what_is_no_yaml_of_a_fleet_is_named(tmp_path: Path, text: str, problem: str) -> None:
    assert problem in problems(tmp_path, text)[0]


SECRETS = ("hunter2", "ghp_16C7e42F292c6912E7710c838347Ae178B4a", "Bearer eyJhbGciOiJIUzI1NiJ9", "AKIAIOSFODNN7EXAMPLE")


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize(
    "place",
    [
        "auth: {{bearer_env: '{}'}}",
        "auth: {{username_env: USER_NAME, password_env: '{}'}}",
        "auth: {{bearer: '{}'}}",
        "auth: '{}'",
        "auth: ['{}']",
        "auth: {{bearer_env: ['{}']}}",
        "tls: {{key_file_env: '{}'}}",
        "tls: '{}'",
        "token: '{}'",
        "bearer_env: '{}'",
    ],
)
def test_a_secret_in_the_wrong_place_is_not_echoed(tmp_path: Path, place: str, secret: str) -> None:
    text = SMALLEST.replace(URL, f"{URL}, {place.format(secret)}")
    found = problems(tmp_path, text, {"USER_NAME": "bob"})
    assert found
    assert all(secret not in line for line in found)
    assert all(line.startswith("sources[cluster].") for line in found)


@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_in_the_place_of_a_url_or_of_a_request_log_s_variable_is_not_echoed(
    tmp_path: Path, secret: str
) -> None:
    texts = [
        SMALLEST.replace(URL, f"url: '{secret}'"),
        SMALLEST.replace(URL, f"url: 'http://bob:{secret}@prometheus:9090'"),
        f"{SMALLEST}requests: [{{name: g, kind: litellm, dsn_env: '{secret}'}}]\n",
    ]
    for text in texts:
        assert all(secret not in line for line in problems(tmp_path, text))


def test_the_usual_name_of_a_variable_and_a_wrong_value_elsewhere_are_shown(tmp_path: Path) -> None:
    text = SMALLEST.replace(URL, f"{URL}, auth: {{bearer_env: PROM_TOKEN}}").replace("15}", "fast}")
    assert problems(tmp_path, text) == [
        "sources[cluster].interval_seconds: got 'fast', expected a valid number",
        "sources[cluster].auth.bearer_env: environment variable PROM_TOKEN is not set",
    ]


def test_a_message_about_a_fleet_file_has_no_escapes(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(SMALLEST + '"\\e[31mred": 1\nteams: {"\\e[2J": ["\\e[1m"]}\n')
    with pytest.raises(FleetError) as wrong:
        load_fleet(path, {})
    assert all(line.isprintable() for line in wrong.value.problems)
    assert r"\x1b[31mred: unknown key" in str(wrong.value)
