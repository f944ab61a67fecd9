"""The dbt project: its manifest, its contracts, and the variables that a fleet's run gives it.

Add here what is derived from the project's files and a fleet. Keep out how dbt runs (`dbt_run`) and which models are
built when (`ledger`).
"""

import hashlib
import os
from collections.abc import Sequence
from datetime import date, datetime
from importlib.metadata import version
from pathlib import Path

from dagster_dbt import DbtProject
from filelock import FileLock

from collectors.samples import microseconds
from pipelines.booking import dbt_run
from pipelines.fleet.fleet_file import Fleet
from pipelines.fleet.places import DBT_PROJECT, PROJECT, parsed_folder
from pipelines.warehouse import contracts, settings


def prepared_project(data: Path = PROJECT / "data") -> DbtProject:
    """The dbt project with a manifest of its files as they are, for fleets whose folders are in `data`.

    Without a manifest the definitions do not load; parsing takes a few seconds, once. Two processes that start together
    (the webserver and the daemon) parse one after the other. Whether files changed is seen by what is in them: an
    installed file, or one of a container's image, may have any time.
    """
    parsed = parsed_folder(data)
    parsed.mkdir(parents=True, exist_ok=True)
    project = DbtProject(project_dir=DBT_PROJECT, profiles_dir=DBT_PROJECT, target_path=parsed)
    with FileLock(parsed / "parse.lock"):
        digest, of_manifest = project_digest(), parsed / "manifest.digest"
        if not (project.manifest_path.exists() and of_manifest.exists() and of_manifest.read_text() == digest):
            of_manifest.unlink(missing_ok=True)
            dbt_run.parse(DBT_PROJECT, parsed)
            of_manifest.write_text(digest)
    return project


def project_digest() -> str:
    """A digest of every file of the project, and of dbt's version, which reads them."""
    generated = {DBT_PROJECT / name for name in ("target", "logs", "dbt_packages", ".user.yml")}
    digest = hashlib.blake2b(version("dbt-core").encode(), digest_size=16)
    for top in sorted(DBT_PROJECT.iterdir()):
        for path in () if top in generated else sorted((top, *top.rglob("*"))):
            if path.is_file():
                digest.update(f"\0{path.relative_to(DBT_PROJECT)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def seed_digest(seeds: Path = DBT_PROJECT / "seeds") -> str:
    """A digest of every seed file and its configuration."""
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(seeds.iterdir()):
        if path.suffix in (".csv", ".yml"):
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def constants_of(fleet: Fleet) -> settings.Constants:
    """What this code books a fleet's dates with."""
    return settings.constants(fleet, project_contracts(fleet))


def project_contracts(fleet: Fleet) -> contracts.Contracts:
    """The contracts of the models that book the fleet."""
    return contracts.contracts_of(prepared_project(fleet.root.parent).manifest_path, DBT_PROJECT)


def variables_of(
    fleet: Fleet,
    first: date = date.min,
    end: date = date.min,
    closed_until: datetime | None = None,
    *,
    unasked: Sequence[date] = (),
) -> dict[str, str | int]:
    """dbt's vars for booking the dates [first, end) of a fleet but those that are `unasked`; without dates, for what
    depends on none. Of a day that is still running, `closed_until` is the end of its last closed interval."""
    closed = {} if closed_until is None else {"closed_until_us": microseconds(closed_until)}
    return {
        **closed,
        **({"unasked_dates": ", ".join(f"date '{on}'" for on in unasked)} if unasked else {}),
        "start_date": first.isoformat(),
        "end_date": end.isoformat(),
        "grid_seconds": fleet.grid_seconds,
        "max_spread_seconds": round(fleet.max_spread_days * 86400),
        "most_tokens_per_second": fleet.limits.tokens_per_second,
        # A day that is still running has no receipts.
        **({"keeps_receipts": True} if fleet.receipts.keep and closed_until is None else {}),
        "has_todays_columns": True,  # upgrades.prepare has seen to it
    }


def environment_of(fleet: Fleet) -> dict[str, str]:
    """What dbt reads from the environment: the file that it writes, and the one that a held back date falls back to."""
    published = fleet.latest_publication
    return {
        "WATTLEDGER_WAREHOUSE": os.fspath(fleet.warehouse),
        "WATTLEDGER_LAST_PUBLICATION": os.fspath(published / fleet.snapshot.name) if published else "",
    }
