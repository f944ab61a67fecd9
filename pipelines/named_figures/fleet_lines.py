"""Where in the fleet file a price is stated: the line of its entry, for who wants to look or to change it.

Add here a kind of price. Keep out what a price means (`pipelines.fleet`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

# Part of the cost -> where a site or the fleet states it, and the key of its amount.
_OF_SITE = {
    "energy": ("tariff", "usd_per_kwh"),
    "cooling": ("tariff", "usd_per_kwh"),
    "overhead": ("tariff", "usd_per_kwh"),
    "demand_charge": ("demand_charges", "usd_per_kw_month"),
    "hosting": ("hosting", "usd_per_kw_month"),
    "operations": ("operations", "usd_per_month"),
    "carbon_price": ("carbon_prices", "usd_per_tonne"),
    "licences": ("licences", "usd_per_gpu_hour"),
}


def of_price(path: Path, part: str, site: str, device_type: str | None, usd: float | None) -> str:
    """The line of a price, such as `fleets/demo.yaml, line 63`; with what the line has now, where that is another
    price; empty where the file does not state it."""
    if part in ("capacity", "cost_of_capital"):
        entries = [
            *_entries(_value(_composed(path), "cost_rates"), device_type=device_type),
            *_entries(_value(_composed(path), "commitments"), device_type=device_type, site=site),
        ]
        return _priced_line(path, entries, "usd_per_gpu_hour", usd)
    key, amount = _OF_SITE.get(part, ("", ""))
    stated = _value(_site(path, site), key)
    entries = list(_entries(stated)) or ([stated] if stated is not None else [])
    return _priced_line(path, entries, amount, usd)


def of_site(path: Path, site: str, key: str, booked: float) -> str:
    """The line on which a site states a key, with what it has now where another value was booked; empty where it states
    none."""
    stated = _value(_site(path, site), key)
    now = stated.value if isinstance(stated, yaml.ScalarNode) else None
    return _line(path, stated) + ("" if now is None or _is(now, booked, 1e-3) else f" (now {now})")


def _priced_line(path: Path, entries: list[yaml.Node], key: str, usd: float | None) -> str:
    entry = _nearest(entries, key, usd)
    now = _text(entry, key) if entry is not None else None
    return _line(path, entry) + ("" if now is None or usd is None or _is(now, usd) else f" (now {now})")


@cache
def _composed(path: Path) -> yaml.Node | None:
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.compose(path.read_text(encoding="utf-8"), Loader=loader) if path.exists() else None


def _value(node: yaml.Node | None, key: str) -> yaml.Node | None:
    if not isinstance(node, yaml.MappingNode):
        return None
    return next((value for name, value in node.value if name.value == key), None)


def _entries(node: yaml.Node | None, **having: str | None) -> Iterator[yaml.Node]:
    """The entries of a list that have these values."""
    for entry in node.value if isinstance(node, yaml.SequenceNode) else ():
        found = {key: _text(entry, key) for key in having}
        if all(value is None or found[key] in (value, None) for key, value in having.items()):
            yield entry


def _site(path: Path, site: str) -> yaml.Node | None:
    return next(_entries(_value(_composed(path), "sites"), name=site), None)


def _text(node: yaml.Node, key: str) -> str | None:
    value = _value(node, key)
    return value.value if isinstance(value, yaml.ScalarNode) else None


def _nearest(entries: list[yaml.Node], key: str, usd: float | None) -> yaml.Node | None:
    """The entry with this amount; without one, the only entry there is (an owned board's rate is computed)."""
    same = [entry for entry in entries if usd is not None and _is(_text(entry, key), usd)]
    return same[0] if same else entries[0] if len(entries) == 1 else None


def _is(text: str | None, value: float, ratio: float = 1e-6) -> bool:
    try:
        return text is not None and abs(float(text) - value) <= ratio * abs(value)
    except ValueError:
        return False


def _line(path: Path, node: yaml.Node | None) -> str:
    return f"{_shown(path)}, line {node.start_mark.line + 1}" if node is not None else ""


def _shown(path: Path) -> str:
    try:
        return os.fspath(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return os.fspath(path)
