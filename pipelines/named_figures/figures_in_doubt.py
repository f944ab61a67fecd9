"""Which models' figures are in doubt over some dates of a publication, and why: for every face that shows one.

Add here what all faces need to mark a figure. Keep out why a figure is in doubt, which is SQL
(dbt_project/models/doubts), and how a face shows it.
"""

from __future__ import annotations

from datetime import date
from typing import NamedTuple

import duckdb

# From this share of its joules or tokens on a figure is marked, as in the marts.
_SHARE = 0.01
_ARE_JUDGED = """
select count(*) > 0 from duckdb_columns()
where schema_name = 'marts' and table_name = 'model_daily' and column_name = 'doubt_reasons'
"""
_OF_MODELS = """
select model,
    list_sort(list_distinct(flatten(list(string_split(nullif(doubt_reasons, ''), ','))))) as reasons,
    sum(doubted_joules) / nullif(sum(energy_joules), 0) as energy_ratio,
    (coalesce(sum(doubted_tokens), 0) + coalesce(sum(unbooked_tokens), 0))
        / nullif(sum(coalesce(total_tokens, output_tokens)) + coalesce(sum(unbooked_tokens), 0), 0) as tokens_ratio
from marts.model_daily
where date >= coalesce(?, date '0001-01-01') and date < coalesce(?, date '9999-01-01')
group by model
having count(nullif(doubt_reasons, '')) > 0
"""


class InDoubt(NamedTuple):
    """Words of `marts.doubts`, and what they are about."""

    reasons: tuple[str, ...]
    is_energy: bool
    is_tokens: bool

    def __str__(self) -> str:
        return ", ".join(self.reasons)


def of_models(
    connection: duckdb.DuckDBPyConnection, start: date | None = None, end: date | None = None
) -> dict[str, InDoubt]:
    """Model -> why its figures of the dates [start, end), by default of all, are in doubt; without models that are in
    none, and of publications that were made before doubts were assessed."""
    if not connection.execute(_ARE_JUDGED).fetchall()[0][0]:
        return {}
    found = {
        model: InDoubt(tuple(reasons), (energy or 0) >= _SHARE, (tokens or 0) >= _SHARE)
        for model, reasons, energy, tokens in connection.execute(_OF_MODELS, [start, end]).fetchall()
    }
    return {model: doubt for model, doubt in found.items() if doubt.is_energy or doubt.is_tokens}
