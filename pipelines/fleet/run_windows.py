"""Named windows: a benchmark run, a test, an incident, stated in the fleet file or in files that it names.

Add a fact of a window here. Keep out what is measured in it: SQL.
"""

from __future__ import annotations

from pydantic import AwareDatetime, Field, model_validator

from pipelines.fleet.sources import FleetPath, Name, NonNegative, Part


class RunWindow(Part):
    """A named stretch of time of a node, an engine or a model; tokens where a benchmark states them."""

    window_id: Name
    start_at: AwareDatetime
    end_at: AwareDatetime
    node: Name | None = None
    engine: Name | None = None
    model: Name | None = None
    output_tokens: NonNegative | None = None
    total_tokens: NonNegative | None = None

    @model_validator(mode="after")
    def _somewhere(self) -> RunWindow:
        if self.node is None and self.engine is None and self.model is None:
            raise ValueError("expected at least one of node, engine and model")
        if self.end_at <= self.start_at:
            raise ValueError(f"end_at: got {self.end_at}, expected a time after start_at {self.start_at}")
        return self


class RunWindowFile(Part):
    """A CSV or Parquet file of windows; `columns` maps a column of raw.run_windows to the file's."""

    path: FleetPath
    columns: dict[str, str] = Field(default_factory=dict)


class RunWindows(Part):
    """The windows that the fleet file states, and the files that hold others."""

    inline: tuple[RunWindow, ...] = ()
    files: tuple[RunWindowFile, ...] = ()
