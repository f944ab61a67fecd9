"""A whole `serve`: its first tick, the night that it makes up for, its answers to a real Prometheus, and its end."""

from __future__ import annotations

import os
import re
import signal
import statistics
import subprocess
import sys
import time
import urllib.request
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pipelines.code_location import NIGHTLY
from pipelines.command_line.main import main
from pipelines.fleet.places import PROJECT
from pipelines.serving.ending import Ending
from tests.books import demo_fleet, environment
from tests.servers import free_port, prometheus_scraping, running
from tests.serving.test_crowded_server import CROWDS, HEALTHY_WITHIN_SECONDS, crowd, healthy_seconds
from tests.serving.test_in_prometheus import RULES, alerts, answer, found, queries
from tests.waiting import wait_for

OF_TROUBLE = "Sources that the newest tick did not read, or that are silent"
ENDED_SECONDS = 10


def page(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as reply:
        return reply.read().decode()


def is_ready(url: str) -> bool:
    try:
        return page(f"{url}/-/ready") == "ready\n"
    except OSError:
        return False


@pytest.mark.long
@pytest.mark.needs("prometheus")
def test_serve_ticks_books_the_night_and_answers_prometheus(tmp_path: Path) -> None:
    # Before 01:15 UTC yesterday is not due yet.
    hour, minute = NIGHTLY
    newest_due = (datetime.now(UTC) - timedelta(days=1, hours=hour, minutes=minute)).date()
    fleet = demo_fleet(tmp_path, newest_due, None, cost_rates=[
        {"device_type": kind, "usd_per_gpu_hour": 2.0, "valid_from": "2020-01-01", "source": "a contract"}
        for kind in ("a100-sxm4-80gb", "h100-sxm5-80gb", "h200-sxm5-141gb", "l40s")
    ])  # fmt: skip
    port, log, textfile = free_port(), tmp_path / "serve.log", tmp_path / "wattledger.prom"
    url, data = f"http://127.0.0.1:{port}", tmp_path / "data" / "demo"
    words = [sys.executable, "-m", "pipelines", "serve", "--fleet", str(fleet), "--port", str(port)]
    words += ["--textfile", str(textfile)]
    server = tmp_path / "server"
    server.mkdir()
    surroundings = environment(tmp_path / "data")
    with (
        log.open("w") as output,
        running(words, cwd=PROJECT, env=surroundings, stdout=output, stderr=subprocess.STDOUT) as process,
        prometheus_scraping(server, f"127.0.0.1:{port}", rules=RULES) as prometheus,
    ):
        wait_for(lambda: is_ready(url), 120)
        assert page(f"{url}/-/healthy") == "healthy\n"
        assert "Nothing is published yet" in page(url)
        wait_for(lambda: found(prometheus, "wattledger_last_booked_day_timestamp_seconds"), 400)
        wait_for(lambda: found(prometheus, "wattledger_check_passed"), 60)
        asked = {title: expression for title, expression in queries().items() if title != OF_TROUBLE}
        assert {title for title, expression in asked.items() if not found(prometheus, expression)} <= {
            "Checks of the last run that found something",
            "In doubt by 1 % or more, today or on the last booked day: models and reasons",
        }
        assert {name for name, expression in alerts().items() if found(prometheus, expression)} <= {
            "WattledgerModelMostlyIdle",  # so are two of the demo's models
            "WattledgerTokensNeedMoreEnergy",
            "WattledgerTicksStopped",
        }
        assert {rule["health"] for rule in answer(prometheus, "rules")["groups"][0]["rules"]} <= {"ok", "unknown"}
        whole, published = page(url), (data / "published" / "report.html").read_text(encoding="utf-8")
        assert "Today so far" in whole
        assert "Today so far" not in published
        assert published.partition("<main>")[2] in whole
        assert "wattledger_today_energy_joules{" in textfile.read_text(encoding="utf-8")
        (seconds,) = re.findall(r"tick: .* UTC, ([\d.]+) s", log.read_text(encoding="utf-8"))[:1]
        print(f"the first tick of a cold serve took {seconds} s")
        assert (data / "today.duckdb").exists()
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=ENDED_SECONDS) == 0
        print(f"serve ended {time.monotonic() - began:.1f} s after SIGTERM")
    assert not textfile.exists()
    printed = log.read_text(encoding="utf-8")
    assert f"run: books what is due up to {newest_due}" in printed
    assert f"the run up to {newest_due} ended with status 0" in printed
    assert "Traceback" not in printed

    # SIGINT ends it while it makes a tick. Each line is an object of JSON.
    with (
        log.open("w") as output,
        running([*words, "--log-format", "json"], cwd=PROJECT, env=surroundings, stdout=output) as process,
    ):
        wait_for(lambda: "/metrics" in log.read_text(encoding="utf-8"), 60)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=ENDED_SECONDS) == 0
    assert all(line.startswith('{"time": "') for line in log.read_text(encoding="utf-8").splitlines())


