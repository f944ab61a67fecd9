"""The branches of a query: each arm of a union and each branch of a CASE, found in DuckDB's own parse of it.

DuckDB evaluates an expression only for the rows that reach it: a format that it refuses, or a cast that cannot work, is
an error on the first fleet that has such a row. A test with a row for each branch finds it first. A new branch without
such a row fails the test, because the list of branches comes from the query.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import duckdb

Node = dict[str, Any]
FALSE = "select false"
WITHOUT_ROWS = "select * from (select 1) as arm where false"


def without_rows(
    connection: duckdb.DuckDBPyConnection, query: str, parameters: Mapping[str, Any] | None = None
) -> list[str]:
    """The branches of the query that no row reaches: without them it gives the same rows in the same order. The query
    itself is among them where it gives no row."""
    rows = connection.execute(query, parameters).fetchall()
    found = [] if rows else ["the whole query"]
    for name, changed in _changed(connection, query):
        if connection.execute(changed, parameters).fetchall() == rows:
            found.append(name)
    return found


def _changed(connection: duckdb.DuckDBPyConnection, query: str) -> Iterator[tuple[str, str]]:
    """(branch, the query without it) of each branch."""
    parsed = _parsed(connection, query)
    never = _parsed(connection, FALSE)["statements"][0]["node"]["select_list"][0]
    for place, node in enumerate(_nodes(parsed)):
        for name, change in _changes(node, never, connection):
            changed = copy.deepcopy(parsed)
            change(list(_nodes(changed))[place])
            yield name, _text(connection, changed)


def _changes(
    node: Node, never: Node, connection: duckdb.DuckDBPyConnection
) -> Iterator[tuple[str, Callable[[Node], None]]]:
    if node.get("type") == "SET_OPERATION_NODE":
        for place, _ in enumerate(node["children"]):
            yield f"arm {place + 1} of a union of {len(node['children'])}", _arm_emptied(connection, place)
    if node.get("class") == "CASE":
        for place, check in enumerate(node["case_checks"]):
            when = _expression(connection, check["when_expr"])
            yield f"when {when}", _when_never(place, never)
        otherwise = _expression(connection, node["else_expr"])
        if otherwise != "NULL":
            yield f"else {otherwise}", _else_as_first


def _arm_emptied(connection: duckdb.DuckDBPyConnection, place: int) -> Callable[[Node], None]:
    def change(union: Node) -> None:
        empty = _parsed(connection, WITHOUT_ROWS)["statements"][0]["node"]
        empty["from_table"]["subquery"]["node"] = union["children"][place]
        union["children"][place] = empty

    return change


def _when_never(place: int, never: Node) -> Callable[[Node], None]:
    def change(case: Node) -> None:
        case["case_checks"][place]["when_expr"] = never

    return change


def _else_as_first(case: Node) -> None:
    case["else_expr"] = case["case_checks"][0]["then_expr"]


def _nodes(parsed: Any) -> Iterator[Node]:
    """Every node of a parsed query, always in the same order."""
    if isinstance(parsed, dict):
        yield parsed
    for child in parsed.values() if isinstance(parsed, dict) else parsed if isinstance(parsed, list) else ():
        yield from _nodes(child)


def _parsed(connection: duckdb.DuckDBPyConnection, query: str) -> Node:
    ((found,),) = connection.execute("select json_serialize_sql(?)", [query]).fetchall()
    parsed: Node = json.loads(found)
    if parsed["error"]:
        raise AssertionError(f"DuckDB does not parse the query: {parsed['error_message']}")
    return parsed


def _text(connection: duckdb.DuckDBPyConnection, parsed: Node) -> str:
    ((text,),) = connection.execute("select json_deserialize_sql(?::json)", [json.dumps(parsed)]).fetchall()
    return str(text)


def _expression(connection: duckdb.DuckDBPyConnection, expression: Node) -> str:
    select = _parsed(connection, FALSE)
    select["statements"][0]["node"]["select_list"] = [expression]
    return _text(connection, select).removeprefix("SELECT ")
