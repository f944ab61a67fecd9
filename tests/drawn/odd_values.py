"""Odd texts and numbers that a source may report where a name, a number or a time belongs.

Add here what some real exporter, proxy or broken clock reported. Keep out where in a fleet it is (`odd_cells`) and
what the book should make of it (`findings`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import strategies as st

from tests.planted import Samples

WORDS = (
    "", " ", "N/A", "none", "null", "unknown", "true", "tp0", "stage1", "rank-b", "0 ", "a/b", "/", ":", "*", "%", "\\",
    "'", '"',
)  # fmt: skip
NUMBERS_AS_TEXT = (
    "-1", "007", "7.6", "1e3", "1_000", "0x1F", "2147483648", "-9223372036854775809", "9" * 400, "1e400", "1.79e18",
    "NaN", "nan", "inf", "-Infinity", "+Inf", "+7", "٣", "１２", "½",
)  # fmt: skip
TIMES_AS_TEXT = ("2026-10-15T00:00:00Z", "12:00", "1760486400000", "1760486400000000000", "3.5s", "4000-01-01")
PROFILES = ("1g.10gb", "1g.10gb+me", "1c.3g.40gb", "7g.80gb", "3g", "g.40gb", "-3g.40gb", "99g.999gb", "1g.5gb.me.all")
STRANGE = (
    "日本語", "e\u0301", "\u202eabc", "\U0001f525", "\u200b", "a\x00b", "\x07\x1b[31m", "line\nbreak", "tab\there",
    "\r", "'; drop table marts.energy_ledger; --", "<script>alert(1)</script>", "=cmd|'/c calc'!A1", "{{ 1 / 0 }}",
    "${HOME}", "__unknown__", "__unallocated__", "__total__", "[::1]:8000", "a" * 10_000,
)  # fmt: skip


def texts() -> st.SearchStrategy[str]:
    """A text that is no ordinary name or number: from the lists above, or any other of up to 20 characters."""
    listed = st.sampled_from((*WORDS, *NUMBERS_AS_TEXT, *TIMES_AS_TEXT, *PROFILES, *STRANGE))
    return st.one_of(listed, listed, st.text(st.characters(codec="utf-8"), max_size=20))


LARGE = 9.3e18  # over the largest 64-bit integer, as DCGM's blanks are
NUMBERS = (
    math.nan, math.inf, -math.inf, -1.0, -1e300, 1e308, 5e-324, LARGE, 1.8446744073709552e19, 9007199254740993.0, 0.0,
    1e-12, 1e12, 1e15, 4e9, 1.79e9, 1.79e12, 1.79e15, 1.79e18,
)  # fmt: skip
FACTORS = (1e-9, 1e-3, 1e3, 1e6, 1e9)

# Which samples of a series are odd, by name: (number of the sample, how many there are) -> bool.
PLACES: dict[str, Callable[[int, int], bool]] = {
    "every": lambda n, count: True,
    "first": lambda n, count: n == 0,
    "middle": lambda n, count: n == count // 2,
    "last": lambda n, count: n == count - 1,
    "second half": lambda n, count: n >= count // 2,
    "every other": lambda n, count: n % 2 == 1,
}


@dataclass(frozen=True)
class OddNumbers:
    """What is odd about the samples of a series: a value in place of theirs, or theirs in another unit."""

    place: str
    value: float | None
    factor: float = 1.0

    def in_(self, samples: Samples) -> Samples:
        """The samples with these in place of some."""
        is_odd = PLACES[self.place]
        return [
            (at, self._odd(value) if is_odd(number, len(samples)) else value)
            for number, (at, value) in enumerate(samples)
        ]

    def __str__(self) -> str:
        what = f"{self.value!r}" if self.value is not None else f"{self.factor:g} times the value"
        return f"{what} in {self.place} sample"

    def _odd(self, value: float) -> float:
        return self.value if self.value is not None else value * self.factor


def numbers() -> st.SearchStrategy[OddNumbers]:
    """Odd samples of a series."""
    values = st.one_of(st.sampled_from(NUMBERS), st.floats())
    return st.one_of(
        st.builds(OddNumbers, st.sampled_from(tuple(PLACES)), values),
        st.builds(OddNumbers, st.sampled_from(tuple(PLACES)), st.none(), st.sampled_from(FACTORS)),
    )
