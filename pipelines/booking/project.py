"""The dbt project: its manifest, how dbt is called, and what a run tells it.

Add here what holds for every call of dbt. Keep out which models are built when (`ledger`).
"""

import hashlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from functools import cached_property
from importlib.metadata import version as installed_version
from pathlib import Path

from dagster_dbt import DbtCliResource, DbtProject
from filelock import FileLock
from packaging.version import Version

from pipelines.fleet.fleet_file import PROJECT, Fleet
from pipelines.publishing import publication
from pipelines.warehouse import contracts, settings

DBT_PROJECT = PROJECT / "dbt_project"


class Dbt(DbtCliResource):
    """The dbt beside this Python. Its version is looked up in the environment: `dbt --version` would cost seconds and
    ask the network for newer ones."""

    @cached_property
    def _cli_version(self) -> Version:
        return Version(installed_version("dbt-core"))

    def _initialize_dbt_core_adapter(self, args: Sequence[str]) -> None:  # type: ignore[override]  # no adapter at all
        """No adapter in this process: Dagster would fetch row counts and column lineage with it, which nobody asks for,
        and building one parses all of dbt's macros, two seconds each time."""


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
            done = dbt_resource(project).cli(["parse", "--quiet"], target_path=project.target_path).wait()
            done.process.wait()
    return project


def dbt_resource(project: DbtProject) -> Dbt:
    """dbt of this environment, whether or not the environment is activated."""
    return Dbt(
        project_dir=project,  # type: ignore[arg-type]  # its own __init__ takes a project; mypy sees the field alone
        profiles_dir=os.fspath(DBT_PROJECT),
        dbt_executable=os.fspath(Path(sys.executable).with_name("dbt")),
    )


def seed_digest(seeds: Path = DBT_PROJECT / "seeds") -> str:
    """A digest of every seed file and its configuration."""
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(seeds.iterdir()):
        if path.suffix in (".csv", ".yml"):
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def constants_of(fleet: Fleet) -> settings.Constants:
    """What this code books a fleet's dates with."""
    return settings.constants(fleet, project_contracts(), publication.code_version())


def project_contracts() -> contracts.Contracts:
    """The contracts of the models in this checkout."""
    return contracts.contracts_of(prepared_project().manifest_path, DBT_PROJECT)


def project_vars(fleet: Fleet) -> dict[str, int]:
    """dbt's variables that the fleet file sets."""
    return {"grid_seconds": fleet.grid_seconds, "max_spread_seconds": round(fleet.max_spread_days * 86400)}


def settings_of_a_run(fleet: Fleet, first: date = date.min, end: date = date.min) -> dict[str, str]:
    """The environment variables that dbt reads in a run over the dates [first, end)."""
    published = publication.current(fleet)
    return {
        "WATTLEDGER_WAREHOUSE": os.fspath(fleet.warehouse),
        # What a date that is held back falls back to (macros/held_back.sql).
        "WATTLEDGER_LAST_PUBLICATION": os.fspath(published / publication.DATABASE) if published else "",
        "DBT_ENV_CUSTOM_ENV_START_DATE": first.isoformat(),
        "DBT_ENV_CUSTOM_ENV_END_DATE": end.isoformat(),
    }


@contextmanager
def environment(told: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables, and restore what they were."""
    before = {name: os.environ.get(name) for name in told}
    os.environ.update(told)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _newest_change() -> float:
    generated = {DBT_PROJECT / name for name in ("target", "logs", "dbt_packages")}
    return max(
        path.stat().st_mtime
        for top in DBT_PROJECT.iterdir()
        if top not in generated and top.name != ".user.yml"
        for path in (top, *top.rglob("*"))
        if path.is_file()
    )
