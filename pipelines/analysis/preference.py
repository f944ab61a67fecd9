"""What both tables of recommendations share: which one row of a deployment to follow, and how sure it is.

Add here a rule that both must keep. Keep out what is recommended (`right_sizing`, `consolidation`) and what it saves
(`savings`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

NO_CHANGE = ("try_it", "keep", "insufficient_data")  # of a deployment without a change, the first of these is followed
# Of rows that save the same, the one that frees the most, then the one that needs the least else.
KINDS = (
    *("spin_down", "fewer_gpus", "fewer_replicas", "colocate", "move", "sleep_outside_hours", "sleep_when_idle"),
    *("power_cap", "smaller_device", "newer_device", *NO_CHANGE),
)
TABLES = ("right_sizing", "consolidation")  # of equal rows the one that can be followed without a plan

# What the choice of a row reads.
FACTS = [
    *("table", "recommendation_id", "exclusive_group_id", "colocation_id", "kind", "saving_kwh_month"),
    *("saving_usd_month_if_released", "current_gpus"),
]

HIGH, MEDIUM, LOW = "high", "medium", "low"
HIGH_DAYS, LEAST_MEDIUM_DAYS = 21, 14
HIGH_COVERAGE_RATIO = 0.95
# What was seen to be enough under the model's own SLO, or no demand at all.
STRONG_EVIDENCE = (
    *("requests_within_slo", "histogram_within_slo", "lower_limit_within_slo"),
    *("no_demand", "idle_hours"),
)


def confidence(rows: pd.DataFrame, evidence: pd.Series, serves_less: pd.Series) -> pd.Series:
    """`high`, `medium` or `low`: how well the lookback supports that what is recommended is enough; None where nothing
    changes. `evidence` is the basis of that; `serves_less` whether less has to serve the same demand."""
    has_queue_data = rows["has_queue_telemetry"].fillna(False).astype(bool) | ~serves_less
    days = rows["days"].astype(float)
    is_low = (evidence == "unknown") | evidence.isna() | (days < LEAST_MEDIUM_DAYS)
    is_high = evidence.isin(STRONG_EVIDENCE) & (days >= HIGH_DAYS) & has_queue_data
    is_high &= rows["coverage_ratio"].astype(float) >= HIGH_COVERAGE_RATIO
    words = pd.Series(np.select([is_low, is_high], [LOW, HIGH], default=MEDIUM), index=rows.index, dtype=object)
    return words.where(~rows["kind"].isin(NO_CHANGE), None)


def least_sure(words: Sequence[str]) -> str:
    """The lowest of several: who shares hardware is as sure as the least sure of them."""
    return min(words, key=(LOW, MEDIUM, HIGH).index)


def preferred(rows: pd.DataFrame) -> pd.Series:
    """Which rows to follow, so that their savings add up: one per `exclusive_group_id`.

    `rows` of both tables, with FACTS. A change comes before none; then the greatest saving_kwh_month, the greatest
    saving_usd_month_if_released, the order of KINDS and of TABLES, the most accelerators: seconds of a host's meter,
    while the exporter of its boards was silent, have a row too. Rows of one `colocation_id` are followed together or
    not at all: they are preferred where together they save more than the best other rows of their groups.
    """
    ranked = (
        rows[FACTS]
        .assign(
            changes=~rows["kind"].isin(NO_CHANGE),
            kwh=rows["saving_kwh_month"].astype(float).fillna(-np.inf),
            usd=rows["saving_usd_month_if_released"].astype(float).fillna(-np.inf),
            kind_order=rows["kind"].map({kind: place for place, kind in enumerate(KINDS)}),
            table_order=rows["table"].map({table: place for place, table in enumerate(TABLES)}),
            gpus=rows["current_gpus"].astype(float).fillna(-np.inf),
        )
        .sort_values(
            ["changes", "kwh", "usd", "kind_order", "table_order", "gpus", "recommendation_id"],
            ascending=[False, False, False, True, True, False, True],
        )
    )
    together = ranked["colocation_id"].notna()
    alone = ranked[~together].drop_duplicates("exclusive_group_id").set_index("exclusive_group_id")
    chosen = pd.Series(False, index=rows.index)
    taken: set[str] = set()
    for _, several in ranked[together].groupby("colocation_id", sort=True):
        groups = several["exclusive_group_id"]
        others = alone.reindex(groups)
        is_more = _worth(several) > _worth(others[others["changes"].eq(True)])
        if groups.is_unique and not taken & set(groups) and is_more:
            chosen[several.index] = True
            taken |= set(groups)
    left = ranked[~together & ~ranked["exclusive_group_id"].isin(taken)]
    chosen[left.index[~left["exclusive_group_id"].duplicated()]] = True
    return chosen


def _worth(rows: pd.DataFrame) -> tuple[float, float, bool]:
    """What rows save together, in kWh, then in USD if released; anything comes before nothing."""
    kwh, usd = (rows[name].astype(float).sum() for name in ("saving_kwh_month", "saving_usd_month_if_released"))
    return float(kwh), float(usd), bool(len(rows))
