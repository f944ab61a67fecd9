"""Commands of every day beside `run`: the running day, the service, alarms, and what other programs read.

Add a command here that looks at a fleet while it runs. Keep out what it shows: that is `pipelines.today`,
`pipelines.serving`, `pipelines.alarming` and `pipelines.publishing`.
"""
