"""Where the models of the dbt project are, by name: a test names a model, and does not care for its folder.

Add here ways to find a model's file. Keep out what dbt knows of a model (its manifest).
"""

from functools import cache
from pathlib import Path

from pipelines.fleet.places import DBT_PROJECT

MODELS = DBT_PROJECT / "models"

# Folders whose models are tables of schema finance.
FINANCE = ("finance", "changes")


def model(name: str) -> str:
    """The path of a model's SQL, relative to the dbt project."""
    return str(_files()[name].relative_to(DBT_PROJECT))


def marts() -> list[Path]:
    """The SQL of every mart, by name: of all models that are no steps, staging models, invariants or tables
    of finance."""
    return [
        path
        for name, path in sorted(_files().items())
        if not name.startswith(("int_", "stg_")) and path.parent.name not in ("invariants", *FINANCE)
    ]


def finance() -> list[Path]:
    """The SQL of every table of schema finance, by name."""
    return [path for _, path in sorted(_files().items()) if path.parent.name in FINANCE]


def mart_entries() -> list[Path]:
    """The YAML entry of every mart, in the same order; some entry files have more than one mart."""
    return sorted({path.with_suffix(".yml") for path in marts() if path.with_suffix(".yml").exists()})


def finance_entries() -> list[Path]:
    """The YAML entry of every table of schema finance, in the same order."""
    return [path.with_suffix(".yml") for path in finance()]


@cache
def _files() -> dict[str, Path]:
    return {path.stem: path for path in MODELS.rglob("*.sql")}
