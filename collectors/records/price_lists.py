"""Price lists of models from files: LiteLLM's JSON shape, and CSV in this project's own columns.

Add a shape here when another list is worth reading. Keep out which price a model of the fleet is compared with: SQL.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from collectors.cells import shown
from collectors.rows import BAD_ROWS_RATIO, Reject, Rejects, number_of, readable
from collectors.samples import SourceError
from collectors.text_files import csv_rows, document

PRICES = ("input_usd_per_mtok", "cached_input_usd_per_mtok", "output_usd_per_mtok")
PRICE_SCHEMA = pa.schema([("model", pa.string()), ("provider", pa.string()), *((p, pa.float64()) for p in PRICES)])
# The dearest chat model of 2025 cost 600 USD per million tokens; far above it a price is in another unit.
POSSIBLE_USD_PER_MTOK = 10_000
FILE_LIMIT_BYTES = 64 << 20
TEXT_CHARACTERS = 1_000

# LiteLLM lists embeddings, images and speech beside them, whose tokens are not the ledger's.
_LITELLM_MODES = frozenset({"chat", "completion", "responses"})
_LITELLM_EXAMPLE = "sample_spec"
_LITELLM_COSTS = ("input_cost_per_token", "cache_read_input_token_cost", "output_cost_per_token")


@dataclass
class PriceList:
    """`prices` has PRICE_SCHEMA, a row per model, NULL where the list states no price; `rejects` are its other rows."""

    prices: pa.Table
    rejects: Rejects


def read_price_list(path: str, bad_rows_ratio: float = BAD_ROWS_RATIO) -> PriceList:
    """The list in a .json file of LiteLLM's shape or a .csv file; SourceError where it is neither, or too many of its
    rows are not possible.

    CSV has the columns model, input_usd_per_mtok, output_usd_per_mtok and, optionally, provider and
    cached_input_usd_per_mtok. LiteLLM's `input_cost_per_token` and its kin are USD per single token.
    """
    rejects = Rejects(bad_rows_ratio)
    try:
        if Path(path).stat().st_size > FILE_LIMIT_BYTES:
            raise SourceError(path, None, f"is over {FILE_LIMIT_BYTES} bytes")
    except OSError as error:
        raise SourceError(path, None, f"cannot be read: {error.strerror or error}") from error
    if path.endswith(".json"):
        rows = _litellm_rows(path)
    elif path.endswith(".csv"):
        rows = _csv_rows(path, rejects)
    else:
        raise SourceError(path, None, "not a .json or .csv file")
    kept: dict[str, dict[str, Any]] = {}
    prices = list(readable(rows, partial(_price, kept), rejects))
    rejects.check(path)
    return PriceList(pa.Table.from_pylist([price for price in prices if price], PRICE_SCHEMA), rejects)


def _litellm_rows(path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    listed = document(path)
    if not isinstance(listed, dict) or not any(
        isinstance(m, dict) and "litellm_provider" in m for m in listed.values()
    ):
        raise SourceError(path, None, "is not LiteLLM's list of prices: expected {model: {litellm_provider, mode, …}}")
    return (
        (f"{path}: {shown(model)}", _litellm_row(model, facts))
        for model, facts in listed.items()
        if model != _LITELLM_EXAMPLE and isinstance(facts, dict) and _is_chat(facts.get("mode"))
    )


def _is_chat(mode: Any) -> bool:
    return isinstance(mode, str) and mode in _LITELLM_MODES


def _litellm_row(model: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    costs = dict(zip(PRICES, (facts.get(cost) for cost in _LITELLM_COSTS), strict=True))
    return {"model": model, "provider": facts.get("litellm_provider"), "per": 1e6, **costs}


def _csv_rows(path: str, rejects: Rejects) -> Iterator[tuple[str, Mapping[str, Any]]]:
    columns, rows = csv_rows(path, rejects)
    needed = {"model", "input_usd_per_mtok", "output_usd_per_mtok"}
    if not needed <= set(columns):
        reason = (
            rejects.first[0] if rejects.first else f"no column {sorted(needed - set(columns))}; there are {columns}"
        )
        raise SourceError(path, None, reason[:500])
    return ((place, {name: value or None for name, value in row.items() if name}) for place, row in rows)


def _price(kept: dict[str, dict[str, Any]], row: Mapping[str, Any]) -> dict[str, Any] | None:
    """A row of PRICE_SCHEMA; None where the list states no price of the model. A row with an impossible price is
    rejected whole: half a price would read like a cheap model."""
    model, provider = row.get("model"), row.get("provider")
    if not isinstance(model, str) or not 0 < len(model) <= TEXT_CHARACTERS:
        raise Reject(f"model: got {shown(model)}, expected a name of at most {TEXT_CHARACTERS:,} characters")
    if provider is not None and (not isinstance(provider, str) or len(provider) > TEXT_CHARACTERS):
        raise Reject(f"provider: got {shown(provider)}, expected a name of at most {TEXT_CHARACTERS:,} characters")
    prices = {price: _usd(price, row.get(price), row.get("per", 1.0)) for price in PRICES}
    if model in kept:
        raise Reject(f"{shown(model)} is there already")
    if all(price is None for price in prices.values()):
        return None
    kept[model] = {"model": model, "provider": provider, **prices}
    return kept[model]


def _usd(name: str, stated: Any, per: float) -> float | None:
    """USD per million tokens; Reject where that is no possible price."""
    if stated is None:
        return None
    price = math.nan
    if isinstance(stated, str):
        with suppress(ValueError):
            price = number_of(stated) * per
    elif isinstance(stated, int | float) and not isinstance(stated, bool):
        price = stated * per
    if not 0 <= price <= POSSIBLE_USD_PER_MTOK:
        raise Reject(f"{name}: got {shown(stated)}, expected 0 to {POSSIBLE_USD_PER_MTOK} USD per million tokens")
    # 3e-07 × 1e6 is 0.3 and not 0.30000000000000004: a price has no more digits than these.
    return round(float(price), 9)
