"""The dashboards as Grafana imports them: of the published tables on PostgreSQL, and `today` on Prometheus.

Add here what Grafana's format asks for. The types that Grafana publishes are checked by `make test-bi`.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import Any

from pipelines.publishing.dashboards import charts
from pipelines.publishing.dashboards.charts import YEAR_MONTH, Board, Chart, Column

POSTGRESQL, PROMETHEUS = "grafana-postgresql-datasource", "prometheus"
UNKNOWN = "unknown"
NEXT_LINE = "\n        "
NUMBER = {
    "reduceOptions": {"values": False, "calcs": ["lastNotNull"], "fields": ""}, "colorMode": "none",
    "graphMode": "none", "textMode": "value", "justifyMode": "auto", "orientation": "auto",
}  # fmt: skip
TABLE = {"showHeader": True, "cellHeight": "sm"}
AXES = {
    "legend": {"calcs": [], "displayMode": "list", "placement": "bottom", "showLegend": True},
    "tooltip": {"mode": "multi", "sort": "desc"},
}
LINES = {"drawStyle": "line", "lineWidth": 2, "fillOpacity": 0, "showPoints": "auto", "spanNulls": False}
BARS = {"drawStyle": "bars", "fillOpacity": 80, "lineWidth": 0, "stacking": {"mode": "normal", "group": "A"}}
WITHOUT_LABELS_OF_THE_SCRAPE = {
    "id": "organize",
    "options": {"excludeByName": {"Time": True, "__name__": True, "instance": True, "job": True}},
}


@dataclass(frozen=True)
class Tool:
    """A kind of data source: how its panels and variables name it, and when a variable is asked anew."""

    kind: str
    label: str
    refresh: int

    @property
    def source(self) -> dict[str, str]:
        """The one that is chosen when the dashboard is imported."""
        return {"type": self.kind, "uid": "${datasource}"}


ON_TABLES, ON_METRICS = Tool(POSTGRESQL, "PostgreSQL", 1), Tool(PROMETHEUS, "Prometheus", 2)


def boards(schema_prefix: str = "") -> dict[str, dict[str, Any]]:
    """Name -> dashboard: three on PostgreSQL with the prefix of its schemas, and `today` on a Prometheus that scrapes
    `wattledger serve`."""
    return {board.name: _board(board, schema_prefix) for board in charts.boards()} | {"today": _today()}


def _board(board: Board, schema_prefix: str) -> dict[str, Any]:
    prefix = {"selected": True, "text": schema_prefix, "value": schema_prefix}
    variables = [{
        "name": "schema_prefix", "label": "Schema prefix", "type": "constant", "query": schema_prefix, "hide": 2,
        "skipUrlSync": True, "current": prefix, "options": [prefix],
    }]  # fmt: skip
    table = "${schema_prefix:raw}" + f"{board.sites.schema}.{board.sites.name}"
    if board.month:
        asked = f"select distinct to_char({board.sites.month}, 'YYYY-MM') from {table} order by 1 desc"
        # No month is saved, so Grafana takes the first one.
        month = _variable(ON_TABLES, "month", asked, sort=0) | {"skipUrlSync": False}
        del month["current"]
        variables.append(month)
    variables.append(_variable(ON_TABLES, "site", f"select distinct site from {table} order by 1", is_all=True))
    if any(chart.is_of_meters for chart in board.charts()):
        asked = f"select distinct meter_scope from {table} order by 1"
        variables.append(_variable(ON_TABLES, "meter_scope", asked))
    panels = _Panels(board.note["grafana"], board.note_heights[1])
    for row in board.rows:
        panels.begin(row.heights[1])
        for chart, width in row.charts:
            panels.add(_panel(board, chart), 2 * width, row.heights[1])
    return _dashboard(ON_TABLES, board.name, variables, panels, "now-28d/d") | {
        "timepicker": {"hidden": True} if board.month else {}
    }


def _dashboard(tool: Tool, name: str, variables: list[dict[str, Any]], panels: _Panels, since: str) -> dict[str, Any]:
    source = {
        "name": "datasource", "label": tool.label, "type": "datasource", "query": tool.kind, "refresh": 1, "regex": "",
        "multi": False, "includeAll": False, "hide": 0, "options": [],
    }  # fmt: skip
    return {
        "uid": f"wattledger-{name}", "title": f"Wattledger: {name}", "tags": ["wattledger"], "schemaVersion": 41,
        "version": 1, "editable": True, "graphTooltip": 1, "timezone": "utc", "refresh": "", "fiscalYearStartMonth": 0,
        "links": [], "time": {"from": since, "to": "now"}, "timepicker": {}, "annotations": {"list": []},
        "templating": {"list": [source, *variables]}, "panels": panels.placed,
    }  # fmt: skip


def _variable(tool: Tool, name: str, query: object, *, sort: int = 1, is_all: bool = False) -> dict[str, Any]:
    """A filter of the dashboard: the meters of the table of charts, or all values until some are chosen."""
    chosen = {"selected": True, "text": charts.meters(), "value": charts.meters()}
    if is_all:
        chosen |= {"text": ["All"], "value": ["$__all"]}
    return {
        "name": name, "label": "Meters" if name == "meter_scope" else name.capitalize(), "type": "query",
        "datasource": tool.source, "query": query, "refresh": tool.refresh, "sort": sort, "multi": is_all,
        "includeAll": is_all, "hide": 0, "options": [], "current": chosen,
    }  # fmt: skip


class _Panels:
    """Panels from left to right and from top to bottom, below a note."""

    def __init__(self, note: str, height: int) -> None:
        self.placed: list[dict[str, Any]] = []
        self._numbers, self._x, self._y, self._below = count(1), 0, 0, 0
        self.begin(height)
        self.add({"type": "text", "title": "", "options": {"mode": "markdown", "content": note}}, 24, height)

    def begin(self, height: int) -> None:
        """A new row."""
        self._x, self._y, self._below = 0, self._below, self._below + height

    def add(self, panel: dict[str, Any], width: int, height: int) -> None:
        """The next one of the row, or, where the one before left half of the row's height free, below it."""
        before = self.placed[-1]["gridPos"] if self.placed else None
        place = {"x": self._x, "y": self._y, "w": width, "h": height}
        if before and before["y"] == self._y and self._x == before["x"] + before["w"] == 24:
            place |= {"x": before["x"], "y": self._y + before["h"]}
        self._x = place["x"] + width
        self.placed.append({"id": next(self._numbers), "gridPos": place, **panel})


