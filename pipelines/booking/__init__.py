"""Booking: the dbt project as Dagster assets, and every check of what it booked.

Add a check of the book here, an alarm where it should only warn. Keep out SQL that computes a published figure: that
is a dbt model.
"""
