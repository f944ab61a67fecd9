"""raw.run_costs: what each run of the ledger itself took, as it was measured.

It is noted before the run publishes, so that the publication has the run that made it, and again at the run's end. Add
here what else is noted of a run. Keep out how it is measured (`process_meter`) and what follows from it: joules, and
what a GPU-day takes, are SQL (finance.ledger_cost).
"""

from __future__ import annotations

import duckdb

from pipelines.fleet.fleet_file import Fleet
from pipelines.upkeep import layers, process_meter
from pipelines.upkeep.process_meter import ProcessMeter, Use
from pipelines.warehouse import database

PUBLICATION, END = "publication", "end"


def note(
    connection: duckdb.DuckDBPyConnection,
    fleet: Fleet,
    run_id: str,
    until: str = PUBLICATION,
    meter: ProcessMeter | None = None,
) -> Use:
    """Note what the run has taken so far, in the place of what was noted of it before; returns it."""
    used = (meter or process_meter.of_this_process()).of_run(run_id)
    sizes = layers.measured(connection, fleet, layers.home_of(fleet))
    held = None
    if "fleet_daily" in database.tables(connection, "marts"):
        ((held,),) = connection.execute("select sum(gpu_seconds) from marts.fleet_daily").fetchall()
    row = {
        "run_id": run_id,
        "began_at": used.began_at,
        "measured_at": used.measured_at,
        "measured_until": until,
        "wall_seconds": used.wall_seconds,
        "core_seconds": used.core_seconds,
        "busy_core_seconds": used.busy_core_seconds,
        "package_joules": used.package_joules,
        "watts_per_core": fleet.machine.watts_per_core,
        "peak_memory_bytes": used.peak_memory_bytes,
        "held_bytes": sum(size for layer, size in sizes.items() if layer != layers.FREE),
        "held_gpu_seconds": held,
    }
    with database.transaction(connection):
        connection.execute("delete from raw.run_costs where run_id = ?", [run_id]).fetchall()
        connection.execute(
            f"insert into raw.run_costs ({', '.join(row)}) values ({', '.join('?' * len(row))})", list(row.values())
        ).fetchall()
    return used
