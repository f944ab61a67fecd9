"""Twenty drawn fleets in a Prometheus, whose fleet file `discover` wrote: each figure is right, or a check names it."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from collectors.probes.unknown_server import UnknownServer
from pipelines.discovery.doubts import doubts
from pipelines.discovery.fleet_text import Answers, fleet_text
from pipelines.discovery.survey import survey
from pipelines.fleet.fleet_file import load_fleet
from tests.books import Book, environment
from tests.drawn.cells import MARTS, drawn, planted
from tests.drawn.genes import ORDINARY
from tests.drawn.verdicts import verdicts
from tests.drawn.worlds import SPAN_SECONDS
from tests.planted import DAY, moment
from tests.servers import openmetrics, prometheus_with_history

SEED, COUNT = 33, 20
# Each cell is a site of its own where its file is written by hand; here all are one.
OF_OWN_SITES = "joules of the site"


@pytest.mark.rest
@pytest.mark.needs("prometheus")
def test_twenty_fleets_without_a_hand_on_the_file(tmp_path: Path) -> None:
    # Requests are logs, which no Prometheus has.
    # Some retellings need the fleet file's word.
    own = {gene: ORDINARY[gene] for gene in ("pages", "names", "board", "tokens", "server")}
    cells = [cell for number in range(2 * COUNT) if not (cell := drawn(SEED, number, **own)).sighting.tenants][:COUNT]
    series = sorted((one for cell in cells for one in planted(cell)), key=lambda one: (one[0], sorted(one[1].items())))
    server = tmp_path / "server"
    server.mkdir()
    with prometheus_with_history(server, openmetrics(series)) as url:
        asked = UnknownServer(url, datetime.fromtimestamp(moment(SPAN_SECONDS / 2), UTC))
        found = survey(asked)
        asked.close()
        rates = {"a100-sxm4-80gb": 1.0, "h100-sxm5-80gb": 3.0}
        answers = Answers(zone="US-CAL-CISO", pue=1.0, usd_per_kwh=0.0, usd_per_gpu_hour=rates)
        path = tmp_path / "found.yaml"
        text = fleet_text("drawn", {"kind": "prometheus", "url": url}, found, doubts(found), answers)
        end = (DAY + timedelta(days=1)).isoformat()
        started = next(line for line in text.splitlines() if line.startswith("period:"))
        path.write_text(text.replace(started, f"period: {{start: {DAY}, end: {end}}}"), encoding="utf-8")
        book = Book(load_fleet(path, environment(tmp_path / "data")), marts=MARTS)
        book.run()
    shutil.rmtree(server)
    wrong = {one.cell.name: (set(one.wrong) - {OF_OWN_SITES}, one) for one in verdicts(book, cells)}
    assert [
        str(one)
        for figures, one in wrong.values()
        if figures - one.cell.sighting.hidden or (figures and not one.checks)
    ] == []
    # These have a board that is seen by its utilisation alone: what it draws cannot be known, and checks name it.
    assert {name for name, (figures, _) in wrong.items() if figures} == {"c4", "c19", "c31"}
