"""How much of a deployment's past advice needs.

Add here what messages state of it too: nothing heavy is imported. Keep out what is done with it (`right_sizing`).
"""

LEAST_DAYS = 7
SHORT_LOOKBACK = "short_lookback"


def words(reason_code: str | None) -> str:
    """A reason for no advice, as people read it."""
    if reason_code == SHORT_LOOKBACK:
        return f"fewer than {LEAST_DAYS} days are booked"
    return (reason_code or "reason unknown").replace("_", " ")
