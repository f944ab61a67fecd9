"""What keeps a fleet's data folder in order: what may go and what that frees, backups, and what is wrong or due.

Add here what looks after data that others wrote. Keep out what lands, books and publishes it.
"""
