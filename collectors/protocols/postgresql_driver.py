"""The driver of PostgreSQL: the one place that imports it, and what is reported where it is not installed.

Add here what holds for any client of PostgreSQL. Keep out what is asked there, and its URI (`postgresql_uris`).
"""

from __future__ import annotations

from typing import Any


class DriverMissing(Exception):
    """The package is not installed; the message has the command that installs it."""


def driver() -> tuple[Any, type[Exception]]:
    """The driver in the words of Python's database API, and the class of its errors. DriverMissing without it."""
    try:
        from adbc_driver_manager import Error  # noqa: PLC0415 (a shared library that few fleets need)
        from adbc_driver_postgresql import dbapi  # noqa: PLC0415
    except ImportError as missing:
        raise DriverMissing(
            "the package adbc-driver-postgresql is not installed. Install it (pip install 'wattledger[postgres]')"
        ) from missing
    return dbapi, Error
