"""The same dbt models on Apache Spark, from a lake into marts that are committed at once.

Imported only when a fleet file has `engine: spark`, or when its lake holds marts that Spark built. Keep out what
DuckDB can do alone, and everything of Dagster.
"""
