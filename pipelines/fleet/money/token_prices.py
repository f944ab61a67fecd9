"""What a model's tokens are sold for, and which price list its own cost is compared with: keys of `models` in the fleet
file.

Add here what the fleet file may state about a price of tokens. Keep out how price lists are read
(`collectors.records.price_lists`) and what tokens earn: SQL.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, model_validator

from pipelines.fleet.values import Dated, Name, NonNegative, Part


class ListPrice(Part):
    """Which price a model's own cost is compared with: a list of `prices.files` and the model's name on it."""

    source: Name
    name: Name


class ContractPrice(Dated):
    """USD per million tokens of each class that customers pay by contract; of several entries the newest counts.

    Cached input without a price of its own is charged as computed input. `tenant` has this contract; entries without
    one are for all others.
    """

    tenant: Name | None = None
    input_usd_per_mtok: NonNegative | None = None
    cached_input_usd_per_mtok: NonNegative | None = None
    output_usd_per_mtok: NonNegative | None = None

    @model_validator(mode="after")
    def _of_something(self) -> ContractPrice:
        if self.input_usd_per_mtok is None and self.output_usd_per_mtok is None:
            raise ValueError("expected at least one of input_usd_per_mtok and output_usd_per_mtok")
        return self


def _one_at_a_time(prices: tuple[ContractPrice, ...]) -> tuple[ContractPrice, ...]:
    starts = [(price.tenant, price.valid_from) for price in prices]
    for tenant, start in starts:
        if starts.count((tenant, start)) > 1:
            of = f" of tenant {tenant!r}" if tenant else ""
            raise ValueError(f"got two prices{of} from {start}, expected one from each date")
    return prices


ContractPrices = Annotated[tuple[ContractPrice, ...], AfterValidator(_one_at_a_time)]
