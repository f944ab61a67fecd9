"""What is perhaps wrong in a fleet file, as far as the file alone shows it: values in a wrong unit, most of all.

Add a range here for a value that an operator may type in another unit. A finding changes nothing: the value is taken as
it is, with a warning, until `accepted` names its key. Keep out what cannot be right (`disagreements`, and the models
themselves) and what only telemetry shows (`pipelines.warehouse.unmatched_entries`).
"""

from __future__ import annotations

import csv
import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pipelines.fleet import grid_zones
from pipelines.fleet.catalog import SEEDS
from pipelines.fleet.money.budgets import unknown_scopes
from pipelines.fleet.money.commitments import doubtful_commitments
from pipelines.fleet.money.tariffs import unpriced_hours

if TYPE_CHECKING:
    from pipelines.fleet.fleet_keys import Fleet

HOURS_A_YEAR = 8760
# How far a price of a GPU-hour may be from the seed's: spot prices, old contracts and whole nodes are within it, cents
# and prices of a month are not.
RATE_FACTOR = 20
# What providers ask on demand, from the cheapest to the dearest, in USD per GPU-hour (May 2026,
# mercatus-ai.com/blog/cloud-gpu-pricing). Spot prices and those of 2023 are within five times of it, whole nodes not.
ON_DEMAND = {"a100-sxm4-80gb": (0.80, 3.00), "h100-sxm5-80gb": (1.99, 5.00), "h200-sxm5-141gb": (2.50, 7.00)}
ON_DEMAND_FACTOR = 5
# How similar a name must be to be shown as the nearest one (1 is equal).
SIMILAR = 0.5
# Keys that only the sources can check: what they answer is no matter of the file.
OF_SOURCES = re.compile(r"^sources\[[^\]]*\]\.(url|auth|clock|path|files|interval_seconds|limits\.\w+)$")
# Keys that only telemetry can check: `unmatched_entries` finds them.
OF_TELEMETRY = re.compile(r"^teams\[|\.(name|engine|node|device_uuid|device_type|(aliases|pods|targets)\[.*\])$")
# Keys of exports, whose figures only landing has: `odd_imported_rates`.
OF_EXPORTS = re.compile(r"^focus_exports\[\d+\]\.skus$")
# What a part of a list is called in a message: the first of these keys that it has.
_LABELS = ("name", "window_id", "commitment", "contract", "budget")


class Finding(NamedTuple):
    """What is wrong or doubtful at a key of the fleet file. `got` may be a whole sentence, with nothing expected."""

    key: str
    got: str
    expected: str = ""
    severity: Literal["error", "warning"] = "warning"

    def __str__(self) -> str:
        return f"{self.key}: {self.text}" if self.key else self.text

    @property
    def text(self) -> str:
        """The finding without its key."""
        return f"got {self.got}, expected {self.expected}" if self.expected else self.got


def of_line(line: str, severity: Literal["error", "warning"] = "warning") -> Finding:
    """A message that begins with its key, as a finding."""
    key, _, text = line.partition(": ")
    return Finding(key, text, severity=severity) if text else Finding("", line, severity=severity)


class Plausible(NamedTuple):
    """What a number usually is. Lists of the key have `[]`; zero and less is right wherever the model allows it."""

    key: str
    low: float
    high: float
    unit: str
    hint: str


