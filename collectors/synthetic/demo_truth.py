"""The true values of the scenario `demo`, minute by minute: power, load, memory and tokens before any meter reads them.

Add here the functions that generate them, and `truth`, against which a ledger is checked. A value depends only on its
board or engine and on its minute: noise is hashed (splitmix64), sums are integers, and only + - * / and
rounding touch a float, so every window, machine and numpy gives the same bits. Keep out randomness with a state,
transcendental functions, and everything about labels and scrapes that fail (`collectors.synthetic.generator`).
"""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np

from collectors.samples import Window
from collectors.synthetic import demo_fleet
from collectors.synthetic.demo_fleet import Engine

DAY = 1440  # minutes
COMPUTED, CACHED, OUTPUT = range(3)  # rows of a token array: two classes of input, one of output
ROW = {(board.node, board.gpu): row for row, board in enumerate(demo_fleet.BOARDS)}


def _key(*names: object) -> np.uint64:
    return np.uint64(int.from_bytes(hashlib.blake2b(repr(names).encode(), digest_size=8).digest(), "big"))


def _noise(key: np.uint64 | np.ndarray, index: np.ndarray) -> np.ndarray:
    """Uniform in [-1, 1) per index: splitmix64 as a counter, so that no sample needs its predecessor."""
    z = key + index.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((z ^ (z >> np.uint64(31))) >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1.0


def _drift(key: np.uint64 | np.ndarray, minutes: np.ndarray, period: int) -> np.ndarray:
    """Noise that wanders: hashed every `period` minutes, a straight line between."""
    step, along = minutes // period, (minutes % period) / period
    here, there = _noise(key, step), _noise(key, step + 1)
    between: np.ndarray = here + (there - here) * along
    return between


def _is_steady(minutes: np.ndarray) -> np.ndarray:
    is_steady: np.ndarray = (minutes >= demo_fleet.STEADY[0]) & (minutes < demo_fleet.STEADY[1])
    return is_steady


def _pair_noise(key: np.uint64 | np.ndarray, minutes: np.ndarray) -> np.ndarray:
    """Noise that an even minute and its successor cancel: means over the steady hour come out exact."""
    noise: np.ndarray = _noise(key, minutes // 2) * (1 - 2 * (minutes % 2))
    return noise


def _requested(engine: Engine, minutes: np.ndarray) -> np.ndarray:
    """Tokens (input + output) that the engine would move in each minute, (n,) float64."""
    traffic = engine.traffic
    if traffic is None:
        return np.zeros(len(minutes))
    local = minutes + demo_fleet.LOCAL_SHIFT_MINUTES
    hour, along = (local // 60) % 24, (local % 60) / 60
    by_hour = np.array(traffic.by_hour)
    shape = by_hour[hour] + (by_hour[(hour + 1) % 24] - by_hour[hour]) * along
    shape = shape * np.array(traffic.by_weekday)[(local // DAY) % 7]
    wander = (
        1.0
        + 0.16 * _drift(_key(engine.model, "hour"), minutes, 60)
        + 0.11 * _drift(_key(engine.model, "ten minutes"), minutes, 10)
        + 0.08 * _noise(_key(engine.model, "minute"), minutes)
    )
    # 17 minutes: no multiple of any booking grid, so that stretches begin and end inside an interval.
    stretch = (minutes + 5) // 17
    chance = (_noise(_key(engine.model, "quiet"), stretch) + 1.0) / 2.0
    stretch_hour = ((stretch * 17 + demo_fleet.LOCAL_SHIFT_MINUTES) // 60) % 24
    is_quiet = chance < np.array(traffic.quiet_by_hour)[stretch_hour]
    if engine.model in demo_fleet.QUIET:
        is_quiet |= (minutes >= demo_fleet.QUIET[engine.model][0]) & (minutes < demo_fleet.QUIET[engine.model][1])
    level = np.where(is_quiet, 0.0, shape * wander)
    level = np.where(_is_steady(minutes), 1.0 + 0.02 * _pair_noise(_key(engine.model, "steady"), minutes), level)
    return level * (60.0 * engine.reference_tokens_per_second)


def _tokens(engine: Engine, minutes: np.ndarray) -> np.ndarray:
    """Tokens moved in each minute by class, (3, n) int64: computed input, cached input, output."""
    serving = np.zeros(len(minutes), dtype=bool)
    for run in engine.runs:
        serving |= (minutes >= run.first - 1) & (minutes < run.gone - 1)
    total = np.where(serving, np.rint(_requested(engine, minutes)), 0.0)
    if engine.traffic is None:
        return np.zeros((3, len(minutes)), dtype=np.int64)
    output_ratio = engine.traffic.output_ratio * (1.0 + 0.12 * _drift(_key(engine.model, "output"), minutes, 30))
    cached_ratio = engine.traffic.cached_ratio * (1.0 + 0.15 * _drift(_key(engine.model, "cached"), minutes, 45))
    output = np.rint(total * output_ratio)
    cached = np.rint((total - output) * cached_ratio)
    return np.stack([total - output - cached, cached, output]).astype(np.int64)


class Day(NamedTuple):
    """The true values of one UTC day at each knot. A knot is a scrape; the last of the 1441 is the next day's first.

    milliwatts (26 boards, 1441) int64; load (26, 1441): tokens/s over the reference rate, -1 with no engine up;
    memory_mib (26, 1441) int64; tokens (5 engines, 3 classes, 1441) int64 in the minute after each knot.
    """

    milliwatts: np.ndarray
    load: np.ndarray
    memory_mib: np.ndarray
    tokens: np.ndarray


@lru_cache(maxsize=3)
def day_truth(day: int) -> Day:
    """Watts, load, memory and tokens of all boards and engines on one day."""
    minutes = np.arange(day * DAY, day * DAY + DAY + 1)
    keys = np.array([_key(board.device_uuid) for board in demo_fleet.BOARDS])[:, None]
    watts = np.repeat([[board.kind.bare_watts] for board in demo_fleet.BOARDS], len(minutes), axis=1)
    load = np.full_like(watts, -1.0)
    memory = np.repeat(3 + np.arange(len(demo_fleet.BOARDS))[:, None] % 4, len(minutes), axis=1)
    tokens = np.stack([_tokens(engine, minutes) for engine in demo_fleet.ENGINES])
    for engine, moved in zip(demo_fleet.ENGINES, tokens.sum(axis=1), strict=True):
        relative = moved / (60.0 * engine.reference_tokens_per_second)
        for run in engine.runs:
            rows = [ROW[engine.node, gpu] for gpu in run.gpus]
            loading = (minutes >= run.bound) & (minutes < run.first - 1)
            up = (minutes >= run.first - 1) & (minutes < run.gone)
            full_watts = engine.reference_watts / len(rows)
            # Decode is bound by memory, so power leaps with the first request and then hardly follows the load.
            active = engine.parked_watts + (full_watts - engine.parked_watts) * relative * 1.25 / (relative + 0.25)
            serving = np.where(moved > 0, active, engine.parked_watts)
            skew = np.where(np.arange(len(rows)) % 2 == 0, 0.4, -0.4)[:, None]
            watts[rows] = np.where(up, serving + skew, np.where(loading, watts[rows] * 1.2, watts[rows]))
            load[rows] = np.where(up, relative, load[rows])
            memory[rows] = np.where(up, engine.memory_mib, np.where(loading, engine.memory_mib // 3, memory[rows]))
    lively = np.where(load > 0, 0.015, 0.006)
    wobble = lively * (_noise(keys, minutes[None]) + _drift(keys ^ np.uint64(1), minutes[None], 90)) / 2.0
    wobble = np.where(_is_steady(minutes), 0.01 * _pair_noise(keys, minutes[None]), wobble)
    limits = np.array([[board.kind.limit_watts * 1.01] for board in demo_fleet.BOARDS])
    milliwatts = np.rint(np.minimum(watts * (1.0 + wobble), limits) * 1000.0).astype(np.int64)
    return Day(milliwatts, load, memory, tokens)


def _segment_millijoules(day: int) -> np.ndarray:
    """Each board's energy in each minute of the day, (26, 1440) int64, exact: 60 s × the mean of two knots."""
    milliwatts = day_truth(day).milliwatts
    millijoules: np.ndarray = 30 * (milliwatts[:, :-1] + milliwatts[:, 1:])
    return millijoules


@cache
def _day_sums(day: int) -> tuple[np.ndarray, np.ndarray]:
    """(26,) millijoules and (5, 3) tokens of one whole day: what later days need of it."""
    return _segment_millijoules(day).sum(axis=1), day_truth(day).tokens[:, :, :DAY].sum(axis=2)


def _millijoules_until(day: int) -> np.ndarray:
    """Millijoules at the 1440 scrapes of the day since EPOCH's first scrape, (26, 1440) int64."""
    before = sum((_day_sums(earlier)[0] for earlier in range(day)), np.zeros(len(demo_fleet.BOARDS), dtype=np.int64))
    within = np.cumsum(_segment_millijoules(day), axis=1)
    millijoules: np.ndarray = before[:, None] + np.hstack(
        [np.zeros((len(demo_fleet.BOARDS), 1), dtype=np.int64), within[:, :-1]]
    )
    return millijoules


def tokens_until(day: int) -> np.ndarray:
    """Tokens at the 1440 scrapes of the day since EPOCH's first scrape, (5, 3, 1440) int64."""
    before = sum(
        (_day_sums(earlier)[1] for earlier in range(day)), np.zeros((len(demo_fleet.ENGINES), 3), dtype=np.int64)
    )
    within = np.cumsum(day_truth(day).tokens[:, :, :DAY], axis=2)
    tokens: np.ndarray = before[:, :, None] + np.concatenate(
        [np.zeros_like(within[:, :, :1]), within[:, :, :-1]], axis=2
    )
    return tokens


@cache
def tokens_at(minute: int) -> np.ndarray:
    """(5, 3) tokens since EPOCH at one scrape; EPOCH's own for the runs that began before it."""
    day = max(minute, 0) // DAY
    return tokens_until(day)[:, :, max(minute, 0) - day * DAY]


@cache
def _millijoules_at_reload(node: str) -> np.ndarray:
    """(26,) millijoules since EPOCH's first scrape at the moment when the node's driver was reloaded."""
    knot, seconds = demo_fleet.DRIVER_RELOADS[node]
    day, at = divmod(knot, DAY)
    here, there = day_truth(day).milliwatts[:, at], day_truth(day).milliwatts[:, at + 1]
    millijoules: np.ndarray = _millijoules_until(day)[:, at] + here * seconds + (there - here) * seconds**2 // 120
    return millijoules


def energy_counters(day: int) -> np.ndarray:
    """Millijoules since boot or driver reload at the 1440 scrapes, (26, 1440) int64; for boards with a counter."""
    counters = _millijoules_until(day)
    minutes = np.arange(day * DAY, day * DAY + DAY)
    # At most 550 MJ: two months of an A100.
    at_epoch = np.array([int(_key("boot", board.device_uuid) >> np.uint64(25)) for board in demo_fleet.BOARDS])[:, None]
    since_boot: np.ndarray = counters + at_epoch
    for node, (knot, _) in demo_fleet.DRIVER_RELOADS.items():
        if knot < minutes[-1]:
            rows = [row for row, board in enumerate(demo_fleet.BOARDS) if board.node == node]
            since_reload = counters[rows] - _millijoules_at_reload(node)[rows, None]
            since_boot[rows] = np.where(minutes > knot, since_reload, since_boot[rows])
    return since_boot


def utilisation(day: int) -> np.ndarray:
    """DCGM_FI_DEV_GPU_UTIL, (26, 1440) whole percent: any kernel running counts, so it saturates early."""
    load = day_truth(day).load[:, :DAY]
    keys = np.array([_key("util", board.device_uuid) for board in demo_fleet.BOARDS])[:, None]
    busy = 30.0 + 75.0 * load / (load + 0.2) + 4.0 * _noise(keys, np.arange(day * DAY, day * DAY + DAY)[None])
    return np.where(load > 0, np.clip(np.rint(busy), 1.0, 100.0), 0.0)


def requests(engine: Engine, moved: np.ndarray, minutes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """vllm:num_requests_running and _waiting at the 1440 scrapes; at least one runs where tokens move next."""
    if engine.traffic is None:
        return np.zeros(len(minutes)), np.zeros(len(minutes))
    relative = moved / (60.0 * engine.reference_tokens_per_second)
    spread = 1.0 + 0.25 * _noise(_key(engine.model, "requests"), minutes)
    running = np.where(moved > 0, np.maximum(np.rint(relative * engine.traffic.requests_at_reference * spread), 1), 0)
    waiting = np.maximum(np.rint((relative - 1.2) * engine.traffic.requests_at_reference), 0)
    return running, waiting


def truth(window: Window) -> dict[str, dict[str, Any]]:
    """The true joules and tokens of the window, also where samples are missing or wrong.

    {"joules": {device_uuid: float}, "tokens": {model: {"input", "cached_input", "output": float}}}; power runs straight
    between scrapes and tokens come evenly in the minute between two, which is what a window's edge cuts.
    """
    joules = {
        board.device_uuid: _joules_at(window.end_at, row) - _joules_at(window.start_at, row)
        for row, board in enumerate(demo_fleet.BOARDS)
    }
    tokens = {}
    for row, engine in enumerate(demo_fleet.ENGINES):
        computed, cached, output = _engine_tokens_at(window.end_at, row) - _engine_tokens_at(window.start_at, row)
        tokens[engine.model] = {"input": computed + cached, "cached_input": cached, "output": output}
    return {"joules": joules, "tokens": tokens}


def _scrape_before(at: datetime, offset_ms: int) -> tuple[int, int, float]:
    """(day, minute of the day, seconds since) of the last scrape at or before a time; EPOCH's first at the earliest."""
    since = max(at - demo_fleet.EPOCH - timedelta(milliseconds=offset_ms), timedelta(0))
    knot, rest = divmod(since, timedelta(minutes=1))
    return *divmod(knot, DAY), rest.total_seconds()


def _joules_at(at: datetime, row: int) -> float:
    day, minute, seconds = _scrape_before(at, demo_fleet.BOARD_SCRAPE_MS[demo_fleet.BOARDS[row].node])
    here, there = day_truth(day).milliwatts[row, minute : minute + 2]
    partial_millijoules = here * seconds + (there - here) * seconds**2 / 120.0
    return float(float(_millijoules_until(day)[row, minute]) + partial_millijoules) / 1000.0


def _engine_tokens_at(at: datetime, row: int) -> np.ndarray:
    day, minute, seconds = _scrape_before(at, demo_fleet.ENGINE_SCRAPE_MS[demo_fleet.ENGINES[row].node])
    tokens: np.ndarray = tokens_until(day)[row, :, minute] + day_truth(day).tokens[row, :, minute] * (seconds / 60.0)
    return tokens
