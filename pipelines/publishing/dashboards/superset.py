"""The dashboards as Superset imports them: tables with saved measures, charts with their queries, and where each is.

Add here what Superset's format asks for. `query_context` is the query that a chart's page asks: `make test-bi` compares
the two.
"""

from __future__ import annotations

import json
import re
from itertools import count
from typing import Any

from pipelines.publishing.dashboards import charts
from pipelines.publishing.dashboards.charts import YEAR_MONTH, Board, Chart, Column, Dataset

VERSION = "1.0.0"
DATABASE = "1842e414-acb6-52ea-84ac-6ea85b359bac"
UNKNOWN = "N/A"
NO_RANGE = "No filter"
LINES = {"markerEnabled": False, "opacity": 0.2, "truncateYAxis": False, "y_axis_bounds": [None, None]}
AXES = {
    "order_desc": True, "show_legend": True, "legendType": "scroll", "legendOrientation": "top", "rich_tooltip": True,
    "truncate_metric": True, "show_empty_columns": True, "x_axis_sort_asc": True, "color_scheme": "supersetColors",
}  # fmt: skip
OF_TIME = {"time_grain_sqla": None, "y_axis_title": "", "y_axis_title_margin": 15}
CELLS: dict[str, Any] = {
    "row_limit": 1000, "server_page_length": 10, "page_length": 0, "table_timestamp_format": "%Y-%m-%d",
    "show_cell_bars": False, "color_pn": False,
}  # fmt: skip
PIVOT = {
    "groupbyRows": [], "metricsLayout": "ROWS", "aggregateFunction": "Sum", "rowTotals": True, "colTotals": False,
    "rowSubTotals": False, "colSubTotals": False, "rowOrder": "key_a_to_z", "colOrder": "key_a_to_z",
    "order_desc": True, "row_limit": 1000, "date_format": "smart_date",
}  # fmt: skip


def bundle(uri: str, schema_prefix: str = "") -> dict[str, dict[str, Any]]:
    """Name -> content of each file of the bundle, with this database and the prefix of its schemas."""
    found: dict[str, dict[str, Any]] = {
        "metadata.yaml": {"version": VERSION, "type": "Dashboard", "timestamp": "2026-11-23T00:00:00+00:00"},
        "databases/Wattledger.yaml": {
            "database_name": "Wattledger", "sqlalchemy_uri": uri, "cache_timeout": None, "expose_in_sqllab": True,
            "allow_run_async": False, "allow_ctas": False, "allow_cvas": False, "allow_dml": False,
            "allow_csv_upload": False, "extra": {"allows_virtual_table_explore": True}, "uuid": DATABASE,
            "version": VERSION,
        },
    }  # fmt: skip
    for dataset in charts.datasets().values():
        found[f"datasets/Wattledger/{dataset.name}.yaml"] = _dataset(dataset, schema_prefix)
    for board in charts.boards():
        found[f"dashboards/{board.name}.yaml"] = _dashboard(board)
        for chart in board.charts():
            slug = re.sub(r"[^a-z0-9]+", "_", titled(chart).lower()).strip("_")
            found[f"charts/{board.name}__{slug}.yaml"] = _chart(chart)
    return found


def titled(chart: Chart) -> str:
    """A chart's title with the meters whose joules it shows."""
    return f"{chart.title} ({charts.meters()} meters)" if chart.is_of_meters else chart.title


def _dataset(dataset: Dataset, schema_prefix: str) -> dict[str, Any]:
    measures = [
        {"metric_name": one.name, "verbose_name": one.label, "expression": one.sql, "description": one.about}
        | ({"d3format": one.form} if one.form else {})
        for one in dataset.measures.values()
    ]
    return {
        "table_name": dataset.name, "schema": schema_prefix + dataset.schema, "catalog": None,
        "main_dttm_col": dataset.time, "description": dataset.about, "filter_select_enabled": True,
        "normalize_columns": False, "always_filter_main_dttm": False, "uuid": dataset.uuid, "database_uuid": DATABASE,
        "version": VERSION, "metrics": measures, "columns": [_column(one) for one in dataset.columns.values()],
    }  # fmt: skip


def _column(column: Column) -> dict[str, Any]:
    found = {"column_name": column.name, "type": column.type, "is_dttm": column.is_time}
    found |= {"groupby": True, "filterable": True}
    if column.label:
        found["verbose_name"] = column.label
    if sql := column.sql or (column.month_of and f"substr(cast({column.month_of} as varchar), 1, 7)"):
        found["expression"] = sql
    return found


