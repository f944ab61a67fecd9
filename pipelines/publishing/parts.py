"""What is made beside the tables, each part alone: figures, sheets, pictures, FOCUS files, printed tables.

One part that cannot be made is a line of text in its place and a line of the check `every_part_is_made`; all else is
published. Add here what happens to such a part. Keep out what a part shows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import duckdb

from pipelines.warehouse import findings

if TYPE_CHECKING:
    import dagster as dg

CHECK = "every_part_is_made"
REMEDY = "report the line to the maintainers; the tables and all other parts are published"
NO_PICTURES = "Pictures are drawn where matplotlib is installed: pip install 'wattledger[ui]'."
# What stops everything: a full disk, a damaged file, too little memory.
STOPS = (OSError, MemoryError, duckdb.IOException, duckdb.OutOfMemoryException)

Made = TypeVar("Made")
logger = logging.getLogger(__name__)


class Parts:
    """The parts of an asset while they are made; `failed` has a line for each that could not be."""

    def __init__(self) -> None:
        self.failed: list[str] = []

    def attempt(
        self,
        part: str,
        make: Callable[[], Made],
        instead: Callable[[str], Made],
        stops: tuple[type[BaseException], ...] = STOPS,
    ) -> Made:
        """What `make` returns; if it fails, what `instead` makes of the line that names the part and the error. `part`
        names the thing and where its query is: `figure Alarms (pipelines/report/sql/alarms.sql)`. What is in `stops`
        is raised."""
        try:
            return make()
        except stops:
            raise
        except Exception as error:  # whatever a name, a number or a query does to one part
            line = f"{part} could not be made: {type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
            self.failed.append(line)
            logger.warning(line)
            return instead(line)

    def picture(self, name: str, draw: Callable[[], str]) -> str:
        """The Markdown image that `draw` returns, or the line with the reason why there is none. Without
        matplotlib, which comes with the pages that show them, that is no failure."""
        try:
            import matplotlib  # noqa: F401, PLC0415 (half a second that only a picture pays)
        except ImportError:
            return NO_PICTURES
        return self.attempt(f"picture {name}", draw, lambda line: f"{line}. The tables are complete.", stops=())

    def result(self, asset: dg.AssetKey) -> dg.AssetCheckResult:
        """The check of the asset's parts. It fails with a line for each that could not be made."""
        import dagster as dg  # noqa: PLC0415 (as below: `table` prints parts without it)

        return dg.AssetCheckResult(
            passed=not self.failed,
            asset_key=asset,
            check_name=CHECK,
            severity=dg.AssetCheckSeverity.ERROR,
            description=findings.report(self.failed, len(self.failed), "every part", REMEDY) if self.failed else None,
            metadata={"failed": len(self.failed)},
        )


def spec(asset: dg.AssetKey) -> dg.AssetCheckSpec:
    """The check of an asset that makes parts."""
    import dagster as dg  # noqa: PLC0415

    return dg.AssetCheckSpec(
        CHECK,
        asset=asset,
        description="Every figure, sheet, file and picture of it was made.",
        metadata={"remedy": REMEDY},
    )
