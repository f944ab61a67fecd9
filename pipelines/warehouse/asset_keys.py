"""The names of assets in Dagster: [schema, table], like the table itself, or [fleet, schema, table].

Every asset, check and dbt model takes its key from here. Keep out what decides which instance is used: that is
`pipelines.command_line.instance`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pipelines.fleet.fleet_file import Fleet

if TYPE_CHECKING:
    import dagster as dg

# Set for every process of an instance that holds several fleets.
SHARED_INSTANCE = "WATTLEDGER_SHARED_INSTANCE"


def asset_key(fleet: Fleet, schema: str, table: str) -> dg.AssetKey:
    """The key of a table. In an instance that several fleets share it begins with the fleet: Dagster keeps one history
    per key and instance, whatever the code location."""
    import dagster as dg  # noqa: PLC0415 (the command line reads the name above, and should not wait for Dagster)

    prefix = [fleet.fleet] if os.environ.get(SHARED_INSTANCE, "0") not in ("", "0") else []
    return dg.AssetKey([*prefix, schema, table])


def schema_of(key: dg.AssetKey) -> str:
    """The schema of the table that a key names."""
    return key.path[-2]


def table_of(key: dg.AssetKey) -> str:
    """The table that a key names, as people write it: `marts/energy_ledger`, without the fleet."""
    return "/".join(key.path[-2:])
