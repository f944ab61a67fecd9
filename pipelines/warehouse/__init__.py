"""The warehouse of a fleet: its DuckDB file, the tables that Python writes, and what each date was booked with.

Add here what landing, booking and publishing all need from the file. Keep out what any one of them does with it, and
all arithmetic of the ledger: that is SQL in `dbt_project`.
"""
