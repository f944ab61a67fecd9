"""Commands of every day beside `run`: the running day, the service, and alarms.

Add a command here that looks at a fleet while it runs. Keep out what it shows: that is `pipelines.today`,
`pipelines.serving` and `pipelines.alarming`.
"""
