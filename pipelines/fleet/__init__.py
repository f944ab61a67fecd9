"""The fleet file, read whole and validated before anything runs, and the catalogues that it refers to.

Add a key of the fleet file in the module of its topic, and its check beside it. Keep out everything that opens a
database or asks a server: this package knows files and names only.
"""