def _drawn(tool: Tool, kind: str, title: str, about: str, target: dict[str, Any]) -> dict[str, Any]:
    """What each panel has beside what it asks and how it shows it."""
    asked = {"refId": "A", "datasource": tool.source, "editorMode": "code", **target}
    found = {"type": kind, "title": title, "datasource": tool.source, "targets": [asked]}
    return found | ({"description": about} if about else {})


def _unit(form: str | None) -> dict[str, Any]:
    """Grafana's unit and decimals for d3's format."""
    form = form or ",.0f"
    return {"unit": "percentunit" if form.endswith("%") else "none", "decimals": int(form[-2])}


# --- on PostgreSQL ----------------------------------------------------------------------------------------------------


def _panel(board: Board, chart: Chart) -> dict[str, Any]:
    title = chart.title + " (${meter_scope} meters)" * chart.is_of_meters
    about = chart.about or (chart.measures[0].about if chart.kind == "number" else "")
    of_time = not board.month and chart.x is not None and chart.x.is_time
    target = {"rawQuery": True, "format": "time_series" if of_time else "table", "rawSql": _sql(board, chart, of_time)}
    kind = {"number": "stat", "lines": "timeseries", "bars": "timeseries" if of_time else "barchart"}.get(
        chart.kind, "table"
    )
    panel = _drawn(ON_TABLES, kind, title, about.replace("{unknown}", UNKNOWN), target)
    if kind == "table":
        shown = [(one.label, one.form) for one in chart.measures] or [(one.title, one.form) for one in chart.columns]
        overrides = [_override(label, _unit(form)) for label, form in shown if form]
        overrides += [_override(one.title, {"unit": "time:YYYY-MM-DD"}) for one in chart.columns if one.type == "DATE"]
        return panel | {
            "fieldConfig": {"defaults": {"noValue": chart.empty}, "overrides": overrides}, "options": TABLE,
        }  # fmt: skip
    defaults: dict[str, Any] = {**_unit(chart.form), "noValue": chart.empty}
    options: dict[str, Any] = NUMBER if kind == "stat" else AXES
    if kind == "timeseries":
        defaults["custom"] = BARS if chart.kind == "bars" else LINES | _scale(is_log=chart.is_log)
    if kind == "barchart":
        options = AXES | _bars(chart)
        if chart.by:
            panel["transformations"] = [_matrix(chart)]
    return panel | {"fieldConfig": {"defaults": defaults, "overrides": []}, "options": options}


def _scale(*, is_log: bool) -> dict[str, Any]:
    return {"scaleDistribution": {"type": "log", "log": 10} if is_log else {"type": "linear"}}


def _override(label: str, properties: dict[str, Any]) -> dict[str, Any]:
    listed = [{"id": name, "value": value} for name, value in properties.items()]
    return {"matcher": {"id": "byName", "options": label}, "properties": listed}


def _bars(chart: Chart) -> dict[str, Any]:
    x, by = chart.axis, chart.by
    return {
        "orientation": "horizontal" if chart.is_horizontal else "vertical",
        "stacking": "normal" if chart.is_stacked else "none",
        "xField": f"{x.title}\\{by[0].title}" if by else x.title,
        "showValue": "never", "barWidth": 0.8, "groupWidth": 0.7, "xTickLabelRotation": -45 if x.is_time else 0,
    }  # fmt: skip


def _matrix(chart: Chart) -> dict[str, Any]:
    options = {"columnField": chart.by[0].title, "rowField": chart.axis.title, "valueField": chart.measures[0].label}
    return {"id": "groupingToMatrix", "options": options | {"emptyValue": "null"}}


