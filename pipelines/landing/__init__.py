"""Landing: the answers of sources become rows of the schema `raw`, in transactions, in the warehouse or in a lake.

Add a module per kind of thing that lands (`…_landing`), and its Dagster assets in `…_assets`. Keep out the meaning of
the rows: landing changes no value, it only counts what it refuses.
"""
