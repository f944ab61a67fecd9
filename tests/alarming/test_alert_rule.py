"""The rules of docs/alarms.md for a run that never starts, evaluated by Prometheus' own promtool."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from pipelines.fleet.places import PROJECT
from tests import optional

# Hours after the first moment of the newest booked date; a sample an hour.
CASES = """
rule_files: [rules.yml]
evaluation_interval: 5m
tests:
  - interval: 5m
    input_series:
      - {series: 'wattledger_last_booked_day_timestamp_seconds{fleet="mine"}', values: '0x800'}
    alert_rule_test:
      - {eval_time: 53h, alertname: WattledgerDateMissing, exp_alerts: []}
      - eval_time: 54h
        alertname: WattledgerDateMissing
        exp_alerts:
          - exp_labels: {severity: critical, fleet: mine}
            exp_annotations:
              summary: "fleet mine: no date is booked since 2d 6h 0m 0s ago"
              what_to_do: "look at the newest run: wattledger run, or the Dagster UI"
      - {eval_time: 54h, alertname: WattledgerMetricsMissing, exp_alerts: []}
  - interval: 5m
    input_series: [{series: up, values: '1x20'}]
    alert_rule_test:
      - eval_time: 1h
        alertname: WattledgerMetricsMissing
        exp_alerts:
          - exp_labels: {severity: critical}
            exp_annotations:
              summary: "no Wattledger is scraped"
              what_to_do: "see whether it runs, and whether Prometheus scrapes it"
"""


@pytest.mark.needs("prometheus")
def test_a_date_that_is_missing_is_an_alert_and_one_in_time_is_none(tmp_path: Path) -> None:
    _, promtool = optional.required("prometheus")
    page = (PROJECT / "docs" / "alarms.md").read_text(encoding="utf-8")
    (rules,) = re.findall(r"^```yaml\n(groups:\n.*?)^```$", page, re.DOTALL | re.MULTILINE)
    (tmp_path / "rules.yml").write_text(rules, encoding="utf-8")
    (tmp_path / "cases.yml").write_text(CASES, encoding="utf-8")
    done = subprocess.run(
        [promtool, "test", "rules", tmp_path / "cases.yml"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
