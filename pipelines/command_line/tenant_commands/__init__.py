"""Commands about who asked: what a request or a tenant used, and the erasure of a name.

Add here what is asked by or about a customer. Keep out months and prices of the whole fleet.
"""
