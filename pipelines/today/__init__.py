"""The running UTC day, landed and booked beside the warehouse, and the book that `discover` makes of two hours.

Add here what is booked outside the warehouse. Keep out when a tick is made (`pipelines.serving`), and every figure: the
models of `dbt_project` book it.
"""
