"""What readers open: the publication with its checks, the printed tables and the pictures.

Add here how a figure is shown. Keep out how it is computed: nothing here adds, divides or estimates.
"""
