"""What `discover` writes about a log of known joules or tokens is read and right, or the log is refused by a line."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.drawn.known_logs import ALL, findings, joules_of


def test_a_log_is_right_or_refused(tmp_path: Path) -> None:
    """Of seed 530 the first logs of each kind; `make drawn ARGS='--files 130'` reads more."""
    assert list(findings(530, 12, tmp_path)) == []


@pytest.mark.parametrize("kind", [kind for kind in ALL if kind != "usage"])
def test_most_logs_are_read_whole(tmp_path: Path, kind: str) -> None:
    """Without this, a reader that refuses everything would pass the test above."""
    whole = 0
    for nth in range(6):
        (tmp_path / "log.dat").write_bytes(ALL[kind](Random(f"530/{kind}/{nth}")).held)
        (tmp_path / "fleet.yaml").unlink(missing_ok=True)
        found = joules_of(tmp_path)
        whole += not isinstance(found, str) and not found[2].rows
    assert whole >= 4
