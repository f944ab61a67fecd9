"""Whatever a file holds, its reader gives rows that can be, counts the others, or raises SourceError; nothing else."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.drawn.odd_files import ALL, findings, read

pytestmark = pytest.mark.sampled


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
@pytest.mark.parametrize("kind", ALL)
def test_of_an_odd_file_come_rows_that_can_be_or_the_one_error(tmp_path: Path, kind: str, seed: int) -> None:
    assert list(findings(seed, 1, tmp_path, [kind])) == []


@pytest.mark.parametrize("kind", ALL)
def test_odd_files_are_read_in_part_more_often_than_not_at_all(tmp_path: Path, kind: str) -> None:
    """Without this, a reader that refuses everything would pass the test above."""
    outcomes = [read(Random(seed), kind, tmp_path) for seed in range(30)]
    assert sum(bool(rows) for rows in outcomes) >= 5
