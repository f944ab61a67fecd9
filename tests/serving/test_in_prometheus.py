"""The queries of the dashboard today, and the alert rules, in a real Prometheus that scrapes `serve`'s page.

No Grafana is started: its variables are put in by hand. `test_service` asks the same of a whole `serve`.
"""

from __future__ import annotations

import json
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.alarming import alertmanager
from pipelines.fleet.places import PROJECT
from pipelines.publishing.dashboards import grafana
from pipelines.serving import metrics
from pipelines.serving.web_server import METRICS_TYPE, Answer, WebServer
from tests import optional
from tests.served_states import healthy, troubled
from tests.servers import prometheus_scraping
from tests.waiting import wait_for

pytestmark = pytest.mark.needs("prometheus")

RULES = sorted((PROJECT / "bi/prometheus").glob("rules*.yml"))
DASHBOARD = grafana.boards()["today"]
VARIABLES = {"$fleet": ".*", "$meter_scope": "board"}


def answer(url: str, path: str, **fields: str) -> Any:
    with urllib.request.urlopen(f"{url}/api/v1/{path}?{urllib.parse.urlencode(fields)}", timeout=10) as reply:
        return json.load(reply)["data"]


def found(url: str, expression: str) -> list[dict[str, Any]]:
    """The series of an instant query."""
    return answer(url, "query", query=expression)["result"]


def queries() -> dict[str, str]:
    """Title of each panel -> its query, with variables put in."""
    asked = {}
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            expression = target["expr"]
            for name, value in VARIABLES.items():
                expression = expression.replace(name, value)
            asked[panel["title"]] = expression
    return asked


def alerts() -> dict[str, str]:
    """Name of each rule -> its expression."""
    return {rule["alert"]: rule["expr"] for path in RULES for rule in rules_of(path)}


def rules_of(path: Path) -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]
    return group["rules"]


def scraped(folder: Path, state: Callable[[datetime], metrics.State]) -> Iterator[str]:
    """The URL of a Prometheus that has scraped the page of a state."""

    def page() -> Answer:
        now = datetime.now(UTC)
        return Answer(metrics.page(state(now), now), METRICS_TYPE)

    server = WebServer("127.0.0.1", 0, {"/metrics": page}, None)
    server.start()
    try:
        with prometheus_scraping(folder, f"127.0.0.1:{server.port}", rules=RULES) as url:
            wait_for(
                lambda: len(answer(url, "query", query="count_over_time(wattledger_build_info[1m]) > 1")["result"])
            )
            yield url
    finally:
        server.stop()


@pytest.fixture(scope="module")
def of_healthy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from scraped(tmp_path_factory.mktemp("healthy"), healthy)


@pytest.fixture(scope="module")
def of_troubled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from scraped(tmp_path_factory.mktemp("troubled"), troubled)


def test_every_panel_has_rows(of_healthy: str, of_troubled: str) -> None:
    """The tables of what is wrong have rows of the troubled fleet, and none of the healthy one."""
    of_trouble = {
        "Checks of the last run that found something",
        "Sources that the newest tick did not read, or that are silent",
        "In doubt by 1 % or more, today or on the last booked day: models and reasons",
    }
    asked = queries()
    assert len(asked) == 19
    assert {title for title, expression in asked.items() if not found(of_healthy, expression)} == of_trouble
    assert {title for title in of_trouble if not found(of_troubled, asked[title])} == set()


def test_what_the_headline_panels_show(of_healthy: str) -> None:
    asked = queries()

    def value(title: str) -> float:
        ((_, shown),) = [one["value"] for one in found(of_healthy, asked[title])]
        return float(shown)

    assert value("Watts now, W (${meter_scope} meters)") == 2 * 650.5
    assert value("Output tokens today") == 20_000
    # 3 MJ at 0.25 and 1 MJ of free accelerators at 1.
    assert value("Idle energy today, % of joules (estimate)") == pytest.approx((0.75e6 + 1e6) / 4e6)
    assert value("Cost today, USD (estimate)") == 14.5
    assert 30 <= value("Age of the newest tick") < 60


def test_each_variable_of_the_dashboard_has_values(of_healthy: str) -> None:
    asked = {one["name"]: one["query"]["query"] for one in DASHBOARD["templating"]["list"] if one["type"] == "query"}
    assert asked == {
        "fleet": "label_values(wattledger_today_tick_timestamp_seconds, fleet)",
        "meter_scope": 'label_values(wattledger_today_energy_joules{fleet=~"$fleet"}, meter_scope)',
    }
    for label, metric, expected in (
        ("fleet", "wattledger_today_tick_timestamp_seconds", ["mine"]),
        ("meter_scope", "wattledger_today_energy_joules", ["board"]),
    ):
        assert answer(of_healthy, f"label/{label}/values", **{"match[]": metric}) == expected


# What a troubled fleet still answers: WattledgerIsSilent needs none at all, and WattledgerTicksStopped another page.
AT_ONCE = {
    "WattledgerSourceNotRead",
    "WattledgerNightMissing",
    "WattledgerRunFailed",
    "WattledgerCheckFailed",
    "WattledgerTokensNeedMoreEnergy",
    "WattledgerModelMostlyIdle",
}


def test_each_rule_fires_where_it_has_to_and_only_there(of_healthy: str, of_troubled: str) -> None:
    asked = alerts()
    assert {name for name, expression in asked.items() if found(of_healthy, expression)} == set()
    assert {name for name, expression in asked.items() if found(of_troubled, expression)} == AT_ONCE
    # The rest by the same rules on a later moment, and on a page that is gone.
    stopped = asked["WattledgerTicksStopped"].replace("time()", "(time() + 1200)")
    assert found(of_healthy, stopped)
    assert found(of_healthy, asked["WattledgerIsSilent"].replace("build_info", "build_info_of_another"))
    assert set(asked) == AT_ONCE | {"WattledgerIsSilent", "WattledgerTicksStopped"}


def test_no_rule_raises_what_an_alarm_of_a_run_raises() -> None:
    """A fleet that sends alarms takes the first file alone."""
    without_alarms, always = (
        {rule["alert"] for rule in rules_of(PROJECT / "bi/prometheus" / name)}
        for name in ("rules_without_alarms.yml", "rules.yml")
    )
    sent = set(alertmanager.NAMES.values())
    assert without_alarms <= sent
    assert always & sent == set()


def test_prometheus_loads_the_rules_and_their_texts(of_troubled: str) -> None:
    loaded = [rule["name"] for group in answer(of_troubled, "rules")["groups"] for rule in group["rules"]]
    assert sorted(loaded) == sorted(alerts())
    # Promtool fills in each annotation: WattledgerRunFailed has no `for`, so it fires at once.
    _, promtool = optional.required("prometheus")
    test = {
        "rule_files": list(map(str, RULES)),
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": 'wattledger_last_run_successful{fleet="mine"}', "values": "0x5"}],
                "alert_rule_test": [
                    {
                        "eval_time": "2m",
                        "alertname": "WattledgerRunFailed",
                        "exp_alerts": [
                            {
                                "exp_labels": {"severity": "critical", "fleet": "mine"},
                                "exp_annotations": {
                                    "summary": "mine: the last run failed",
                                    "description": "What was published before stays. The run's log names the step;"
                                    " `wattledger run` goes on from there.",
                                },
                            }
                        ],
                    }
                ],
            }
        ],
    }
    words = [promtool, "test", "rules", "/dev/stdin"]
    done = subprocess.run(words, input=yaml.safe_dump(test), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
