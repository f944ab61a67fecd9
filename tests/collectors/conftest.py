"""A receiver of OTLP, for the files of its tests."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from collectors.devices.agent import families_to_keep
from collectors.devices.otlp_receiver import Receiver
from collectors.devices.spool import Spool


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    """A receiver to which it is one o'clock of 15 October 2026."""
    one_o_clock = datetime(2026, 10, 15, 13, tzinfo=UTC).timestamp()
    taking = Receiver(
        ("127.0.0.1", 0), Spool(tmp_path / "spool"), "gpu-a", families_to_keep(None), bearer="t0ken",
        stated=["tenant.id"], clock=lambda: one_o_clock,
    )  # fmt: skip
    taking.start()
    try:
        yield taking
    finally:
        taking.stop()
