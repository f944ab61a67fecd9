"""The commands that look after a fleet's data: `prune`, `doctor`, `backup`.

Add here a command that books nothing. Keep out what it does: that is `pipelines.upkeep`.
"""
