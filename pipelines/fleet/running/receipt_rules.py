"""The key `receipts` of the fleet file: whether a run keeps what each logged request used, and for how long.

Add here what a user decides about receipts. Keep out what is in one (dbt_project/models/receipts).
"""

from __future__ import annotations

from pipelines.fleet.running.retention_rules import Days
from pipelines.fleet.values import Part


class Receipts(Part):
    """Off by default: a row per request is personal data, and grows with traffic (docs/receipts.md)."""

    keep: bool = False
    days: Days = 90
