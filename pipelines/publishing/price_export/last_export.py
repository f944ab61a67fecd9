"""What was exported last: which prices have moved since, and which stay because the newest are in doubt.

Add here what a moved price is compared by. Keep out where the new prices come from (`prices`). The state is one file
per basis in the fleet's data folder: users of a gateway see what it was given, wherever the files went.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from collectors.durable_files import write_whole
from pipelines.publishing.price_export.prices import CLASSES, TARGET, Export, Model, Price


def state_path(folder: Path, basis: str) -> Path:
    """Where the fleet's data folder has the prices that were exported last."""
    return folder / f"last_{basis}.json"


def read(path: Path) -> dict[str, Any] | None:
    """The last export; None before the first one, and where its file is damaged (`damage`)."""
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return held if isinstance(held, dict) and isinstance(held.get("usd_per_token"), dict) else None


def damage(path: Path) -> str:
    """The line for a file that is there and cannot be read."""
    return f"{path} is damaged: no price was compared with the last export. This export writes it anew"


def keep(path: Path, export: Export) -> None:
    """Keep these prices for the next export's comparison."""
    prices = {
        model.name: {token_class: model.prices[token_class].usd or {} for token_class in CLASSES}
        for model in export.models
    }
    state = {
        "exported_on": export.exported_on.isoformat(),
        "period": str(export.period),
        "target_utilisation_ratio": export.target_utilisation_ratio,
        "usd_per_token": prices,
        "priced_on": {model.name: model.priced_on for model in export.models if model.priced_on},
    }
    write_whole(path, (json.dumps(state, indent=2) + "\n").encode())


def with_undoubted(last: dict[str, Any], export: Export) -> Export:
    """The export in which a price in doubt is the one that was exported last, with its date. A price at another target
    utilisation is another price: it does not stay."""
    is_same_target = last.get("target_utilisation_ratio") == export.target_utilisation_ratio

    def priced(model: Model, token_class: str, price: Price) -> Price:
        held = last["usd_per_token"].get(model.name, {}).get(token_class, {}) if price.in_doubt else {}
        usd = {at: value for at, value in held.items() if at != TARGET or is_same_target}
        if not usd:
            return price
        reasons = {at: why for at, why in (price.reasons or {}).items() if at not in usd}
        on = last.get("priced_on", {}).get(model.name, last["exported_on"])
        return replace(price, usd=usd, reasons=reasons, priced_on=on)

    models = (
        replace(one, prices={kind: priced(one, kind, price) for kind, price in one.prices.items()})
        for one in export.models
    )
    return replace(export, models=tuple(models))


def moved(last: dict[str, Any], export: Export, share: float) -> Iterator[str]:
    """One line for each price that moved by more than the share, and for each that is gone. A price at another target
    utilisation is another price: it is not compared."""
    is_same_target = last.get("target_utilisation_ratio") == export.target_utilisation_ratio
    now = {model.name: model.prices for model in export.models}
    for name, classes in last["usd_per_token"].items():
        for token_class, prices in classes.items():
            for utilisation, before in prices.items():
                if utilisation == TARGET and not is_same_target:
                    continue
                price = now[name][token_class].at(utilisation) if name in now else None
                what = f"{name}: {CLASSES[token_class]} at the {utilisation} utilisation"
                if price is None:
                    yield f"{what} cost {before:g} USD per token on {last['exported_on']} and has no price now"
                elif before > 0 and abs(price / before - 1) > share:
                    yield (
                        f"{what} moved from {before:g} to {price:g} USD per token ({price / before - 1:+.1%})"
                        f" since {last['exported_on']}"
                    )
