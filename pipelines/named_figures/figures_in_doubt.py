"""Which models' figures are in doubt over some rows of the book, and why: for every face that shows one.

Add here what all faces need to mark a figure. Keep out why a figure is in doubt, which is SQL
(dbt_project/models/doubts), and how a face shows it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import duckdb

from pipelines.fleet.places import DBT_PROJECT
from pipelines.warehouse import contracts

# `{rows}` is a table of usage, or some of its rows. A row that is marked although neither ratio reaches the threshold
# lacks tokens, and how many is not known.
_OF_MODELS = """
select model,
    list_sort(list_distinct(flatten(list(string_split(nullif(doubt_reasons, ''), ','))))) as reasons,
    coalesce(sum(doubted_joules) / nullif(sum(energy_joules), 0), 0) >= {threshold} as is_energy,
    coalesce(
        (coalesce(sum(doubted_tokens), 0) + coalesce(sum(unbooked_tokens), 0))
        / nullif(sum(coalesce(total_tokens, output_tokens)) + coalesce(sum(unbooked_tokens), 0), 0), 0
    ) >= {threshold}
    or bool_or(doubt_reasons <> '' and greatest(doubted_energy_ratio, doubted_tokens_ratio) < {threshold}) as is_tokens
from {rows}
group by model
having count(nullif(doubt_reasons, '')) > 0
order by model
"""


_ENERGY = re.compile(r"joules|watts|kwh|co2e|water|\b[JW]\b", re.IGNORECASE)
_TOKENS = re.compile("tok")


class InDoubt(NamedTuple):
    """Words of `marts.doubts`, and what they are about."""

    reasons: tuple[str, ...]
    is_energy: bool
    is_tokens: bool

    def __str__(self) -> str:
        return ", ".join(self.reasons)

    def concerns(self, name: str) -> bool:
        """Whether a figure is in doubt: its columns, or its heading, have the unit in their names."""
        return bool((self.is_energy and _ENERGY.search(name)) or (self.is_tokens and _TOKENS.search(name)))


def of_models(
    connection: duckdb.DuckDBPyConnection, rows: str = "marts.model_daily", given: Sequence[Any] = ()
) -> dict[str, InDoubt]:
    """Model -> why its figures of these rows, as SQL has them after `from`, are in doubt; without models that are in
    none, and of publications that were made before doubts were assessed."""
    try:
        found = connection.execute(_OF_MODELS.format(rows=rows, threshold=_threshold()), given).fetchall()
    except (duckdb.BinderException, duckdb.CatalogException):  # its tables have no column of doubts
        return {}
    return {
        model: InDoubt(tuple(reasons), is_energy, is_tokens)
        for model, reasons, is_energy, is_tokens in found
        if is_energy or is_tokens
    }


def marks(doubt: InDoubt | None, headings: Iterable[str], others: Mapping[str, str] | None = None) -> dict[str, str]:
    """For a row of a table: heading -> format of its cell, with those that it has for `others`."""
    has = dict(others or {})
    return has | {name: has.get(name, "{}") + "?" for name in headings if doubt and doubt.concerns(name)}


def note(in_doubt: Mapping[str, InDoubt], is_booked: bool = True) -> str:
    """The line below figures that are in doubt: the models with their reasons, and where the evidence is."""
    models = "; ".join(f"{model}: {doubt}" for model, doubt in in_doubt.items())
    evidence = "`select * from marts.doubts` has" if is_booked else "once the day is booked, marts.doubts has"
    return f"in doubt by {100 * _threshold():g} % or more: {models}; {evidence} the evidence and what to do"


def _threshold() -> float:
    return float(contracts.variable(DBT_PROJECT, "doubt_threshold"))
