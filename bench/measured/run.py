"""One run: idle, a model, idle with it, then stretch by stretch, with what records beside it.

Add here the order of what happens. Keep out what counts (`load`), what records (`recorders`) and what is in the files
(`files`).
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml
from prometheus_client import start_http_server

from bench.measured import nvml_calls, recorders
from bench.measured.files import Files, text_of
from bench.measured.load import Engine, Load, Page
from bench.measured.plan import Plan

# The least that a warm-up lasts, of a stretch's length.
WARM_UP_RATIO = 1 / 3
# What is printed of each stretch.
SHOWN = ("window_id", "output_tokens_per_second", "joules_per_output_token", "mode", "error")
MakeEngine = Callable[[dict[str, int]], Engine]

log = logging.getLogger(__name__)


def run(plan: Plan, load_maker: Callable[[], MakeEngine], out: Path, started_at: float) -> int:
    """Measure into an empty folder `out`. The exit status: 1 where a stretch failed or the agent ended early.

    `load_maker` imports what makes the model; that takes seconds, and is done while the board idles.
    """
    out.mkdir(parents=True, exist_ok=True)
    page = Page()
    server, thread = start_http_server(0, "127.0.0.1", page.registry)
    files = Files(out, plan, f"{recorders.HOST}:{server.server_port}", nvml_calls.answers())
    to_file = logging.FileHandler(files.log)
    to_file.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logging.getLogger("bench.measured").addHandler(to_file)
    log.info("%s, driver %s", files.facts["device"]["name"], files.facts["device"]["driver"])
    log.info("NVML refuses: %s", ", ".join(files.facts["refused"]) or "nothing")
    states: dict[str, str] = {}
    try:
        url = f"http://127.0.0.1:{server.server_port}/metrics"
        with recorders.agent_and_smi(url, files.spool, files.smi, files.log) as states:
            _measure(plan, load_maker, files, page, started_at)
    finally:
        files.close(states)
        server.shutdown()
        thread.join()
        logging.getLogger("bench.measured").removeHandler(to_file)
    log.info("recorders: %s", states)
    is_whole = all("error" not in window for window in files.windows) and states["agent"] == recorders.RUNS
    return 0 if is_whole else 1


def _measure(plan: Plan, load_maker: Callable[[], MakeEngine], files: Files, page: Page, started_at: float) -> None:
    # Before the first use of CUDA: a context alone lifts what a board draws.
    idle_until = time.time() + plan.idle_seconds
    poll_seconds = plan.idle_seconds / 3
    recorders.poll("bare_idle", poll_seconds, files.polled, files.log)
    meter = Meter()
    make_engine = load_maker()
    _sleep_until(idle_until)
    files.add("bare_idle", *meter.window())

    began = time.time()
    engine = make_engine(plan.model)
    loaded_at = time.time()
    files.facts["model"] = {"sizes": plan.model, "loaded_at": text_of(loaded_at), "made_in_seconds": loaded_at - began}
    meter = Meter()
    _sleep_until(loaded_at + plan.idle_seconds - poll_seconds / 2)
    recorders.poll("from_idle_to_load", poll_seconds, files.polled, files.log)
    _sleep_until(loaded_at + plan.idle_seconds)
    files.add("loaded_idle", *meter.window())

    files.facts["left_out"] = []
    with files.requests.open("a", encoding="utf-8") as requests:
        _measure_stretches(plan, Load(engine, page, requests), files, started_at)
    time.sleep(2 * recorders.PAGE_SECONDS)  # the agent has yet to see the last counts


def _measure_stretches(plan: Plan, load: Load, files: Files, started_at: float) -> None:
    length = plan.stretch_seconds
    busiest = max(plan.stretches, key=lambda stretch: stretch.concurrency)
    for stretch in plan.stretches:
        start = math.ceil((time.time() + WARM_UP_RATIO * length) / length) * length
        if start + length > started_at + plan.limit_seconds:
            log.info("%s is left out: there is no time for it", stretch.name)
            files.facts["left_out"].append(stretch.name)
            continue
        _sleep_until(start - length)
        try:
            load.engine.start(stretch.concurrency, stretch.prompt_tokens, stretch.output_tokens)
            while start - plan.quiet_seconds < time.time():  # that took longer than there was
                start += length
            if stretch is busiest:
                poll_seconds = min(plan.idle_seconds / 3, start - plan.quiet_seconds - time.time())
                recorders.poll("under_load", poll_seconds, files.polled, files.log)
            load.keep_up(stretch, "warm_up", start - plan.quiet_seconds)
            _sleep_until(start)
            meter = Meter()
            counts = load.keep_up(stretch, stretch.name, start + length)
            _, _, watts = meter.window()
            files.add_stretch(stretch, start, watts, counts, load.engine.mode)
        except Exception as error:  # one that fails must not take the others with it
            log.exception("%s failed", stretch.name)
            files.add(stretch.name, start, start + length, None, error=f"{type(error).__name__}: {error}"[:500])
        log.info("%s", {key: value for key, value in files.windows[-1].items() if key in SHOWN})
        _sleep_until(start + length + plan.quiet_seconds)


class Meter:
    """The board's energy counter from now on, for a first look: the agent's samples are what is booked."""

    def __init__(self) -> None:
        self._board = nvml_calls.board()
        self._start = self._reading()

    def window(self) -> tuple[float, float, float | None]:
        """Start and end (Unix seconds) and the mean watts; None for these where the board has no counter."""
        (start, before), (end, after) = self._start, self._reading()
        return start, end, None if before is None or after is None else (after - before) / 1000 / (end - start)

    def _reading(self) -> tuple[float, Any]:
        try:
            return time.time(), pynvml.nvmlDeviceGetTotalEnergyConsumption(self._board)
        except pynvml.NVMLError:
            return time.time(), None


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.time()))
