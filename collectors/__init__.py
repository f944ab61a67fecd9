"""Telemetry in, Arrow out: one module per kind of source, and the types they share (`samples`, `series`).

Add a module here for a new kind of source. A new exporter behind a known kind of source is rows in the metric
catalogue, not code. Keep out Dagster, dbt, DuckDB and the meaning of metrics: collectors deliver a source's values in
its own names and units. Importing this package itself must stay fast.
"""
