"""The process `serve`: a tick every five minutes, the fleet's nights, and answers over HTTP, until it is ended.

Ticks and nights are of this thread, answers of others. Add here what a turn of the loop does. Keep out when a night is
due (`nights`), and what is answered (`metrics`, `today_section`).
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from datetime import time as time_of_day
from http import HTTPStatus
from pathlib import Path

from collectors.durable_files import write_whole
from collectors.samples import printable
from pipelines.code_location import NIGHTLY
from pipelines.fleet.fleet_file import Fleet, FleetError, load_fleet
from pipelines.publishing.publication_manifest import REPORT
from pipelines.serving import data_layers, metrics, nights, published_day, run_history
from pipelines.serving.child_process import ChildProcess
from pipelines.serving.today_section import with_today
from pipelines.serving.web_server import HTML_TYPE, METRICS_TYPE, Answer, WebServer
from pipelines.today import ticks, today_file
from pipelines.warehouse import night_lock
from pipelines.warehouse.refusals import QuestionError

TICK_SECONDS = 300.0
TURN_SECONDS = 0.5
# A turn that takes longer than this hangs: the longest is a tick of a big fleet.
HEALTHY_SECONDS = 900.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Place:
    """Where it answers: `token` is what a request has to bring; None for none. `textfile` is the file for
    node_exporter; None for none. `home` is the folder of Dagster's history."""

    host: str
    port: int
    token: str | None
    textfile: Path | None
    home: Path
    log_format: str


class Service:
    """The process, from `run` until KeyboardInterrupt."""

    def __init__(self, fleet: Fleet, place: Place, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.fleet, self.place, self._clock = fleet, place, clock
        self.state = metrics.State(fleet.fleet)
        self._report: str | None = None
        self._seen: dict[str, object] = {}
        self._turned = time.monotonic()
        self._is_ready = False
        self._night: ChildProcess | None = None
        self._night_of = fleet.period.start
        self._last: nights.Attempt | None = None
        answers: dict[str, Callable[[], Answer]] = {
            "/": self._page,
            "/report": self._page,
            "/metrics": lambda: Answer(metrics.page(self.state, self._clock()), METRICS_TYPE),
            "/-/healthy": self._healthy,
            "/-/ready": self._ready,
        }
        self.server = WebServer(place.host, place.port, answers, place.token)

    def run(self) -> None:
        """Go on until KeyboardInterrupt; then end the run that is in progress, and answer no more."""
        self.server.start()
        logger.info("fleet %s: http://%s:%d/ and /metrics", self.fleet.fleet, self.place.host, self.server.port)
        try:
            self._read()
            next_tick = time.monotonic()
            while True:
                self._turned = time.monotonic()
                self._look_after_nights()
                if time.monotonic() >= next_tick:
                    next_tick = max(next_tick + TICK_SECONDS, time.monotonic())
                    self._reload()
                    self._tick()
                    self._read()
                    self._is_ready = True
                time.sleep(TURN_SECONDS)
        finally:
            if self._night is not None:
                logger.info(
                    "ending the run of %s, which goes on where it stopped when it is started again", self._night_of
                )
                self._night.end()
            self.server.stop()
            if self.place.textfile is not None:
                self.place.textfile.unlink(missing_ok=True)

    def _tick(self) -> None:
        try:
            ticks.refresh(self.fleet)
        except ticks.TickSkipped as skipped:
            logger.info("tick skipped: %s", skipped)
            self.state.ticks["skipped"] += 1
        except QuestionError as closed:
            if "closed" not in self._seen:
                logger.info("no ticks: %s", closed)
                self._seen["closed"] = True
            self.state.ticks["skipped"] += 1
        except Exception as error:
            logger.warning("tick failed: %s", printable(f"{type(error).__name__}: {error}"))
            self.state.ticks["failed"] += 1
        else:
            self.state.ticks["made"] += 1
            if made := today_file.read(self.fleet):
                until = f"{made.on} until {made.closed_until_at:%H:%M} UTC"
                problems = "".join(f"; {printable(line)}" for line in made.problems())
                logger.info("tick: %s, %.1f s%s", until, made.seconds, problems)

    def _read(self) -> None:
        """Read again what is answered; a file that cannot be read leaves the answer as it was."""
        try:
            if self._is_changed("today", _stamp(today_file.path_of(self.fleet))):
                self.state.today = today_file.read(self.fleet)
            report = self.fleet.published / REPORT
            if self._is_changed("published", (self.fleet.latest_publication, _stamp(report))):
                self.state.last_day = published_day.read(self.fleet)
                self._report = report.read_text(encoding="utf-8") if report.exists() else None
            if self._is_changed("runs", _stamps(self.place.home)):
                self.state.last_run = run_history.last_run(self.fleet, str(self.place.home))
            self.state.bytes_by_layer = data_layers.bytes_by_layer(self.fleet)
        except Exception as error:
            logger.warning("not read: %s", printable(f"{type(error).__name__}: {error}"))
        if self.place.textfile is not None:
            write_whole(self.place.textfile, metrics.page(self.state, self._clock()))
            self.place.textfile.chmod(0o644)

    def _is_changed(self, name: str, stamp: object) -> bool:
        if name in self._seen and self._seen[name] == stamp:
            return False
        self._seen[name] = stamp
        return True

    def _reload(self) -> None:
        """Read the fleet file again where it changed. One that is wrong leaves the fleet as it was."""
        if not self._is_changed("fleet_file", _stamp(self.fleet.path)):
            return
        try:
            fresh = load_fleet(self.fleet.path)
        except FleetError as wrong:
            logger.warning("the fleet file is as it was when it was read last: %s", printable(str(wrong)))
            return
        if (fresh.fleet, fresh.root) == (self.fleet.fleet, self.fleet.root):
            self.fleet = fresh

    def _look_after_nights(self) -> None:
        now = self._clock()
        if self._night is not None:
            status = self._night.status()
            if status is None:
                return
            logger.info("the run up to %s ended with status %d", self._night_of, status)
            self._last = nights.Attempt(self._night_of, now, status)
            self._night = None
            self._read()
        if not self.state.runs_nights:
            if now.second % 10:  # it is free once `dev` has ended
                return
            self.state.runs_nights = night_lock.take(self.fleet.root, night_lock.SERVE)
            if not self.state.runs_nights:
                return
        newest = self.state.last_day.on if self.state.last_day else None
        on = nights.due(self.fleet, now, time_of_day(*NIGHTLY), newest, self._last)
        if on is not None:
            logger.info("run: books what is due up to %s", on)
            self._night_of = on
            self._night = nights.start(self.fleet, self.place.log_format)

    def _page(self) -> Answer:
        page = with_today(self._report, self.state.today, self.fleet.fleet, self._clock())
        return Answer(page.encode(), HTML_TYPE)

    def _healthy(self) -> Answer:
        silent = time.monotonic() - self._turned
        if silent > HEALTHY_SECONDS:
            return Answer(f"no turn for {silent:.0f} s\n".encode(), status=HTTPStatus.SERVICE_UNAVAILABLE)
        return Answer(b"healthy\n")

    def _ready(self) -> Answer:
        if not self._is_ready:
            return Answer(b"the first tick is being made\n", status=HTTPStatus.SERVICE_UNAVAILABLE)
        return Answer(b"ready\n")


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """What differs where a file was replaced or written."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _stamps(home: Path) -> object:
    """What differs where Dagster wrote its history; a history that is kept elsewhere may always differ."""
    files = sorted((home / "history").glob("runs.db*"))
    return [_stamp(path) for path in files] if files else (os.getpid(), time.monotonic())
