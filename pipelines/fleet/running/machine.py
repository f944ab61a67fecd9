"""The key `machine` of the fleet file: what the machine that runs Wattledger does not show of itself.

Add here a fact that a run needs to state its own cost. Keep out the fleet's machines.
"""

from __future__ import annotations

from pipelines.fleet.values import Part, Positive


class Machine(Part):
    """Used where its processors' counters cannot be read, in virtual machines for example (docs/operations.md)."""

    watts_per_core: Positive | None = None
