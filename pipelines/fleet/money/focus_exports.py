"""A provider's FOCUS export as bills, GPU-hour rates and commitments, so that nothing of it is typed again.

Add here which charges of an export are the fleet's and what they add up to. Keep out how FOCUS writes a charge
(`collectors.records.focus_charges`) and what bills, rates and commitments are used for: SQL.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from collectors.records import focus_charges
from collectors.records.focus_charges import Charge, Row
from collectors.rows import Rejects
from collectors.samples import SourceError
from collectors.text_files import paths_of
from pipelines.fleet.money.bills import Bill, known_kind
from pipelines.fleet.money.cost_rates import CostRate
from pipelines.fleet.source_limits import RowLimits
from pipelines.fleet.values import FleetPath, GivenName, Name, Part, Positive

Read = Literal["bills", "rates", "commitments"]
# Time of an instance with several GPUs, or of one GPU, as providers write it: a block of so many, what it is of, and a
# word of time: `Hours`, `100 Hours`, `1K Hours`, `Instance-Hours`, `Hrs`, `GPU-Hours`, `Seconds`. Any other word, such
# as the vCPU of `vCPU-Hours`, is of something else than a SKU of `skus` is.
_UNIT = re.compile(
    r"(?:(?P<block>\d[\d,]*) ?(?P<thousand>k?) )?(?:(?P<of>[a-z]+)(?:[ /-]+|[ -]per[ -]))?(?P<time>[a-z]+)(?:\(s\))?",
    re.IGNORECASE,
)
_OF_GPU = frozenset({"gpu", "gpus", "accelerator", "accelerators"})
_OF_INSTANCE = frozenset({"", "instance", "instances", "node", "nodes", "vm", "vms", "machine", "host", "server"})
_OF_TIME = {
    **dict.fromkeys(("second", "seconds", "sec", "secs", "s"), Decimal(1) / 3600),
    **dict.fromkeys(("minute", "minutes", "min", "mins"), Decimal(1) / 60),
    **dict.fromkeys(("hour", "hours", "hr", "hrs", "h"), Decimal(1)),
    **dict.fromkeys(("day", "days"), Decimal(24)),
}
_HOUR = timedelta(hours=1)


class Sku(Part):
    """What a SKU of the provider is: so many GPUs of a type for an hour of it."""

    device_type: Name
    gpus: Positive = 1


class FocusExport(Part):
    """Files of FOCUS 1.0 to 1.2 (CSV, gzipped or not, or Parquet; a folder or a glob of them) of what a site rents.

    `skus` names what each SkuId is; with `where` (column: value, such as SubAccountId) and `tags` a row has to agree as
    well. All other rows are counted and left out. `usd_per_unit` is what one unit of a currency is in USD.
    """

    path: FleetPath
    site: GivenName
    skus: dict[Name, Sku] = Field(min_length=1)
    where: dict[Name, Name] = Field(default_factory=dict)
    tags: dict[Name, Name] = Field(default_factory=dict)
    reads: tuple[Read, ...] = Field(default=("bills", "rates", "commitments"), min_length=1)
    kind: Annotated[Name, AfterValidator(known_kind)] = "rental"
    includes_energy: bool = True
    usd_per_unit: dict[Name, Positive] = Field(default_factory=dict)
    limits: RowLimits = RowLimits()

    def figures(self) -> Figures:
        """What the export adds up to. SourceError where a file cannot be read, or holds what cannot be added up."""
        found = Figures(self)
        rejects = Rejects(self.limits.bad_rows_ratio)
        columns = frozenset(self.where) | ({"Tags"} if self.tags else set())
        for path in paths_of(self.path):
            # A folder of a provider also holds manifests.
            if focus_charges.FILES.search(path) or path == self.path:
                for charge in focus_charges.charges(path, columns, found.chooses, rejects):
                    found.add(path, charge)
        rejects.check(self.path)
        found.rejected = str(rejects)
        found.check()
        return found

    def has(self, row: Row) -> bool:
        """Whether a row is of the accounts and tags that the entry states."""
        tags = focus_charges.tags_of(row) if self.tags else {}
        return all(focus_charges.text_of(row, column) == value for column, value in self.where.items()) and all(
            str(tags.get(key)) == value for key, value in self.tags.items()
        )


@dataclass
class _Sum:
    """Hours of GPUs and what they cost effectively in USD, over the time [start, end)."""

    start: datetime
    end: datetime
    gpu_hours: Decimal = Decimal(0)
    effective_usd: Decimal = Decimal(0)

    def add(self, charge: Charge, gpu_hours: Decimal, usd_per_unit: Decimal) -> None:
        self.start, self.end = min(self.start, charge.start), max(self.end, charge.end)
        self.gpu_hours += gpu_hours
        self.effective_usd += charge.effective * usd_per_unit


@dataclass
class Figures:
    """What an export adds up to, while its charges are added."""

    export: FocusExport
    rows: int = 0
    left_out: int = 0
    rejected: str = ""
    _billed: dict[tuple[datetime, datetime, str | None], Decimal] = field(default_factory=lambda: defaultdict(Decimal))
    # Of a commitment whose GPUs are not known yet: what it was bought for, and hours that nothing used.
    _of_commitments: list[tuple[str, Charge]] = field(default_factory=list)
    _paid_by: dict[str, set[tuple[str, float]]] = field(default_factory=lambda: defaultdict(set))
    _rates: dict[tuple[str, datetime], _Sum] = field(default_factory=dict)
    _committed: dict[tuple[str, datetime], _Sum] = field(default_factory=dict)
    _folders: dict[tuple[str, datetime], set[str]] = field(default_factory=lambda: defaultdict(set))

    def chooses(self, row: Row) -> bool:
        """Whether a row may be the fleet's; counts it."""
        self.rows += 1
        is_named = (
            focus_charges.text_of(row, "SkuId") in self.export.skus
            or focus_charges.text_of(row, "CommitmentDiscountId") is not None
        )
        if is_named and self.export.has(row):
            return True
        self.left_out += 1
        return False

    def add(self, path: str, charge: Charge) -> None:
        """Add a chosen charge. SourceError where its currency is not known, or its quantity is no hours."""
        sku = self.export.skus.get(charge.sku or "")
        if sku is None:
            self._of_commitments.append((path, charge))
            return
        if charge.commitment is not None:
            self._paid_by[charge.commitment].add((sku.device_type, sku.gpus))
        self._add(path, charge, sku.device_type, sku.gpus)

    def check(self) -> None:
        """Add what is of the commitments that paid for the fleet's SKUs. SourceError where a commitment pays for
        SKUs of several sizes, or a month is there twice."""
        for commitment, skus in sorted(self._paid_by.items()):
            if len(skus) > 1 and "commitments" in self.export.reads:
                several = " and ".join(f"{gpus:g} {device_type}" for device_type, gpus in sorted(skus))
                fix = "leave commitments out of `reads` and state them under commitments"
                raise SourceError(
                    self.export.path,
                    None,
                    f"commitment {commitment} pays for {several}, expected SKUs of one size: {fix}",
                )
        for path, charge in self._of_commitments:
            skus = self._paid_by.get(charge.commitment or "", set())
            if skus:
                self._add(path, charge, *min(skus))
            else:
                self.left_out += 1
        for (account, month), folders in sorted(self._folders.items()):
            if len(folders) > 1:
                raise SourceError(
                    self.export.path,
                    None,
                    f"billing month {month:%Y-%m} of account {account} is in {' and in '.join(sorted(folders))},"
                    " expected each month in one folder: remove the older export of it",
                )

    def _add(self, path: str, charge: Charge, device_type: str, gpus: float) -> None:
        usd_per_unit = self._usd_per_unit(path, charge.currency)
        self._folders[charge.billing_account, charge.billing_start].add(str(Path(path).parent))
        period = (charge.billing_start, charge.billing_end, charge.invoice)
        self._billed[period] += charge.billed * usd_per_unit
        if charge.category != "Usage" or charge.is_correction or not charge.quantities:
            return
        key = (device_type if charge.commitment is None else charge.commitment, charge.billing_start)
        sums = self._rates if charge.commitment is None else self._committed
        found = sums.setdefault(key, _Sum(charge.start, charge.end))
        found.add(charge, _gpu_hours(path, charge, gpus), usd_per_unit)

    def _usd_per_unit(self, path: str, currency: str) -> Decimal:
        stated = 1.0 if currency == "USD" else self.export.usd_per_unit.get(currency)
        if stated is None:
            known = f"expected USD, or usd_per_unit: {{{currency}: …}}, what one {currency} is in USD"
            raise SourceError(path, None, f"BillingCurrency: got {currency!r} without a rate, {known}")
        return Decimal(str(stated))

    def bills(self) -> Iterator[Bill]:
        """A bill per billing period and invoice."""
        if "bills" in self.export.reads:
            for (start, end, invoice), usd in sorted(self._billed.items(), key=str):
                yield Bill(
                    site=self.export.site,
                    kind=self.export.kind,
                    start_at=start,
                    end_at=end,
                    usd=float(usd),
                    invoice=invoice,
                )

    def rates(self) -> Iterator[dict[str, Any]]:
        """A rate per device type and billing month, as CostRate has them: what hours without a commitment cost
        effectively. It holds until the next month has one."""
        if "rates" not in self.export.reads:
            return
        for (device_type, month), found in sorted(self._rates.items()):
            if found.gpu_hours > 0 and found.effective_usd >= 0:
                yield CostRate(
                    device_type=device_type,
                    usd_per_gpu_hour=round(float(found.effective_usd / found.gpu_hours), 9),
                    includes_energy=self.export.includes_energy,
                    source=f"FOCUS export {month:%Y-%m}",
                    valid_from=month.date(),
                ).row()

    def commitments(self) -> Iterator[dict[str, Any]]:
        """A row of fleet.commitments per commitment and billing month: its GPUs are the mean of its used and unused
        hours, on the dates from its first charge to its last."""
        if "commitments" not in self.export.reads:
            return
        for (commitment, _), found in sorted(self._committed.items()):
            if found.gpu_hours > 0 and found.effective_usd >= 0:
                yield {
                    "commitment": commitment,
                    "site": self.export.site,
                    "device_type": min(self._paid_by[commitment])[0],
                    "gpus": float(found.gpu_hours / Decimal((found.end - found.start) / _HOUR)),
                    "usd_per_gpu_hour": round(float(found.effective_usd / found.gpu_hours), 9),
                    "valid_from": found.start.date(),
                    "valid_to": found.end.date(),
                }

    def __str__(self) -> str:
        """The line that names what was left out; empty where nothing was."""
        if not self.left_out:
            return ""
        return (
            f"{self.export.path}: {self.left_out:,} of {self.rows:,} rows are left out, because they have another SKU,"
            " account or tag than the entry of focus_exports"
        )


