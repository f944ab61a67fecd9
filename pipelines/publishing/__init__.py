"""What readers open: the publication with its checks, pictures, and a folder for each place or format it goes to.

Add here how a figure is kept and shown. Keep out how it is computed (nothing here adds, divides or estimates) and what
the command line prints (`pipelines.command_line`).
"""
