"""The command `today`: the running UTC day as the last tick has it, or as a new one has.

Add here what is shown of it. Keep out how a tick is made: that is `pipelines.today`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from collectors.samples import printable
from pipelines.command_line.text_tables import RATIO, TEXT, explained, table
from pipelines.fleet.fleet_file import Fleet
from pipelines.named_figures import figures_in_doubt
from pipelines.today import today_file
from pipelines.warehouse.refusals import QuestionError

_COLUMNS = {
    "model": TEXT, "J/total token": 4, "J/output token": 4, "mean W": 1, "W now": 1, "output tokens": 0,
    "~idle energy": RATIO, "~kWh": 1, "~kgCO2e": 1, "~USD compute": 2, "~USD compute/Mtok": 2,
}  # fmt: skip
_MEANINGS = {
    "W now": "mean watts of the newest closed interval; joules and watts are those of the meters",
    "~": "an estimate: idle energy, kWh, CO2e and dollars depend on the rest of the day, and the day's booking settles"
    " them; joules and tokens stay as they are unless late samples arrive",
}


def today(fleet: Fleet, options: argparse.Namespace) -> int:
    """Print the last tick; with `--refresh` make one first. Returns the exit status. QuestionError where there is
    none."""
    if options.refresh:
        from pipelines.today import ticks  # noqa: PLC0415 (dbt takes a second)

        try:
            ticks.refresh(fleet)
        except ticks.TickSkipped as skipped:
            print(f"no new tick: {skipped}", file=sys.stderr)
    ticked = today_file.read(fleet)
    if ticked is None:
        raise QuestionError(
            f"fleet {fleet.fleet}: no tick was made yet. `wattledger today --refresh` makes one, `wattledger serve` one"
            " every five minutes"
        )
    if options.textfile is not None:
        from pipelines.command_line import instance  # noqa: PLC0415
        from pipelines.serving import fleet_state, metrics  # noqa: PLC0415 (Dagster takes a second)

        known = fleet_state.FleetState(fleet, instance.home_of([fleet]))
        for problem in known.renew(fleet):
            print(f"not read: {printable(problem)}", file=sys.stderr)
        metrics.write(options.textfile, known.state, datetime.now(UTC))
    print("\n".join(_lines(ticked)))
    return 0


def _lines(ticked: today_file.Today) -> Iterator[str]:
    kind = "SYNTHETIC telemetry: nothing here was measured" if ticked.is_synthetic else "measured telemetry"
    yield (
        f"fleet {ticked.fleet}, {ticked.on} until {ticked.closed_until_at:%H:%M} UTC"
        f" (tick of {ticked.asked_until_at:%H:%M:%S}, {ticked.seconds:.1f} s): {kind}"
    )
    yield ""
    marks = [figures_in_doubt.marks(one.doubt, _COLUMNS) for one in ticked.models]
    rows = [(ticked.name_of(one), *_figures(one)) for one in ticked.models]
    yield table(_COLUMNS, rows, marks) or "no closed interval yet"
    if in_doubt := ticked.in_doubt():
        yield printable(f"? {figures_in_doubt.note(in_doubt, is_booked=False)}")
    if ticked.models:
        yield explained(_MEANINGS)
    yield from (printable(f"  {line}") for line in ticked.problems())
    if ticked.differences:
        yield ""
        yield table(
            {"as booked since": TEXT, "dates": 0, "greatest difference": RATIO, "on": TEXT, "of": TEXT},
            [(one.figure, one.dates, one.greatest_ratio, one.on, one.model) for one in ticked.differences],
        )


def _figures(one: today_file.ModelToday) -> tuple[Any, ...]:
    return (
        one.joules_per_total_token,
        one.joules_per_output_token,
        one.mean_watts,
        one.newest_interval_watts,
        one.output_tokens,
        one.estimated_idle_energy_ratio,
        one.estimated_facility_energy_kwh,
        None if one.estimated_location_gco2e is None else float(one.estimated_location_gco2e) / 1000,
        one.estimated_compute_cost_usd,
        one.estimated_compute_cost_usd_per_output_mtok,
    )
