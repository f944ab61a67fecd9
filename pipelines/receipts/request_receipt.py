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
from pipelines.receipts import receipt_files
from pipelines.warehouse import database
from pipelines.warehouse.refusals import QuestionError


def receipts_of(fleet: Fleet, request_id: str) -> list[Mapping[str, Any]]:
    """The receipts of a request, by column, as JSON has them: one, or one for each log and date that has the id. The
    tenant's name is joined; an erased one is its key. QuestionError where there is none."""
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
    return [{**receipt, "tenant": tenants.get(receipt["tenant"], receipt["tenant"])} for receipt in found]


def _names(fleet: Fleet) -> dict[str, str]:
    with closing(database.connect(fleet.warehouse, read_only=True)) as connection:
        rows = connection.execute("select tenant_key, tenant from raw.tenant_names where tenant is not null").fetchall()
    return dict(rows)


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return float(value)
    return value.isoformat() if isinstance(value, date | datetime) else value
