"""Half a day that comes late from a real Prometheus, from the first night's warning to the restatement.

A board of 300 W, read every minute, serves the pod llm/gpt-0 at 2 USD an hour; a kWh costs 0.1 USD, and the building
draws nothing beside it. In the first two nights the server has nothing of 15 October after 11:59; in the third it has
all of it, and in each the whole date that the night is to land, but for the first.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import closing
from datetime import date
from pathlib import Path

import pytest
import yaml

from pipelines.warehouse import database
from tests.books import command, later_command
from tests.planted import DAY_SECONDS, OUTPUT, WATTS, board, pod, rising, steady, vllm
from tests.servers import openmetrics, prometheus_with_history

NOON = DAY_SECONDS / 2 - 60
MORNING, SECOND, WHOLE = "morning", "second", "whole"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """What the server has in each of the nights, under a label of its own."""
    days = range(0, 3 * DAY_SECONDS, DAY_SECONDS)
    held = {
        MORNING: [(0, NOON)],
        SECOND: [(0, NOON), (days[1], days[1] + DAY_SECONDS - 60)],
        WHOLE: [(first, first + DAY_SECONDS - 60) for first in days],
    }
    series = [
        (metric, {**labels, "night": night}, [sample for span in spans for sample in samples(*span)])
        for metric, labels, samples in (
            (WATTS, board("GPU-a", "n1", **pod("gpt-0")), lambda first, last: steady(300, first, last)),
            # 10 tokens a second, from the first midnight on.
            (OUTPUT, vllm("gpt-0", "gpt"), lambda first, last: rising(10, first, last, start=10 * first)),
        )
        for night, spans in held.items()
    ]
    with prometheus_with_history(tmp_path_factory.mktemp("prometheus"), openmetrics(series), block_hours=24) as url:
        yield url


def night(folder: Path, url: str, holding: str, on: int) -> subprocess.CompletedProcess[str]:
    """The run of one date of October."""
    fleet = {
        "fleet": "late",
        "period": {"start": date(2026, 10, 15)},
        "sources": [
            {
                "name": "cluster",
                "kind": "prometheus",
                "url": url,
                "interval_seconds": 60,
                "matchers": [f'night="{holding}"'],
                "replica_labels": ["night"],
            }
        ],
        "sites": [{"name": "west", "zone": "US-CAL-CISO", "pue": 1.0, "tariff": [{"usd_per_kwh": 0.1}]}],
        "nodes": [{"name": "n1", "host_watts": 0}],
        "cost_rates": [
            {"device_type": "a100-sxm4-80gb", "usd_per_gpu_hour": 2, "source": "ours", "valid_from": date(2026, 1, 1)}
        ],
    }
    (folder / "fleet.yaml").write_text(yaml.safe_dump(fleet), encoding="utf-8")
    book = later_command if on == 15 else command
    return book(folder / "fleet.yaml", folder / "data", "--start", f"2026-10-{on}", "--end", f"2026-10-{on + 1}")


def asked(folder: Path, query: str) -> list[tuple]:
    with closing(database.connect(folder / "data" / "late" / "published" / "wattledger.duckdb", True)) as reader:
        return reader.execute(query).fetchall()


def first_date(folder: Path) -> tuple[float, ...]:
    """kWh, seconds covered and claimed, coverage and USD of 15 October."""
    ((kwh, covered, claimed, coverage, usd),) = asked(
        folder,
        "select facility_energy_kwh, gpu_seconds, claimed_gpu_seconds, coverage_ratio, compute_cost_usd"
        " from marts.model_daily where date = '2026-10-15' and model = 'gpt'",
    )
    return float(kwh), float(covered), float(claimed), coverage, float(usd)


@pytest.mark.long
@pytest.mark.needs("prometheus")
def test_half_a_day_that_comes_late_is_warned_of_until_it_is_booked(server: str, tmp_path: Path) -> None:
    warning = "source cluster, date 2026-10-15, last_sample_at 2026-10-15 11:59:00+00:00"
    done = night(tmp_path, server, MORNING, 15)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "warned raw/series_chunks sources_speak" in done.stdout and warning in done.stdout
    # 43,140 s of 300 W are 12.942 MJ; the board is paid for all day.
    kwh = 12.942 / 3.6
    assert first_date(tmp_path) == pytest.approx((kwh, 43_140, 86_400, 43_140 / 86_400, 48 + 0.1 * kwh))

    # It is still missing in the next night, which lands a whole date.
    done = night(tmp_path, server, SECOND, 16)
    assert done.returncode == 0, done.stdout + done.stderr
    assert warning in done.stdout

    done = night(tmp_path, server, WHOLE, 17)
    assert done.returncode == 0, done.stdout + done.stderr
    assert warning not in done.stdout
    assert first_date(tmp_path) == pytest.approx((7.2, 86_400, 86_400, 1, 48.72))
    restated = asked(
        tmp_path,
        'select figure, round("before", 4)::double, round("after", 4)::double, reason from finance.restatements'
        " where date = '2026-10-15' and figure <> 'CO2e' and restated_at = (select max(restated_at) from"
        " finance.restatements) order by figure",
    )
    assert restated == [("cost", 0.3595, 0.72, "late data"), ("electricity", 3.595, 7.2, "late data")]
