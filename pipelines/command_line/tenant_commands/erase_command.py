"""The command `erase`: drop a tenant's name from the ledger and from every copy that it made.

Exit status: 0 erased, 1 the name is dropped and a copy could not be made again, 2 no such tenant. Add here what is
printed. Keep out where a name may be: that is `places_of_names`.
"""

from __future__ import annotations

import sys

from pipelines.command_line import run
from pipelines.command_line.tenant_commands import places_of_names
from pipelines.fleet.fleet_file import Fleet
from pipelines.publishing import tenant_erasure


def erase(fleet: Fleet, tenant: str) -> int:
    """Erase a tenant's name and print what became of each copy; returns the exit status."""
    started = tenant_erasure.begin(fleet, tenant)
    print(f"the name is dropped; its figures stay under {started.key}", flush=True)
    again = f"wattledger erase --fleet {fleet.path} --tenant {started.key}"
    if started.on is not None and run.publish(fleet, started.on) != 0:
        print(f"the copies could not be made again, so older ones still hold the name: {again}", file=sys.stderr)
        return 1
    for place in places_of_names.PLACES:
        if place.erase is not None:
            place.erase(fleet, started)
    for change in tenant_erasure.finish(fleet, started):
        if change.before.digest == change.after.digest:
            print(f"{change.what}: unchanged, it has no name of a tenant")
        else:
            usd = f"{change.after.usd:,.2f} USD as before" if change.after.usd is not None else "no cost"
            print(f"{change.what}: {change.before.digest} is now {change.after.digest}, {usd}")
    print(
        "Out of reach (SECURITY.md): backups of the ledger, the logs that it reads, what servers and stores keep by"
        " themselves, and what people copied. Take the name out of the logs, or the next run that lands them draws a"
        " new key for it."
    )
    return 0
