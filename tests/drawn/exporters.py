"""Exporters of boards: the names, units and labels that each has for watts, energy and activity; and of gateways.

Add an exporter here as a constant with its documented names. Keep out which series a world has (`sightings`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
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

# A model and a tenant -> the gateway's counters of it: metric, labels, tokens per token of output. Prompts are three
# times as long as answers, and a third of them was cached.
Counters = Iterator[tuple[str, dict[str, str], float]]
TENANT_LABELS = ("api_key_alias", "fairness_id")


def _litellm(model: str, tenant: str) -> Counters:
    # Of a key two users' counters add up; neither has a name here.
    for user, part in (("u1", 0.25), ("u2", 0.75)):
        labels = {"model": model, "api_key_alias": tenant, "team": "None", "user": user, "user_email": "None"}
        yield "litellm_output_tokens_metric_total", labels, part
        yield "litellm_input_tokens_metric_total", labels, 3 * part
        yield "litellm_input_cached_tokens_metric_total", labels, part
        yield "litellm_total_tokens_metric_total", labels, 4 * part


def _router(model: str, tenant: str) -> Counters:
    """Behind a gateway that sees the same requests, and names nothing but the model."""
    labels = {"model_name": model, "target_model_name": model, "fairness_id": tenant, "priority": "0"}
    for name, times in (("input", 3), ("cached", 1), ("output", 1)):
        yield f"llm_d_epp_request_{name}_tokens_sum", labels, times
    # Two backends, and no label of a tenant.
    seen = {"gen_ai_request_model": model, "gen_ai_operation_name": "chat", "ai_backend": tenant}
    for kind, times in (("input", 3), ("cached_input", 1), ("output", 1), ("total", 4)):
        yield "gen_ai_client_token_usage_token_sum", {**seen, "gen_ai_token_type": kind}, times
    for name, times in (("input_tokens", 3), ("cache_read_input_tokens", 1), ("output_tokens", 1)):
        yield f"gen_ai_client_inference_usage_{name}_total", {**seen, "gen_ai_token_modality": "text"}, times


GATEWAYS: Mapping[str, Callable[[str, str], Counters]] = {"litellm": _litellm, "router": _router}
