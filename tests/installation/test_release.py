"""`make release` without an upload: the same bytes each time, sums that hold, and no release of what is not committed.

The image of it is that of `test_container`.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

import pipelines
from tests.optional import PROJECT

pytestmark = [pytest.mark.rest, pytest.mark.needs("git")]
NAMES = [
    "SHA256SUMS",
    f"wattledger-{pipelines.__version__}-py3-none-any.whl",
    f"wattledger-{pipelines.__version__}.tar.gz",
    f"wattledger_agent-{pipelines.__version__}-py3-none-any.whl",
    f"wattledger_agent-{pipelines.__version__}.tar.gz",
]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A clone of what is committed."""
    folder = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", PROJECT, folder], check=True)
    return folder


def release(checkout: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    surroundings = {**os.environ, "PYTHON": sys.executable}
    command = [checkout / "deploy" / "release", folder]
    return subprocess.run(command, env=surroundings, capture_output=True, text=True, check=False, timeout=600)


def test_a_release_is_the_same_bytes_each_time_and_its_sums_hold(checkout: Path, tmp_path: Path) -> None:
    found = []
    for name in ("one", "two"):
        done = release(checkout, tmp_path / name)
        assert done.returncode == 0, done.stdout + done.stderr
        files = sorted((tmp_path / name).iterdir())
        assert [path.name for path in files] == NAMES
        found.append({path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files})
    assert found[0] == found[1]
    sums = dict(reversed(line.split()) for line in (tmp_path / "one" / "SHA256SUMS").read_text().splitlines())
    assert sums == {f"./{name}": found[0][name] for name in NAMES[1:]}
    with tarfile.open(tmp_path / "one" / NAMES[2]) as source:
        names = set(source.getnames())
    assert {
        f"wattledger-{pipelines.__version__}/{folder}" for folder in ("bi/charts/finance.yaml", "pyproject.toml")
    } <= names


def test_what_is_not_committed_or_has_another_tag_is_no_release(checkout: Path, tmp_path: Path) -> None:
    def refusal() -> str:
        done = release(checkout, tmp_path / "out")
        assert done.returncode == 1
        assert not (tmp_path / "out").exists()
        return done.stderr

    (checkout / "more").touch()
    assert refusal() == "release: the checkout has changes: commit them first\n"
    (checkout / "more").unlink()
    subprocess.run(["git", "-C", checkout, "tag", "v9.9"], check=True)
    assert refusal() == f"release: the tag is v9.9, and pipelines/__init__.py has {pipelines.__version__}\n"


def test_the_workflow_builds_what_make_release_builds_and_keeps_no_secret() -> None:
    text = (PROJECT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    jobs = yaml.safe_load(text)["jobs"]
    steps = [str(step.get("run")) for step in jobs["build"]["steps"]]
    assert any(step.startswith("make release ") for step in steps)
    assert "secrets." not in text
    assert jobs["upload"]["needs"] == "build" and jobs["upload"]["environment"] == "release"
