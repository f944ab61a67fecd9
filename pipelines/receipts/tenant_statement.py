"""What one tenant used and pays for in a month, as the publication has it, and how that was measured.

Add here what a statement states. Keep out how it looks: the terminal's is `receipt_command`, the page is
`pipelines.report.statement_page`. The figures are those of finance.chargeback (dbt_project/models/finance).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import duckdb

from pipelines.fleet.fleet_file import Fleet
from pipelines.named_figures import figures_in_doubt
from pipelines.named_figures.figures_in_doubt import InDoubt
from pipelines.warehouse import database
from pipelines.warehouse.refusals import QuestionError, nothing_published

# Columns of finance.chargeback that are summed over sites and payers; the second part is the operator's own business.
FIGURES = (
    "requests", "input_tokens", "cached_input_tokens", "output_tokens", "facility_energy_kwh",
    "facility_energy_kwh_low", "facility_energy_kwh_high", "location_kgco2e", "location_kgco2e_low",
    "location_kgco2e_high", "market_kgco2e", "revenue_usd",
)  # fmt: skip
INTERNAL = ("closed_cost_usd", "known_cost_usd", "margin_usd")
# Of rows of finance.months: the state of the month that is furthest from being over.
MONTH_STATUS = (
    "case when bool_or(status = 'open') then 'open' when bool_or(status = 'adjusted') then 'adjusted'"
    " when count(*) > 0 then 'closed' end"
)
STATEMENTS = "statements"  # below the fleet's folder


@dataclass(frozen=True)
class Statement:
    """A tenant's month. `models` has the figures of each model, `whole` their sums: unknown where one is."""

    fleet: str
    is_synthetic: bool
    publication_id: str
    month: date
    status: str
    booked_ratio: float | None
    tenant: str
    tenant_key: str
    models: Mapping[str, Mapping[str, float | None]]
    whole: Mapping[str, float | None]
    metered_ratio: float | None
    interval_level: float | None
    has_internal: bool
    in_doubt: Mapping[str, InDoubt] = field(default_factory=dict)

    @property
    def file_name(self) -> str:
        """Of the page: it has the key, so that an erasure finds it."""
        return f"{self.tenant_key}_{self.month:%Y-%m}.html"

    def as_json(self) -> dict[str, Any]:
        """The statement for programs; an unknown figure is null."""
        return {
            "fleet": self.fleet,
            "is_synthetic": self.is_synthetic,
            "publication_id": self.publication_id,
            "month": f"{self.month:%Y-%m}",
            "status": self.status,
            "booked_ratio": self.booked_ratio,
            "tenant": self.tenant,
            "tenant_key": self.tenant_key,
            "metered_ratio": self.metered_ratio,
            "interval_level": self.interval_level,
            "total": dict(self.whole),
            "models": [{"model": model, **figures} for model, figures in self.models.items()],
            "in_doubt": {model: doubt.reasons for model, doubt in self.in_doubt.items()},
        }


def statement_of(fleet: Fleet, tenant: str, month: date, *, has_internal: bool = False) -> Statement:
    """The statement of a tenant, by its name or key; QuestionError where the month has none. With `has_internal` also
    what it cost and the margin."""
    if not fleet.snapshot.exists():
        raise nothing_published(fleet.fleet, fleet.path)
    names = (*FIGURES, *(INTERNAL if has_internal else ()))
    with closing(database.connect(fleet.snapshot, read_only=True)) as connection:
        if "tenant_key" not in _columns(connection):
            raise QuestionError("the publication is of an older version. Run first")
        found = connection.execute(
            "select distinct tenant, tenant_key from finance.chargeback where $1 in (tenant, tenant_key)", [tenant]
        ).fetchall()
        if not found:
            listed = connection.execute(
                "select distinct tenant from finance.chargeback where month = ? and requests > 0"
                " order by tenant limit 9",
                [month],
            ).fetchall()
            there = ", ".join(repr(name) for (name,) in listed) or "none"
            raise QuestionError(f"no tenant {tenant!r} is published; {month:%Y-%m} has {there}")
        ((name, key),) = found
        rows = connection.execute(
            f"select model, {', '.join(_sum(column) for column in names)} from finance.chargeback"
            " where tenant_key = ? and month = ? group by model order by sum(output_tokens) desc nulls last, model",
            [key, month],
        ).fetchall()
        if not rows:
            raise QuestionError(f"tenant {name!r} has nothing in {month:%Y-%m}")
        whole = connection.execute(
            f"select {', '.join(_sum(column) for column in names)} from finance.chargeback"
            " where tenant_key = ? and month = ?",
            [key, month],
        ).fetchall()[0]
        ((status, booked_ratio),) = connection.execute(
            f"select {MONTH_STATUS}, sum(booked_hours) / sum(month_hours) from finance.months where month = ?",
            [month],
        ).fetchall()
        ((metered_ratio, level),) = connection.execute(
            "select sum(metered_ratio * value) / sum(value), max(interval_level) from marts.figure_intervals"
            " where month = ? and figure = 'facility_energy_kwh' and site <> '__all__' and meter_scope = '__all__'"
            " and list_contains(?, model)",
            [month, [model for model, *_ in rows]],
        ).fetchall()
        of_month = "(from marts.model_monthly where month = ? and list_contains(?, model))"
        in_doubt = figures_in_doubt.of_models(connection, of_month, [month, [model for model, *_ in rows]])
        ((made, is_synthetic),) = connection.execute(
            "select publication_id, is_synthetic from published.publication"
        ).fetchall()
    return Statement(
        fleet.fleet,
        is_synthetic,
        made,
        month,
        status,
        booked_ratio,
        name,
        key,
        {model: dict(zip(names, amounts, strict=True)) for model, *amounts in rows},
        dict(zip(names, whole, strict=True)),
        metered_ratio,
        level,
        has_internal,
        in_doubt,
    )


def folder_of(fleet: Fleet) -> Path:
    """Where the fleet's statements are written, and where an erasure looks for them."""
    return fleet.root / STATEMENTS


def _columns(connection: duckdb.DuckDBPyConnection) -> set[str]:
    rows = connection.execute(
        "select column_name from duckdb_columns() where schema_name = 'finance' and table_name = 'chargeback'"
    ).fetchall()
    return {name for (name,) in rows}


def _sum(column: str) -> str:
    """Unknown where it is of a row."""
    return f"case when count({column}) = count(*) then sum({column}) end::double as {column}"
