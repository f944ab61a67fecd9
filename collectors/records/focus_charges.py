"""Charges of a provider's own FOCUS export, 1.0 to 1.2: CSV, gzipped CSV or Parquet.

Add here how a version of FOCUS writes a charge. Keep out which charges are those of a fleet and what they add up to:
that is `pipelines.fleet.money.focus_exports`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from collectors.cells import shown
from collectors.rows import Reject, Rejects, number_of, readable
from collectors.samples import SourceError
from collectors.text_files import csv_rows, is_parquet

# What of a folder is an export.
FILES = re.compile(r"\.(csv|csv\.gz|parquet)$")
NEEDED = (
    *("BilledCost", "BillingAccountId", "BillingCurrency", "BillingPeriodEnd", "BillingPeriodStart"),
    *("ChargeCategory", "ChargePeriodEnd", "ChargePeriodStart", "EffectiveCost", "PricingQuantity", "PricingUnit"),
    "SkuId",
)
OPTIONAL = (
    *("ChargeClass", "CommitmentDiscountId", "ConsumedQuantity", "ConsumedUnit", "InvoiceId", "SubAccountId", "Tags"),
)
# Columns that only another version has, with that version.
_OTHER_VERSIONS = {"ServiceProviderName": "1.3 or later", "HostProviderName": "1.3 or later", "ChargeType": "0.5"}
# Above any charge of a site; what is larger is no amount.
MOST = Decimal(1_000_000_000_000)
BATCH_ROWS = 1 << 14

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Charge:
    """A row of an export. Amounts are in `currency`; `quantities` are what was consumed and what was priced, each with
    its unit, such as (100, `Hours`) and (1, `100 Hours`); most credits and taxes have none."""

    billing_account: str
    billing_start: datetime
    billing_end: datetime
    start: datetime
    end: datetime
    category: str
    is_correction: bool
    currency: str
    billed: Decimal
    effective: Decimal
    sku: str | None
    quantities: tuple[tuple[Decimal, str], ...]
    commitment: str | None
    invoice: str | None


def charges(
    path: str, more_columns: frozenset[str], chosen: Callable[[Row], bool], rejects: Rejects
) -> Iterator[Charge]:
    """The charges of a file that are `chosen`; a row that is none is a reject, with its column and value.

    `more_columns` are those that `chosen` reads beside FOCUS' own. SourceError where a column is missing, or the file
    is of another version of FOCUS.
    """
    columns, rows = _parquet(path, more_columns) if is_parquet(path) else csv_rows(path, rejects)
    missing = sorted({*NEEDED, *more_columns} - {*columns})
    for column, version in _OTHER_VERSIONS.items():
        if column in columns and (missing or version != "0.5"):
            fix = "Export FOCUS 1.0, 1.1 or 1.2"
            raise SourceError(path, None, f"is FOCUS {version} (column {column}), expected 1.0 to 1.2. {fix}")
    if missing:
        raise SourceError(path, None, f"no column {', '.join(missing)}; there are {', '.join(columns) or 'none'}"[:500])
    return readable(((place, row) for place, row in rows if chosen(row)), _charge, rejects)


def tags_of(row: Row) -> Mapping[str, Any]:
    """The tags of a row; none where they are no JSON object."""
    stated = row.get("Tags") or {}
    if isinstance(stated, list):  # a Parquet map
        return dict(stated)
    if isinstance(stated, str):
        try:
            stated = orjson.loads(stated)
        except orjson.JSONDecodeError:
            return {}
    return stated if isinstance(stated, dict) else {}


def text_of(row: Row, column: str) -> str | None:
    """The text of a cell, None where it is empty."""
    value = row.get(column)
    stated = "" if value is None else str(value).strip()
    return None if stated in ("", "NULL", "null") else stated


def _charge(row: Row) -> Charge:
    counted = [
        (quantity, text_of(row, f"{kind}Unit") or "")
        for kind in ("Consumed", "Pricing")
        if (quantity := _number(row, f"{kind}Quantity")) is not None
    ]
    return Charge(
        billing_account=_needed(row, "BillingAccountId"),
        billing_start=_time(row, "BillingPeriodStart"),
        billing_end=_time(row, "BillingPeriodEnd"),
        start=_time(row, "ChargePeriodStart"),
        end=_time(row, "ChargePeriodEnd"),
        category=_needed(row, "ChargeCategory"),
        is_correction=text_of(row, "ChargeClass") == "Correction",
        currency=_needed(row, "BillingCurrency"),
        billed=_amount(row, "BilledCost"),
        effective=_amount(row, "EffectiveCost"),
        sku=text_of(row, "SkuId"),
        quantities=tuple(counted),
        commitment=text_of(row, "CommitmentDiscountId"),
        invoice=text_of(row, "InvoiceId"),
    )


def _needed(row: Row, column: str) -> str:
    stated = text_of(row, column)
    if stated is None:
        raise Reject(f"{column}: is empty, expected a value")
    return stated


def _amount(row: Row, column: str) -> Decimal:
    amount = _number(row, column)
    if amount is None:
        raise Reject(f"{column}: is empty, expected an amount")
    return amount


def _number(row: Row, column: str) -> Decimal | None:
    stated = text_of(row, column)
    if stated is None:
        return None
    try:
        number_of(stated)
    except ValueError:
        raise Reject(f"{column}: got {shown(stated)}, expected a number") from None
    number = Decimal(stated)
    if abs(number) > MOST:
        raise Reject(f"{column}: got {shown(stated)}, expected at most {MOST:,}")
    return number


def _time(row: Row, column: str) -> datetime:
    """A time; without an offset it is UTC, as FOCUS has all of them."""
    stated = row.get(column)
    if not isinstance(stated, datetime):
        try:
            stated = datetime.fromisoformat(_needed(row, column))
        except ValueError:
            raise Reject(f"{column}: got {shown(stated)}, expected an ISO time such as 2026-10-01T00:00:00Z") from None
    return stated.replace(tzinfo=UTC) if stated.tzinfo is None else stated.astimezone(UTC)


def _parquet(path: str, more_columns: frozenset[str]) -> tuple[list[str], Iterator[tuple[str, Row]]]:
    try:
        file = pq.ParquetFile(path)
    except (OSError, pa.ArrowException) as error:
        raise SourceError(path, None, f"cannot be read: {error}"[:500]) from error
    columns = list(file.schema_arrow.names)
    wanted = [name for name in columns if name in {*NEEDED, *OPTIONAL, *more_columns}]
    return columns, _parquet_rows(path, file, wanted)


def _parquet_rows(path: str, file: pq.ParquetFile, wanted: list[str]) -> Iterator[tuple[str, Row]]:
    number = 0
    try:
        for batch in file.iter_batches(BATCH_ROWS, columns=wanted):
            for row in batch.to_pylist():
                number += 1
                yield f"{path}: row {number}", row
    except (OSError, pa.ArrowException) as error:
        raise SourceError(path, None, f"cannot be read from row {number} on: {error}"[:500]) from error
