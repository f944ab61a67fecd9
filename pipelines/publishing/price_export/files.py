"""The files of an export: LiteLLM's model_list, Langfuse's models, and a CSV.

Add here the file of another program. Keep out the prices themselves (`prices`). Each file states its date, period and
basis. A price that is not known has no key and no cell, and a line with the reason: 0 would make the tokens free.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import yaml

from collectors.durable_files import opened, write_whole
from collectors.samples import printable
from pipelines.publishing.price_export.prices import ACTUAL, CLASSES, TARGET, Export, Model, is_pattern, notes
from pipelines.publishing.spreadsheet_cells import harmless

# Token class -> what each program calls its price. Langfuse multiplies whatever usage a client sends by the price of
# the same name, and clients name cached input in three ways.
LITELLM_KEYS = {
    "computed_input": "input_cost_per_token",
    "output": "output_cost_per_token",
    "cached_input": "cache_read_input_token_cost",
}
LANGFUSE_KEYS = {
    "computed_input": ("input",),
    "output": ("output",),
    "cached_input": ("input_cached_tokens", "input_cache_read", "cache_read_input_tokens"),
}
# LiteLLM's provider for any server with OpenAI's protocol; its users put their own litellm_params.
PROVIDER = "hosted_vllm"
CSV_COLUMNS = (
    "exported_on",
    "period",
    "start_date",
    "end_date",
    "basis",
    "model",
    "token_class",
    "tokens",
    "utilisation_ratio",
    "usd_per_token",
    "usd_per_token_absent_because",
    "target_utilisation_ratio",
    "target_usd_per_token",
    "target_usd_per_token_absent_because",
    "priced_on",
)


def write(export: Export, folder: Path) -> list[Path]:
    """Write all files, each whole or not at all; returns their paths."""
    payloads = {"token_prices.csv": as_csv(export)}
    for utilisation in (ACTUAL, TARGET):
        payloads[f"litellm_{utilisation}.yaml"] = as_litellm(export, utilisation)
        payloads[f"langfuse_{utilisation}.json"] = as_langfuse(export, utilisation)
    for name, text in payloads.items():
        write_whole(folder / name, text.encode())
    written = [folder / name for name in payloads]
    opened(folder, *written)
    return written


def about(export: Export, utilisation: str) -> dict[str, str]:
    """What each file states about itself."""
    at = f"a target of {export.target_utilisation_ratio:g}" if utilisation == TARGET else "as it was in the period"
    return {
        "exported_on": export.exported_on.isoformat(),
        "fleet": f"{export.fleet} (synthetic, not for use)" if export.is_synthetic else export.fleet,
        "period": str(export.period),
        "basis": export.basis,
        "utilisation": at,
        "unit": "USD per token",
        "publication": export.publication_id,
    }


def as_litellm(export: Export, utilisation: str) -> str:
    """A proxy configuration with a model_list; its comments are the lines of `about` and `notes`."""
    lines = [*(f"{key}: {value}" for key, value in about(export, utilisation).items()), *notes(export, utilisation)]
    head = "".join(f"# {printable(line)}\n" for line in lines)
    listed = [
        {
            "model_name": model.name,
            "litellm_params": {"model": f"{PROVIDER}/{model.name}"},
            "model_info": dict(_keyed(model, utilisation)),
        }
        for model in export.models
        if model.has_prices(utilisation) and not is_pattern(model.name)
    ]
    return f"{head}{yaml.safe_dump({'model_list': listed}, sort_keys=False, allow_unicode=True)}"


def _keyed(model: Model, utilisation: str) -> Iterator[tuple[str, float]]:
    for token_class, key in LITELLM_KEYS.items():
        price = model.prices[token_class].at(utilisation)
        if price is not None:
            yield key, price


def as_langfuse(export: Export, utilisation: str) -> str:
    """`models` has the body of a POST /api/public/models for each model. They begin on the day of the export: what was
    traced before keeps its price."""
    models: list[dict[str, Any]] = []
    for model in export.models:
        if not model.has_prices(utilisation):
            continue
        prices = {
            key: price
            for token_class, keys in LANGFUSE_KEYS.items()
            if (price := model.prices[token_class].at(utilisation)) is not None
            for key in keys
        }
        tier = {"name": "Standard", "isDefault": True, "priority": 0, "conditions": [], "prices": prices}
        models.append(
            {
                "modelName": model.name,
                "matchPattern": f"(?i)^({PROVIDER}/)?({re.escape(model.name)})$",
                "startDate": f"{model.priced_on or export.exported_on}T00:00:00Z",
                "unit": "TOKENS",
                "pricingTiers": [tier],
            }
        )
    whole = {**about(export, utilisation), "notes": [*notes(export, utilisation)], "models": models}
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def as_csv(export: Export) -> str:
    """A row per model and token class, those without a price too."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for model in export.models:
        for token_class in CLASSES:
            price = model.prices[token_class]
            writer.writerow(
                [
                    export.exported_on,
                    harmless(str(export.period)),
                    export.period.start,
                    export.period.end,
                    export.basis,
                    harmless(model.name),
                    token_class,
                    "" if price.tokens is None else price.tokens,
                    "" if price.utilisation_ratio is None else f"{price.utilisation_ratio:.4f}",
                    _plain(price.at(ACTUAL)),
                    price.reason(ACTUAL),
                    f"{export.target_utilisation_ratio:g}",
                    _plain(price.at(TARGET)),
                    price.reason(TARGET),
                    (price.priced_on or export.exported_on) if price.usd else "",
                ]
            )
    return text.getvalue()


def _plain(price: float | None) -> str:
    """Without an exponent, which a spreadsheet may show as 0.00."""
    return "" if price is None else format(Decimal(str(price)), "f")
