"""The command `receipt`: what one request used, by its id, or what a tenant used in a month.

Add here what is printed. Keep out the figures: those of a request are `pipelines.receipts.request_receipt`, those of a
tenant `pipelines.receipts.tenant_statement`.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterator, Mapping
from typing import Any

from collectors.durable_files import opened, write_whole
from collectors.samples import printable
from pipelines.command_line.text_tables import MISSING, TEXT, table
from pipelines.fleet.fleet_file import Fleet
from pipelines.named_figures import figures_in_doubt
from pipelines.receipts.request_receipt import receipts_of
from pipelines.receipts.tenant_statement import Statement, folder_of, statement_of
from pipelines.report.statement_page import statement_page
from pipelines.warehouse.refusals import QuestionError

_COLUMNS = {
    "model": ("model", TEXT),
    "requests": ("requests", 0),
    "input tokens": ("input_tokens", 0),
    "cached": ("cached_input_tokens", 0),
    "output tokens": ("output_tokens", 0),
    "kWh": ("facility_energy_kwh", 2),
    "kg CO2e, location": ("location_kgco2e", 3),
    "market": ("market_kgco2e", 3),
    "contract USD": ("revenue_usd", 2),
}
_INTERNAL = {"cost USD": ("known_cost_usd", 2), "margin USD": ("margin_usd", 2)}


def receipt(fleet: Fleet, options: Namespace) -> int:
    """Print a receipt or a statement; returns the exit status. QuestionError where there is none."""
    if (options.id is None) == (options.tenant is None):
        raise QuestionError("expected the id of a request, or --tenant NAME with --month, such as 2026-10")
    if options.id is not None:
        return _of_request(fleet, options)
    if options.month is None:
        raise QuestionError("--tenant needs --month, such as --month 2026-10")
    statement = statement_of(fleet, options.tenant, options.month, has_internal=options.internal)
    if options.json:
        print(json.dumps(statement.as_json()))
        return 0
    if options.html:
        path = folder_of(fleet) / statement.file_name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, statement_page(statement).encode())
        opened(path)
        print(path)
        return 0
    print("\n".join(_page(statement)))
    return 0


def _of_request(fleet: Fleet, options: Namespace) -> int:
    if options.html or options.month or options.internal:
        raise QuestionError("--html, --month and --internal are of a tenant's statement: name the --tenant")
    found = receipts_of(fleet, options.id)
    if options.json:
        print(json.dumps(found))
        return 0
    print("\n\n".join("\n".join(_lines(one)) for one in found))
    return 0


def _lines(one: Mapping[str, Any]) -> Iterator[str]:
    yield f"request    {printable(str(one['request_id']))} of {one['source']}, {one['started_at']}"
    yield f"who        {_name(one['tenant'])}, team {_name(one['request_team'])}"
    yield f"where      {_name(one['model'])} at {_name(one['deployment'])}, {_name(one['site'])}"
    yield (
        f"tokens     {_number(one['input_tokens'], 0)} in, of them {_number(one['cached_input_tokens'], 0)} cached;"
        f" {_number(one['output_tokens'], 0)} out"
    )
    yield (
        f"energy     {_interval(one, 'own_energy_joules', 1)} J; its part of idleness"
        f" {_number(one['idle_energy_joules'], 1)} J"
    )
    yield f"CO2e       {_interval(one, 'location_gco2e', 4)} g by location"
    yield f"           {_interval(one, 'market_gco2e', 4)} g by market"
    yield (
        f"compute    {_interval(one, 'compute_cost_usd', 6)} USD; its part of idleness"
        f" {_number(one['idle_compute_cost_usd'], 6)} USD"
    )
    if one["full_cost_usd"] is not None:
        yield (
            f"full cost  {_number(one['full_cost_usd'], 6)} USD: both, times {_number(one['full_cost_ratio'], 3)}"
            f" of the month ({one['full_cost_status']})"
        )
    yield f"method     {one['method'] or MISSING}; quality: {one['quality']}"
    if one["in_doubt"]:
        yield f"?          its model's figures of that date are in doubt: {', '.join(one['in_doubt'])} (marts.doubts)"


def _page(statement: Statement) -> Iterator[str]:
    part = "" if statement.booked_ratio is None else f", {statement.booked_ratio:.1%} of it booked"
    yield f"{_name(statement.tenant)} ({statement.tenant_key}), {statement.month:%Y-%m}: {statement.status}{part}"
    yield ""
    columns = {**_COLUMNS, **(_INTERNAL if statement.has_internal else {})}
    rows = [{"model": model, **figures} for model, figures in statement.models.items()]
    rows.append({"model": "total", **statement.whole})
    yield table(
        {heading: digits for heading, (_, digits) in columns.items()},
        [[row[name] for name, _ in columns.values()] for row in rows],
    )
    yield ""
    level = "" if statement.interval_level is None else f", {statement.interval_level:.0%} intervals"
    yield f"electricity  {_interval(statement.whole, 'facility_energy_kwh', 2)} kWh{level}"
    yield f"CO2e         {_interval(statement.whole, 'location_kgco2e', 3)} kg by location"
    metered = MISSING if statement.metered_ratio is None else f"{statement.metered_ratio:.1%}"
    yield f"metered      {metered} of the models' electricity; what it proves: docs/receipts.md"
    if statement.in_doubt:
        yield printable(f"?            {figures_in_doubt.note(statement.in_doubt)}")


def _interval(figures: Mapping[str, Any], name: str, digits: int) -> str:
    value, low, high = (figures.get(f"{name}{end}") for end in ("", "_low", "_high"))
    between = "" if low is None or high is None else f" ({_number(low, digits)} to {_number(high, digits)})"
    return f"{_number(value, digits)}{between}"


def _number(value: Any, digits: int) -> str:
    return MISSING if value is None else f"{value:,.{digits}f}"


def _name(value: Any) -> str:
    return MISSING if value is None else printable(str(value))
