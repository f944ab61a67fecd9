"""One process for a fleet: ticks of the running day, the nightly run, and what it answers over HTTP.

Add here what such a process does while it lives. Keep out how a day is landed and booked (`pipelines.today`) and what a
run does: that is the command `run`, as a process of its own.
"""
