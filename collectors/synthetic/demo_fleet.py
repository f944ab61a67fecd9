"""The scenario `demo` of the synthetic source: the boards, pods, traffic and planted events of an invented fleet.

Add here what the scenario contains, as data. Its power and tokens minute by minute are computed in
`collectors.synthetic.demo_truth`, and its exporters' pages in `collectors.synthetic.generator`. Every number is
invented except the five readings it is shaped on (watts and total tokens/s of five models on one public operator's
fleet). Nothing here was measured.

Five nodes, 26 boards. `a6000-01` (3 A6000, gpt-oss-120b on two), `a6000-02` (3 A6000, gemma-4-31B on two): gauge only.
`a100-01` (8 A100, Qwen3.5-397B in 4-bit), `a100-02` (8 A100, Kimi-K2.5, no traffic), `a100-03` (4 A100, MiniMax-M2.5,
no traffic): gauge and energy counter. Samples exist from 2026-09-28T00:00Z on. Each target answers once a minute at its
own second and keeps it; "sample 16:12" below is the one taken in the minute 16:12. All times UTC.

The planted truth:

* **Steady hour** 2026-10-14 20:00-21:00 (steady from 19:50 to 21:10): gpt-oss 597 W and 2341 tok/s, gemma 577 W and
  360 tok/s, Qwen 783 W and 18 tok/s, Kimi 670 W, MiniMax 447 W: summed over boards, means over the hour.
* **Crash, same pod**: gpt-oss dies after sample 10-06 16:11, answers again with sample 16:17, counters from 0.
* **Crash, same pod**: Qwen dies after sample 10-12 10:29, answers again with sample 10:45, counters from 0.
* **Rollout, new pod on the same boards**: gemma ends after sample 10-20 17:39, the new pod holds the boards from sample
  17:41 and answers from sample 17:47. All its series are new.
* **Move**: gpt-oss's pod ends after sample 10-15 17:21 on boards 0 and 1 of a6000-01; its successor holds boards 0 and
  2 from sample 17:23 and answers from sample 17:29. The boards run on; only the labels change.
* **Driver reload** on a100-02 (Kimi), 20 s after sample 10-08 08:00: eight energy counters start again at 0, and the
  engine is away from sample 08:01, back with sample 08:16. No sample carries the energy of those 20 s.
* **Scrape gap of 37 samples over midnight** on a100-01: 10-17 23:41 to 10-18 00:17, board and engine both.
* **Scrape gap of 4 samples** on a6000-02: 10-22 19:06 to 19:09, board and engine both.
* **Sentinels** 9223372036854775794 in the power of a6000-01 board 0 at 10-09 18:31, 18:44, 19:02, and in the energy
  counter of a100-03 board 1 at 10-13 12:05; **-1 W** on a6000-02 board 1 at 10-16 04:20; **NaN** W on a100-01 board 3
  at 10-19 06:45.
* **Duplicates**: the power of a6000-01 board 0 is reported twice at each sample of 10-21 15:00-15:09.
* **No model**: a6000-02 board 2 always; a6000-01 board 2 until the move, board 1 after it.
* **Silence of traffic**: gemma and Qwen have idle stretches, mostly at night; gpt-oss one, 10-11 09:10-09:35.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime

EPOCH = datetime(2026, 9, 28, tzinfo=UTC)  # a Monday, three days before the period, so that a first sample has a past
EPOCH_SECONDS = int(EPOCH.timestamp())
FOREVER = 1 << 40
# People's clocks: Pacific daylight time all through the scenario (it ends before the clocks change).
LOCAL_SHIFT_MINUTES = -7 * 60


def minute(month_day_time: str) -> int:
    """Minutes since EPOCH of a time written `10-06 16:12` (2026, UTC)."""
    at = datetime.strptime(f"2026-{month_day_time}", "%Y-%m-%d %H:%M").replace(tzinfo=UTC)
    return int((at - EPOCH).total_seconds()) // 60


@dataclass(frozen=True)
class BoardType:
    """What boards of one type share."""

    model_name: str  # as NVML and dcgm-exporter name it
    bare_watts: float  # no process on the board
    limit_watts: float
    has_energy_counter: bool


@dataclass(frozen=True)
class Board:
    """One accelerator."""

    node: str
    gpu: int
    kind: BoardType

    @property
    def device_uuid(self) -> str:
        """A UUID that is the same on every machine and run."""
        return f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{self.gpu}.{self.node}.demo.wattledger')}"


@dataclass(frozen=True)
class Run:
    """One life of an engine's process: minutes since EPOCH, in the order in which they happen.

    The pod holds `gpus` from sample `bound`; the process answers from sample `first` (and serves from the minute
    before it); `gone` is the first sample without it. `base` is (computed, cached, output) tokens before EPOCH.
    """

    pod: str
    address: str
    gpus: tuple[int, ...]
    bound: int
    process_start_seconds: float
    first: int
    gone: int = FOREVER
    base: tuple[int, int, int] = (0, 0, 0)


@dataclass(frozen=True)
class Traffic:
    """An engine's load: multiples of its reference rate by its users' local hour and weekday (Monday first)."""

    by_hour: tuple[float, ...]
    by_weekday: tuple[float, ...]
    quiet_by_hour: tuple[float, ...]  # probability that a stretch of 17 minutes has no request at all
    output_ratio: float
    cached_ratio: float  # of the input tokens
    requests_at_reference: float


@dataclass(frozen=True)
class Engine:
    """An engine, which serves one model, and the runs of its process."""

    model: str  # canonical; `served_name` is what the engine calls it
    served_name: str
    namespace: str
    container: str
    node: str
    reference_watts: float  # summed over its boards, at `reference_tokens_per_second`
    reference_tokens_per_second: float
    parked_watts: float  # per board: loaded, nothing running
    memory_mib: int  # per board
    traffic: Traffic | None
    runs: tuple[Run, ...]


@dataclass(frozen=True)
class Gap:
    """Samples of a node that were never scraped."""

    node: str
    first: int  # first sample that is missing
    end: int  # first sample that is there again


@dataclass(frozen=True)
class Fault:
    """One sample with a wrong value."""

    metric: str
    node: str
    gpu: int
    minute: int
    value: float


A6000 = BoardType("NVIDIA RTX A6000", bare_watts=23.0, limit_watts=300.0, has_energy_counter=False)
A100 = BoardType("NVIDIA A100-SXM4-80GB", bare_watts=52.0, limit_watts=400.0, has_energy_counter=True)

BOARDS = tuple(
    Board(node, gpu, kind)
    for node, count, kind in (
        ("a6000-01", 3, A6000),
        ("a6000-02", 3, A6000),
        ("a100-01", 8, A100),
        ("a100-02", 8, A100),
        ("a100-03", 4, A100),
    )
    for gpu in range(count)
)

# The second of the minute, in milliseconds, at which each target is scraped.
BOARD_SCRAPE_MS = {"a6000-01": 7_413, "a6000-02": 41_087, "a100-01": 18_250, "a100-02": 52_604, "a100-03": 3_871}
ENGINE_SCRAPE_MS = {"a6000-01": 21_906, "a6000-02": 33_518, "a100-01": 48_140, "a100-02": 11_332, "a100-03": 26_775}

_EVERY_DAY = (1.0, 1.03, 1.05, 1.02, 0.97, 0.80, 0.76)
_NEVER_QUIET = (0.0,) * 24

# fmt: off
_CHAT = Traffic(
    by_hour=(
        0.48, 0.45, 0.43, 0.42, 0.42, 0.44, 0.50, 0.60, 0.74, 0.88, 0.97, 1.02,
        1.03, 1.03, 1.02, 1.00, 0.96, 0.90, 0.84, 0.78, 0.72, 0.66, 0.60, 0.54,
    ),
    by_weekday=_EVERY_DAY,
    quiet_by_hour=_NEVER_QUIET,
    output_ratio=0.27,
    cached_ratio=0.46,
    requests_at_reference=21.0,
)
_CLASSROOM = Traffic(
    by_hour=(
        0.22, 0.16, 0.12, 0.11, 0.11, 0.13, 0.20, 0.38, 0.62, 0.84, 0.98, 1.06,
        1.02, 1.08, 1.10, 1.04, 0.92, 0.74, 0.58, 0.52, 0.50, 0.44, 0.36, 0.28,
    ),
    by_weekday=(1.0, 1.06, 1.08, 1.04, 0.86, 0.42, 0.48),
    quiet_by_hour=(
        0.40, 0.55, 0.62, 0.66, 0.66, 0.62, 0.50, 0.25, 0.08, 0.03, 0.02, 0.01,
        0.02, 0.01, 0.01, 0.02, 0.03, 0.06, 0.10, 0.10, 0.12, 0.16, 0.24, 0.32,
    ),
    output_ratio=0.34,
    cached_ratio=0.21,
    requests_at_reference=12.0,
)
_RESEARCH = Traffic(
    by_hour=(
        0.70, 0.64, 0.60, 0.60, 0.60, 0.60, 0.66, 0.78, 0.92, 1.04, 1.12, 1.16,
        1.10, 1.14, 1.20, 1.18, 1.12, 1.02, 0.94, 0.90, 0.88, 0.84, 0.80, 0.74,
    ),
    by_weekday=(1.0, 1.02, 1.06, 1.0, 0.92, 0.70, 0.66),
    quiet_by_hour=(
        0.66, 0.74, 0.80, 0.82, 0.82, 0.80, 0.70, 0.55, 0.38, 0.28, 0.24, 0.22,
        0.24, 0.20, 0.20, 0.20, 0.22, 0.28, 0.34, 0.38, 0.42, 0.48, 0.54, 0.60,
    ),
    output_ratio=0.41,
    cached_ratio=0.12,
    requests_at_reference=2.0,
)

# fmt: on
_LONG_AGO = EPOCH_SECONDS - 9 * 86_400

ENGINES = (
    Engine(
        "gpt-oss-120b", "openai/gpt-oss-120b", "llm-shared", "gpt-oss", "a6000-01",
        597.0, 2341.0, 75.0, 44_872, _CHAT,
        (
            Run("gpt-oss-7d9f6c5b48-x2kqz", "10.4.1.17:8000", (0, 1), 0, _LONG_AGO + 61.25, 0, minute("10-06 16:12"),
                (212_480_118, 180_998_402, 145_612_077)),
            Run("gpt-oss-7d9f6c5b48-x2kqz", "10.4.1.17:8000", (0, 1), minute("10-06 16:12"),
                EPOCH_SECONDS + 60 * minute("10-06 16:12") + 41.5, minute("10-06 16:17"), minute("10-15 17:22")),
            Run("gpt-oss-7d9f6c5b48-m8w4t", "10.4.1.23:8000", (0, 2), minute("10-15 17:23"),
                EPOCH_SECONDS + 60 * minute("10-15 17:23") + 12.75, minute("10-15 17:29")),
        ),
    ),
    Engine(
        "gemma-4-31B", "google/gemma-4-31B-it", "llm-teaching", "gemma", "a6000-02",
        577.0, 360.0, 73.0, 45_310, _CLASSROOM,
        (
            Run("gemma-5f6bd7c9d-jt5rn", "10.4.2.31:8000", (0, 1), 0, _LONG_AGO + 3_804.5, 0, minute("10-20 17:40"),
                (41_208_731, 10_870_224, 26_702_310)),
            Run("gemma-84c7b96f5d-q9zvh", "10.4.2.38:8000", (0, 1), minute("10-20 17:41"),
                EPOCH_SECONDS + 60 * minute("10-20 17:41") + 8.0, minute("10-20 17:47")),
        ),
    ),
    Engine(
        "Qwen3.5-397B", "Qwen/Qwen3.5-397B-A17B-GPTQ-Int4", "llm-research", "qwen", "a100-01",
        783.0, 18.0, 71.0, 73_402, _RESEARCH,
        (
            Run("qwen-397b-0", "10.4.3.12:8000", tuple(range(8)), 0, _LONG_AGO + 7_330.0, 0, minute("10-12 10:30"),
                (3_018_442, 411_605, 2_383_190)),
            Run("qwen-397b-0", "10.4.3.12:8000", tuple(range(8)), minute("10-12 10:30"),
                EPOCH_SECONDS + 60 * minute("10-12 10:30") + 55.5, minute("10-12 10:45")),
        ),
    ),
    Engine(
        "Kimi-K2.5", "moonshotai/Kimi-K2.5", "llm-research", "kimi", "a100-02",
        670.0, 30.0, 83.75, 76_118, None,
        (
            Run("kimi-k2-5-0", "10.4.4.9:8000", tuple(range(8)), 0, _LONG_AGO + 10_912.0, 0, minute("10-08 08:01"),
                (48_213, 0, 9_904)),
            Run("kimi-k2-5-0", "10.4.4.9:8000", tuple(range(8)), minute("10-08 08:01"),
                EPOCH_SECONDS + 60 * minute("10-08 08:02") + 30.25, minute("10-08 08:16")),
        ),
    ),
    Engine(
        "MiniMax-M2.5", "MiniMaxAI/MiniMax-M2.5", "llm-research", "minimax", "a100-03",
        447.0, 60.0, 111.75, 70_964, None,
        (Run("minimax-m2-5-0", "10.4.5.20:8000", tuple(range(4)), 0, _LONG_AGO + 14_204.0, 0),),
    ),
)  # fmt: skip

STEADY = (minute("10-14 19:50"), minute("10-14 21:10"))
QUIET = {"gpt-oss-120b": (minute("10-11 09:10"), minute("10-11 09:36"))}
GAPS = (
    Gap("a100-01", minute("10-17 23:41"), minute("10-18 00:18")),
    Gap("a6000-02", minute("10-22 19:06"), minute("10-22 19:10")),
)
DRIVER_RELOADS = {"a100-02": (minute("10-08 08:00"), 20)}  # node: (sample before, seconds after that sample)

SENTINEL = 9223372036854775794.0
POWER, ENERGY = "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
FAULTS = (
    Fault(POWER, "a6000-01", 0, minute("10-09 18:31"), SENTINEL),
    Fault(POWER, "a6000-01", 0, minute("10-09 18:44"), SENTINEL),
    Fault(POWER, "a6000-01", 0, minute("10-09 19:02"), SENTINEL),
    Fault(ENERGY, "a100-03", 1, minute("10-13 12:05"), SENTINEL),
    Fault(POWER, "a6000-02", 1, minute("10-16 04:20"), -1.0),
    Fault(POWER, "a100-01", 3, minute("10-19 06:45"), float("nan")),
)
DUPLICATES = ((POWER, "a6000-01", 0, minute("10-21 15:00"), minute("10-21 15:10")),)
