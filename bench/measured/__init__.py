"""`make measure`: what a model of random weights takes on a real accelerator, stretch by stretch.

Add here what a host with an accelerator needs to measure itself: it has PyTorch and the agent's packages, and nothing
else of this project, so no Dagster, dbt, DuckDB or pandas. Keep out what is made of the files afterwards, and any call
that changes a setting of the accelerator.
"""
