"""What each step of finance.bridge is called by every reader: report, workbook and terminal.

Add a word when dbt_project/macros/bridge.sql gets a step. Keep out what a step is computed from.
"""

STEPS = {
    "calendar_usd": "length of the month",
    "coverage_usd": "metered more or less",
    "price_usd": "prices",
    "volume_usd": "tokens",
    "efficiency_usd": "work per token",
    "idle_usd": "idleness",
    "new_usd": "new models",
    "gone_usd": "models gone",
    "adjustments_usd": "adjustments of closed months",
}
