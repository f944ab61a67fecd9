"""The table of charts, `bi/charts`, as it is read: tables with their columns and measures, and dashboards of charts.

Add here what a chart may state. Keep out how a tool draws it: that is `superset` and `grafana`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import yaml

from pipelines.fleet.places import PROJECT

TABLE = PROJECT / "bi" / "charts"
BOARDS = ("finance", "operator", "sustainability")
# The column that the filter *Month* asks for.
YEAR_MONTH = "year_month"


@dataclass(frozen=True)
class Column:
    """A column of a table, or one that is computed from others: by SQL, or as the month of a date."""

    name: str
    type: str
    label: str | None
    form: str | None
    sql: str | None = None
    month_of: str | None = None

    @property
    def title(self) -> str:
        """What it is called where it is shown."""
        return self.label or self.name

    @property
    def is_time(self) -> bool:
        """Whether a range of time can be one of its values."""
        return self.type in ("DATE", "TIMESTAMP WITH TIME ZONE")


@dataclass(frozen=True)
class Measure:
    """An aggregate with a name; `form` is d3's format of it."""

    name: str
    label: str
    about: str
    sql: str
    form: str | None


@dataclass(frozen=True)
class Dataset:
    """A published table. `time` is what a range of time reaches, `month` what the filter *Month* does."""

    name: str
    schema: str
    uuid: str
    about: str
    time: str | None
    month: str | None
    site_of_all: str | None
    columns: dict[str, Column]
    measures: dict[str, Measure]


@dataclass(frozen=True)
class Chart:
    """A question. Of measures it shows a row for each value of `by`; a table without measures lists `columns`.

    `order` has names, and whether each ascends. `where` has conditions: column, comparison and value, or SQL.
    """

    title: str
    uuid: str
    kind: str
    dataset: Dataset
    measures: list[Measure] = field(default_factory=list)
    by: list[Column] = field(default_factory=list)
    columns: list[Column] = field(default_factory=list)
    x: Column | None = None
    is_of_meters: bool = False
    is_of_all_months: bool = False
    where: list[Any] = field(default_factory=list)
    having: str = ""
    order: list[tuple[str, bool]] = field(default_factory=list)
    about: str = ""
    empty: str = "unknown"
    width: int | None = None
    cell_widths: dict[str, int] = field(default_factory=dict)
    is_log: bool = False
    is_stacked: bool = False
    is_horizontal: bool = False

    @property
    def form(self) -> str | None:
        """How the axis shows numbers."""
        return self.measures[0].form

    @property
    def axis(self) -> Column:
        """What lines and bars go along."""
        if self.x is None:
            raise ValueError(f"{self.title}: has neither `x` nor a table with `time`, expected one")
        return self.x


class Row(NamedTuple):
    """Charts side by side: height in Superset and in Grafana, and each chart with its width in twelfths."""

    heights: tuple[int, int]
    charts: list[tuple[Chart, int]]


@dataclass(frozen=True)
class Board:
    """A dashboard of a range of time, or, where `month` explains that filter, of a month."""

    name: str
    uuid: str
    sites: Dataset
    note: dict[str, str]
    note_heights: tuple[int, int]
    colors: dict[str, str]
    rows: list[Row]
    month: str = ""

    def charts(self) -> Iterator[Chart]:
        """All of them, from left to right and from top to bottom."""
        for row in self.rows:
            for chart, _ in row.charts:
                yield chart


def stated(name: str) -> dict[str, Any]:
    """A file of the table, as it is written."""
    found: dict[str, Any] = yaml.safe_load((TABLE / f"{name}.yaml").read_text(encoding="utf-8"))
    return found


@cache
def meters() -> str:
    """Whose joules the charts of joules show: those of another kind of meter cannot be added to them."""
    scope: str = stated("tables")["meters"]
    return scope


@cache
def datasets() -> dict[str, Dataset]:
    """Each table that a chart asks, by name."""
    given = stated("tables")
    types = {name: kind for kind, names in given["types"].items() for name in names}

    def form(name: str) -> str | None:
        return next((form for end, form in given["forms"].items() if name.endswith(end)), None)

    def read(name: str, table: dict[str, Any]) -> Dataset:
        measures = {
            key: Measure(
                key, **{"sql": f"sum({key})", "form": form(key), **given["measures"].get(key, {}), **(own or {})}
            )
            for key, own in table["measures"].items()
        }
        summed = {key: one.label for key, one in measures.items() if one.sql == f"sum({key})"}
        labels = given["labels"] | summed | table.get("labels", {})
        computed = table.get("computed", {})
        if month := table.get("month"):
            computed = {YEAR_MONTH: {"month_of": month}} | computed
        held = types | table.get("types", {})
        columns = {
            key: Column(key, held.get(key, "VARCHAR"), labels.get(key), form(key), **computed.get(key, {}))
            for key in [*table["columns"], *computed]
        }
        return Dataset(
            name, table["schema"], table["uuid"], table["about"], table.get("time"), month, table.get("site_of_all"),
            columns, measures,
        )  # fmt: skip

    return {name: read(name, table) for name, table in given["tables"].items()}


@cache
def boards() -> list[Board]:
    """The dashboards on the published tables."""
    return [_board(name) for name in BOARDS]


def _board(name: str) -> Board:
    given = stated(name)
    rows = []
    for row in given.pop("rows"):
        charts = [_chart(one) for one in row["charts"]]
        rows.append(Row(tuple(row["heights"]), [(one, one.width or 12 // len(charts)) for one in charts]))
    heights = tuple(given.pop("note_heights"))
    return Board(name, sites=datasets()[given.pop("sites")], note_heights=heights, rows=rows, **given)


def _chart(given: dict[str, Any]) -> Chart:
    dataset = datasets()[given.pop("of")]
    columns, measures = dataset.columns, dataset.measures
    # The newest month first, or the largest amount.
    order = given.pop("order", [f"{given.get('measures', [YEAR_MONTH])[0]} desc"])
    x = given.pop("x", dataset.time if given["kind"] in ("lines", "bars") else None)
    return Chart(
        dataset=dataset,
        measures=[measures[one] for one in given.pop("measures", [])],
        by=[columns[one] for one in given.pop("by", [])],
        columns=[columns[one] for one in given.pop("columns", [])],
        x=columns[x] if x else None,
        order=[(one.removesuffix(" desc"), not one.endswith(" desc")) for one in order],
        **given,
    )
