"""Price lists of models from files: LiteLLM's JSON shape, and CSV in this project's own columns.

Add a shape here when another list is worth reading. Keep out which price a model of the fleet is compared with: SQL.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from collectors.samples import SourceError

PRICES = ("input_usd_per_mtok", "cached_input_usd_per_mtok", "output_usd_per_mtok")
PRICE_SCHEMA = pa.schema([("model", pa.string()), ("provider", pa.string()), *((p, pa.float64()) for p in PRICES)])
# The dearest chat model of 2025 cost 600 USD per million tokens; far above it a price is in another unit.
POSSIBLE_USD_PER_MTOK = 10_000
FILE_LIMIT_BYTES = 64 << 20

# LiteLLM lists embeddings, images and speech beside them, whose tokens are not the ledger's.
_LITELLM_MODES = frozenset({"chat", "completion", "responses"})
_LITELLM_EXAMPLE = "sample_spec"
_LITELLM_COSTS = ("input_cost_per_token", "cache_read_input_token_cost", "output_cost_per_token")


@dataclass(frozen=True)
class PriceList:
    """`prices` has PRICE_SCHEMA, a row per model, NULL where the list states no price; `rejects` counts by reason."""

    prices: pa.Table
    rejects: Mapping[str, int]


def read_price_list(path: str) -> PriceList:
    """The list in a .json file of LiteLLM's shape or a .csv file; SourceError where it is neither or breaks off.

    CSV has the columns model, input_usd_per_mtok, output_usd_per_mtok and, optionally, provider and
    cached_input_usd_per_mtok. LiteLLM's `input_cost_per_token` and its kin are USD per single token.
    """
    try:
        if Path(path).stat().st_size > FILE_LIMIT_BYTES:
            raise SourceError(path, None, f"is over {FILE_LIMIT_BYTES} bytes")
        if path.endswith(".json"):
            return _validated(_litellm_rows(path))
        if path.endswith(".csv"):
            return _validated(_csv_rows(path))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise SourceError(path, None, f"cannot be read: {getattr(error, 'strerror', None) or error}") from error
    raise SourceError(path, None, "not a .json or .csv file")


def _litellm_rows(path: str) -> Iterable[dict[str, Any]]:
    try:
        listed = orjson.loads(Path(path).read_bytes())
    except orjson.JSONDecodeError as error:
        raise SourceError(path, None, f"is not JSON, or breaks off: {error}") from error
    if not isinstance(listed, dict) or not any(
        isinstance(m, dict) and "litellm_provider" in m for m in listed.values()
    ):
        raise SourceError(path, None, "is not LiteLLM's list of prices: expected {model: {litellm_provider, mode, …}}")
    for model, facts in listed.items():
        if model != _LITELLM_EXAMPLE and isinstance(facts, dict) and facts.get("mode") in _LITELLM_MODES:
            costs = dict(zip(PRICES, (facts.get(cost) for cost in _LITELLM_COSTS), strict=True))
            yield {"model": model, "provider": facts.get("litellm_provider"), "per": 1e6, **costs}


def _csv_rows(path: str) -> Iterable[dict[str, Any]]:
    with Path(path).open(newline="", encoding="utf-8-sig") as lines:
        reader = csv.DictReader(lines)
        needed = {"model", "input_usd_per_mtok", "output_usd_per_mtok"}
        present = reader.fieldnames or []
        if not needed <= set(present):
            raise SourceError(path, None, f"no column {sorted(needed - set(present))}; there are {present}")
        yield from ({name: value or None for name, value in row.items() if name} for row in reader)


def _validated(rows: Iterable[Mapping[str, Any]]) -> PriceList:
    """A row with an impossible price is rejected whole: half a price would read like a cheap model."""
    kept: dict[str, dict[str, Any]] = {}
    rejects: Counter[str] = Counter()
    for row in rows:
        prices = {price: _usd(row.get(price), row.get("per", 1.0)) for price in PRICES}
        if not isinstance(row.get("model"), str):
            rejects["without a model"] += 1
        elif any(p is not None and not 0 <= p <= POSSIBLE_USD_PER_MTOK for p in prices.values()):
            rejects[f"outside 0 to {POSSIBLE_USD_PER_MTOK} USD per million tokens"] += 1
        elif row["model"] in kept:
            rejects["repeated"] += 1
        elif any(price is not None for price in prices.values()):
            provider = row.get("provider")
            kept[row["model"]] = {"model": row["model"], "provider": None if provider is None else str(provider)}
            kept[row["model"]] |= prices
    return PriceList(pa.Table.from_pylist(list(kept.values()), PRICE_SCHEMA), rejects)


def _usd(stated: Any, per: float) -> float | None:
    """USD per million tokens; NaN where the price is not a number."""
    if stated is None:
        return None
    try:
        price = math.nan if isinstance(stated, bool) else float(stated) * per
    except (TypeError, ValueError):
        return math.nan
    # 3e-07 × 1e6 is 0.3 and not 0.30000000000000004: a price has no more digits than these.
    return round(price, 9) if math.isfinite(price) else math.nan
