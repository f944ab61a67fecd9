"""The publication in an object store, as Parquet files and Delta tables.

Only a fleet file with `publication.object_store` needs it, and only `code_location` knows it. Add here what a file, a
manifest or a log in a store is. Keep out which rows are published (`pipelines.publishing`).
"""
