"""The interface of all collectors of samples.

Add here what the landing calls on every collector. Keep out how a kind of source is read: that is in the module of
its protocol or device.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collectors.samples import Batch, Family, Window
    from collectors.series import SeriesRegister


class Collector(Protocol):
    """Reads one source of the fleet file.

    `collect` yields the source's samples in the half-open window: native values, invalid ones included. It registers
    each series, and observes each batch in `register` before yielding it. Raises SourceError.
    """

    source: str

    def collect(self, window: Window, families: Mapping[str, Family], register: SeriesRegister) -> Iterator[Batch]:
        """The samples of the window, some at a time."""
