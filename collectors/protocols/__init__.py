"""Samples over a protocol or from files: Prometheus-compatible servers, `/metrics` pages, grid APIs, CSV and Parquet.

Add a module per protocol. Keep out the fleet file: a collector gets plain arguments and yields batches.
"""
