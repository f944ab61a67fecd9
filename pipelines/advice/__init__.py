"""The assets of recommendations: read the marts, call `pipelines.analysis`, write one table with types and comments.

Add an asset per published table here. Keep out statistics (`pipelines.analysis`) and everything that SQL can compute
(`dbt_project/models`).
"""
