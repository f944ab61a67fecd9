"""Numbers of samples as real servers count them: by family and hour, whatever a server allows at once."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from collectors.protocols import sample_counts
from collectors.protocols.prometheus import PrometheusCollector
from collectors.samples import Family, SourceError, Window
from tests.servers import http_server, openmetrics, prometheus_with_history, reply, victoria_metrics_with_history

START = datetime(2026, 10, 1, tzinfo=UTC)
DAY = Window(START, START + timedelta(days=1))
POWER = "DCGM_FI_DEV_POWER_USAGE"
TOKENS = "vllm:generation_tokens_total"
PODS = "kube_pod_labels"
FAMILIES = {
    POWER: Family(POWER, "power", "dcgm_exporter"),
    TOKENS: Family(TOKENS, "tokens", "vllm"),
    PODS: Family(PODS, "tokens", "kube_state_metrics", "label_group"),
}
Server = Callable[..., AbstractContextManager[str]]


def every_minute(minutes: range) -> list[tuple[float, float]]:
    return [(START.timestamp() + 60 * minute, 1.0) for minute in minutes]


def counted(url: str) -> list[tuple[str, int, int, float | None]]:
    """(metric, hour, samples, minutes from the start of the day to the newest) of what a server counts."""
    table = PrometheusCollector("cluster", url, backoff_seconds=0.01).counted(DAY, FAMILIES)
    return [
        (
            row["metric"],
            row["start_at"].hour,
            row["samples"],
            row["newest_at"] and (row["newest_at"] - START).total_seconds() / 60,
        )
        for row in table.to_pylist()
    ]


SERVERS = [
    pytest.param(prometheus_with_history, marks=pytest.mark.needs("prometheus")),
    pytest.param(victoria_metrics_with_history, marks=pytest.mark.needs("victoria-metrics")),
]


@pytest.mark.parametrize("server", SERVERS)
def test_samples_are_counted_by_family_and_hour(server: Server, tmp_path: Path) -> None:
    lines = openmetrics(
        [
            # Two boards; the first sample of the day before and of the day after are of no hour of this day.
            (POWER, {"UUID": "a"}, every_minute(range(-60, 90))),
            (POWER, {"UUID": "b"}, every_minute(range(60, 180))),
            (TOKENS, {"model_name": "m"}, every_minute(range(1430, 1450))),
            # Of this family only series that have the label are meant.
            (PODS, {"pod": "p"}, every_minute(range(60))),
            (PODS, {"pod": "p", "label_group": "g"}, every_minute(range(30))),
        ]
    )
    with server(tmp_path, lines) as url:
        assert counted(url) == [
            (POWER, 0, 60, 59),
            (PODS, 0, 30, None),
            (POWER, 1, 90, 119),
            (POWER, 2, 60, 179),
            (TOKENS, 23, 10, 1439),
        ]


@pytest.mark.needs("prometheus")
def test_what_exceeds_the_server_s_sample_limit_is_counted_in_halves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An hour of the power alone has 120 samples."""
    lines = openmetrics(
        [
            (POWER, {"UUID": "a"}, every_minute(range(60))),
            (POWER, {"UUID": "b"}, every_minute(range(60))),
            (TOKENS, {"model_name": "m"}, every_minute(range(50))),
        ]
    )
    asked = []
    question = sample_counts.question
    monkeypatch.setattr(sample_counts, "question", lambda *of: asked.append(of) or question(*of))
    with prometheus_with_history(tmp_path, lines, "--query.max-samples=50") as url:
        assert [row[:3] for row in counted(url)] == [(POWER, 0, 120), (TOKENS, 0, 50)]
    assert ({POWER: f'{{__name__="{POWER}"}}'}, 1_800_000) in asked


@pytest.mark.needs("victoria-metrics")
def test_what_came_late_is_counted_although_the_question_was_asked_before(tmp_path: Path) -> None:
    lines = openmetrics([(POWER, {"UUID": "a"}, every_minute(range(60)))])
    with victoria_metrics_with_history(tmp_path, lines) as url:
        assert counted(url) == [(POWER, 0, 60, 59)]
        late = "".join(f'{POWER}{{UUID="a"}} 1 {int(at * 1000)}\n' for at, _ in every_minute(range(60, 90)))
        for path, body in (("api/v1/import/prometheus", late.encode()), ("internal/force_flush", b"")):
            urllib.request.urlopen(f"{url}/{path}", data=body, timeout=60).close()
        assert counted(url) == [(POWER, 0, 60, 59), (POWER, 1, 30, None)]


def test_an_answer_without_numbers_is_refused_by_name() -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        reply(handler, 200, b'{"status":"success","data":["DCGM_FI_DEV_POWER_USAGE"]}')

    with http_server(answer) as url, pytest.raises(SourceError, match="no numbers of samples: TypeError"):
        counted(url)
