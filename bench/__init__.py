"""What `make bench` measures with: generators of load and the hand-written floors that the product is held against.

Add a module here when a speed or a memory has to be shown; every figure is printed, none is ever asserted by a test.
Keep out what the product runs (nothing in `collectors` or `pipelines` imports this) and tricks that a floor would not
need: a floor is the leanest honest way to the same numbers.
"""
