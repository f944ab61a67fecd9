"""What was invoiced: bills and credits of a site, written into the fleet file or read from its CSV files.

Add a key here for what an invoice states. A kind of bill is a row of the seed `bill_kinds`. Keep out which parts of the
cost a kind pays for and how an amount is spread over dates: SQL.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, AwareDatetime, Field, ValidationError, model_validator

from collectors.cells import shown
from collectors.rows import Reject, Rejects, number_of, readable
from collectors.samples import SourceError
from collectors.text_files import csv_rows
from pipelines.fleet.catalog import SEEDS
from pipelines.fleet.fleet_errors import mistake_of_a_row
from pipelines.fleet.source_limits import RowLimits
from pipelines.fleet.values import FleetPath, Name, Number, Part, Positive


@cache
def kinds(seeds: Path = SEEDS) -> tuple[str, ...]:
    """The kinds of bills that the seed knows."""
    with (seeds / "bill_kinds.csv").open(newline="", encoding="utf-8") as lines:
        return tuple(sorted({row["kind"] for row in csv.DictReader(lines)}))


def known_kind(kind: str) -> str:
    """The kind; ValueError where the seed does not have it."""
    if kind not in kinds():
        raise ValueError(f"expected one of {', '.join(kinds())}")
    return kind


class Bill(Part):
    """An amount for what a site used in [start_at, end_at); negative where it is a credit.

    `usd`, or `amount` in another currency with `usd_per_unit`, what one unit of it is in USD.
    """

    site: Name
    kind: Annotated[Name, AfterValidator(known_kind)]
    start_at: AwareDatetime
    end_at: AwareDatetime
    usd: Number | None = None
    amount: Number | None = None
    currency: Name = "USD"
    usd_per_unit: Positive | None = None
    invoice: Name | None = None

    @model_validator(mode="after")
    def _forward(self) -> Bill:
        if self.end_at <= self.start_at:
            raise ValueError(f"end_at: got {self.end_at}, expected a time after start_at {self.start_at}")
        return self

    @model_validator(mode="after")
    def _in_dollars(self) -> Bill:
        if (self.usd is None) == (self.amount is None):
            raise ValueError("expected either usd, or amount with its currency")
        if self.currency != "USD" and self.amount is None:
            raise ValueError(f"currency: got {self.currency!r} of usd, expected the sum as amount, with usd_per_unit")
        if self.currency != "USD" and self.usd_per_unit is None:
            raise ValueError(
                f"currency: got {self.currency!r} without a rate, expected USD, or usd_per_unit:"
                f" what one {self.currency} is in USD"
            )
        if self.currency == "USD" and self.usd_per_unit not in (None, 1.0):
            raise ValueError(f"usd_per_unit: got {self.usd_per_unit} of USD, expected the currency that it converts")
        return self

    def row(self, source: str) -> dict[str, Any]:
        """The bill as a row of raw.bills."""
        amount = self.usd if self.amount is None else self.amount
        usd = amount if amount is None or self.usd_per_unit is None else amount * self.usd_per_unit
        return {**self.model_dump(), "amount": amount, "usd": usd, "source": source}


# Above the yearly bill of any site, in any currency; what is larger is not an amount.
MOST_USD = 1_000_000_000_000
_NUMBERS = frozenset({"usd", "amount", "usd_per_unit"})
_NEEDED = frozenset({"site", "kind", "start_at", "end_at"})


class BillFile(Part):
    """A CSV of bills. `columns` maps the keys of a bill to the file's columns; without it they have the same names.

    `usd_per_unit` is the rate of the rows that state none and are not in USD.
    """

    path: FleetPath
    columns: dict[str, str] = Field(default_factory=dict)
    usd_per_unit: Positive | None = None
    limits: RowLimits = RowLimits()

    @model_validator(mode="after")
    def _of_a_bill(self) -> BillFile:
        for key in self.columns:
            if key not in Bill.model_fields:
                raise ValueError(
                    f"columns: got {key!r}, expected {{key: column}} with one of {list(Bill.model_fields)}"
                )
        return self

    def bills(self, path: str, sites: Collection[str], rejects: Rejects) -> Iterator[Bill]:
        """The bills of one file of this entry; a row that is none is a reject, with its column and value. SourceError
        where a column is missing."""
        there, rows = csv_rows(path, rejects)
        columns = self._columns(path, there)
        return readable(rows, partial(self._bill, columns, sites), rejects)

    def _columns(self, path: str, there: list[str]) -> dict[str, str]:
        columns = self.columns or {key: key for key in Bill.model_fields if key in there}
        missing = sorted({*columns.values()} - {*there}) or sorted(_NEEDED - columns.keys())
        if not missing and not {"usd", "amount"} & columns.keys():
            missing = ["usd or amount"]
        if missing:
            there_are = f"there are {', '.join(there) or 'none'}"
            raise SourceError(path, None, f"no column {', '.join(missing)}; {there_are}"[:500])
        return columns

    def _bill(self, columns: Mapping[str, str], sites: Collection[str], row: Mapping[str, str]) -> Bill:
        stated = {key: row.get(column, "").strip() for key, column in columns.items()}
        values: dict[str, Any] = {key: text for key, text in stated.items() if text}
        for key in _NUMBERS & values.keys():
            try:
                values[key] = float(number_of(values[key]))
            except ValueError:
                raise Reject(f"{key}: got {shown(values[key])}, expected a number") from None
            if abs(values[key]) > MOST_USD:
                raise Reject(f"{key}: got {shown(stated[key])}, expected at most {MOST_USD:,}")
        if values.get("currency", "USD") != "USD" and self.usd_per_unit is not None:
            values.setdefault("usd_per_unit", self.usd_per_unit)
        try:
            bill = Bill.model_validate(values)
        except ValidationError as wrong:
            raise Reject(mistake_of_a_row(wrong)) from None
        if bill.site not in sites:
            raise Reject(f"site: got {shown(bill.site)}, expected one of the sites {sorted(sites)}")
        return bill


class Bills(Part):
    """Invoices and credits; half-open periods."""

    inline: tuple[Bill, ...] = ()
    files: tuple[BillFile, ...] = ()


def bills_of_unknown_sites(bills: Bills, sites: Collection[str]) -> Iterator[str]:
    """A line per inline bill of a site that the fleet file does not have."""
    for n, bill in enumerate(bills.inline):
        if bill.site not in sites:
            yield f"bills.inline[{n}].site: got {bill.site!r}, expected one of the sites {sorted(sites)}"
