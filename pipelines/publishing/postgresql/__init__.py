"""The publication in PostgreSQL.

Only a fleet file with `publication.postgresql` needs it, and only `code_location` knows it. Add here what a table, a
lock or a load on that server is. Keep out which rows are published (`pipelines.publishing`).
"""
