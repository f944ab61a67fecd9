"""What every collector of samples is.

Add here what the landing may ask of each of them. Keep out how any kind of source is read: that is the module of its
protocol or device.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collectors.samples import Batch, Family, Window
    from collectors.series import SeriesRegister


class Collector(Protocol):
    """Reads one source of the fleet file.

    `collect` yields what the source holds in the window (half-open), native values, invalid ones included; it registers
    each series and observes each batch in `register` before it yields it. Raises SourceError.
    """

    source: str

    def collect(self, window: Window, families: Mapping[str, Family], register: SeriesRegister) -> Iterator[Batch]:
        """The samples of the window, some at a time."""
