"""The process `serve`: a tick every five minutes, the fleet's nights, and answers over HTTP, until it is ended.

Ticks and nights are of this thread, answers of others. Add here what a turn of the loop does. Keep out when a night is
due (`nights`), and what is answered (`metrics`, `today_section`).
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from datetime import time as time_of_day
from http import HTTPStatus
from pathlib import Path

from collectors.samples import printable
from pipelines.code_location import NIGHTLY
from pipelines.fleet.fleet_file import Fleet, FleetError, load_fleet
from pipelines.serving import metrics, nights
from pipelines.serving.child_process import ChildProcess
from pipelines.serving.ending import Ending
from pipelines.serving.fleet_state import FleetState
from pipelines.serving.today_section import with_today
from pipelines.serving.web_server import HTML_TYPE, METRICS_TYPE, Answer, WebServer
from pipelines.today import ticks, today_file
from pipelines.warehouse import night_lock
from pipelines.warehouse.refusals import QuestionError

TICK_SECONDS = 300.0
TURN_SECONDS = 0.5
# A turn that takes longer than this hangs: the longest is a tick of a big fleet.
HEALTHY_SECONDS = 900.0
# A fifth of Python's own: where a tick computes, each read and write of an answer waits so long.
SWITCH_SECONDS = 0.001

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Place:
    """Where it answers: `names` are those of a request's Host beside the machine's own. `token` is what a request has
    to bring; None for none. `textfile` is the file for node_exporter; None for none. `home` is the folder of Dagster's
    history."""

    host: str
    port: int
    names: tuple[str, ...]
    token: str | None
    textfile: Path | None
    home: Path
    log_format: str


class Service:
    """The process, from `run` until KeyboardInterrupt."""

    def __init__(
        self, fleet: Fleet, place: Place, ending: Ending, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self.fleet, self.place, self._ending, self._clock = fleet, place, ending, clock
        self._known = FleetState(fleet, place.home)
        self.state = self._known.state
        self.state.ticks = {"made": 0, "skipped": 0, "failed": 0}
        self.state.runs_nights = False
        self._file_read_at = _modified_ns(fleet.path)
        self._is_closed = False
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
        ending.at_last = self._end
        self.server = WebServer(place.host, place.port, answers, place.token, place.names)

    def run(self) -> None:
        """Go on until KeyboardInterrupt; then end the run that is in progress, and answer no more."""
        sys.setswitchinterval(SWITCH_SECONDS)
        self.server.start()
        logger.info("fleet %s: http://%s:%d/ and /metrics", self.fleet.fleet, self.place.host, self.server.port)
        try:
            self._read()
            next_tick = time.monotonic()
            while True:
                self._turned = time.monotonic()
                self._ending.check()
                self._look_after_nights()
                if time.monotonic() >= next_tick:
                    next_tick = max(next_tick + TICK_SECONDS, time.monotonic())
                    self._reload()
                    self._tick()
                    self._read()
                    self._is_ready = True
                time.sleep(TURN_SECONDS)
        finally:
            self._end()

    def _end(self) -> None:
        """End the run that is in progress; then answer no more."""
        if self._night is not None:
            logger.info("ending the run of %s, which goes on where it stopped when it is started again", self._night_of)
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
            if not self._is_closed:
                logger.info("no ticks: %s", closed)
            self._is_closed = True
            self.state.ticks["skipped"] += 1
        except Exception as error:
            self._ending.check()
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
            for problem in self._known.renew(self.fleet):
                logger.warning("not read: %s", printable(problem))
            if self.place.textfile is not None:
                metrics.write(self.place.textfile, self.state, self._clock())
        except Exception as error:
            self._ending.check()
            logger.warning("not read or written: %s", printable(f"{type(error).__name__}: {error}"))

    def _reload(self) -> None:
        """Read the fleet file again where it changed. One that is wrong leaves the fleet as it was."""
        modified = _modified_ns(self.fleet.path)
        if modified == self._file_read_at:
            return
        self._file_read_at = modified
        try:
            fresh = load_fleet(self.fleet.path)
        except FleetError as wrong:
            logger.warning("the fleet file is as it was when it was read last: %s", printable(str(wrong)))
            return
        if (fresh.fleet, fresh.root) == (self.fleet.fleet, self.fleet.root):
            self.fleet = fresh

    def _look_after_nights(self) -> None:
        if not self._is_ready:  # a run would keep the first tick waiting for minutes
            return
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
        page = with_today(self._known.report, self.state.today, self.fleet.fleet, self._clock())
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


def _modified_ns(path: Path) -> int | None:
    """When a file was written; None where it is gone."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None
