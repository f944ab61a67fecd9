"""Questions to a source that nothing is known of yet: what is it, what does it hold, since when, how often.

Add here how a further thing is asked for within bounds. Keep out what the answers mean for a fleet file: that is
`pipelines.discovery`.
"""
