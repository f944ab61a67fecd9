"""The folders of tests are in memory: those of a file's fixtures go with it, unless one of its tests failed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests import conftest


@pytest.mark.parametrize(
    ("scope", "failed", "is_kept"),
    [("module", set(), False), ("module", {"tests/of_this.py"}, True), ("session", set(), True)],
)
def test_a_folder_goes_with_the_file_of_its_fixture(
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    scope: str,
    failed: set[str],
    is_kept: bool,
) -> None:
    monkeypatch.setattr(conftest, "failed_files", failed)
    fixture: Any = type("Fixture", (), {"scope": scope})()
    monkeypatch.setattr(conftest, "folders_of", {})
    tmp_path_factory = request.getfixturevalue("tmp_path_factory")
    before = tmp_path_factory.mktemp("before")
    setup = conftest.pytest_fixture_setup(fixture, request)
    next(setup)
    made = tmp_path_factory.mktemp("book")
    with pytest.raises(StopIteration):
        setup.send("value")
    end: Any = SimpleNamespace(node=SimpleNamespace(nodeid="tests/of_this.py"))
    conftest.pytest_fixture_post_finalizer(fixture, end)
    assert (before.exists(), made.exists()) == (True, is_kept)
