"""The command line, `wattledger`: its commands, what they print, and the Dagster instance that it runs on.

Add a command in `main` and its work in a module of its own. Keep out what an asset does: every command calls the same
assets that the Dagster UI shows.
"""
