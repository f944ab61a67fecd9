"""Only staging makes numbers of text from outside: what the compiled SQL of all models casts, as DuckDB types it.

Add here a way in which a text or a sample could become a number. Keep out what the parsers accept (unit tests of
`stg_series`) and what is booked of odd values (`test_outside_values`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import duckdb
import pytest

from pipelines.warehouse import database
from tests.books import broken_project, compiled_models, empty_warehouse

NUMBERS = re.compile(r"(tinyint|smallint|integer|int|bigint|hugeint|decimal.*|numeric.*|double|float|real)$")
INTEGERS = re.compile(r"(tinyint|smallint|integer|int|bigint|hugeint)$")
EXPRESSION_BEFORE_THE_CAST = ("nullif(regexp_extract(", "regexp_extract(concat(")
GUARDS = (*EXPRESSION_BEFORE_THE_CAST, "case when")
# Models that parse labels: staging, its second parsing, and the table of what neither could read.
PARSERS = {"staging.stg_series", "intermediate.int_label_names", "marts.unreadable_values"}
# What a source sent as a number, under the names that it has from raw up to the differences of counters.
SAMPLE = re.compile(r"(?<!\w)(\w*value|watts|start_seconds)(?!\w)")
# The balances' own road: it parses times for itself.
SECOND_ROAD = re.compile(r"intermediate\.int_(metered_\w+|series_amounts|label_\w+)$")


def casts(sql: str) -> Iterator[tuple[int, int, str, str]]:
    """Every `cast(expression as type)`: where its expression begins and ends, the expression, the type."""
    for found in re.finditer(r"\bcast\(", sql):
        depth, at, separator = 1, found.end(), 0
        while depth:
            if sql[at] == "'":
                at = sql.index("'", at + 1)
            elif sql[at] == "(":
                depth += 1
            elif sql[at] == ")":
                depth -= 1
            elif depth == 1 and re.match(r"\sas\s", sql[at : at + 4]):
                separator = at
            at += 1
        yield found.end(), separator, sql[found.end() : separator].strip(), sql[separator + 4 : at - 1].strip().lower()


def with_arithmetic(sql: str) -> str:
    """The SQL with `+ 0` in each cast to a number that no regular expression guards: of a text that is an error."""
    ends = [
        (start, end)
        for start, end, expression, kind in casts(sql)
        if NUMBERS.match(kind) and not expression.startswith(EXPRESSION_BEFORE_THE_CAST)
    ]
    for position, inserted in sorted([(start, "(") for start, _ in ends] + [(end, ") + 0") for _, end in ends])[::-1]:
        sql = sql[:position] + inserted + sql[position:]
    return sql


def casts_of_text(models: dict[str, str], warehouse: Path) -> dict[str, str]:
    """Model -> DuckDB's word on a text that it casts to a number without a regular expression, or outside a parser."""
    wrong = {}
    with closing(database.connect(warehouse, read_only=True)) as connection:
        for name, sql in models.items():
            if name not in PARSERS and any(of.startswith(EXPRESSION_BEFORE_THE_CAST) for _, _, of, _ in casts(sql)):
                wrong[name] = "parses a text"
            if (with_added := with_arithmetic(sql)) == sql:
                continue
            try:
                connection.execute(f"explain {with_added}").fetchall()
            except duckdb.BinderException as error:
                wrong[name] = str(error)
    return wrong


def casts_of_samples(models: dict[str, str]) -> list[tuple[str, str]]:
    """Casts of a sample to an integer that no bound guards."""
    return [
        (name, expression)
        for name, sql in models.items()
        if not SECOND_ROAD.match(name)
        for _, _, expression, kind in casts(sql)
        if INTEGERS.match(kind) and SAMPLE.search(expression) and not expression.startswith(GUARDS)
    ]


@pytest.fixture(scope="module")
def models() -> dict[str, str]:
    models = compiled_models("resource_type:model")
    assert len(models) > 150
    return models


@pytest.mark.rest
def test_text_from_outside_becomes_a_number_in_staging_alone(models: dict[str, str]) -> None:
    assert casts_of_text(models, empty_warehouse()) == {}


def test_a_sample_becomes_an_integer_only_within_a_bound(models: dict[str, str]) -> None:
    assert casts_of_samples(models) == []


def other_casts(models: dict[str, str]) -> set[str]:
    """Models with `try_cast`, whose NULL ranks would all count, or `::`, which the searches above miss."""
    hidden = re.compile(r"try_cast\(|::\s*(\w*int|integer|decimal|numeric|double|float|real)\b")
    return {name for name, sql in models.items() if hidden.search(sql)}


def test_no_model_casts_in_another_way(models: dict[str, str]) -> None:
    assert other_casts(models) == set()
    assert other_casts({"a": "select try_cast(x as int)", "b": "select x::bigint", "c": "select x::timestamp"}) == {
        "a",
        "b",
    }


@pytest.mark.rest
@pytest.mark.parametrize(
    ("file", "right", "wrong", "model"),
    [
        (
            "models/attribution/steps/int_claimed_energy.sql",
            "member_activity.activity_ratio * claims.mig_slices",
            "member_activity.activity_ratio * cast(split_part(claims.mig_instance, 'g', 1) as double)",
            "intermediate.int_claimed_energy",
        ),
        (
            "models/staging/stg_series.sql",
            "        located.job as batch_job,",
            "        cast(cast(located.job as bigint) as varchar) as batch_job,",
            "staging.stg_series",
        ),
    ],
)
def test_a_cast_of_text_is_found(tmp_path: Path, file: str, right: str, wrong: str, model: str) -> None:
    project = broken_project(tmp_path, file, right, wrong)
    assert set(casts_of_text(compiled_models(model.partition(".")[2], project), empty_warehouse())) == {model}


@pytest.mark.rest
def test_a_cast_of_a_sample_is_found(tmp_path: Path) -> None:
    project = broken_project(
        tmp_path,
        "macros/outside_values.sql",
        "cast(case when {{ seconds }} < 1e11 then floor({{ seconds }} * 1e6 + 0.5) end as bigint)",
        "cast({{ seconds }} * 1e6 as bigint)",
    )
    found = casts_of_samples(compiled_models("int_token_glitches int_engine_steps", project))
    assert set(found) == {
        (f"intermediate.{name}", "value * 1e6") for name in ("int_token_glitches", "int_engine_steps")
    }
