"""FOCUS files of closed months: they stay, and what changes later is a correction in the file of an open month.

The fleet is that of test_closings: 90 USD of capacity and 10 USD of energy in October 2026, 40 USD of capacity in
November. Of capacity invoices show half.
"""

from __future__ import annotations

import shutil
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pytest

from pipelines.fleet.fleet_file import Fleet
from pipelines.publishing import month_closing, restoring
from pipelines.publishing.focus import cost_and_usage
from pipelines.warehouse import closings, database
from pipelines.warehouse.refusals import QuestionError
from tests.publishing import test_closings
from tests.publishing.test_closings import LAST, OCTOBER, change, publish, read

fleet = test_closings.fleet


def focus_file(fleet: Fleet, month: str) -> Path:
    return fleet.published / f"latest/focus/cost_and_usage_{month}.csv"


def charges(fleet: Fleet, month: str, where: str = "ChargeClass = 'Correction'") -> list[tuple]:
    """Billing and charge period, part, billed and effective USD of rows of a month's FOCUS file, in its order."""
    with closing(duckdb.connect()) as connection:
        rows = connection.execute(
            "select BillingPeriodStart, BillingPeriodEnd, ChargePeriodStart, ChargePeriodEnd, x_Part,"
            f" BilledCost::double, EffectiveCost::double from read_csv(?, all_varchar = true) where {where}",
            [str(focus_file(fleet, month))],
        ).fetchall()
    return [tuple(str(value).removesuffix("-01T00:00:00Z") for value in row[:4]) + row[4:] for row in rows]


def test_the_file_of_a_closed_month_stays_and_the_open_one_has_the_correction(fleet: Fleet) -> None:
    publish(fleet)
    closed_with = focus_file(fleet, "2026-10").read_bytes()
    month_closing.close(fleet, OCTOBER)
    publish(fleet)
    assert focus_file(fleet, "2026-10").read_bytes() == closed_with
    assert charges(fleet, "2026-11") == []
    # 7.20 USD of energy, and 3 USD of capacity, of which invoices show half.
    change(fleet, LAST, "energy", 17.2, kwh=86)
    change(fleet, LAST, "capacity", 93)
    publish(fleet)
    publish(fleet)
    periods = ("2026-11", "2026-12", "2026-10", "2026-11")
    corrections = [(*periods, "capacity", 1.5, 3.0), (*periods, "energy", 7.2, 7.2)]
    assert focus_file(fleet, "2026-10").read_bytes() == closed_with
    assert charges(fleet, "2026-11") == corrections
    assert [row[-2:] for row in charges(fleet, "2026-11", "ChargeClass is null")] == [(20.0, 40.0)]
    assert read(
        fleet, "select ChargeDescription from finance.focus_corrections where x_Part = 'energy' and x_IsCash"
    ) == [("Energy of GPUs and hosts: gpt, correction of 2026-10 (late data)",)]
    # The effective cost of all files is what the fleet cost, as known now: 93 + 17.20 + 40 USD.
    effective_usd = sum(row[-1] for month in ("2026-10", "2026-11") for row in charges(fleet, month, "true"))
    assert effective_usd == pytest.approx(150.2)
    assert read(fleet, "select sum(known_cost_usd)::double from finance.cost") == [(150.2,)]


def test_a_month_that_is_opened_again_has_a_file_of_what_is_known(fleet: Fleet) -> None:
    publish(fleet)
    month_closing.close(fleet, OCTOBER)
    month_closing.undo(fleet, OCTOBER)
    change(fleet, LAST, "energy", 12)
    publish(fleet)
    assert [row[-1] for row in charges(fleet, "2026-10", "true")] == [90.0, 12.0]
    month_closing.close(fleet, OCTOBER)
    change(fleet, LAST, "energy", 13)
    publish(fleet)
    assert [row[-1] for row in charges(fleet, "2026-10", "true")] == [90.0, 12.0]
    assert [row[-1] for row in charges(fleet, "2026-11")] == [1.0]


def test_a_frozen_file_outlives_publications_and_damage(fleet: Fleet) -> None:
    publish(fleet)
    closed_with = focus_file(fleet, "2026-10").read_bytes()
    month_closing.close(fleet, OCTOBER)
    change(fleet, LAST, "energy", 17.2)
    publish(fleet)
    file = focus_file(fleet, "2026-10")
    file.write_bytes(b"damaged")
    restoring.restored(fleet.latest_publication, now=datetime.now(UTC))
    assert focus_file(fleet, "2026-10").read_bytes() == closed_with
    with closing(database.connect(fleet.warehouse)) as connection:
        month_closing.take_back(fleet, connection)
    shutil.rmtree(fleet.published)
    publish(fleet)
    assert focus_file(fleet, "2026-10").read_bytes() == closed_with


@pytest.mark.parametrize(
    "loss",
    [
        "update published.closed_focus set line = 'x' where line_number = 2",
        "delete from published.closed_focus where line_number = 2",
    ],
)
def test_a_frozen_file_that_is_lost_is_an_error(fleet: Fleet, loss: str) -> None:
    publish(fleet)
    month_closing.close(fleet, OCTOBER)
    shutil.rmtree(fleet.published)
    with closing(database.connect(fleet.warehouse)) as connection:
        connection.execute(loss)
    with pytest.raises(closings.ClosingsLost, match=r"^2026-10 was closed with another FOCUS file than closing 1 has"):
        publish(fleet)


def test_a_month_whose_file_was_not_written_is_not_closed(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(cost_and_usage, "_ordered", lambda table: iter(["no_such_column"]))
        publish(fleet)
    with pytest.raises(
        QuestionError, match=r"^2026-10 cannot be closed: focus/cost_and_usage_2026-10.csv of the publication could not"
    ):
        month_closing.close(fleet, OCTOBER)
