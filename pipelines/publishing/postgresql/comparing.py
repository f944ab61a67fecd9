"""What another hand changed in PostgreSQL: rows there that are not those of the publication.

Each load counts the rows of every date, and compares by content those of the run's dates, of tables without dates, and
of a seventh of the other dates, so that each date is read once in a week and no night reads a big table whole. Add here
how a difference is found. Keep out how it is made whole: that is `loading`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import date

from pipelines.publishing.postgresql.server import Server, quoted
from pipelines.publishing.postgresql.tables import Wanted
from pipelines.publishing.published_tables import ROWS_HASHED
from pipelines.publishing.snapshots import Snapshot

Dates = Collection[date | None]
NAMED_DATES = 5


@dataclass(frozen=True)
class Differing:
    """The dates whose rows differ (None: without a date), and how many rows these have there and in the publication."""

    dates: list[date | None]
    there: int
    expected: int

    def __str__(self) -> str:
        days = sorted(on for on in self.dates if on is not None)
        named = ", ".join(on.isoformat() for on in days[:NAMED_DATES])
        more = f" and {len(days) - NAMED_DATES:,} more dates" if len(days) > NAMED_DATES else ""
        undated = " and without a date" if days and None in self.dates else ""
        of = f" of {named}{more}{undated}" if days else ""
        return f"its rows{of} in PostgreSQL ({self.there:,} there, expected {self.expected:,})"


def differing(
    snapshot: Snapshot, server: Server, wanted: Wanted, loaded: Dates, tonight: date, *, is_as_made: bool
) -> Differing | None:
    """What differs of a table, apart from the dates that are loaded anyway; all of it where a column is not as it was
    made."""
    counted = f"select {_date_of(wanted)}, count(*) from"
    there = dict(server.rows(f"{counted} {wanted.name} group by 1"))
    ours = dict(snapshot.connection.execute(f"{counted} {wanted.table} group by 1").fetchall())
    others = [on for on in {**ours, **there} if on not in loaded]
    dates = [on for on in others if not is_as_made or there.get(on) != ours.get(on)]
    compared = [on for on in others if on not in dates and _is_compared(on, snapshot, tonight)]
    if compared:
        dates += _other_rows(snapshot, server, wanted, compared)
    if not dates:
        return None
    return Differing(dates, sum(there.get(on, 0) for on in dates), sum(ours.get(on, 0) for on in dates))


def _date_of(wanted: Wanted) -> str:
    return "date" if wanted.date_column else "cast(null as date)"


def _is_compared(on: date | None, snapshot: Snapshot, tonight: date) -> bool:
    if on is None or snapshot.start_date <= on < snapshot.end_date:
        return True
    # With the week's number, a fleet that runs once a week gets to all dates as well.
    return (on.toordinal() + tonight.isocalendar().week + tonight.weekday()) % 7 == 0


def _other_rows(snapshot: Snapshot, server: Server, wanted: Wanted, dates: Dates) -> list[date | None]:
    """Which of the dates have other rows there. Those of the server are read as the types that were sent."""
    connection, chosen = snapshot.connection, wanted.chosen(dates)
    sent = f"select {wanted.selected()} from {wanted.table} where {chosen}"

    def hashed(rows: str) -> dict[date | None, str]:
        query = f"select {_date_of(wanted)}, {ROWS_HASHED} from ({rows}) as t group by 1"
        return dict(connection.execute(query).fetchall())

    names = ", ".join(map(quoted, wanted.types))
    types = connection.execute(f"describe {sent}").fetchall()
    typed = ", ".join(f"cast({quoted(name)} as {kind}) as {quoted(name)}" for name, kind, *_ in types)
    with server.stream(f"select {names} from {wanted.name} where {chosen}") as batches:
        connection.register("theirs", batches)
        theirs = hashed(f"select {typed} from theirs")
        connection.unregister("theirs")
    ours = hashed(sent)
    return [on for on in dates if ours.get(on) != theirs.get(on)]
