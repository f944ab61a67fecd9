"""Which Dagster instance a fleet uses, and the UI on it: its folder, its code locations, its port, its schedule.

A fleet has an instance of its own, data/<fleet>/.dagster; one UI on several fleets has one instance, in which keys
begin with the fleet (docs/decisions/README.md, 0009). Add here what a person's own machine needs to run Dagster. Keep
out what Dagster loads: that is `pipelines.code_location`. Nothing here imports Dagster at the top: checking a fleet
file should not pay for it.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from pipelines.command_line.process_group import run_together
from pipelines.fleet.fleet_file import Fleet
from pipelines.fleet.places import PROJECT
from pipelines.warehouse import night_lock
from pipelines.warehouse.asset_keys import SHARED_INSTANCE

if TYPE_CHECKING:
    import dagster as dg

FIRST_PORT = 3000
PORTS = 100
# Not in the project's folder: there `dagster dev` warns that it uses the copy.
CONFIGURATION = Path(__file__).with_name("dagster.yaml")
SHARED = ".dagster-shared"
# What Dagster would advise a person who typed its command: `dg`, a tool for developers of Dagster projects.
NOT_OURS = ("Function `dev_command` is superseded",)
# The daemon writes a heartbeat twice a minute.
HEARTBEAT_SECONDS = 120

_LOCATION = '''"""Written by `wattledger dev`: the code location of the fleet {name}."""

from pipelines.code_location import definitions_of
from pipelines.fleet.fleet_file import load_fleet

defs = definitions_of(load_fleet({path!r}))
'''


class InstanceError(Exception):
    """The instance cannot be used as requested; the message names the reason and what to do."""


def own_home(fleet: Fleet) -> Path:
    """The folder of the fleet's own instance."""
    return fleet.root / ".dagster"


def home_of(fleets: Sequence[Fleet]) -> Path:
    """The folder of the instance for these fleets: DAGSTER_HOME where it is set, else one fleet's own, or that of
    several fleets in one UI."""
    named = os.environ.get("DAGSTER_HOME")
    if named:
        return Path(named).expanduser().absolute()
    (parent,) = {fleet.root.parent for fleet in fleets}
    return own_home(fleets[0]) if len(fleets) == 1 else parent / SHARED


def prepare(fleets: Sequence[Fleet]) -> Path:
    """Choose the instance, create it, and return its folder."""
    home, is_ours = chosen(fleets)
    create(home, is_ours=is_ours)
    return home


def chosen(fleets: Sequence[Fleet]) -> tuple[Path, bool]:
    """Set DAGSTER_HOME to the instance's folder for this process and its children; returns the folder, and whether its
    configuration is ours. Writes nothing."""
    home = home_of(fleets)
    os.environ["DAGSTER_HOME"] = str(home)
    is_own = [home] == [own_home(fleet) for fleet in fleets]
    if not is_own:
        os.environ.setdefault(SHARED_INSTANCE, "1")
    return home, is_own or home.name == SHARED


def create(home: Path, *, is_ours: bool) -> None:
    """Create the instance's folder. One that was set up elsewhere (a team's, with its own database) keeps its
    configuration."""
    home.mkdir(parents=True, exist_ok=True)
    configuration = home / "dagster.yaml"
    if is_ours or not configuration.exists():
        shutil.copyfile(CONFIGURATION, configuration)


def open_ui(fleets: Sequence[Fleet], options: Sequence[str]) -> int:
    """Run `dagster dev` on these fleets, with further options of its own; returns its exit status."""
    _refuse_twice(fleets)
    if find_spec("dagster_webserver") is None:
        raise InstanceError("the Dagster UI is not installed: pip install 'wattledger[ui]'")
    home = prepare(fleets)
    workspace = _write_workspace(home, fleets)
    port = None if _chooses_port(options) else free_port()
    address = f"http://127.0.0.1:{port}" if port else f"the address that {' '.join(options)} names"
    for folder in dict.fromkeys([home, *(own_home(fleet) for fleet in fleets)]):
        _hold(folder, address)
    for fleet in fleets:
        if not night_lock.take(fleet.root, night_lock.DEV):
            print(f"The nights of {fleet.fleet} are run by {night_lock.holder(fleet.root)}.", flush=True)
    names = ", ".join(fleet.fleet for fleet in fleets)
    print(f"Dagster UI of {names}: {address} (history in {home}; Ctrl-C stops it)", flush=True)
    chosen = ["--port", str(port)] if port else []
    python = [sys.executable, *(word for hint in NOT_OURS for word in ("-W", f"ignore:{hint}"))]
    return run_together([*python, "-m", "dagster", "dev", "-w", str(workspace), *chosen, *options])


def free_port(first: int = FIRST_PORT) -> int:
    """The first free port of this machine from `first` on, reserved until this process ends.

    The webserver begins to listen seconds later: a lock keeps another `make dev` from choosing the same port meanwhile.
    """
    locks = Path(tempfile.gettempdir()) / "wattledger"
    for port in range(first, first + PORTS):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        with suppress(PermissionError):  # another user's folder: then the two are left to chance
            locks.mkdir(parents=True, exist_ok=True)
            if _lock(locks / f"port-{port}.lock") is None:
                continue
        return port
    raise InstanceError(f"ports {first} to {first + PORTS - 1} are all in use. Name a free one: --port 4000.")


