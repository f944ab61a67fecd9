"""What a server answered when a date landed, and whether it answers otherwise by now.

Answers are compared with answers, never with landed rows: copies that were merged and values that were refused make
rows differ from any answer, and are no late data. Add here what makes two answers differ. Keep out how a server counts
(`collectors.protocols.sample_counts`) and which dates it is asked for (`relanding`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import date

import duckdb
import pyarrow as pa

from collectors.samples import Family
from pipelines.warehouse import database


def question_of(families: Mapping[str, Family]) -> str:
    """A digest of the families that a server is asked to count: a catalogue with more of them asks something else."""
    asked = "\n".join(f"{metric} {family.label or ''}" for metric, family in sorted(families.items()))
    return hashlib.md5(asked.encode(), usedforsecurity=False).hexdigest()


def remember(connection: duckdb.DuckDBPyConnection, source: str, on: date, question: str, counts: pa.Table) -> None:
    """Keep the answer with which a date landed, in place of an older one."""
    connection.execute("delete from raw.source_counts where source = ? and date = ?", [source, on]).fetchall()
    with database.registered(connection, counts_came=counts):
        connection.execute(
            "insert into raw.source_counts by name select ? as source, ? as date, ? as question, * from counts_came",
            [source, on, question],
        ).fetchall()


def dates(connection: duckdb.DuckDBPyConnection, source: str, question: str) -> set[date]:
    """The dates of which an answer to this question is kept."""
    rows = connection.execute(
        "select distinct date from raw.source_counts where source = ? and question = ?", [source, question]
    )
    return {on for (on,) in rows.fetchall()}


def has_more(connection: duckdb.DuckDBPyConnection, source: str, on: date, counts: pa.Table) -> bool:
    """Whether an answer has more samples of some family and hour than the one that is kept, or as many with a newer
    one. Fewer are no reason to land again: a server forgets what is older than its retention."""
    with database.registered(connection, counts_came=counts):
        return (
            connection.execute(
                """
                select 1 from counts_came as came
                left join raw.source_counts as kept
                    on kept.source = ? and kept.date = ? and kept.metric = came.metric and kept.start_at = came.start_at
                where kept.samples is null or came.samples > kept.samples
                    or (came.samples = kept.samples and came.newest_at is distinct from kept.newest_at)
                limit 1
                """,
                [source, on],
            ).fetchall()
            != []
        )


def forget(connection: duckdb.DuckDBPyConnection, source: str, before: date) -> None:
    """Drop the answers of dates before `before` that are not asked for again."""
    connection.execute(
        """
        delete from raw.source_counts where source = $source and date < $before and date not in (
            select date from raw.unfilled_dates where source = $source and given_up_at is null)
        """,
        {"source": source, "before": before},
    ).fetchall()
