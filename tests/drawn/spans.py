"""Amounts over time as constant pieces, so that a world's truth is exact: what is metered is their integral.

Add here arithmetic of pieces. Keep out boards, tokens and every rule of the product.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

Array = np.ndarray


@dataclass(frozen=True)
class Spans:
    """Pieces (from second, to second, rate per second), in any order; where several overlap, their rates add up."""

    pieces: tuple[tuple[float, float, float], ...] = ()

    @classmethod
    def of(cls, pieces: Iterable[tuple[float, float, float]]) -> Spans:
        return cls(tuple((first, last, rate) for first, last, rate in pieces if last > first and rate != 0))

    def __add__(self, other: Spans) -> Spans:
        return Spans(self.pieces + other.pieces)

    def times(self, factor: float) -> Spans:
        """The same pieces with other rates."""
        return Spans.of((first, last, rate * factor) for first, last, rate in self.pieces)

    def within(self, start: float, end: float) -> Spans:
        """What of the pieces is in [start, end)."""
        return Spans.of((max(first, start), min(last, end), rate) for first, last, rate in self.pieces)

    def rate(self, at: Array) -> Array:
        """The rate just after each moment."""
        total = np.zeros(len(at))
        for first, last, rate in self.pieces:
            total += np.where((at >= first) & (at < last), rate, 0.0)
        return total

    def amount(self, at: Array) -> Array:
        """What has accumulated until each moment."""
        total = np.zeros(len(at))
        for first, last, rate in self.pieces:
            total += rate * np.clip(at - first, 0.0, last - first)
        return total

    def total(self) -> float:
        """All that accumulates."""
        return sum(rate * (last - first) for first, last, rate in self.pieces)
