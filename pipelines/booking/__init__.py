"""Booking: the dbt project as Dagster assets, and all checks of the booked figures.

Add a check of the book here, or an alarm if it should only warn. Keep out SQL that computes a published figure: that
is a dbt model.
"""
