"""The dictionary of headline figures, dbt_project/figures.yml: what each is called, and the columns that it is made of.

Add a figure to that file. Keep out how it is explained (`explanation`) and its page (`documentation`).
"""

from __future__ import annotations

import difflib
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field

from pipelines.fleet.places import DBT_PROJECT
from pipelines.warehouse.refusals import QuestionError

PATH: Path = DBT_PROJECT / "figures.yml"


class HeadlineFigure(BaseModel):
    """One entry of the file; the comment at its top explains each key."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
    title: str
    headings: tuple[str, ...] = ()
    unit: str
    table: Annotated[str, Field(pattern=r"^(finance|marts)\.[a-z_]+$")]
    numerator: str
    denominator: str | None = None
    factor: float = 1
    only_with: str | None = None
    metric: str | None = None
    boundary: Literal["accelerator", "IT", "facility"]
    free: Literal["shared", "own row", "none"]
    interval: str
    definition: str
    branches: tuple[str, ...] = ()

    @property
    def formula(self) -> str:
        """How it is computed from the columns of its table."""
        if self.denominator is None:
            return f"sum({self.numerator})"
        factor = f" × {self.factor:,.0f}" if self.factor != 1 else ""
        return f"sum({self.numerator}) / sum({self.denominator}){factor}"


@cache
def figures() -> dict[str, HeadlineFigure]:
    """Name -> figure, in the order of the file."""
    stated = yaml.safe_load(PATH.read_text(encoding="utf-8"))["figures"]
    found = [HeadlineFigure.model_validate(entry) for entry in stated]
    return {figure.name: figure for figure in found}


def named(name: str) -> HeadlineFigure:
    """The figure of this name. QuestionError, with the names that are most like it, where there is none."""
    if name in figures():
        return figures()[name]
    near = difflib.get_close_matches(name, figures(), n=3, cutoff=0.4) or list(figures())
    raise QuestionError(f"no headline figure is named {name!r}. The nearest names: {', '.join(near)} (docs/figures.md)")
