"""docs/start.md shows what a terminal shows: `discover` on a real Prometheus that holds four hours of the demo."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from collectors.samples import Window
from collectors.series import SeriesRegister
from collectors.synthetic.generator import SyntheticCollector
from pipelines.command_line.main import main
from pipelines.fleet import catalog
from pipelines.fleet.places import PROJECT
from tests.servers import openmetrics, prometheus_with_history

PAGE = PROJECT / "docs" / "start.md"
SEEN = Window(datetime(2026, 10, 14, 16, tzinfo=UTC), datetime(2026, 10, 14, 20, 5, tzinfo=UTC))
AT = "2026-10-14T20:03:00Z"


def four_hours() -> list[tuple[str, dict[str, str], list[tuple[float, float]]]]:
    """Every series of the demo in the window, those of one metric together."""
    register = SeriesRegister("synthetic", SEEN)
    samples: dict[int, list[tuple[float, float]]] = {}
    collector = SyntheticCollector("synthetic", scenario="demo", interval_seconds=60.0)
    for _, batch in collector.collect(SEEN, catalog.families(), register):
        columns = (batch[name].to_pylist() for name in ("series_id", "observed_at", "value"))
        for series_id, at, value in zip(*columns, strict=True):
            samples.setdefault(series_id, []).append((at.timestamp(), value))
    held = [(one["metric"], json.loads(one["labels"]), one["series_id"]) for one in register.series_table().to_pylist()]
    series = [(metric, labels, samples[key]) for metric, labels, key in held if key in samples]
    return sorted(series, key=lambda one: (one[0], sorted(one[1].items())))


@pytest.mark.needs("prometheus")
def test_the_ten_minutes_are_what_a_terminal_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WATTLEDGER_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    server = tmp_path / "server"
    server.mkdir()
    with prometheus_with_history(server, openmetrics(four_hours())) as url:
        assert main(["discover", url, "--name", "mine", "--yes", "--at", AT]) == 0
    printed = capsys.readouterr().out.replace(url, "http://prometheus:9090").replace(f"{tmp_path}/", "")
    printed = re.sub(r"Prometheus \d[^\s]*", "Prometheus 3.5.0", printed).replace("keeps 100y", "keeps 15d")
    page = PAGE.read_text(encoding="utf-8")
    shown = page.partition("$ wattledger discover http://prometheus:9090 --name mine --yes\n")[2].partition("```")[0]
    assert printed.strip() == shown.strip()
    written = (tmp_path / "mine.yaml").read_text(encoding="utf-8").replace(url, "http://prometheus:9090")
    assert page.partition("```yaml\n# yaml-language-server")[2].partition("```")[0].strip() in written
    assert json.loads((tmp_path / "wattledger.schema.json").read_text(encoding="utf-8"))["title"]