def _sql(board: Board, chart: Chart, of_time: bool) -> str:
    """The query of a panel, a line for each column and condition."""
    keys = ([chart.x] if chart.x else []) + chart.by
    names = ["time", "metric"] if of_time else [one.title for one in keys]
    shown = [(_expression(one, of_time), name) for one, name in zip(keys, names, strict=False)]
    shown += [(_expression(one), one.title) for one in chart.columns] + [(one.sql, one.label) for one in chart.measures]
    lines = ["select", ",\n".join(_selected(sql, name) for sql, name in shown)]
    lines.append("from ${schema_prefix:raw}" + f"{chart.dataset.schema}.{chart.dataset.name}")
    conditions = _conditions(board, chart)
    lines += [f"where {conditions[0]}", *(f"    and {one}" for one in conditions[1:])] if conditions else []
    numbers = ", ".join(str(at) for at, _ in enumerate(keys, 1))
    if keys:
        lines.append(f"group by {numbers}")
    lines += [f"having {chart.having}"] if chart.having else []
    if chart.kind in ("lines", "bars"):
        lines.append(f"order by {numbers}")
    elif chart.kind != "number":
        listed = [one.name for one in [*keys, *chart.columns]] + [one.name for one in chart.measures]
        order = [(YEAR_MONTH, False)] if YEAR_MONTH in listed else chart.order
        terms = [f"{listed.index(name) + 1}{'' if ascends else ' desc nulls last'}" for name, ascends in order]
        lines.append(f"order by {', '.join(terms)}")
    return "\n".join(lines)


def _selected(sql: str, name: str) -> str:
    return f'    {sql}{" " if len(sql) <= 160 else NEXT_LINE}as "{name}"'


def _expression(column: Column, of_time: bool = True) -> str:
    if column.month_of:
        return f"to_char({column.month_of}, 'YYYY-MM')"
    if column.is_time and not of_time:
        return f"to_char({column.name}, 'YYYY-MM-DD')"
    return column.sql or column.name


def _conditions(board: Board, chart: Chart) -> list[str]:
    dataset = chart.dataset
    found = []
    if board.month and not chart.is_of_all_months:
        found.append(f"to_char({dataset.month}, 'YYYY-MM') = ${{month:sqlstring}}")
    if not board.month and dataset.time:
        found.append(f"$__timeFilter({dataset.time})")
    if "site" in dataset.columns:
        of_all = f", '{dataset.site_of_all}'" if dataset.site_of_all else ""
        found.append(f"site in (${{site:sqlstring}}{of_all})")
    if chart.is_of_meters:
        found.append("meter_scope = ${meter_scope:sqlstring}")
    for one in chart.where:
        if isinstance(one, str):
            found.append(one)
        else:
            column, way, value = one
            quoted = f"'{value}'" if isinstance(value, str) else str(value)
            found.append(f"{column} {'=' if way == '==' else way} {quoted}")
    return found


# --- on Prometheus ----------------------------------------------------------------------------------------------------


def _today() -> dict[str, Any]:
    """The figures of `wattledger serve`, now."""
    given = charts.stated("today")
    variables = [
        _variable(ON_METRICS, name, {"query": query, "refId": "A"}, is_all=name == "fleet")
        | ({"allValue": ".*"} if name == "fleet" else {})
        for name, query in given["variables"].items()
    ]
    panels = _Panels(given["note"], given["note_height"])
    for row in given["rows"]:
        panels.begin(row["height"])
        for chart in row["charts"]:
            panels.add(_metric(chart), chart["width"], chart.get("height", row["height"]))
    found = _dashboard(ON_METRICS, "today", variables, panels, "now-24h")
    return found | {"uid": "wattledger-live", "refresh": "1m"}


def _metric(chart: dict[str, Any]) -> dict[str, Any]:
    kind = {"number": "stat", "lines": "timeseries"}.get(chart["kind"], "table")
    is_instant = kind == "table" or chart.get("is_instant", False)
    target = {"expr": chart["expr"], "format": "table" if kind == "table" else "time_series", "range": not is_instant}
    target |= {"instant": True} if is_instant else {}
    target |= {"legendFormat": f"{{{{{chart['by']}}}}}"} if "by" in chart else {}
    panel = _drawn(ON_METRICS, kind, chart["title"], chart.get("about", ""), target)
    defaults = {"unit": chart["unit"], "noValue": chart.get("empty", UNKNOWN)}
    defaults |= {"decimals": chart["decimals"]} if "decimals" in chart else {}
    if kind == "timeseries":
        defaults["custom"] = LINES | _scale(is_log=chart.get("is_log", False))
    if kind == "table":
        panel["transformations"] = [WITHOUT_LABELS_OF_THE_SCRAPE]
    options = {"stat": NUMBER, "table": TABLE, "timeseries": AXES}[kind]
    return panel | {"fieldConfig": {"defaults": defaults, "overrides": []}, "options": options}
