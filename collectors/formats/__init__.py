"""Sample files that tools write in a shape of their own: `format: nvidia_smi` in place of a mapping of columns.

Add a module per tool and its name in `named_formats`. Keep out what the values mean (the metric catalogue), and how a
table of any other logger is read: the fleet file maps its columns.
"""
