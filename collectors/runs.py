"""Runs of equal numbers in an array: rows that come series by series are looked up once per run, not once per row.

Add here what is found of runs. Keep out what the numbers are (`series`, `cells`).
"""

from __future__ import annotations

import numpy as np


def heads(*columns: np.ndarray) -> np.ndarray:
    """The rows at which a run begins: the first one, and each in which any of the columns (n,) changes."""
    is_head = np.ones(len(columns[0]), bool)
    is_head[1:] = columns[0][1:] != columns[0][:-1]
    for column in columns[1:]:
        is_head[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(is_head)
