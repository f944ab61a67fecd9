"""What a sheet of the workbook is: a question, and columns with their units, sums and formulas.

Add here a kind of column. Keep out the questions themselves (`questions`) and how a sheet looks (`sheets`).
"""

from __future__ import annotations

from dataclasses import dataclass

# The reasons of doubt of the rows that a row adds up, each word once; empty where none of them was assessed.
REASONS = (
    "case when count(doubt_reasons) > 0 then coalesce(nullif(array_to_string("
    "list_sort(list_distinct(flatten(list(string_split(nullif(doubt_reasons, ''), ','))))), ', '), ''), 'none') end"
)


@dataclass(frozen=True)
class Column:
    """A column of a sheet. With `of` it has a formula and no column in the query: of the column `of` and, unless it is
    a share of that column's total, the column `by` (both are places in the sheet, from 0)."""

    heading: str
    digits: int | None = None  # None: a text, a date, or yes and no
    is_summed: bool = False
    is_scoped: bool = False  # joules of boards and of whole nodes are never added
    of: int | None = None
    by: int | None = None
    factor: float = 1
    is_difference: bool = False
    is_percent: bool = False

    @property
    def is_computed(self) -> bool:
        """Whether a formula makes it."""
        return self.of is not None

    @property
    def number_format(self) -> str:
        """How Excel shows its numbers."""
        if self.is_percent:
            return "0.0%"
        return "#,##0" + ("." + "0" * self.digits if self.digits else "")

    def is_added(self, is_one_scope: bool) -> bool:
        """Whether its rows have a sum."""
        return (self.is_summed or self.is_difference) and (is_one_scope or not self.is_scoped)

    def formula(self, of: str, by: str) -> str:
        """Its formula for two cells, or two sums of cells."""
        if self.is_difference:
            return f"{of}-{by}"
        return f"{of}/{by}" if self.factor == 1 else f"{of}/{by}*{self.factor:g}"

    def computed(self, of: float | None, by: float | None) -> float | None:
        """What its formula gives."""
        if of is None or (by is None and self.by is not None):
            return None
        if self.by is None and by is None:
            by = of  # the total's own share
        if self.is_difference:
            return float(of) - float(by or 0)
        return float(of) / float(by) * self.factor if by else None


@dataclass(frozen=True)
class Question:
    """A sheet. `scope` is the place of the meter's scope in the query, where joules depend on it. With `only_if`, a
    query of one truth, there is a sheet only where that holds. `if_empty` is what it shows instead of rows."""

    sheet: str
    asks: str
    tables: str
    query: str
    columns: tuple[Column, ...]
    note: str = ""
    scope: int | None = None
    only_if: str = ""
    if_empty: str = "There is none in these dates."


def text(*headings: str) -> tuple[Column, ...]:
    """Columns of texts, dates, or yes and no."""
    return tuple(Column(heading) for heading in headings)


def summed(heading: str, digits: int = 2, *, is_scoped: bool = False) -> Column:
    """A column whose rows have a sum."""
    return Column(heading, digits, is_summed=True, is_scoped=is_scoped)


def ratio(heading: str, of: int, by: int, digits: int = 2, factor: float = 1) -> Column:
    """A column over another, in each row and of their sums."""
    return Column(heading, digits, of=of, by=by, factor=factor)


def percent(heading: str, of: int, by: int | None = None) -> Column:
    """A share: of another column or, without one, of its own total."""
    return Column(heading, 1, of=of, by=by, is_percent=True)
