"""What the files of a folder are, by their content: for who has logs and no fleet file yet.

Add here a format that is known by what it holds. Keep out how it is read: each file becomes an entry of the fleet file,
which the ordinary readers read.
"""
