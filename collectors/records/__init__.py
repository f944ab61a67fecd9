"""Records instead of samples: requests of gateways, logs and load tests, published benchmarks, price lists.

Add a module per format; it returns the shared schema of its kind (`request_records`). Keep out time series.
"""
