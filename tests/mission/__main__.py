"""`make mission`: prints each row of mission.yaml with its answer, and ends with 1 where one is wrong."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from tests import optional
from tests.mission.fleets import MAKE
from tests.mission.table import Row, answered, is_right, plain, rows

KNOWN = "known to be wrong"


def main() -> int:
    """Ask the rows in their order; a fleet is booked when the first row asks it."""
    counts = dict.fromkeys(("ok", "WRONG", KNOWN, "skipped"), 0)
    with tempfile.TemporaryDirectory() as folder:
        fleets: dict[str, Any] = {}
        for row in rows():
            print(f"\n{row.promise}\n  {row.question}", flush=True)
            verdict, got = _verdict(row, fleets, Path(folder))
            counts[verdict] += 1
            print(f"  expected  {row.answer}\n  got       {got}\n  {verdict}")
    print("\n" + ", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    return 1 if counts["WRONG"] else 0


def _verdict(row: Row, fleets: dict[str, Any], folder: Path) -> tuple[str, Any]:
    if missing := optional.missing(*row.needs):
        return "skipped", missing
    try:
        if row.fleet not in fleets:
            (folder / row.fleet).mkdir()
            fleets[row.fleet] = MAKE[row.fleet](folder / row.fleet)
        got = plain(answered(row, fleets[row.fleet]))
    except Exception as error:
        return "WRONG", f"{type(error).__name__}: {error}"
    if not row.expected_wrong_until:
        return "ok" if is_right(row, got) else "WRONG", got
    return ("WRONG", f"{got}: right now, remove expected_wrong_until") if is_right(row, got) else (KNOWN, got)


if __name__ == "__main__":
    sys.exit(main())
