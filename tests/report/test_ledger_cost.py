"""What the ledger itself takes, at the foot of the report: all runs over all GPU-days, and nothing that is unknown."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pipelines.report import page
from pipelines.warehouse import database
from tests.report import every_branch, publications

RUN = {"run_id": "a", "measured_until": "publication", "measured_at": datetime(2026, 10, 29, tzinfo=UTC)}


def foot(path: Path) -> str:
    """The first sentence of the foot's last paragraph."""
    shown = page.page(path).rpartition("<footer>")[2].rpartition("<p>")[2]
    assert " Each run is a row of <code>finance.ledger_cost</code>.</p></footer>" in shown
    return shown.partition(" Each run")[0].replace("\xa0", " ")


def test_all_runs_are_divided_by_all_gpu_days(tmp_path: Path) -> None:
    """30 + 15 + 5 core-seconds over 20 + 5 GPU-days; 50 kJ over the same; bytes when the last run was over."""
    assert foot(every_branch.write(tmp_path)) == (
        "This ledger itself: 2 core-seconds, 3.5 MB on disk and 2 kJ (measured and stated) per GPU-day."
    )


@pytest.mark.parametrize(
    ("of_the_run", "expected"),
    [
        # The joules are not known; a run of one GPU-day.
        (
            {"gpu_days": 1, "core_seconds": 33.36, "held_bytes_per_gpu_day": 88_738_534},
            "This ledger itself: 33.4 core-seconds and 88.7 MB on disk per GPU-day.",
        ),
        # A big fleet: thousandths of a core-second and few joules.
        (
            {"gpu_days": 10_000, "core_seconds": 75, "joules": 2600, "joules_basis": "measured"},
            "This ledger itself: 0.0075 core-seconds and 0.26 J (measured) per GPU-day.",
        ),
        (
            {"gpu_days": 1, "core_seconds": 1234.5, "joules": 4.2e6, "joules_basis": "stated"},
            "This ledger itself: 1,234 core-seconds and 4.2 MJ (stated) per GPU-day.",
        ),
    ],
)
def test_an_amount_has_three_digits_and_its_basis(tmp_path: Path, of_the_run: dict[str, Any], expected: str) -> None:
    assert foot(publications.write(tmp_path, finance_ledger_cost=[{**RUN, **of_the_run}])) == expected


def test_a_run_that_booked_nothing_has_no_line(tmp_path: Path) -> None:
    path = publications.write(tmp_path, finance_ledger_cost=[{**RUN, "core_seconds": 9, "joules": 40}])
    assert "This ledger itself" not in page.page(path)


def test_an_older_publication_has_no_line(tmp_path: Path) -> None:
    path = publications.write(tmp_path)
    with closing(database.connect(path)) as connection:
        connection.execute("drop table finance.ledger_cost")
    assert "This ledger itself" not in page.page(path)
