"""The receipt of one logged request, by its id.

Add here what is found of a request. Keep out what a receipt is: that is SQL (dbt_project/models/receipts).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from pipelines.fleet.fleet_file import Fleet
from pipelines.named_figures import figures_in_doubt
from pipelines.receipts import receipt_files
from pipelines.receipts.tenant_statement import MONTH_STATUS
from pipelines.warehouse import database
from pipelines.warehouse.refusals import QuestionError


def receipts_of(fleet: Fleet, request_id: str) -> list[Mapping[str, Any]]:
    """The receipts of a request, by column, as JSON has them: one, or one for each log and date that has the id. The
    tenant's name is joined; an erased one is its key. The full cost is of the publication.
    QuestionError where there is none."""
    dates = receipt_files.dates_of(fleet)
    if not dates:
        raise QuestionError(
            f"fleet {fleet.fleet} keeps no receipts: set receipts: {{keep: true}} in {fleet.path}, then run"
        )
    with closing(database.connect(":memory:")) as connection:
        receipt_files.attach(connection, fleet)
        cursor = connection.execute(
            "select * from receipts.request_receipts where request_id = ? order by started_at, source", [request_id]
        )
        names = [str(one[0]) for one in cursor.description or ()]
        found = [dict(zip(names, map(_plain, row), strict=True)) for row in cursor.fetchall()]
    if not found:
        raise QuestionError(f"no receipt of {request_id!r}: there are receipts of {dates[0]} to {dates[-1]}")
    tenants = _names(fleet)
    return [
        {
            **receipt,
            "tenant": tenants.get(receipt["tenant"], receipt["tenant"]),
            **_full_cost(fleet, receipt),
            "in_doubt": _reasons(fleet, receipt),
        }
        for receipt in found
    ]


def _names(fleet: Fleet) -> dict[str, str]:
    with closing(database.connect(fleet.warehouse, read_only=True)) as connection:
        rows = connection.execute("select tenant_key, tenant from raw.tenant_names where tenant is not null").fetchall()
    return dict(rows)


def _full_cost(fleet: Fleet, receipt: Mapping[str, Any]) -> dict[str, Any]:
    """What the request costs with all that its month costs: its compute cost and its part of idleness, times what the
    model's month costs fully loaded over what it computes for. Unknown before the month is published, and where a
    price of it is unknown. `full_cost_status` is the month's, in the worst state of its sites."""
    month = date.fromisoformat(receipt["started_at"][:10]).replace(day=1)
    ratio, status = None, None
    if fleet.snapshot.exists():
        with closing(database.connect(fleet.snapshot, read_only=True)) as published:
            ((ratio,),) = published.execute(
                "select (full_usd / nullif(compute_usd, 0))::double from"
                " (select case when bool_and(is_cost_complete) then sum(known_cost_usd) end as full_usd"
                " from finance.cost where month = $1 and model = $2 and ($3 is null or site = $3)),"
                " (select sum(compute_cost_usd) as compute_usd from marts.model_monthly"
                " where month = $1 and model = $2 and ($3 is null or site = $3))",
                [month, receipt["model"], receipt["site"]],
            ).fetchall()
            ((status,),) = published.execute(
                f"select {MONTH_STATUS} from finance.months where month = $1 and ($2 is null or site = $2)",
                [month, receipt["site"]],
            ).fetchall()
    own, idle = receipt["compute_cost_usd"], receipt["idle_compute_cost_usd"]
    known = None not in (own, idle, ratio)
    return {
        "full_cost_usd": (own + idle) * ratio if known else None,
        "full_cost_ratio": ratio,
        "full_cost_status": status if ratio is not None else None,
    }


def _reasons(fleet: Fleet, receipt: Mapping[str, Any]) -> list[str]:
    """Why the figures of its model, site and date are in doubt, as published."""
    if not fleet.snapshot.exists():
        return []
    of_date = "(from marts.model_daily where date = $1 and model = $2 and ($3 is null or site = $3))"
    given = [receipt["started_at"][:10], receipt["model"], receipt["site"]]
    with closing(database.connect(fleet.snapshot, read_only=True)) as published:
        in_doubt = figures_in_doubt.of_models(published, of_date, given)
    return [reason for doubt in in_doubt.values() for reason in doubt.reasons]


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return float(value)
    return value.isoformat() if isinstance(value, date | datetime) else value
