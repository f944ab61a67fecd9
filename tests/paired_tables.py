"""Where the rows of each table of an old file are in a new one: by name, or by a file of what a change did on purpose.

`tests.same_rows --expected FILE` reads it: a list of entries, each with its `reason`. An entry names a table
(`marts.model_daily`) or a column of it (`marts.model_daily.idle_joules`) as the old file has it, as the new one has
it, or both:

- {old: marts.fleet_days, new: marts.fleet_daily, reason: …}                  # renamed; a column in the same way
- {old: marts.fleet_days, new: marts.days, rows: scope = 'fleet', reason: …}  # joined: these rows of the new table
- {old: marts.unread, reason: …}                                              # removed; with `rows`, these rows of it
- {new: marts.days.scope, reason: …}                                          # added; with `rows`, these rows of it

`rows` is a condition in SQL. Add here what an entry may state. Keep out how rows are compared. A figure
that changed, or its type, has no entry: it is not the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml

Tables = dict[str, dict[str, str]]  # schema.table -> column -> type
# Side, table, condition -> rows for which it holds.
Count = Callable[[str, str, str], int]

FORM = "{old: SCHEMA.TABLE or SCHEMA.TABLE.COLUMN, new: the same, rows: condition, reason: text}"
NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT",
    "UHUGEINT", "FLOAT", "DOUBLE", "DECIMAL")  # fmt: skip


class ExpectedFileError(Exception):
    """An entry of the file has not the form of one."""


@dataclass(frozen=True)
class Entry:
    """A difference that is on purpose."""

    reason: str
    old: str | None = None
    new: str | None = None
    rows: str | None = None

    @property
    def is_of_column(self) -> bool:
        """Whether it is about a column, not a table."""
        return (self.old or self.new or "").count(".") == 2

    def __str__(self) -> str:
        named = {key: value for key, value in asdict(self).items() if value is not None and key != "reason"}
        return "{" + ", ".join(f"{key}: {value}" for key, value in named.items()) + "}"


def read(path: Path) -> list[Entry]:
    """The entries of a file; ExpectedFileError names the first that is none."""
    contents = yaml.safe_load(path.read_text(encoding="utf-8"))
    if not isinstance(contents, list):
        raise ExpectedFileError(f"{path}: expected a list of entries {FORM}")
    entries = []
    for number, stated in enumerate(contents, 1):
        if mistake := _mistake(stated):
            raise ExpectedFileError(f"{path}: entry {number} {mistake}: {stated}. Expected {FORM}")
        entries.append(Entry(**stated))
    return entries


def _mistake(stated: object) -> str:
    """What is wrong with the form of an entry, or nothing."""
    if not isinstance(stated, dict) or not stated.keys() <= Entry.__dataclass_fields__.keys():
        return "has other keys"
    if not all(isinstance(value, str) and value.strip() for value in stated.values()):
        return "has a value that is not text"
    if "reason" not in stated:
        return "has no reason"
    dots = {stated[side].count(".") for side in ("old", "new") if side in stated}
    if dots not in ({1}, {2}):
        return "names neither tables nor columns"
    return "has rows of a column" if dots == {2} and "rows" in stated else ""


@dataclass(frozen=True)
class Column:
    """A column that both files have."""

    old: str
    new: str
    kind: str  # the type that it is compared as

    @property
    def is_double(self) -> bool:
        """Whether its last digits depend on the order in which a sum was made."""
        return self.kind == "DOUBLE"


@dataclass(frozen=True)
class Pair:
    """A table of the old file, and where its rows are in the new one."""

    old: str
    new: str
    columns: tuple[Column, ...]
    # The rows that are compared: conditions in SQL.
    old_rows: str
    new_rows: str

    def __str__(self) -> str:
        return self.old if self.old == self.new else f"{self.old}, now {self.new}"


class Pairing:
    """Finds the pairs of two files; `differences` has a line for each table, column, type or expected row that the two
    do not share, and for each entry that matched nothing."""

    def __init__(self, old: Tables, new: Tables, entries: Sequence[Entry], count: Count) -> None:
        self.old, self.new, self.entries, self.count = old, new, entries, count
        self.differences: list[str] = []
        self._matched = set[Entry]()

    def pairs(self) -> list[Pair]:
        """Each table of the old file with the table of the new one that has its rows."""
        # New table -> old table -> which rows of the new table are its own.
        sources: dict[str, dict[str, str]] = {}
        for table in sorted(self.old):
            if entry := self._moved(table, self.new):
                sources.setdefault(entry.new or "", {})[table] = entry.rows or "true"
            elif table in self.new:
                sources.setdefault(table, {})[table] = "true"
            elif not self._matching(table, None):
                self.differences.append(f"{table}: only in the old file")
        pairs = []
        for table in sorted(self.new):
            if table in sources:
                pairs += self._pairs_of(table, sources[table])
            elif not self._matching(None, table):
                self.differences.append(f"{table}: only in the new file")
        unmatched = [entry for entry in self.entries if entry not in self._matched]
        self.differences += [f"{entry}: this entry matches nothing" for entry in unmatched]
        return pairs

    def _pairs_of(self, table: str, sources: dict[str, str]) -> list[Pair]:
        """A table of the new file with each of those of the old one whose rows it has."""
        added = self._expected_rows("new", table)
        # Where no entry limits what the table has of an old one, all its rows are compared.
        if "true" not in sources.values() and (rest := self.count("new", table, _none([*sources.values(), *added]))):
            conditions = "; ".join(sources.values())
            self.differences.append(f"{table}: {rest:,} rows of the new file are in none of these: {conditions}")
        pairs = []
        for source, rows in sources.items():
            removed = self._expected_rows("old", source)
            pairs.append(
                Pair(
                    source, table, self._columns(source, table), _none(removed), f"({rows}) is true and {_none(added)}"
                )
            )
        names = [column.new for column in pairs[0].columns]
        if len(pairs) == 1 and names != [name for name in self.new[table] if name in names]:
            self.differences.append(f"{table}: the columns are in another order")
        known = {column.new for pair in pairs for column in pair.columns}
        for name in self.new[table]:
            if name not in known and not self._matching(None, f"{table}.{name}"):
                self.differences.append(f"{table}.{name}: only in the new file")
        return pairs

    def _columns(self, source: str, table: str) -> tuple[Column, ...]:
        """The columns that both tables have."""
        columns, kinds = [], self.new[table]
        for column, kind in self.old[source].items():
            entry = self._moved(f"{source}.{column}", [f"{table}.{name}" for name in kinds])
            name = (entry.new or "").rpartition(".")[2] if entry else column
            if name in kinds:
                columns.append(Column(column, name, _common(kind, kinds[name])))
                if kind != kinds[name]:
                    self.differences.append(f"{source}.{column}: {kind} in the old file, {kinds[name]} in the new one")
            elif not self._matching(f"{source}.{column}", None):
                self.differences.append(f"{source}.{column}: only in the old file")
        return tuple(columns)

    def _expected_rows(self, side: str, table: str) -> list[str]:
        """The conditions of rows that only this side is expected to have."""
        names = (table, None) if side == "old" else (None, table)
        conditions = [entry.rows or "" for entry in self._matching(*names, has_rows=True)]
        for condition in conditions:
            if not self.count(side, table, condition):
                self.differences.append(
                    f"{table}: an entry expects rows of the {side} file, which has none: {condition}"
                )
        return conditions

    def _matching(self, old: str | None, new: str | None, *, has_rows: bool = False) -> list[Entry]:
        """The entries of these names, which are matched by now."""
        entries = [entry for entry in self.entries if (entry.old, entry.new, bool(entry.rows)) == (old, new, has_rows)]
        self._matched.update(entries)
        return entries

    def _moved(self, name: str, others: Collection[str]) -> Entry | None:
        """The entry by which something of the old file is one of these of the new file, which is matched by now."""
        for entry in self.entries:
            if entry.old == name and entry.new in others and (entry.new != name or entry.rows):
                self._matched.add(entry)
                return entry
        return None


def _common(old: str, new: str) -> str:
    """The type that values of both are compared as."""
    if old == new:
        return old
    return "DOUBLE" if all(kind.partition("(")[0] in NUMBERS for kind in (old, new)) else "VARCHAR"


def _none(conditions: Sequence[str]) -> str:
    """That none of these conditions holds."""
    return f"(({') or ('.join(conditions)})) is not true" if conditions else "true"
