"""Books from real servers: over HTTP the same book as from files, and live what an exporter handed out."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import groupby
from pathlib import Path

import pyarrow as pa
import pytest

from collectors.samples import Window
from collectors.synthetic.demo_fleet import BOARDS
from tests.books import LEDGER, Book, at, demo_fleet, files_source, on, record, recorded
from tests.servers import (
    http_server,
    openmetrics,
    prometheus_scraping,
    prometheus_with_history,
    reply,
    victoria_metrics_with_history,
)

# Eight days over a Sunday: a rollout, a wrong sample, and the 4-minute gap of 10-22 19:06-19:09 on a6000-02.
START, END = on("10-15"), on("10-23")
NODES = ("a6000-02", "a100-03")


def as_prometheus_keeps_it(samples: pa.Table) -> pa.Table:
    """Prometheus holds one sample per series and time: repeats go, for both paths."""
    return (
        samples.group_by(["metric", "labels", "observed_at"])
        .aggregate([("value", "max")])
        .rename_columns(["metric", "labels", "observed_at", "value"])
        .sort_by([("metric", "ascending"), ("labels", "ascending"), ("observed_at", "ascending")])
    )


def series_of(samples: pa.Table) -> Iterator[tuple[str, dict[str, str], Iterator[tuple[float, float]]]]:
    """(metric, labels, samples) for `openmetrics`, series after series."""
    rows = zip(
        samples["metric"].to_pylist(),
        samples["labels"].to_pylist(),
        samples["observed_at"].cast(pa.int64()).to_pylist(),
        samples["value"].to_pylist(),
        strict=True,
    )
    for (metric, labels), held in groupby(rows, key=lambda row: row[:2]):
        yield metric, json.loads(labels), ((us / 1e6, value) for _, _, us, value in held)


@pytest.mark.long
@pytest.mark.needs("prometheus", "victoria-metrics")
def test_servers_with_recorded_weeks_give_the_same_book_as_files(tmp_path: Path) -> None:
    days = Window(datetime.combine(START, datetime.min.time(), UTC), datetime.combine(END, datetime.min.time(), UTC))
    samples = as_prometheus_keeps_it(recorded(days, lambda labels: labels.get("Hostname") in NODES))
    record(samples, tmp_path / "recorded")
    recordings = demo_fleet(tmp_path, START, END, sources=[files_source("cluster", "recorded/*.parquet")])
    files = Book.of(recordings, tmp_path / "files", marts=LEDGER)
    files.run()
    for kind, server in (("prometheus", prometheus_with_history), ("victoria", victoria_metrics_with_history)):
        folder = tmp_path / kind
        folder.mkdir()
        with server(folder, openmetrics(series_of(samples))) as url:
            source = {"name": "cluster", "kind": "prometheus", "url": url, "interval_seconds": 60, "site": "west"}
            fleet = demo_fleet(tmp_path / f"{kind}-fleet", START, END, sources=[source])
            book = Book.of(fleet, tmp_path / f"{kind}-data", marts=LEDGER)
            book.run()
        assert book.query("select sum(rows) from raw.landings where outcome = 'landed'") == [(samples.num_rows,)]
        assert book.query("select distinct url from raw.landings") == [(url,)]
        assert book.hashes() == files.hashes(), kind
    assert book.hashes()["energy_ledger"][0] > 7 * 288 * 8 - 8
    # The 4-minute gap, as in the scenario: neither filled nor lost.
    seconds = (
        "select sum(covered_seconds)::double from marts.energy_ledger where date = '2026-10-22' and node = 'a6000-02'"
    )
    assert book.query(seconds) == [(pytest.approx(3 * (86400 - 300), abs=61 * 3),)]
    samples_there = "select count(*) from raw.power_samples join raw.series using (series_id) where labels like ?"
    gap = " and observed_at >= '2026-10-22 19:06Z' and observed_at < '2026-10-22 19:10Z'"
    board = next(board for board in BOARDS if board.node == "a6000-02")
    assert book.query(samples_there + gap, [f"%{board.device_uuid}%"]) == [(0,)]


class Exporter:
    """A /metrics page of one board and one engine: each scrape finds 300 J, 40 input and 10 output tokens more."""

    labels = 'UUID="GPU-live",Hostname="n1",modelName="NVIDIA A100-SXM4-80GB",namespace="llm",pod="p1",container="c"'
    engine = 'model_name="m",engine="0",namespace="llm",pod="p1",container="c",Hostname="n1"'

    def __init__(self) -> None:
        self.started_seconds = 0.0
        self.scrapes = 0
        self.lock = threading.Lock()

    def page(self, handler: http.server.BaseHTTPRequestHandler) -> None:
        with self.lock:
            n = self.scrapes
            self.scrapes += 1
            # The process is half a second older than its first page.
            self.started_seconds = self.started_seconds or time.time() - 0.5
        body = f"""# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{{self.labels}}} {5_000_000 + 300_000 * n}