RANGES = (
    Plausible("sources[].interval_seconds", 0.05, 900, "seconds between samples", "30 s, not 0.5 minutes or 30000 ms"),
    Plausible("sites[].pue", 1, 3, "", "the site's electricity over that of its computers; most are 1.1 to 1.6"),
    Plausible("sites[].tariff[].usd_per_kwh", 0.005, 1, "USD per kWh", "12 cents are 0.12, 80 USD per MWh are 0.08"),
    Plausible("sites[].wue_litres_per_kwh", 0.01, 20, "litres per kWh of the computers", "1.8 litres, not millilitres"),
    Plausible("sites[].demand_charges[].usd_per_kw_month", 0.5, 200, "USD per kW and month", "of a year: divide by 12"),
    Plausible("sites[].hosting[].usd_per_kw_month", 5, 2000, "USD per kW and month", "of a year: divide by 12"),
    Plausible("sites[].hosting[].provisioned_kw", 0.5, 500_000, "kW", "16 kW, not 16000 W"),
    Plausible("sites[].carbon_prices[].usd_per_tonne", 0.5, 2000, "USD per tonne of CO2e", "not per kilogram"),
    Plausible("sites[].residual_mixes[].gco2e_per_kwh", 1, 2000, "grams of CO2e per kWh", "0.4 kg are 400 g"),
    Plausible("energy_contracts[].gco2e_per_kwh", 1, 2000, "grams of CO2e per kWh", "0.4 kg are 400 g"),
    Plausible("nodes[].host_watts", 10, 20_000, "W of one node, without its accelerators", "0.6 kW are 600 W"),
    Plausible("cost_rates[].life_years", 1, 15, "years", "48 months are 4 years"),
    Plausible("device_types[].memory_gib", 1, 20_000, "GiB", "80 GiB, not 81920 MiB"),
    Plausible("device_types[].power_limit_watts", 10, 20_000, "W", "0.7 kW are 700 W"),
    Plausible("device_types[].idle_watts_bare", 1, 10_000, "W", "80 W, not 80000 mW"),
    Plausible("device_types[].idle_watts_loaded", 1, 10_000, "W", "80 W, not 80000 mW"),
    Plausible("models[].slo.ttft_seconds", 0.001, 600, "seconds", "2000 ms are 2"),
    Plausible("models[].slo.tpot_seconds", 0.0001, 5, "seconds", "50 ms are 0.05"),
    Plausible("models[].cold_start_seconds", 1, 86_400, "seconds", "3 minutes are 180"),
    Plausible("models[].weights_gib", 0.01, 20_000, "GiB", "not bytes or MiB"),
    *(
        Plausible(
            f"models[].contract_prices[].{kind}_usd_per_mtok", 0.001, 1000, "USD per million tokens", "not per token"
        )
        for kind in ("input", "cached_input", "output")
    ),
)
_RATES = ("cost_rates[]", "commitments[]", "commitment_offers[]", "spot_rates[]")


def range_of(key: str) -> Plausible:
    """What a number of this key usually is."""
    return next(one for one in RANGES if one.key == key)


def doubts(fleet: Fleet) -> list[Finding]:
    """What the file alone shows and `accepted` does not silence; an entry of it that silences nothing is a finding."""
    found = list(_all_doubts(fleet))
    keys = {one.key for one in found}
    unused = [
        unused_acceptance(n, key)
        for n, key in enumerate(fleet.accepted)
        if not any(pattern.search(key) for pattern in (OF_TELEMETRY, OF_SOURCES, OF_EXPORTS)) and key not in keys
    ]
    return [*(one for one in found if one.key not in fleet.accepted), *unused]


def unused_acceptances_of_sources(fleet: Fleet, answered: Collection[str]) -> list[Finding]:
    """Entries of `accepted` about sources that neither the file nor the keys of what the sources answered has."""
    keys = {one.key for one in _all_doubts(fleet)} | {*answered}
    return [
        unused_acceptance(n, key) for n, key in enumerate(fleet.accepted) if OF_SOURCES.search(key) and key not in keys
    ]


def unused_acceptance(number: int, key: str) -> Finding:
    """An entry of `accepted` that silences nothing."""
    expected = "the key of a finding, as `wattledger check` prints it: it silences nothing, so remove it"
    return Finding(f"accepted[{number}]", repr(key), expected)


def advice(finding: Finding) -> str:
    """A finding as a line of a log, with how to silence it."""
    is_of_accepted = finding.key.startswith("accepted[")
    return str(finding) if is_of_accepted or not finding.key else f"{finding}. {silenced_by([finding])}"


