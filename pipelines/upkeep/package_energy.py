"""Joules of this machine's processor packages, by the counters that the kernel shows (RAPL).

Add here what a counter's reading needs. Keep out whose joules they are: a package is everybody's on the machine.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

FOLDER = Path("/sys/class/powercap")
# A counter of 262 kJ wraps within half an hour at 150 W: read so often, it cannot have wrapped twice.
LOOK_SECONDS = 60.0


class PackageEnergy:
    """What the counters have risen by since this object was made; None where there are none, or this user may not read
    them (the kernel shows them to root alone since 2020)."""

    def __init__(self, folder: Path = FOLDER, look_seconds: float = LOOK_SECONDS) -> None:
        self._lock = threading.Lock()
        self._joules = 0.0
        self._last: dict[Path, int] | None = {}
        self._ranges: dict[Path, int] = {}
        try:
            for zone in sorted(folder.glob("intel-rapl:*")):
                # Zones below a package are parts of it; `psys` is the package again, with the board around it.
                if (zone / "name").read_text().startswith("package-"):
                    self._ranges[zone] = int((zone / "max_energy_range_uj").read_text())
            self._last = self._read()
        except (OSError, ValueError):
            self._last = None
        if self._last:
            threading.Thread(target=self._watch, args=(look_seconds,), name="package energy", daemon=True).start()

    def joules(self) -> float | None:
        """Joules of all packages together since the beginning."""
        with self._lock:
            if not self._last:
                return None
            try:
                now = self._read()
            except (OSError, ValueError):
                self._last = None
                return None
            for zone, count in now.items():
                rise = count - self._last[zone]
                self._joules += (rise if rise >= 0 else rise + self._ranges[zone]) / 1e6
            self._last = now
            return self._joules

    def _read(self) -> dict[Path, int]:
        return {zone: int((zone / "energy_uj").read_text()) for zone in self._ranges}

    def _watch(self, seconds: float) -> None:
        while self.joules() is not None:
            time.sleep(seconds)
