"""What the dashboards show under the names of headline figures: their own SQL, asked of a snapshot.

The charts of Superset give the rows of these panels (test_dashboards). Add here how a panel is asked. Keep out what its
figures should be: that is `faces`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import duckdb

from pipelines.named_figures import dictionary
from pipelines.publishing.dashboards import grafana
from tests.bi import faces
from tests.bi.answers import headed
from tests.bi.faces import HEADINGS, NEWEST_DATES, Shown

BOARDS = {name: board for name, board in grafana.boards().items() if name != "today"}
# DuckDB has no to_char; the panels use two of its forms.
TO_CHAR = """
create macro memory.main.to_char(value, form) as
    strftime(value, case form when 'YYYY-MM' then '%Y-%m' else '%Y-%m-%d' end)
"""
NAMES = {headed(figure): figure for figure in dictionary.figures().values()}


def dashboards(snapshot: Path, month: date, boards: Mapping[str, Any] = BOARDS) -> Iterator[Shown]:
    """The panels: those of finance of `month`, those with a range of time of the newest dates."""
    with closing(duckdb.connect(":memory:")) as connection:
        connection.execute(f"attach '{snapshot}' as snapshot (read_only); use snapshot; set TimeZone = 'UTC'")
        connection.execute(TO_CHAR)
        connection.execute("set search_path = 'snapshot.main,memory.main'")
        sites = [site for (site,) in connection.execute("select distinct site from finance.cost").fetchall()]
        ((last,),) = connection.execute("select max(date) from marts.fleet_daily").fetchall()
        first = last - timedelta(days=NEWEST_DATES - 1)
        values = {
            "schema_prefix:raw": "",
            "site:sqlstring": ", ".join(f"'{site}'" for site in sites),
            "meter_scope:sqlstring": "'board'",
            "month:sqlstring": f"'{month:%Y-%m}'",
        }
        for board, shown in boards.items():
            for panel in shown["panels"]:
                for target in panel.get("targets", []):
                    is_of_month = "${month:sqlstring}" in target["rawSql"]
                    if not is_of_month and "__timeFilter" not in target["rawSql"]:
                        continue
                    asked = connection.execute(_expanded(target["rawSql"], values, first, last))
                    period: tuple[str, Any] = ("month", month) if is_of_month else ("dates", NEWEST_DATES)
                    columns = [column[0] for column in asked.description or []]
                    yield from _of_panel(board, columns, asked.fetchall(), period)


def _expanded(sql: str, values: dict[str, str], first: date, last: date) -> str:
    sql = re.sub(r"\$__timeFilter\((\w+)\)", rf"\1 BETWEEN '{first} 00:00:00Z' AND '{last} 23:59:59Z'", sql)
    return re.sub(r"\$\{(.+?)\}", lambda found: values[found[1]], sql)


def _of_panel(board: str, columns: list[str], rows: list[tuple], period: tuple[str, Any]) -> Iterator[Shown]:
    named = [_heading(column) for column in columns]
    if "time" in columns:  # a line per date: no figure is of one date
        return
    if set(named) & set(faces.KEYS):
        for one in faces.of_table(f"dashboard {board}", named, rows):
            yield one if "month" in dict(one.of) else replace(one, of=tuple(sorted((*one.of, period))))
    elif len(rows) == 1:
        for heading, value in zip(named, rows[0], strict=True):
            if heading in HEADINGS and value is not None:
                yield Shown(f"dashboard {board}", heading, (period,), float(value))


def _heading(column: str) -> str:
    """The key or the figure that a column is called after; columns have the title of a figure and its unit."""
    if column.lower() in faces.KEYS or column.lower() in faces.FREE_TEXT:
        return column.lower()
    return NAMES[column].headings[0] if column in NAMES and NAMES[column].headings else column