@pytest.mark.rest
def test_a_crowd_of_slow_clients_stops_neither_ticks_nor_the_end(tmp_path: Path) -> None:
    port, log, fleet = free_port(), tmp_path / "serve.log", demo_fleet(tmp_path, datetime.now(UTC).date(), None)
    limits = "import resource, runpy; resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024));"
    words = [sys.executable, "-c", f"{limits} runpy.run_module('pipelines', run_name='__main__')"]
    words += ["serve", "--fleet", str(fleet), "--port", str(port)]
    surroundings = environment(tmp_path / "data")
    with (
        log.open("w") as output,
        running(words, cwd=PROJECT, env=surroundings, stdout=output, stderr=subprocess.STDOUT) as process,
    ):
        wait_for(lambda: "/metrics" in log.read_text(encoding="utf-8"), 60)
        with crowd(port, *CROWDS["a byte now and then"]):
            waits = []
            while "tick: " not in log.read_text(encoding="utf-8"):
                assert len(waits) < 200, log.read_text(encoding="utf-8")
                waits.append(healthy_seconds(port))
                time.sleep(0.5)
            print(f"/-/healthy answered {len(waits)} times, after at most {max(waits):.3f} s")
            assert statistics.median(waits) < HEALTHY_WITHIN_SECONDS
            assert max(waits) < 5  # the tick, or another process, may have had the cores
            wait_for(lambda: is_ready(f"http://127.0.0.1:{port}"), 20)
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=ENDED_SECONDS) == 0
    printed = log.read_text(encoding="utf-8")
    assert "failed" not in printed
    assert "Traceback" not in printed


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_a_library_swallows_is_seen(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with Ending() as ending:
        ending.check()
        try:
            os.kill(os.getpid(), number)
            time.sleep(5)
        except KeyboardInterrupt:
            pass  # as DuckDB does, which raises an error of its own
        wait_for(lambda: is_asked(ending), 5)
    assert signal.getsignal(number) == before


def is_asked(ending: Ending) -> bool:
    try:
        ending.check()
    except KeyboardInterrupt:
        return True
    return False


def test_a_process_that_does_not_come_to_its_end_is_ended() -> None:
    program = (
        "import signal, time; from pipelines.serving.ending import Ending\n"
        "with Ending(grace_seconds=0.5) as ending:\n"
        "    ending.at_last = lambda: print('at last', flush=True)\n"
        "    signal.signal(signal.SIGTERM, lambda *_: print('swallowed', flush=True))\n"
        "    print('started', flush=True)\n"
        "    while True:\n"
        "        time.sleep(0.1)\n"
    )
    with running([sys.executable, "-c", program], cwd=PROJECT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "started\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=10) == 0
        assert process.stdout.read() == "swallowed\nat last\n"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--port", "65536"], "got '65536', expected a port from 1 to 65535, or 0 for a free one"),
        (["--bearer-env", "NONE"], "--bearer-env NONE: the variable is empty or not set, expected a token"),
    ],
)
def test_a_wrong_option_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, options: list, expected: str
) -> None:
    monkeypatch.setenv("WATTLEDGER_DATA", str(tmp_path / "data"))
    today = datetime.now(UTC).date()
    words = ["serve", "--fleet", str(demo_fleet(tmp_path, today, None)), *options]
    try:
        assert main(words) == 2
    except SystemExit as ended:
        assert ended.code == 2
    shown = capsys.readouterr().err
    assert expected in shown
    assert len(shown.splitlines()) == 1
