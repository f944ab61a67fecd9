"""The keys `landing` and `relanding` of the fleet file: where samples land, how long a store may take, and which dates
a server is asked for again.

Add a limit of the landing here. Keep out how samples are written there (`pipelines.landing.stores`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from collectors.samples import url_without_secrets
from pipelines.fleet.values import Part, SpoolPath


class LandingLimits(Part):
    """Seconds that a store may take: to answer when a run begins, and for one window of a source, all in all. They
    count where a server holds the lake or a spool."""

    answer_seconds: Annotated[float, Field(strict=True, gt=0, le=604_800)] = 60.0
    window_seconds: Annotated[float, Field(strict=True, gt=0, le=604_800)] = 3600.0


class LandingTarget(Part):
    """Where samples land: in the DuckDB warehouse, or as Parquet files in a lake at `path`, and which engine books them
    from there (docs/scale.md)."""

    target: Literal["duckdb", "lake"] = "duckdb"
    path: SpoolPath | None = Field(default=None, validate_default=False)
    engine: Literal["duckdb", "spark"] = "duckdb"
    limits: LandingLimits = LandingLimits()

    @property
    def lake_path(self) -> str:
        """The folder or URL of the lake. ValueError where samples land in the warehouse."""
        if self.path is None:
            raise ValueError("samples land in the warehouse: there is no lake")
        return self.path

    @model_validator(mode="after")
    def _lake_lies_somewhere(self) -> LandingTarget:
        if (self.target == "lake") != (self.path is not None):
            raise ValueError("expected {target: lake, path: lake/}, or {target: duckdb} without a path")
        return self


class Relanding(Part):
    """For which dates a run asks a Prometheus-compatible server again, beside its own. Of the newest `days` before them
    it asks how many samples there are by now, and lands again what has more. A date without samples up to its end stays
    due for `give_up_days`."""

    days: Annotated[int, Field(strict=True, ge=0, le=31)] = 3
    give_up_days: Annotated[int, Field(strict=True, ge=1, le=366)] = 14


def unbookable_landings(landing: LandingTarget) -> Iterator[str]:
    """What the engine that books cannot read from where samples land: one line each."""
    if landing.engine == "duckdb":
        return
    if landing.path is None:
        yield f"landing.target: got {landing.target!r}, expected 'lake' because engine is spark, which reads files"
    elif not Path(landing.path).is_absolute():  # every path on a file system is by now, and no URL is
        shown = url_without_secrets(landing.path)
        yield f"landing.path: got {shown!r}, expected a local or shared folder because engine is spark: marts are there"
