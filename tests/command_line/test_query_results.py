"""Rows as table, CSV and JSON: nothing is lost, and no name of a model does anything."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pytest

from pipelines.command_line.query_results import as_csv, as_json, as_table

NOON_IN_BERLIN = datetime(2026, 10, 1, 14, tzinfo=timezone(timedelta(hours=2)))


def test_a_table_states_how_many_rows_it_left_out() -> None:
    rows = [("a", Decimal("1.50")), ("bb", None), ("c", Decimal("0E-12")), ("d", Decimal(4)), ("e", Decimal(5))]
    assert list(as_table(["model", "USD"], iter(rows), 3)) == [
        "model  USD",
        "-----  ---",
        "a      1.5",
        "bb       –",
        "c        0",
        "… and 2 more rows (--limit 0 prints all; --format csv and json have them)",
    ]
    assert list(as_table(["model", "USD"], iter(rows), 0))[-1] == "e        5"
    assert list(as_table(["model", "USD"], iter(rows), 5))[-1] == "e        5"
    assert list(as_table(["model", "USD"], iter([]), 3)) == ["model  USD", "-----  ---", "no rows"]


def test_a_table_on_a_terminal_shows_control_characters_and_cuts_long_names() -> None:
    (_, _, line) = as_table(["m"], iter([("\x1b[2J\u202e" + "x" * 300,)]), 3)
    assert line == "\\x1b[2J\\u202e" + "x" * 66 + "…"
    assert len(line) == 80


def test_csv_has_times_in_utc_unknown_values_as_empty_cells_and_decimals_in_full() -> None:
    row = (NOON_IN_BERLIN, date(2026, 10, 1), Decimal("-0.000000000001"), None, "", 'a "b", c', True, -1.5)
    names = ["at", "on", "usd", "unknown", "empty", "text", "is", "number"]
    assert list(as_csv(names, iter([row]))) == [
        "at,on,usd,unknown,empty,text,is,number",
        '2026-10-01T12:00:00Z,2026-10-01,-0.000000000001,,"","a ""b"", c",true,-1.5',
    ]


@pytest.mark.parametrize(
    ("model", "cell"),
    [
        ('=HYPERLINK("http://x")', '\'=HYPERLINK("http://x")'),
        ("-2+cmd|' /c calc'!A0", "'-2+cmd|' /c calc'!A0"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("-2+3", "-2+3"),
        ("@cf/meta/llama", "@cf/meta/llama"),
        ("\t=1", "'\t=1"),
        ("\r=1", "'\r=1"),
        ("\n=1", "'\n=1"),
        ("＝1+1", "'＝1+1"),
        ("a=1", "a=1"),
        ("gpt-oss-120b", "gpt-oss-120b"),
        ("x" * 300, "x" * 300),
        ("🙂 مرحبا", "🙂 مرحبا"),
        ("<script>alert(1)</script>", "<script>alert(1)</script>"),
    ],
)
def test_a_text_that_a_spreadsheet_would_calculate_gets_an_apostrophe(model: str, cell: str) -> None:
    def read(**options: bool) -> list[list[str]]:
        lines = as_csv([model, "J"], iter([(model, Decimal("-1.5"))]), **options)
        return list(csv.reader(io.StringIO("\r\n".join(lines), newline="")))

    assert read() == [[cell, "J"], [cell, "-1.5"]]
    assert read(is_raw=True) == [[model, "J"], [model, "-1.5"]]


def test_json_has_each_digit_null_and_times_in_utc() -> None:
    rows = [
        ("a", Decimal("12345678901234567890.123456789012"), None, NOON_IN_BERLIN, [1, None], {"k": Decimal("1.10")}),
        ("\u202e=1\x1b", Decimal(2), True, datetime(2026, 10, 1, tzinfo=UTC), [], {}),
    ]
    lines = list(as_json(["model", "usd", "is", "at", "list", "usd"], iter(rows)))
    assert lines == [
        "[",
        '  {"model": "a", "usd": 12345678901234567890.123456789012, "is": null, "at": "2026-10-01T12:00:00Z",'
        ' "list": [1, null], "usd_2": {"k": 1.10}},',
        '  {"model": "\\u202e=1\\u001b", "usd": 2, "is": true, "at": "2026-10-01T00:00:00Z", "list": [], "usd_2": {}}',
        "]",
    ]
    first, second = json.loads("\n".join(lines), parse_float=Decimal)
    assert first["usd"] == Decimal("12345678901234567890.123456789012")
    assert second["model"] == "\u202e=1\x1b"
    assert json.loads("\n".join(as_json(["x"], iter([])))) == []
    assert json.loads("\n".join(as_json(["x"], iter([(float("inf"),)])))) == [{"x": "inf"}]