def _chart(chart: Chart) -> dict[str, Any]:
    kind, params, query = {"number": _number, "table": _table, "pivot": _pivot}.get(chart.kind, _axes)(chart)
    simple = [one for one in chart.where if not isinstance(one, str)]
    if chart.is_of_meters:
        simple.insert(0, ["meter_scope", "==", charts.meters()])
    written = {
        "WHERE": [one for one in chart.where if isinstance(one, str)],
        "HAVING": [chart.having] * bool(chart.having),
    }
    shown = [_filter(*one) for one in simple] + [
        {"clause": clause, "expressionType": "SQL", "sqlExpression": sql}
        for clause, all_ in written.items()
        for sql in all_
    ]
    asked = [{"col": column, "op": way, "val": value} for column, way, value in simple]
    if chart.dataset.time:
        shown.append(_filter(chart.dataset.time, "TEMPORAL_RANGE", NO_RANGE))
        asked.append({"col": chart.dataset.time, "op": "TEMPORAL_RANGE", "val": NO_RANGE})
    extras = {clause.lower(): " AND ".join(f"({sql})" for sql in all_) for clause, all_ in written.items()}
    extras |= query.get("extras", {})
    query = {"filters": asked, "series_limit": 0, "order_desc": True, **query, "extras": extras}
    return {
        "slice_name": titled(chart), "description": None, "viz_type": kind,
        "params": {"viz_type": kind, "adhoc_filters": shown, "extra_form_data": {}, **params},
        "query_context": json.dumps({
            "datasource": {"id": 0, "type": "table"}, "force": False, "queries": [query], "result_format": "json",
            "result_type": "full",
        }),
        "cache_timeout": None, "uuid": chart.uuid, "version": VERSION, "dataset_uuid": chart.dataset.uuid,
    }  # fmt: skip


def _filter(column: str, way: str, value: object) -> dict[str, Any]:
    return {"clause": "WHERE", "expressionType": "SIMPLE", "subject": column, "operator": way, "comparator": value}


def _number(chart: Chart) -> tuple[str, dict[str, Any], dict[str, Any]]:
    (measure,) = chart.measures
    params = {
        "metric": measure.name, "y_axis_format": chart.form, "header_font_size": 0.4, "subtitle_font_size": 0.125,
        "subtitle": (chart.about or measure.about).replace("{unknown}", UNKNOWN),
    }  # fmt: skip
    return "big_number_total", params, {"columns": [], "metrics": [measure.name]}


def _table(chart: Chart) -> tuple[str, dict[str, Any], dict[str, Any]]:
    shown = [one.name for one in chart.by or chart.columns]
    cells: dict[str, dict[str, Any]] = {
        name: {"columnWidth": width} | ({"truncateLongCells": True} if name != YEAR_MONTH else {})
        for name, width in chart.cell_widths.items()
    }
    cells |= {one.name: {"d3NumberFormat": one.form} for one in (chart.measures or chart.columns) if one.form}
    params = {**CELLS, "column_config": cells}
    query: dict[str, Any] = {"columns": shown, "row_limit": 1000, "post_processing": [], "time_offsets": []}
    if chart.measures:
        metrics, ((first, _), *_) = [one.name for one in chart.measures], chart.order
        params |= {"query_mode": "aggregate", "groupby": shown, "metrics": metrics, "order_desc": True}
        params["timeseries_limit_metric"] = first
        query |= {"metrics": metrics, "orderby": [[first, False]], "series_limit_metric": first}
    else:
        order = [list(one) for one in chart.order]
        params |= {"query_mode": "raw", "all_columns": shown, "order_by_cols": [json.dumps(one) for one in order]}
        query |= {"orderby": order}
    return "table", params, query


def _pivot(chart: Chart) -> tuple[str, dict[str, Any], dict[str, Any]]:
    by, metrics = [one.name for one in chart.by], [one.name for one in chart.measures]
    params = {**PIVOT, "groupbyColumns": by, "metrics": metrics, "valueFormat": chart.form}
    query = {"columns": by, "metrics": metrics, "orderby": [[metrics[0], False]], "row_limit": 1000}
    return "pivot_table_v2", params, query


