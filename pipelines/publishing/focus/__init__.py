"""The cost of each billing month as FOCUS files, the format in which finance teams read cloud bills.

Only what writes a publication's files knows it, `publication` and `restoring`, and `month_closing`, which freezes one.
Keep out which costs there are: that is marts.focus_cost_and_usage.
"""
