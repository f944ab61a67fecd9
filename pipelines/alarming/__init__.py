"""Alarms that leave the machine: raised after each run, remembered in the fleet's folder, sent to whom its file names.

Add a kind of alarm or of receiver here. Keep out what finds something wrong: checks are in `pipelines.booking`, figures
in the marts.
"""
