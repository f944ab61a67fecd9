"""The `synthetic` source: an invented fleet whose truth is known, for the demo and for tests.

Add a scenario here. Keep out anything that a real source could need.
"""
