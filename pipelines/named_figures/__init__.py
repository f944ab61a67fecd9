"""The headline figures: one dictionary of their names, and each of them as a tree of what it is made of.

Add here what holds for every headline figure. Keep out arithmetic: figures are sums of published columns.
"""
