"""Orchestration: thin Dagster assets that call plain functions, the landing of raw telemetry, and the publication.

Add a module here for a new step between a source and a reader, and name it by its noun. Keep out the meaning of
numbers, which is SQL in `dbt_project`, the reading of sources, which is `collectors`, and statistics, which is
`pipelines/analysis`.
"""

__version__ = "0.1.0"