def nightly(fleet: Fleet, instance: dg.DagsterInstance) -> str | None:
    """Whether a fleet without an end is booked every night, and how to switch it; None for a closed one."""
    if fleet.period.end is not None:
        return None
    from dagster._core.definitions.run_request import InstigatorType  # noqa: PLC0415 (Dagster takes a second)
    from dagster._core.scheduler.instigation import InstigatorStatus  # noqa: PLC0415

    from pipelines.code_location import NIGHTLY, SCHEDULE  # noqa: PLC0415

    at = "{:02}:{:02} UTC".format(*NIGHTLY)
    holder = night_lock.holder(fleet.root)
    if holder is not None and holder.command == night_lock.SERVE:
        return f"Booked nightly at {at} by {holder}."
    states = [
        state
        for state in instance.all_instigator_state(instigator_type=InstigatorType.SCHEDULE)
        if state.instigator_name == SCHEDULE
        # In the fleet's own instance every location is the fleet, whatever a workspace calls it.
        and (is_own(fleet) or state.origin.repository_origin.code_location_origin.location_name == fleet.fleet)
    ]
    stopped = any(state.status == InstigatorStatus.STOPPED for state in states)
    heartbeat = instance.get_daemon_heartbeats().get("SCHEDULER")
    is_alive = heartbeat is not None and time.time() - heartbeat.timestamp < HEARTBEAT_SECONDS
    where = f"Dagster UI > Automation > {SCHEDULE}"
    opens = f"wattledger dev --fleet {_shown(fleet.path)}"
    if stopped:
        return f"Not booked nightly: the schedule is switched off. To switch it on: {opens}, then {where}."
    if is_alive:
        return f"Booked nightly at {at} by the running Dagster daemon. To switch it off: {where}."
    return (
        f"Not booked nightly now: `wattledger serve --fleet {_shown(fleet.path)}` books it at {at}, and `{opens}` does"
        f" while it is open. To switch that off: {where}."
    )


def is_own(fleet: Fleet) -> bool:
    """Whether DAGSTER_HOME is the fleet's own instance."""
    return home_of([fleet]) == own_home(fleet)


def _refuse_twice(fleets: Sequence[Fleet]) -> None:
    by_name: dict[str, Fleet] = {}
    for fleet in fleets:
        first = by_name.setdefault(fleet.fleet, fleet)
        if first is not fleet:
            raise InstanceError(
                f"{first.path} and {fleet.path} are both named {fleet.fleet!r}: they would write the same data folder."
                " Change `fleet:` in one of them."
            )


def _write_workspace(home: Path, fleets: Sequence[Fleet]) -> Path:
    """One code location per fleet, named after it. A workspace file hands no variable to a location, so each has a
    file of three lines that names its fleet."""
    folder = home / "locations"
    folder.mkdir(exist_ok=True)
    entries = []
    for fleet in fleets:
        # The file's name becomes a module's name: `json.py` would hide Python's own module, `fleet_json.py` does not.
        file = folder / f"fleet_{fleet.fleet}.py"
        file.write_text(_LOCATION.format(name=fleet.fleet, path=str(fleet.path)), encoding="utf-8")
        location = {"relative_path": str(file), "location_name": fleet.fleet, "working_directory": str(PROJECT)}
        entries.append({"python_file": location})
    workspace = home / "workspace.yaml"
    workspace.write_text(yaml.safe_dump({"load_from": entries}, sort_keys=False), encoding="utf-8")
    return workspace


def _hold(home: Path, address: str) -> None:
    """Hold a lock until this process and `dagster dev` have ended. Without it two daemons on one instance, or one
    fleet's schedule in two instances, would book twice."""
    home.mkdir(parents=True, exist_ok=True)
    path = home / "dev.lock"
    held = _lock(path)
    if held is None:
        raise InstanceError(f"{home} is already open in a Dagster UI{_holder(path)}. Use that one, or stop it first.")
    os.truncate(held, 0)
    since = datetime.now(UTC).isoformat(timespec="seconds")
    holder = {"pid": os.getpid(), "host": socket.gethostname(), "address": address, "since": since}
    os.pwrite(held, json.dumps(holder).encode(), 0)


def _lock(path: Path) -> int | None:
    """A lock on the file that lasts until this process ends, and the command that inherits it; None where it is
    taken."""
    held = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as refusal:
        os.close(held)
        if refusal.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            raise
        return None
    os.set_inheritable(held, True)
    return held


def _holder(path: Path) -> str:
    with suppress(OSError, ValueError, KeyError):
        holder = json.loads(path.read_text(encoding="utf-8"))
        return f": {holder['address']} (process {holder['pid']} on {holder['host']}, since {holder['since']})"
    return ""


def _chooses_port(options: Sequence[str]) -> bool:
    return any(option.startswith(("--port", "--dagit-port")) or option[:2] == "-p" for option in options)


def _shown(path: Path) -> str:
    """A fleet file as one would type it in the project's folder."""
    return str(path.relative_to(PROJECT)) if path.is_relative_to(PROJECT) else str(path)
