"""What the fleet file states of money: rates, commitments, tariffs, contracts, bills, budgets, prices of tokens.

Add a key here that a price or an invoice has. Keep out arithmetic: that is SQL in `dbt_project`.
"""