def _axes(chart: Chart) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Lines and bars, over time or over names."""
    x, by, metrics = chart.axis.name, [one.name for one in chart.by], [one.name for one in chart.measures]
    axis: dict[str, Any] = {"columnType": "BASE_AXIS", "sqlExpression": x, "label": x, "expressionType": "SQL"}
    axis["isColumnReference"] = True
    params = {**AXES, "x_axis": x, "metrics": metrics, "groupby": by, "y_axis_format": chart.form}
    after: list[dict[str, Any]] = [{
        "operation": "pivot",
        "options": {
            "index": [x], "columns": by, "aggregates": {one: {"operator": "mean"} for one in metrics},
            "drop_missing_columns": False,
        },
    }]  # fmt: skip
    if by and len(metrics) == 1:
        renamed = {"columns": {metrics[0]: None}, "level": 0, "inplace": True}
        after.append({"operation": "rename", "options": renamed})
    if chart.axis.is_time:
        minutes = "" if chart.axis.type == "DATE" else " %H:%M"
        params |= {**OF_TIME, "x_axis_time_format": "%m-%d" + minutes, "tooltipTimeFormat": "%Y-%m-%d" + minutes}
        axis["timeGrain"] = None
    else:
        params |= {"xAxisForceCategorical": True, "x_axis_sort": x}
        if not by:
            after.append({"operation": "sort", "options": {"is_sort_index": True, "ascending": True}})
    if chart.kind == "lines":
        params |= {**LINES, "logAxis": chart.is_log}
    params |= {"stack": "Stack"} if chart.is_stacked else {}
    params |= {"orientation": "horizontal"} if chart.is_horizontal else {}
    params["row_limit"] = 50000 if chart.axis.is_time else 10000
    query = {
        "columns": [axis, *by], "metrics": metrics, "orderby": [[metrics[0], False]], "row_limit": params["row_limit"],
        "series_columns": by, "time_offsets": [], "post_processing": [*after, {"operation": "flatten"}],
        "extras": {"time_grain_sqla": None} if chart.axis.is_time else {},
    }  # fmt: skip
    return f"echarts_timeseries_{'line' if chart.kind == 'lines' else 'bar'}", params, query


# --- dashboards -------------------------------------------------------------------------------------------------------


def _dashboard(board: Board) -> dict[str, Any]:
    title = f"Wattledger: {board.name}"
    rows, numbers = ["ROW-note"], count(1)
    note = {"width": 12, "height": board.note_heights[0], "code": board.note["superset"]}
    found: dict[str, Any] = {
        "DASHBOARD_VERSION_KEY": "v2",
        "ROOT_ID": {"type": "ROOT", "id": "ROOT_ID", "children": ["GRID_ID"]},
        "HEADER_ID": {"type": "HEADER", "id": "HEADER_ID", "meta": {"text": title}},
        "MARKDOWN-note": _placed("MARKDOWN-note", "ROW-note", note),
        "ROW-note": _row("ROW-note", ["MARKDOWN-note"]),
    }
    of_all_months = []
    for at, row in enumerate(board.rows, 1):
        rows.append(f"ROW-{at}")
        names = [f"CHART-{at}-{place}" for place, _ in enumerate(row.charts, 1)]
        found[f"ROW-{at}"] = _row(f"ROW-{at}", names)
        for name, (chart, width) in zip(names, row.charts, strict=True):
            number = next(numbers)
            of_all_months += [number] * chart.is_of_all_months
            meta = {"uuid": chart.uuid, "chartId": number, "width": width, "height": row.heights[0]}
            found[name] = _placed(name, f"ROW-{at}", meta | {"sliceName": titled(chart)})
    found["GRID_ID"] = {"type": "GRID", "id": "GRID_ID", "children": rows, "parents": ["ROOT_ID"]}
    return {
        "dashboard_title": title, "description": None, "css": "", "slug": f"wattledger-{board.name}",
        "uuid": board.uuid, "position": found,
        "metadata": {
            "native_filter_configuration": _filters(board, of_all_months),
            "color_scheme": "supersetColors", "filter_bar_orientation": "HORIZONTAL", "cross_filters_enabled": True,
            "refresh_frequency": 0, "timed_refresh_immune_slices": [], "expanded_slices": {},
            "label_colors": board.colors,
        },
        "version": VERSION, "published": True,
    }  # fmt: skip


def _row(name: str, children: list[str]) -> dict[str, Any]:
    found = {"type": "ROW", "id": name, "children": children, "parents": ["ROOT_ID", "GRID_ID"]}
    return found | {"meta": {"background": "BACKGROUND_TRANSPARENT"}}


def _placed(name: str, row: str, meta: dict[str, Any]) -> dict[str, Any]:
    parents = ["ROOT_ID", "GRID_ID", row]
    return {"type": name.partition("-")[0], "id": name, "children": [], "parents": parents, "meta": meta}


def _filters(board: Board, of_all_months: list[int]) -> list[dict[str, Any]]:
    """A range of dates, or the newest month until another is chosen; and sites."""
    period = _native(board, "dates") | {"filterType": "filter_time", "targets": [{}]}
    period["controlValues"] = {"enableEmptyFilter": False}
    if board.month:
        period = _select(board, "month", YEAR_MONTH, defaultToFirstItem=True, sortAscending=False) | {
            "description": board.month, "requiredFirst": True,
            "scope": {"rootPath": ["ROOT_ID"], "excluded": of_all_months},
        }  # fmt: skip
    return [period, _select(board, "site", "site", multiSelect=True)]


def _select(board: Board, name: str, column: str, **chosen: bool) -> dict[str, Any]:
    switches = ("multiSelect", "enableEmptyFilter", "defaultToFirstItem", "inverseSelection", "searchAllOptions")
    return _native(board, name) | {
        "filterType": "filter_select", "targets": [{"datasetUuid": board.sites.uuid, "column": {"name": column}}],
        "controlValues": dict.fromkeys(switches, False) | chosen,
    }  # fmt: skip


def _native(board: Board, name: str) -> dict[str, Any]:
    return {
        "id": f"NATIVE_FILTER-{board.name}-{name}", "type": "NATIVE_FILTER", "name": name.capitalize(),
        "description": "", "cascadeParentIds": [],
        "defaultDataMask": {"extraFormData": {}, "filterState": {}, "ownState": {}},
        "scope": {"rootPath": ["ROOT_ID"], "excluded": []},
    }  # fmt: skip
