"""What readers see: the publication with its guards, the printed tables and the pictures.

Add here how a figure is shown. Keep out how it is computed: nothing here adds, divides or estimates.
"""
