"""The tools of `make bench`: generators of load, and hand-written floors to compare the product with.

Add a module here to measure another speed or memory. Every figure is printed; no test asserts one. Keep out what the
product runs (nothing in `collectors` or `pipelines` imports this) and tricks that a floor does not need: a floor is
the leanest correct way to the same numbers.
"""