def _gpu_hours(path: str, charge: Charge, gpus: float) -> Decimal:
    """Hours of GPUs: of what was consumed, or, where that is counted in something else, of what was priced."""
    for quantity, unit in charge.quantities:
        found = _UNIT.fullmatch(unit.strip())
        hours = _OF_TIME.get(found["time"].lower()) if found else None
        if found is None or hours is None:
            continue
        block = int((found["block"] or "1").replace(",", "")) * (1000 if found["thousand"] else 1)
        of = (found["of"] or "").lower()
        if of in _OF_GPU or of in _OF_INSTANCE:
            return quantity * block * hours * (1 if of in _OF_GPU else Decimal(str(gpus)))
    units = " and ".join(repr(unit) for _, unit in charge.quantities)
    raise SourceError(
        path,
        None,
        f"a SKU of `skus` is counted in {units}, expected time of an instance or of a GPU, such as Hours, 100 Hours,"
        " GPU-Hours or Seconds: leave the SKU out of `skus`, and state what it costs under cost_rates",
    )


def wrong_exports(exports: Collection[FocusExport], sites: Collection[str], stated: Mapping[str, str]) -> Iterator[str]:
    """Exports of a site that the fleet does not have, and device types that the fleet file prices as well (`stated`:
    device type -> the key that states its rate): a line each."""
    priced = dict(stated)
    for n, export in enumerate(exports):
        if export.site not in sites:
            yield f"focus_exports[{n}].site: got {export.site!r}, expected one of the sites {sorted(sites)}"
        if "rates" in export.reads:
            for device_type in sorted({sku.device_type for sku in export.skus.values()}):
                if device_type in priced:
                    yield (
                        f"focus_exports[{n}].skus: prices {device_type}, which {priced[device_type]} prices already,"
                        " expected one rate per device type: leave that out, or `rates` out of `reads`"
                    )
            priced |= {sku.device_type: f"focus_exports[{n}]" for sku in export.skus.values()}
