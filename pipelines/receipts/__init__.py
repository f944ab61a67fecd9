"""Receipts: what each logged request used, as files beside the publication, never in it.

Add here what keeps, expires and opens them. Keep out what is in one: that is SQL (dbt_project/models/receipts).
"""
