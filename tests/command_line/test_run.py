"""What a run's exit status is, and what it prints of its checks."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import date
from types import SimpleNamespace
from typing import Any

import pytest

from pipelines.command_line import run


def evaluation(name: str, severity: str, *, passed: bool) -> SimpleNamespace:
    return SimpleNamespace(
        check_name=name,
        passed=passed,
        severity=SimpleNamespace(value=severity),
        description="what it found",
        asset_key=SimpleNamespace(path=["marts", "model_daily"]),
    )


def ended(*evaluations: SimpleNamespace, is_success: bool = True) -> SimpleNamespace:
    return SimpleNamespace(success=is_success, get_asset_check_evaluations=lambda: evaluations)


PASSED = evaluation("holds", "ERROR", passed=True)
WARNED = evaluation("odd", "WARN", passed=False)
FAILED = evaluation("broken", "ERROR", passed=False)


@pytest.mark.parametrize(
    ("result", "status", "line"),
    [
        (ended(PASSED, WARNED), 0, "2 checks: 1 passed, 0 failed, 1 warned"),
        (ended(PASSED, WARNED, FAILED), 1, "3 checks: 1 passed, 1 failed, 1 warned"),
        (ended(is_success=False), 1, ""),
    ],
)
def test_a_publication_with_a_failed_check_is_status_1(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    result: SimpleNamespace,
    status: int,
    line: str,
) -> None:
    job = SimpleNamespace(resolve_job_def=lambda name: name)
    fakes: dict[str, Any] = {
        "definitions_of": lambda fleet: job,
        "published_assets": lambda job: [],
        "_instance": lambda home: nullcontext((None, None)),
        "_executed": lambda *given: result,
        "_print_failures": lambda *given: None,
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(run, name, fake)
    monkeypatch.setattr(run.instance, "prepare", lambda fleets: None)
    monkeypatch.setattr(run.run_lock, "hold", lambda root: None)
    fleet = SimpleNamespace(root=SimpleNamespace(mkdir=lambda **_: None))
    assert run.publish(fleet, date(2026, 10, 1)) == status
    assert line in capsys.readouterr().out
