"""Wall meters that no host is known for, and the block of the fleet file that places them: `discover` and each run show
the same.

Keep out which host is proposed, and why: that is `marts.unplaced_meters`.
"""

from __future__ import annotations

from typing import NamedTuple

import duckdb

SHOWN_ROWS = 20
# Of each meter what it measured, and the newest line that would place it.
_ROWS = """
select site, meter, sum(energy_joules)::double, sum(energy_joules)::double / nullif(sum(covered_seconds)::double, 0),
    arg_max(fleet_file_line, date), arg_max(proposal_basis, date), arg_max(watts_correlation, date)
from marts.unplaced_meters group by site, meter order by sum(energy_joules) desc, meter
"""


class UnplacedMeter(NamedTuple):
    """A wall meter. `basis` is why a host is proposed, None where none is; `correlation` is between watts."""

    site: str | None
    meter: str
    joules: float
    mean_watts: float | None
    line: str
    basis: str | None
    correlation: float | None

    @property
    def entry(self) -> str:
        """Its entry of the list `nodes`, with the evidence; a comment where no host is proposed."""
        line = self.line.removeprefix("nodes: [").removesuffix("]")
        if self.basis is None:
            return f"  # - {line}  # which host is it?"
        moves = f"its watts move with those of the boards: {self.correlation:.2f}" if self.correlation else None
        return f"  - {line}  # {moves or 'the one meter and the one host that are left'}"


def meters(connection: duckdb.DuckDBPyConnection) -> list[UnplacedMeter]:
    """The meters, the one with most joules first."""
    return [UnplacedMeter(*row) for row in connection.execute(_ROWS).fetchall()]


def block(listed: list[UnplacedMeter]) -> list[str]:
    """The lines of one `nodes:` of the fleet file."""
    more = [f"  # … and {len(listed) - SHOWN_ROWS:,} more in marts.unplaced_meters"] if len(listed) > SHOWN_ROWS else []
    return ["nodes:", *(one.entry for one in listed[:SHOWN_ROWS]), *more]


def sentence(listed: list[UnplacedMeter], amount: str) -> str:
    """What the meters read that is in no figure, as an `amount` with its unit."""
    sites = ", ".join(sorted({str(one.site) for one in listed}))
    is_one = len(listed) == 1
    return (
        f"not in these figures: {amount} of {len(listed):,} wall {'meter' if is_one else 'meters'} at {sites}. Boards"
        f" there have no wall meter, and nothing names the {'host of this one' if is_one else 'hosts of these'}; the"
        " fleet file does:"
    )
