"""Statistics that SQL cannot compute (fits, resampling, packing): pure functions, a frame in and a frame out.

Add a module here when a question needs an optimiser or a bootstrap. Keep out Dagster, files and databases, and any
arithmetic that a dbt model could do: business meaning is SQL, once.
"""