# TYPE vllm:prompt_tokens counter
vllm:prompt_tokens_total{{{self.engine}}} {40 * (n + 1)}
# TYPE vllm:generation_tokens counter
vllm:generation_tokens_total{{{self.engine}}} {10 * (n + 1)}
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{{self.engine}}} 3
# TYPE process_start_time_seconds gauge
process_start_time_seconds{{namespace="llm",pod="p1",container="c",Hostname="n1"}} {self.started_seconds:.3f}
""".encode()
        reply(handler, 200, body, "text/plain; version=0.0.4")


@pytest.mark.long
@pytest.mark.needs("prometheus")
def test_a_live_exporter_is_booked_as_it_was_handed_out(tmp_path: Path) -> None:
    exporter = Exporter()
    today = datetime.now(UTC).date()
    with http_server(exporter.page) as target, prometheus_scraping(tmp_path, target.removeprefix("http://")) as url:
        deadline = time.monotonic() + 60
        while exporter.scrapes < 15 and time.monotonic() < deadline:
            time.sleep(0.2)
        source = {"name": "live", "kind": "prometheus", "url": url, "interval_seconds": 1, "site": "west"}
        fleet = demo_fleet(
            tmp_path / "fleet",
            today,
            today + timedelta(days=2),  # midnight may pass
            sources=[source],
            grid_seconds=10,
            synthetic=False,
            nodes=[{"name": "n1", "site": "west"}],
            models=[],
        )
        book = Book.of(fleet, tmp_path / "data", marts=(*LEDGER, "model_daily"))
        book.run()
    ((scraped, first, last),) = book.query(
        "select count(*), min(value), max(value) from raw.power_samples join raw.series using (series_id)"
        " where metric = 'DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION'"
    )
    assert scraped >= 10
    assert (last - first) / 300_000 == scraped - 1  # every scrape is there
    ((joules, productive, covered),) = book.query(
        "select sum(energy_joules)::double, sum(productive_joules)::double, sum(covered_seconds)::double"
        " from marts.energy_ledger"
    )
    assert joules == pytest.approx(300 * (scraped - 1), abs=0.001)
    assert 0 < productive <= joules
    assert covered == pytest.approx(scraped - 1, abs=2)
    # The process had just started, so its first page counts from zero.
    assert dict(
        book.query("select token_class, sum(tokens)::double from marts.token_ledger group by 1 order by 1")
    ) == {"input": pytest.approx(40 * scraped, abs=0.001), "output": pytest.approx(10 * scraped, abs=0.001)}
    assert book.query("select distinct model, state, attribution_method from marts.energy_ledger") == [
        ("m", "active", "exclusive")
    ]
    ((per_token,),) = book.query(
        "select sum(matched_joules)::double / sum(matched_total_tokens)::double from marts.model_daily"
    )
    assert per_token == pytest.approx(300 / 50, rel=0.25)


def test_the_days_are_more_than_a_week() -> None:
    assert (END - START).days == 8
    assert {date.isocalendar(START)[1], date.isocalendar(END)[1]} == {42, 43}
    assert at("10-22 19:06").date() < END
