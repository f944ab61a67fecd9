"""The same dbt models on Apache Spark, from a lake into marts that are committed at once.

Only `code_location` knows it, and imports it only for a fleet whose samples land in a lake. Keep out what DuckDB can do
alone.
"""
