"""Who asked: the keys of tenants in the book, and their names.

Add here what the warehouse knows of tenants. Keep out what they used and pay: that is SQL.
"""
