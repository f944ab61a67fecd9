"""The fleet report: one HTML page per publication, for an operator and a finance lead to look at together.

Add here a figure that a decision needs, with its query, its sentence and its boundary. Keep out tables and exports
(`pipelines.publishing`), and arithmetic that a mart has already: queries here sum and divide columns of the marts.
"""