def silenced_by(found: Sequence[Finding]) -> str:
    """What to write where these values are right."""
    keys = ", ".join(f'"{one.key}"' for one in found)
    return f"If it is right: accepted: [{keys}]"


def _all_doubts(fleet: Fleet) -> Iterator[Finding]:
    for line in grid_zones.unused_sources(fleet.zones(), fleet.grid_intensity):
        yield of_line(line)
    only = fleet.sites[0].name if len(fleet.sites) == 1 else None
    for line in doubtful_commitments(fleet.commitments, [(node.site or only, node.gpus) for node in fleet.nodes]):
        yield of_line(line)
    for line in _doubtful_budgets(fleet):
        yield of_line(line)
    for usual in RANGES:
        for key, value in values(fleet, usual.key):
            if value > 0 and not usual.low <= value <= usual.high:
                between = f"{_number(usual.low)} to {_number(usual.high)}"
                yield Finding(key, _number(value), f"{' '.join([between, usual.unit]).strip()} ({usual.hint})")
    yield from _hours_of_utc(fleet)
    for site in fleet.sites:
        for line in unpriced_hours(site.name, site.tariff, fleet.period.start, _last_date(fleet)):
            yield of_line(line)
    yield from _prices_to_come(fleet)
    yield from _sources_of_one_place(fleet)
    yield from _idle_above_limit(fleet)
    yield from _odd_rates(fleet)


def values(part: Any, path: str, key: str = "") -> Iterator[tuple[str, Any]]:
    """Each value at a path such as `sites[].pue`, with its key as a person would write it; not those that are unset."""
    head, _, rest = path.partition(".")
    name = head.removesuffix("[]")
    value = getattr(part, name, None)
    here = f"{key}.{name}" if key else name
    if value is None:
        return
    for place, one in labelled(here, value) if head.endswith("[]") else [(here, value)]:
        if rest:
            yield from values(one, rest, place)
        else:
            yield place, one


