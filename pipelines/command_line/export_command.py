"""The command `export`: prices per token as files for gateways.

Add here what the command prints. Keep out what is in the files (`pipelines.publishing.price_export`).
"""

from __future__ import annotations

import sys
from argparse import Namespace
from contextlib import closing
from datetime import UTC, datetime

from collectors.samples import printable
from pipelines.command_line.text_tables import TEXT, table
from pipelines.fleet.fleet_file import Fleet
from pipelines.publishing.price_export import files, last_export, prices
from pipelines.publishing.price_export.prices import ACTUAL, CLASSES, TARGET
from pipelines.warehouse import database
from pipelines.warehouse.refusals import nothing_published


def export(fleet: Fleet, options: Namespace) -> int:
    """Write the files; returns the exit status. QuestionError where there is no such period. A price that moved is a
    warning, and is written: whoever installs the files decides."""
    if not fleet.snapshot.exists():
        raise nothing_published(fleet.fleet, fleet.path)
    with closing(database.connect(fleet.snapshot, read_only=True)) as connection:
        found = prices.read(
            connection,
            fleet,
            month=options.month,
            is_lookback=options.lookback,
            basis=options.basis,
            target_utilisation_ratio=options.target,
            exported_on=datetime.now(UTC).date(),
        )
    kept = fleet.root / "exports"
    state = last_export.state_path(kept, found.basis)
    last = last_export.read(state)
    if last:
        found = last_export.with_undoubted(last, found)
    written = files.write(found, options.out or kept)
    warnings = [*last_export.moved(last, found, options.moved)] if last else []
    if last is None and state.exists():
        warnings.append(last_export.damage(state))
    last_export.keep(state, found)
    print(f"USD per million tokens: {found.period}; basis {found.basis}\n")
    rows = [
        [model.name, CLASSES[token_class], price.utilisation_ratio, *(_per_mtok(price, at) for at in (ACTUAL, TARGET))]
        for model in found.models
        if model.has_prices(ACTUAL)
        for token_class, price in model.prices.items()
    ]
    columns = {"model": TEXT, "tokens": TEXT, "utilisation": 3, "as it was": 4, f"at {options.target:g}": 4}
    print(f"{table(columns, rows)}\n")
    for line in dict.fromkeys([*prices.notes(found, ACTUAL), *prices.notes(found, TARGET)]):
        print(printable(line))
    for path in written:
        print(path)
    for line in warnings:
        print(f"warning: {printable(line)}", file=sys.stderr)
    return 0


def _per_mtok(price: prices.Price, at: str) -> float | None:
    usd = price.at(at)
    return None if usd is None else usd * 1e6
