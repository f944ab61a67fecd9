"""Where things go that leave the fleet's folder: publications and alarms.

Add here the keys of another place to which something is sent. Keep out what is read from (`pipelines.fleet.sources`).
"""
