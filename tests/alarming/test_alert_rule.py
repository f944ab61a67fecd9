"""What notices a run that never starts: the rules of bi/prometheus for it, evaluated by Prometheus' own promtool."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pipelines.fleet.places import PROJECT
from tests import optional

# Hours after the first moment of the newest booked date; a sample every five minutes.
CASES = f"""
rule_files: [{PROJECT}/bi/prometheus/rules.yml]
evaluation_interval: 5m
tests:
  - interval: 5m
    input_series:
      - {{series: 'wattledger_last_booked_day_timestamp_seconds{{fleet="mine"}}', values: '0x800'}}
      - {{series: 'wattledger_build_info', values: '1x800'}}
    alert_rule_test:
      - {{eval_time: 53h, alertname: WattledgerNightMissing, exp_alerts: []}}
      - eval_time: 54h
        alertname: WattledgerNightMissing
        exp_alerts:
          - exp_labels: {{severity: critical, fleet: mine}}
            exp_annotations:
              summary: "mine: the last booked day began 2d 6h 0m 0s ago"
              description: The log of the last run has the reason; `wattledger run` books all that is due.
      - {{eval_time: 54h, alertname: WattledgerIsSilent, exp_alerts: []}}
  - interval: 5m
    input_series: [{{series: up, values: '1x20'}}]
    alert_rule_test:
      - eval_time: 1h
        alertname: WattledgerIsSilent
        exp_alerts:
          - exp_labels: {{severity: critical}}
            exp_annotations:
              summary: No figures of Wattledger for 10 minutes
              description: Look whether `wattledger serve` runs, and whether its address is a target of this Prometheus.
"""


@pytest.mark.needs("prometheus")
def test_a_date_that_is_missing_is_an_alert_and_one_in_time_is_none(tmp_path: Path) -> None:
    _, promtool = optional.required("prometheus")
    (tmp_path / "cases.yml").write_text(CASES, encoding="utf-8")
    done = subprocess.run(
        [promtool, "test", "rules", tmp_path / "cases.yml"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
