"""What dbt built and tested, as Dagster's results: of the assets and the checks that a step selected.

Add here how a person reads dbt's outcome. Keep out how dbt runs (`dbt_run`) and what its tests test
(`dbt_project/tests`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, timedelta
from typing import Any

import dagster as dg
import duckdb

from pipelines.warehouse import findings
from pipelines.warehouse.contracts import Mart

UNIQUE_ID = "dagster_dbt/unique_id"  # where dagster-dbt keeps dbt's name of a model or test
FAILED, WARNED = "fail", "warn"
UNCHANGED = "unchanged"  # the first word of the message of a model that kept its rows
ERRORS = ("error", "runtime error")
# Models whose errors are shown; those that depend on them are only skipped.
SHOWN_ERRORS = 3


def selected_names(context: dg.AssetExecutionContext) -> list[str]:
    """dbt's names of the assets and checks that the step selected."""
    specs = [spec for spec in context.assets_def.specs if spec.key in context.selected_asset_keys]
    checks = [spec for spec in context.assets_def.check_specs if spec.key in context.selected_asset_check_keys]
    return [spec.metadata[UNIQUE_ID].split(".")[2] for spec in (*specs, *checks)]


def results_of(
    context: dg.AssetExecutionContext,
    statuses: Mapping[str, str],
    rows: Mapping[str, str],
    facts: Mapping[str, Mapping[str, Any]],
) -> Iterator[dg.MaterializeResult[None] | dg.AssetCheckResult]:
    """A result per selected asset that was built and per selected check that ran.

    `statuses` is dbt's word for each node by its unique id, in the order in which dbt built them, on which Dagster
    insists; `rows` is what a failed test found, or why one could not run: then it fails, whatever its severity.
    `facts` is what is known of a node besides.
    """
    keys = {spec.metadata[UNIQUE_ID]: spec.key for spec in context.assets_def.specs}
    checks = {spec.metadata[UNIQUE_ID]: spec for spec in context.assets_def.check_specs}
    for name, status in statuses.items():
        if keys.get(name) in context.selected_asset_keys and status == "success":
            yield dg.MaterializeResult(asset_key=keys[name], metadata=facts.get(name))
        check = checks.get(name)
        if check is None or status not in ("pass", FAILED, WARNED, *ERRORS):
            continue
        if check.key in context.selected_asset_check_keys:
            yield dg.AssetCheckResult(
                asset_key=check.asset_key,
                check_name=check.name,
                passed=status == "pass",
                severity=dg.AssetCheckSeverity.WARN if status == WARNED else dg.AssetCheckSeverity.ERROR,
                description=rows.get(name),
                metadata={
                    "status": status,
                    **({"rows_found": 0} if status == "pass" else {}),
                    **({"expected": check.metadata["expected"]} if "expected" in check.metadata else {}),
                    **facts.get(name, {}),
                },
            )


def facts_of(
    connection: duckdb.DuckDBPyConnection,
    marts: Mapping[str, Mart],
    seconds: Mapping[str, float | None],
    first: date,
    end: date,
) -> dict[str, dict[str, Any]]:
    """Of each model that was booked for [first, end) and is one of `marts`: its rows, of these dates where each run
    replaces them and all otherwise, and the seconds that dbt took. `seconds` is by unique id."""
    built = {name: marts[table] for name in seconds if (table := name.rpartition(".")[2]) in marts}
    if not built:
        return {}
    # One statement for all: 0.1 s on the demo.
    counts = ", ".join(
        f"(select count(*) from marts.{name.rpartition('.')[2]}"
        f"{' where date >= $first and date < $end' if mart.is_dated else ''})"
        for name, mart in built.items()
    )
    counted = connection.execute(f"select {counts}, $first, $end", {"first": first, "end": end}).fetchall()[0]
    dates = f"{first} to {end - timedelta(days=1)}"
    return {
        name: {
            **({"rows": rows, "dates": dates} if mart.is_dated else {"dagster/row_count": rows}),
            **({"seconds": round(took, 3)} if (took := seconds[name]) is not None else {}),
        }
        for (name, mart), rows in zip(built.items(), counted, strict=False)
    }


def unchanged_digests(results: Sequence[Any]) -> dict[str, str]:
    """Unique id of each model that kept its rows -> the digest of what they were made from. It is the model's message
    (materializations.sql)."""
    messages = {one.node.unique_id: str(one.message or "").partition(" ") for one in results}
    return {name: digest for name, (word, _, digest) in messages.items() if word == UNCHANGED}


def rows_found(connection: duckdb.DuckDBPyConnection, test: Any) -> tuple[str, dict[str, Any]]:
    """What a failed data test found, as `findings` reports it, and as facts. `test` is its compiled node; what was
    expected and what to do are in its meta."""
    found = connection.execute(
        f"select *, count(*) over () as rows_in_all from ({test.compiled_code}) order by all limit {findings.SHOWN}"
    )
    names = [column[0] for column in found.description][:-1]
    rows = found.fetchall()
    lines = [findings.row(names, row[:-1]) for row in rows]
    meta = test.config.meta
    total = rows[0][-1] if rows else 0
    facts = {
        "rows_found": total,
        "rows": dg.MarkdownMetadataValue(findings.markdown(names, [row[:-1] for row in rows])),
    }
    if not rows:
        return "no row any more: what it found is of dates that are held back now, in schema held_back", facts
    return findings.report(lines, total, meta.get("expected", ""), meta.get("remedy", "")), facts


def is_error(result: Any) -> bool:
    """Whether dbt could not run a model or a test."""
    return str(result.status) in ERRORS


def errors_of(results: Sequence[Any]) -> str:
    """The models and tests that dbt could not run, with DuckDB's message. Empty where every model was built: a data
    test that cannot run is a failed check, and keeps nothing from readers."""
    wrong = [one for one in results if is_error(one)]
    if not any(one.node.resource_type != "test" and (is_error(one) or str(one.status) == "skipped") for one in results):
        return ""
    lines = [f"{one.node.name}: {' '.join((one.message or '').split())}" for one in wrong[:SHOWN_ERRORS]]
    more = f" (and {len(wrong) - SHOWN_ERRORS} more)" if len(wrong) > SHOWN_ERRORS else ""
    return f"dbt could not build {'; '.join(lines)}{more}" if wrong else ""
