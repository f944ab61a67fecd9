"""The report of a check: its first five rows by key and value, how many there are, what was expected, what to do."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pandas as pd

from pipelines.booking.checks import unmet
from pipelines.booking.project import prepared_project
from pipelines.fleet.places import DBT_PROJECT
from pipelines.warehouse import findings


def test_a_row_is_its_columns_and_values_with_their_units() -> None:
    names = ("date", "meter", "at", "energy_joules", "cross_check_ratio", "samples", "is_valid", "site")
    at = datetime(2026, 10, 7, 12, tzinfo=UTC)
    values = (date(2026, 10, 7), "GPU-1", at, Decimal("59614.25"), 0.0625, 1440, True, None)
    assert findings.row(names, values) == (
        "date 2026-10-07, meter GPU-1, at 2026-10-07 12:00:00+00:00, energy_joules 59,614.2, cross_check_ratio 0.0625,"
        " samples 1,440, is_valid true"
    )


def test_five_rows_are_shown_and_all_are_counted() -> None:
    lines = [f"meter GPU-{n}" for n in range(7)]
    assert findings.report(lines, 12, "at most 5 %", "look at both").splitlines() == [
        "12 rows",
        *(f"  meter GPU-{n}" for n in range(5)),
        "  … and 7 more",
        "  Expected: at most 5 %",
        "  What to do: look at both",
    ]
    assert findings.report(lines[:1], 1, "", "") == "1 row\n  meter GPU-0"


def test_an_expectation_names_the_rows_that_do_not_meet_it() -> None:
    frame = pd.DataFrame(
        {"source": ["a", "b", "c"], "metric": ["m"] * 3, "rejected_ratio": [0.0, 0.5, 0.25], "other": [1, 2, 3]}
    )
    # Here, and not where this file is collected: it loads for two seconds.
    from great_expectations import expectations as gxe  # noqa: PLC0415

    expectation = gxe.ExpectColumnValuesToBeBetween(column="rejected_ratio", min_value=0, max_value=0.05, mostly=0.95)
    (text,) = unmet(frame, "series_are_healthy", [expectation])
    assert text.splitlines() == [
        "rejected_ratio: 2 rows",
        "  source b, metric m, rejected_ratio 0.5",
        "  source c, metric m, rejected_ratio 0.25",
        "  Expected: 0 to 0.05 in 95% of the rows",
        "  What to do: find out why this exporter reports invalid values (negative, NaN, sentinels)",
    ]


def test_every_data_test_has_what_was_expected_and_what_to_do() -> None:
    nodes = json.loads(prepared_project().manifest_path.read_text(encoding="utf-8"))["nodes"].values()
    tests = [node for node in nodes if node["resource_type"] == "test"]
    assert {node["name"] for node in tests} == {path.stem for path in (DBT_PROJECT / "tests").glob("*.sql")}
    for node in tests:
        assert node["config"]["severity"] == "warn", node["name"]  # an error would skip whatever is downstream
        meta = node["config"]["meta"]
        assert meta["remedy"], node["name"]
        assert meta.get("expected") or " expected" in node["raw_code"], node["name"]
