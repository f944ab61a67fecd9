"""Prices per token for gateways: a period's published prices as files of LiteLLM and Langfuse, and as CSV.

Add here the file of another program that multiplies tokens by a price. Keep out what a token costs, at any utilisation:
that is marts.token_prices.
"""
