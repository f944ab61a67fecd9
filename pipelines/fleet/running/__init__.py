"""Keys of the fleet file about running Wattledger itself, day after day.

Add here what a run does beside booking. Keep out what the fleet is and what its figures are made of.
"""