def labelled(key: str, parts: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """Each part of a list with its key: by its name, else by its number."""
    for n, part in enumerate(parts):
        label = next((getattr(part, name) for name in _LABELS if hasattr(part, name)), n)
        yield f"{key}[{label}]", part


def _hours_of_utc(fleet: Fleet) -> Iterator[Finding]:
    for key, site in labelled("sites", fleet.sites):
        has_hours = any(tariff.local_hours != (0, 24) for tariff in site.tariff)
        if has_hours and "time_zone" not in site.model_fields_set:
            expected = "the site's IANA time zone, such as Europe/Oslo, because its tariff has local_hours"
            yield Finding(f"{key}.time_zone", "none, which is UTC", f"{expected} (UTC, if they are hours of UTC)")


def _prices_to_come(fleet: Fleet) -> Iterator[Finding]:
    """Prices of which none is in force yet: a typing error in a year. One that follows a price of today is right."""
    today = _last_date(fleet)
    listed: dict[str, list[tuple[str, Any]]] = {}
    for path in ("sites[].tariff[]", "cost_rates[]", "models[].contract_prices[]"):
        for key, price in values(fleet, path):
            listed.setdefault(key.rpartition("[")[0] + getattr(price, "device_type", ""), []).append((key, price))
    for prices in listed.values():
        key, first = min(prices, key=lambda one: one[1].valid_from)
        if first.valid_from > today:
            expected = f"one of {today} or before: until then nothing has this price. Is its year right?"
            yield Finding(f"{key}.valid_from", f"{first.valid_from}", expected)


def _sources_of_one_place(fleet: Fleet) -> Iterator[Finding]:
    """Sources that read the same: one server without matchers that divide it, or one folder."""
    seen: dict[tuple[str, ...], list[Any]] = {}
    for source in fleet.sources:
        place = getattr(source, "url", None) or (getattr(source, "path", None) if source.kind != "files" else None)
        if place is None:
            continue
        headers = (f"{name}: {value}" for name, value in sorted(getattr(source, "headers", {}).items()))
        others = seen.setdefault((place.rstrip("/").casefold(), source.metric_prefix or "", *headers), [])
        matchers = {*getattr(source, "matchers", ())}
        for other in others:
            if not matchers or not getattr(other, "matchers", ()) or matchers == {*other.matchers}:
                name = "url" if source.kind == "prometheus" else "path"
                expected = "one source for one place, or matchers that divide its series: all of them are read twice"
                yield Finding(f"sources[{source.name}].{name}", f"the place of sources[{other.name}] again", expected)
                break
        others.append(source)


def _last_date(fleet: Fleet) -> date:
    """The last date that a price could count for now."""
    today = datetime.now(UTC).date()
    return today if fleet.period.end is None else min(today, fleet.period.end - timedelta(days=1))


def _idle_above_limit(fleet: Fleet) -> Iterator[Finding]:
    for key, kind in labelled("device_types", fleet.device_types):
        for name in ("idle_watts_bare", "idle_watts_loaded"):
            idle = getattr(kind, name)
            if idle is not None and kind.power_limit_watts is not None and idle > kind.power_limit_watts:
                limit = f"at most power_limit_watts, which is {_number(kind.power_limit_watts)} W"
                yield Finding(f"{key}.{name}", f"{_number(idle)} W", limit)


def usual_rate(device_type: str) -> Plausible:
    """What a GPU-hour of a type usually costs: near its public prices and the seed's; of a type without any, not far
    above the dearest of the seed."""
    seeded = {row["device_type"]: float(row["usd_per_gpu_hour"]) for row in _rows("cost_rates")}  # the newest is last
    known = seeded.get(device_type)
    of = f"{device_type} costs {_number(known)} in the seed" if known else "no seed has its price"
    low, high = known / RATE_FACTOR if known else 0.0, (known or max(seeded.values())) * RATE_FACTOR
    if public := ON_DEMAND.get(device_type):
        of = f"{device_type} costs {_number(public[0])} to {_number(public[1])} on demand"
        of += f", {_number(known)} in the seed" if known else ""
        low, high = min(known or public[0], public[0]) / ON_DEMAND_FACTOR, public[1] * ON_DEMAND_FACTOR
    return Plausible("cost_rates[].usd_per_gpu_hour", low, high, "USD per GPU-hour", f"{of}; USD, not cents")


def odd_imported_rates(fleet: Fleet, number: int, rates: Iterable[Mapping[str, Any]]) -> Iterator[Finding]:
    """Rates of an export (rows of fleet.cost_rates) that are far from what their device type usually costs."""
    key = f"focus_exports[{number}].skus"
    for rate in rates:
        usual, hourly = usual_rate(rate["device_type"]), rate["usd_per_gpu_hour"]
        if hourly > 0 and not usual.low <= hourly <= usual.high and key not in fleet.accepted:
            between = f"{_number(usual.low)} to {_number(usual.high)} {usual.unit} ({usual.hint})"
            yield Finding(
                key,
                f"{_number(hourly)} for {rate['device_type']} by {rate['source']}",
                f"{between}: is a SKU of another device, of more `gpus`, or its unit another one? If it is right:"
                f' accepted: ["{key}"]',
            )


def _odd_rates(fleet: Fleet) -> Iterator[Finding]:
    usual: dict[str, Plausible] = {}
    for path in _RATES:
        for key, rate in values(fleet, path):
            hourly, name, shown = rate.usd_per_gpu_hour, "usd_per_gpu_hour", ""
            if hourly is None:
                hourly, name = rate.price_usd_per_gpu / (rate.life_years * HOURS_A_YEAR), "price_usd_per_gpu"
                shown = f"{_number(rate.price_usd_per_gpu)} USD over {_number(rate.life_years)} years, which is "
            one = usual.setdefault(rate.device_type, usual_rate(rate.device_type))
            if hourly > 0 and not one.low <= hourly <= one.high:
                between = f"{_number(one.low)} to {_number(one.high)}" if one.low else f"at most {_number(one.high)}"
                yield Finding(f"{key}.{name}", f"{shown}{_number(hourly)}", f"{between} {one.unit} ({one.hint})")


def _doubtful_budgets(fleet: Fleet) -> Iterator[str]:
    placed: list[Any] = [*fleet.engines, *fleet.assignments]
    known = {
        "team": {*fleet.teams.values(), *(part.team for part in placed if part.team)},
        "model": {*(model.name for model in fleet.models), *(part.model for part in placed if part.model)},
        "site": {site.name for site in fleet.sites},
    }
    canonical = {alias: model.name for model in fleet.models for alias in model.aliases}
    yield from unknown_scopes(fleet.budgets, known, canonical)


# --- device types -----------------------------------------------------------------------------------------------------

# Where the file names the device type that something is or costs. SQL compares it with the type, never with an alias.
_TYPED = (
    *(f"{path}.device_type" for path in (*_RATES, "nodes[]", "nodes[].gpus[]", "devices[]", "sites[].licences[]")),
)


def aliases_for_types(fleet: Fleet) -> Iterator[str]:
    """A line for each alias of a device type where the type itself counts: it would match nothing."""
    types, canonical = device_type_names(fleet)
    for key, name in _typed(fleet):
        if name not in types and name in canonical:
            yield f"{key}: got {name!r}, which is an alias, expected its device type: {canonical[name]}"


def unknown_types(fleet: Fleet) -> list[Finding]:
    """Device types that neither the file nor a seed knows. They are right where telemetry calls its boards so."""
    types, canonical = device_type_names(fleet)
    return [
        Finding(
            key,
            repr(name),
            "a device type of the seed device_types or of device_types in this file, or the name that its exporter"
            f" gives it{near(name, types | canonical.keys())}",
        )
        for key, name in _typed(fleet)
        if name not in types and key not in fleet.accepted
    ]


def device_type_names(fleet: Fleet) -> tuple[set[str], dict[str, str]]:
    """Names of device types, and alias -> type, the file's own before those of the seeds."""
    types = {kind.name for kind in fleet.device_types} | {row["device_type"] for row in _rows("device_types")}
    canonical = {row["alias"]: row["device_type"] for row in _rows("device_type_aliases")}
    return types, canonical | {alias: kind.name for kind in fleet.device_types for alias in kind.aliases}


def _typed(fleet: Fleet) -> Iterator[tuple[str, str]]:
    for path in _TYPED:
        yield from values(fleet, path)
    for n, file in enumerate(fleet.cost_rate_files):
        for listed, name in file.device_types.items():
            yield f"cost_rate_files[{n}].device_types[{listed}]", name
    for n, export in enumerate(fleet.focus_exports):
        for sku, known in export.skus.items():
            yield f"focus_exports[{n}].skus[{sku}].device_type", known.device_type


# --- words ------------------------------------------------------------------------------------------------------------


def near(name: str, known: Collection[str]) -> str:
    """`; nearest: …` with the most similar known name, or nothing where none is similar."""
    found = nearest(name, known)
    return f"; nearest: {found}" if found is not None else ""


def nearest(name: str, known: Collection[str]) -> str | None:
    """The most similar known name: one that begins with it, one that has it inside, else one that is spelled alike."""
    by_folded = {one.casefold(): one for one in sorted(known, reverse=True)}
    asked = name.casefold()
    held = sorted(one for one in by_folded if asked in one or one in asked)
    if held:
        return by_folded[min(held, key=lambda one: (not one.startswith(asked), one))]
    alike = difflib.get_close_matches(asked, by_folded, n=1, cutoff=SIMILAR)
    return by_folded[alike[0]] if alike else None


def _number(value: float) -> str:
    return f"{value:,.10g}".replace(",", "") if abs(value) < 1e6 else f"{value:,.0f}"


def _rows(seed: str, seeds: Path = SEEDS) -> list[dict[str, str]]:
    with (seeds / f"{seed}.csv").open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))
