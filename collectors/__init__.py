"""Telemetry in, Arrow out: one module per kind of source, and the words they share (`samples`, `series`).

Add a module here when a new kind of source has to be read; a new exporter behind a known kind of source is rows in the
metric catalogue, not code. Keep out everything that knows Dagster, dbt, DuckDB or the meaning of a metric: collectors
say what the source said, in its own names and units, and this package itself stays light to import.
"""
