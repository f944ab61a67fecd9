"""FOCUS files of closed months: they stay, and what changes later is a correction in the file of an open month.

The fleet and its states are those of `closed_months`.
"""

from __future__ import annotations

import shutil
from contextlib import closing
from datetime import UTC, datetime

import pytest

from pipelines.fleet.fleet_file import Fleet
from pipelines.publishing import month_closing, restoring
from pipelines.publishing.focus import cost_and_usage
from pipelines.warehouse import closings, database
from pipelines.warehouse.refusals import QuestionError
from tests.publishing.closed_months import (
    OCTOBER,
    adjusted,
    booked,
    charges,
    closed,
    focus_file,
    publish,
    published,
    read,
)

__all__ = ["adjusted", "booked", "closed", "published"]  # the fixtures


def test_the_file_of_a_closed_month_stays_and_the_open_one_has_the_correction(
    published: Fleet, closed: Fleet, adjusted: Fleet
) -> None:
    closed_with = focus_file(published, "2026-10").read_bytes()
    assert focus_file(closed, "2026-10").read_bytes() == closed_with
    assert charges(closed, "2026-11") == []
    assert focus_file(adjusted, "2026-10").read_bytes() == closed_with
    # 7.20 USD of energy, and 3 USD of capacity, of which invoices show half; once, although it was published twice.
    periods = ("2026-11", "2026-12", "2026-10", "2026-11")
    assert charges(adjusted, "2026-11") == [(*periods, "capacity", 1.5, 3.0), (*periods, "energy", 7.2, 7.2)]
    assert [row[-2:] for row in charges(adjusted, "2026-11", "ChargeClass is null")] == [(20.0, 40.0)]
    assert read(
        adjusted, "select ChargeDescription from finance.focus_corrections where x_Part = 'energy' and x_IsCash"
    ) == [("Energy of GPUs and hosts: gpt, correction of 2026-10 (late data)",)]
    # The effective cost of all files is what the fleet cost, as known now: 93 + 17.20 + 40 USD.
    effective_usd = sum(row[-1] for month in ("2026-10", "2026-11") for row in charges(adjusted, month, "true"))
    assert effective_usd == pytest.approx(150.2)
    assert read(adjusted, "select sum(known_cost_usd)::double from finance.cost") == [(150.2,)]


def test_a_frozen_file_outlives_damage(adjusted: Fleet) -> None:
    """That it outlives publications, test_closings shows beside its closing."""
    file = focus_file(adjusted, "2026-10")
    closed_with = file.read_bytes()
    file.write_bytes(b"damaged")
    restoring.restored(adjusted.latest_publication, now=datetime.now(UTC))
    assert focus_file(adjusted, "2026-10").read_bytes() == closed_with


@pytest.mark.parametrize(
    "loss",
    [
        "update published.closed_focus set line = 'x' where line_number = 2",
        "delete from published.closed_focus where line_number = 2",
    ],
)
def test_a_frozen_file_that_is_lost_is_an_error(published: Fleet, loss: str) -> None:
    month_closing.close(published, OCTOBER)
    shutil.rmtree(published.published)
    with closing(database.connect(published.warehouse)) as connection:
        connection.execute(loss)
    with pytest.raises(closings.ClosingsLost, match=r"^2026-10 was closed with another FOCUS file than closing 1 has"):
        publish(published)


def test_a_month_whose_file_was_not_written_is_not_closed(booked: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(cost_and_usage, "_ordered", lambda table: iter(["no_such_column"]))
        publish(booked)
    with pytest.raises(
        QuestionError, match=r"^2026-10 cannot be closed: focus/cost_and_usage_2026-10.csv of the publication could not"
    ):
        month_closing.close(booked, OCTOBER)
