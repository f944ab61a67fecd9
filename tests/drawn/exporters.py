"""Exporters of boards: the names, units and labels that each has for watts, energy and activity.

Add an exporter here as a constant with its documented names. Keep out which series a world has (`sightings`).
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.drawn.worlds import Board

# The labels of the exporter's own pod, where the scraper keeps them.
OWN_POD = {"namespace": "gpu-operator", "pod": "dcgm-exporter-x7k2q", "container": "nvidia-dcgm-exporter"}


@dataclass(frozen=True)
class Exporter:
    """Metric names, the units of energy in a joule and of activity at full work, and the names of three labels."""

    energy: str
    units_per_joule: float
    watts: str
    activity: str
    units_at_work: float
    uuid: str
    node: str
    device_type: str

    def labels(self, board: Board) -> dict[str, str]:
        """What names the board."""
        return {self.uuid: board.uuid, self.node: board.node, self.device_type: board.device_type}


DCGM = Exporter(
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
    1e3,  # mJ
    "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_DEV_GPU_UTIL",
    80.0,
    "UUID",
    "Hostname",
    "modelName",
)
AMD = Exporter(
    "gpu_energy_consumed",
    1e6,  # µJ
    "gpu_package_power",
    "gpu_gfx_activity",
    80.0,
    "serial_number",
    "hostname",
    "card_model",
)
AMD_UPPER_CASE = Exporter(
    AMD.energy,
    AMD.units_per_joule,
    AMD.watts,
    AMD.activity,
    AMD.units_at_work,
    "SERIAL_NUMBER",
    "HOSTNAME",
    "CARD_MODEL",
)
# `MetricsFieldPrefix: amd_`, the value of the exporter's own example.
AMD_PREFIXED = Exporter(
    f"amd_{AMD.energy}",
    AMD.units_per_joule,
    f"amd_{AMD.watts}",
    f"amd_{AMD.activity}",
    AMD.units_at_work,
    AMD.uuid,
    AMD.node,
    AMD.device_type,
)
EXPORTERS = {"dcgm": DCGM, "amd": AMD, "amd in upper case": AMD_UPPER_CASE, "amd_ prefix": AMD_PREFIXED}
