"""Where Wattledger's own files are, and where the data of a fleet goes.

Wattledger runs from a checkout, where `dbt_project/`, `docs/` and `fleets/` are beside this package, or from an
installed wheel, which has them in `pipelines/bundled`. Nothing is ever written there: it may belong to another user.
Add here another place that must not depend on the working directory. Keep out what is in a fleet's folder: that is
`Fleet`.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

_BUNDLED = Path(__file__).parents[1] / "bundled"
IS_CHECKOUT = not _BUNDLED.is_dir()
PROJECT = Path(__file__).parents[2] if IS_CHECKOUT else _BUNDLED
DBT_PROJECT = PROJECT / "dbt_project"
DEFAULT_FLEET = PROJECT / "fleets" / "demo.yaml"


def fleet_option(fleet_file: Path) -> str:
    """What names the fleet in a command to type, with a blank before it; empty for the demo, which needs no name."""
    if fleet_file == DEFAULT_FLEET:
        return ""
    folder = Path.cwd()
    shown = fleet_file.relative_to(folder) if fleet_file.is_relative_to(folder) else fleet_file
    return f" --fleet {shlex.quote(str(shown))}"


def data_folder(fleet_file: Path, name: str, environ: Mapping[str, str]) -> tuple[Path, str | None]:
    """The folder that the fleet's own folder is in, and a notice where that is not its ordinary place.

    It is $WATTLEDGER_DATA. Without that variable it is `data` beside the fleet file; for the files of a checkout the
    checkout's own `data`; for the fleets of an installed wheel $XDG_DATA_HOME/wattledger. Until version 0.1 it was the
    checkout's `data` for every file: a fleet whose data is there stays there. The working directory never counts: that
    of a job in a crontab is `/`.
    """
    if environ.get("WATTLEDGER_DATA"):
        return Path(environ["WATTLEDGER_DATA"]).expanduser().absolute(), None
    if fleet_file.is_relative_to(PROJECT):
        return (PROJECT / "data" if IS_CHECKOUT else _of_the_user(environ)), None
    beside, earlier = fleet_file.parent / "data", PROJECT / "data"
    if IS_CHECKOUT and (earlier / name / "warehouse.duckdb").exists() and not (beside / name).exists():
        return (
            earlier,
            f"its data is in {earlier / name}, as before; to have it beside this file, move it to {beside / name}",
        )
    return beside, None


def parsed_folder(data: Path) -> Path:
    """The folder of what dbt keeps of its parsed project, for fleets whose folders are in `data`."""
    return DBT_PROJECT / "target" if IS_CHECKOUT else data / ".dbt"


def _of_the_user(environ: Mapping[str, str]) -> Path:
    shared = environ.get("XDG_DATA_HOME") or ""
    return (Path(shared) if Path(shared).is_absolute() else Path.home() / ".local" / "share") / "wattledger"
