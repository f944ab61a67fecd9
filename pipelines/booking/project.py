"""The dbt project: its manifest, its contracts, and the variables that a fleet's run gives it.

Add here what is derived from the project's files and a fleet. Keep out how dbt runs (`dbt_run`) and which models are
built when (`ledger`).
"""

import hashlib
import os
from datetime import date
from pathlib import Path

from dagster_dbt import DbtProject
from filelock import FileLock

from pipelines.booking import dbt_run
from pipelines.booking.dbt_run import DBT_PROJECT
from pipelines.fleet.fleet_file import Fleet
from pipelines.warehouse import contracts, settings


def prepared_project() -> DbtProject:
    """The dbt project with a manifest that is not older than its files.

    A fresh checkout has none, and without one the definitions do not load; parsing takes a few seconds, once. Two
    processes that start together (the webserver and the daemon) parse one after the other.
    """
    project = DbtProject(project_dir=DBT_PROJECT, profiles_dir=DBT_PROJECT)
    manifest = project.manifest_path
    manifest.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(manifest.with_name("parse.lock")):
        if not manifest.exists() or manifest.stat().st_mtime < _newest_change():
            dbt_run.parse(DBT_PROJECT)
    return project


def seed_digest(seeds: Path = DBT_PROJECT / "seeds") -> str:
    """A digest of every seed file and its configuration."""
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(seeds.iterdir()):
        if path.suffix in (".csv", ".yml"):
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def constants_of(fleet: Fleet) -> settings.Constants:
    """What this code books a fleet's dates with."""
    return settings.constants(fleet, project_contracts())


def project_contracts() -> contracts.Contracts:
    """The contracts of the models in this checkout."""
    return contracts.contracts_of(prepared_project().manifest_path, DBT_PROJECT)


def variables_of(fleet: Fleet, first: date = date.min, end: date = date.min) -> dict[str, str | int]:
    """dbt's vars for booking the dates [first, end) of a fleet; without dates, for what depends on none."""
    return {
        "start_date": first.isoformat(),
        "end_date": end.isoformat(),
        "grid_seconds": fleet.grid_seconds,
        "max_spread_seconds": round(fleet.max_spread_days * 86400),
        "most_tokens_per_second": fleet.limits.tokens_per_second,
        "has_todays_columns": True,  # upgrades.prepare has seen to it
    }


def environment_of(fleet: Fleet) -> dict[str, str]:
    """What dbt reads from the environment: the file that it writes, and the one that a held back date falls back to."""
    published = fleet.latest_publication
    return {
        "WATTLEDGER_WAREHOUSE": os.fspath(fleet.warehouse),
        "WATTLEDGER_LAST_PUBLICATION": os.fspath(published / fleet.snapshot.name) if published else "",
    }


def _newest_change() -> float:
    generated = {DBT_PROJECT / name for name in ("target", "logs", "dbt_packages")}
    return max(
        path.stat().st_mtime
        for top in DBT_PROJECT.iterdir()
        if top not in generated and top.name != ".user.yml"
        for path in (top, *top.rglob("*"))
        if path.is_file()
    )
