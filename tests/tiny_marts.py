"""Three small marts and three days of the demo, published, for tests of where a publication goes.

Add here what several targets are tested with. Keep out what one target makes of it.
"""

from __future__ import annotations

from contextlib import closing
from datetime import date

import pytest

from pipelines.fleet.fleet_file import Fleet
from pipelines.publishing import publication
from pipelines.warehouse import database
from tests.books import Book, on
from tests.conftest import made_once

# What 0.2 does to them: it adds watts, gives energy_joules another type, and has neither coverage_ratio nor
# model_monthly.
NEXT_VERSION = (
    "alter table marts.model_daily drop column coverage_ratio; drop table marts.model_monthly;"
    " alter table marts.model_daily add column watts double; update marts.model_daily set watts = 5;"
    " alter table marts.model_daily alter energy_joules type double"
)


def book(fleet: Fleet, joules: dict[str, float], *, model: str = "m", more: str = "") -> None:
    """Marts with two rows per date in a table of intervals, one in a daily table, and one undated row per month.

    `more` is SQL that changes the warehouse afterwards.
    """
    with closing(database.connect(fleet.warehouse)) as connection:
        for statement in (
            "create schema if not exists marts",
            "create or replace table marts.energy_ledger (date date, interval_start_at timestamptz, meter varchar,"
            " energy_joules decimal(28, 6))",
            "create or replace table marts.model_daily (date date, model varchar, team varchar,"
            " energy_joules decimal(28, 6), coverage_ratio double)",
            "create or replace table marts.model_monthly (month date, energy_joules decimal(28, 6))",
            "comment on table marts.model_daily is 'One row per date. It''s in joules.'",
            "comment on column marts.model_daily.energy_joules is 'Joules; $wattledger$ \"x\".'",
        ):
            connection.execute(statement)
        for at, value in joules.items():
            connection.execute(
                "insert into marts.energy_ledger select ?, ?::date::timestamptz, meter, ? / 2"
                " from (values ('GPU-1'), ('GPU-2')) as meters (meter)",
                [at, at, value],
            )
            connection.execute("insert into marts.model_daily values (?, ?, null, ?, 1.0)", [at, model, value])
        connection.execute(
            "insert into marts.model_monthly select date_trunc('month', date), sum(energy_joules)"
            " from marts.model_daily group by 1"
        )
        if more:
            connection.execute(more)


def publish(fleet: Fleet, start: str = "2026-10-01", end: str = "2026-10-31") -> publication.Publication:
    made = publication.publish(fleet, date.fromisoformat(start), date.fromisoformat(end), force=True)
    assert made is not None
    return made


@pytest.fixture(scope="session")
def published_demo(three_days: Book, tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    """Three days of the demo, published once for all tests: they read it."""
    with made_once(tmp_path_factory, "published_demo") as folder:
        fleet = Book.of(three_days.fleet.path, folder / "data").fleet
        if not (folder / "made").exists():
            three_days.copy(folder / "data", is_published=False)
            assert publication.publish(fleet, on("10-06"), on("10-09")) is not None
            (folder / "made").touch()
    return fleet
