"""What a test needs beside Python: without it the test is skipped, and fails where CI=true; all others need nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import optional

TESTS = Path(__file__).parent
ONE = "tests/collectors/test_prometheus_answers.py"


def without_programs(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """A Python of this environment that finds no program."""
    kept = {name: value for name, value in os.environ.items() if name not in ("CI", "JAVA_HOME", "PYTEST_ADDOPTS")}
    surroundings = {**kept, "PATH": "/nowhere", "WATTLEDGER_POSTGRESQL": "/nowhere", **more}
    command = [sys.executable, "-m", *words]
    return subprocess.run(command, cwd=optional.PROJECT, env=surroundings, capture_output=True, text=True, check=False)


def test_each_part_names_the_command_that_installs_it() -> None:
    documented = (optional.PROJECT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    installs = {name: part.install for name, part in optional.PARTS.items()}
    form = re.compile(r"(apt-get install|make|sudo make|export) \S")
    assert {name: install for name, install in installs.items() if not form.match(install)} == {}
    undocumented = [
        (name, what)
        for name, install in installs.items()
        for what in re.findall(r"(?:apt-get install|(?<!sudo )make|export) ([\w.-]+)", install)
        if not re.search(rf"[` ]{what}[` =]", documented)
    ]
    assert undocumented == []


def test_a_missing_program_is_one_line_with_its_command() -> None:
    done = without_programs("tests.optional", "java", "postgresql")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "needs Java 17 or newer: apt-get install openjdk-17-jre-headless, and PostgreSQL (in another folder than"
        " /usr/lib/postgresql: WATTLEDGER_POSTGRESQL): apt-get install postgresql\n"
    )
    assert without_programs("tests.optional").returncode == 0


@pytest.mark.rest
@pytest.mark.slow
@pytest.mark.parametrize(("ci", "status", "outcome"), [("", 0, "1 skipped"), ("true", 1, "1 error")])
def test_a_test_without_its_program_is_skipped_and_fails_in_ci(ci: str, status: int, outcome: str) -> None:
    done = without_programs("pytest", "-o", "addopts=-ra", "-m", "needs", "-p", "no:cacheprovider", ONE, CI=ci)
    assert done.returncode == status, done.stdout
    assert outcome in done.stdout.splitlines()[-1]
    assert "needs openssl: apt-get install openssl" in done.stdout


def test_a_test_that_is_not_marked_gets_no_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optional, "declared", frozenset({"openssl"}))
    with pytest.raises(AssertionError, match=r'pytest\.mark\.needs\("prometheus"\)'):
        optional.required("prometheus")


def test_nothing_else_skips_a_test() -> None:
    skipping = re.compile(r"pytest\.(skip|importorskip)\(|mark\.(skip|skipif)\b|unittest\.skip|shutil\.which\(")
    found = {
        path.relative_to(TESTS).as_posix()
        for path in TESTS.rglob("*.py")
        if path.name != "test_optional.py" and skipping.search(path.read_text(encoding="utf-8"))
    }
    assert found == {"conftest.py", "optional.py"}
