"""The labels that `discover` proposes for who asked, by the labels of gateways' token counters."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
import yaml

from collectors.probes.unknown_server import Product
from pipelines.discovery.fleet_text import Answers, fleet_text
from pipelines.discovery.survey import Survey, survey

LITELLM = "litellm_input_tokens_metric_total"
ENVOY = "gen_ai_client_token_usage_token_sum"
ROUTER = "llm_d_epp_request_output_tokens_sum"
VLLM = "vllm:generation_tokens_total"


class Known:
    """A place with these series and nothing else."""

    url, at = "http://prometheus:9090", datetime(2026, 11, 2, 12, tzinfo=UTC)

    def __init__(self, series: dict[str, list[dict[str, str]]]) -> None:
        self._series = series

    def names(self) -> list[str]:
        return list(self._series)

    def series(self, metric: str) -> list[dict[str, str]]:
        return self._series[metric]

    def count(self, metric: str) -> int:
        return len(self._series[metric])

    def interval_seconds(self, metric: str) -> float:
        return 60.0

    def newest_at(self, metric: str) -> datetime:
        return self.at

    def product(self) -> Product:
        return Product("Prometheus", "3.0.0", None)

    def clock_seconds(self) -> float:
        return 0.0

    def oldest_days(self, metric: str) -> int:
        return 30


def found(metric: str, *labels: dict[str, str]) -> Survey:
    return survey(Known({metric: [{"job": "gateway", "instance": "10.0.0.1:4000", **one} for one in labels]}))


@pytest.mark.parametrize(
    ("metric", "labels", "expected"),
    [
        (LITELLM, [{"api_key_alias": "acme", "team": "t", "model": "m", "end_user": "u"}], ["api_key_alias"]),
        # A header that the operator's configuration maps to a label; `cluster` is of the scraper, and is one.
        (
            ENVOY,
            [{"x_customer": name, "cluster": "west", "gen_ai_request_model": "m"} for name in ("acme", "zeta")],
            ["x_customer"],
        ),
        (ROUTER, [{"fairness_id": "acme", "tenant_id": "acme", "model_name": "m"}], ["tenant_id", "fairness_id"]),
        # No name, an address, a mail; labels that only persons have.
        (LITELLM, [{"api_key_alias": "None", "client_ip": "203.0.113.7", "user_email": "jo@quux.example"}], []),
        (ENVOY, [{"x_who": "jo@quux.example"}, {"x_who": "203.0.113.7"}], []),
        # Who asked is not in an engine's labels.
        (VLLM, [{"tenant_id": "acme", "model_name": "m"}], []),
    ],
)  # fmt: skip
def test_labels_that_may_name_who_asked(metric: str, labels: list[dict[str, str]], expected: list[str]) -> None:
    assert found(metric, *labels).tenant_labels() == expected


def test_the_file_proposes_them_as_a_comment_and_is_right_without_it() -> None:
    place = {"kind": "prometheus", "url": Known.url}
    text = fleet_text("mine", place, found(LITELLM, {"api_key_alias": "acme"}), [], Answers())
    assert "\n# those that do to the source: tenant_labels: [api_key_alias]\n" in text
    assert yaml.safe_load(text)["sources"][0].keys() == {"name", "kind", "url", "interval_seconds"}
    assert "tenant_labels" not in fleet_text("mine", place, found(VLLM, {"model_name": "m"}), [], Answers())
