"""The figures for Prometheus: today so far, the last booked day, checks, runs and bytes, by Prometheus' naming rules.

A figure that is not known has no sample, and one of a day that is over vanishes: each page is made anew from what was
read last. Add a family here when an alarm or a dashboard needs it. Keep out where its figures are read, and any label
with values without end: of models there are at most MOST_MODELS.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

import pipelines
from collectors.durable_files import write_whole
from pipelines.serving.published_day import ModelDay, PublishedDay
from pipelines.today.today_file import ModelToday, Today
from pipelines.upkeep.dagster_history import EndedRun

# Of more models those with the most energy are shown.
MOST_MODELS = 200
# A tick that is older is not today's state any more: its figures vanish.
TICK_VALID = timedelta(minutes=20)
PREFIX = "wattledger"
PER_MODEL = ("fleet", "model", "meter_scope")
OF_METERS = "the meters of meter_scope"
ESTIMATE = "An estimate, which the booking of the day settles"

# Name after `wattledger_today_` -> column of ModelToday, and what it is.
TODAY = {
    "energy_joules": ("energy_joules", f"Joules in the closed intervals of the UTC day, at {OF_METERS}"),
    "mean_watts": ("mean_watts", f"Mean watts since 00:00 UTC, at {OF_METERS}"),
    "newest_interval_watts": ("newest_interval_watts", f"Mean watts of the newest closed interval, at {OF_METERS}"),
    "output_tokens": ("output_tokens", "Output tokens in the closed intervals of the UTC day"),
    "input_and_output_tokens": ("total_tokens", "Input and output tokens in the closed intervals of the UTC day"),
    "joules_per_output_token": ("joules_per_output_token", "Joules per output token, idle energy included"),
    "joules_per_token": ("joules_per_total_token", "Joules per token of input and output, idle energy included"),
    "estimated_idle_energy_ratio": (
        "estimated_idle_energy_ratio", f"Idle share of the known joules, 0 to 1. {ESTIMATE}"
    ),
    "estimated_location_gco2e": (
        "estimated_location_gco2e", f"Grams of CO2e by the grid, hosts and PUE included. {ESTIMATE}"
    ),
    "estimated_compute_cost_usd": (
        "estimated_compute_cost_usd", f"USD of accelerator hours and electricity. {ESTIMATE}"
    ),
    "estimated_compute_cost_usd_per_output_mtok": (
        "estimated_compute_cost_usd_per_output_mtok", f"USD of compute per million output tokens. {ESTIMATE}"
    ),
}  # fmt: skip
# The same of the last booked day, name -> column of ModelDay.
LAST_DAY = {
    "energy_joules": ("energy_joules", f"Joules of the last booked day, at {OF_METERS}"),
    "mean_watts": ("mean_watts", f"Mean watts of the last booked day, at {OF_METERS}"),
    "output_tokens": ("output_tokens", "Output tokens of the last booked day"),
    "input_and_output_tokens": ("total_tokens", "Input and output tokens of the last booked day"),
    "joules_per_output_token": ("joules_per_output_token", "Joules per output token, idle energy included"),
    "joules_per_token": ("joules_per_total_token", "Joules per token of input and output, idle energy included"),
    "idle_energy_ratio": ("idle_energy_ratio", "Idle share of the known joules, 0 to 1"),
    "location_gco2e": ("location_gco2e", "Grams of CO2e by the grid, hosts and PUE included"),
    "compute_cost_usd": ("compute_cost_usd", "USD of accelerator hours and electricity"),
    "compute_cost_usd_per_output_mtok": (
        "compute_cost_usd_per_output_mtok", "USD of compute per million output tokens"
    ),
}  # fmt: skip


@dataclass
class State:
    """What a process knows of a fleet: what it has read last of each file. None where there is none. `ticks` and
    `runs_nights` are of a process that lives on."""

    fleet: str
    today: Today | None = None
    last_day: PublishedDay | None = None
    last_run: EndedRun | None = None
    bytes_by_layer: dict[str, int] = field(default_factory=dict)
    ticks: dict[str, int] = field(default_factory=dict)
    runs_nights: bool | None = None


def page(state: State, now: datetime) -> bytes:
    """The figures as Prometheus reads them."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(state, now))
    return generate_latest(registry)


def write(path: Path, state: State, now: datetime) -> None:
    """Write the page for node_exporter, which another user may run: its textfile collector reads whole files."""
    write_whole(path, page(state, now))
    path.chmod(0o644)


class _Families:
    """The families of a page, as a collector of the Prometheus client."""

    def __init__(self, state: State, now: datetime) -> None:
        self._state, self._now = state, now

    def collect(self) -> Iterator[Metric]:
        """Each family with its samples."""
        state = self._state
        yield _gauge(
            "build_info", "The version of Wattledger that answers", ["version"], [([pipelines.__version__], 1)]
        )
        yield from self._today()
        yield from self._last_day()
        yield from self._last_run()
        yield _gauge(
            "data_bytes",
            "Bytes of the fleet's data, by what they are",
            ["fleet", "layer"],
            [([state.fleet, layer], size) for layer, size in sorted(state.bytes_by_layer.items())],
        )
        yield from self._process()

    def _process(self) -> Iterator[Metric]:
        state = self._state
        if state.runs_nights is None:
            return
        ticks = CounterMetricFamily(
            f"{PREFIX}_ticks", "Ticks since this process started, by what became of them", labels=["fleet", "outcome"]
        )
        for outcome, count in sorted(state.ticks.items()):
            ticks.add_metric([state.fleet, outcome], count)
        yield ticks
        yield _gauge(
            "runs_nights",
            "Whether this process runs the daily schedule (1), or another one may (0)",
            ["fleet"],
            [([state.fleet], int(state.runs_nights))],
        )

    def _today(self) -> Iterator[Metric]:
        today = self._state.today
        if today is None:
            return
        fleet = [today.fleet]
        yield _gauge(
            "today_tick_timestamp_seconds",
            "When the newest tick was made",
            ["fleet"],
            [(fleet, today.asked_until_at.timestamp())],
        )
        if not is_valid(today, self._now):
            return
        yield _gauge(
            "today_closed_until_timestamp_seconds",
            "The end of the newest closed interval of the running UTC day",
            ["fleet"],
            [(fleet, today.closed_until_at.timestamp())],
        )
        yield _gauge("today_tick_seconds", "Seconds that the newest tick took", ["fleet"], [(fleet, today.seconds)])
        yield _gauge(
            "today_source_newest_sample_timestamp_seconds",
            "The newest sample of the day that a source gave",
            ["fleet", "source"],
            [([*fleet, one.source], one.newest_at.timestamp()) for one in today.sources if one.newest_at is not None],
        )
        yield _gauge(
            "today_source_read",
            "Whether the newest tick read the source, and it is not silent (1), or not (0)",
            ["fleet", "source"],
            [([*fleet, one.source], int(one.problem is None and not one.is_silent)) for one in today.sources],
        )
        yield from _per_model("today", today.fleet, TODAY, today.models)

    def _last_day(self) -> Iterator[Metric]:
        day = self._state.last_day
        if day is None:
            return
        fleet = self._state.fleet
        yield _gauge(
            "last_booked_day_timestamp_seconds",
            "00:00 UTC of the newest booked and published day",
            ["fleet"],
            [([fleet], _start_of(day.on).timestamp())],
        )
        yield from _per_model("last_day", fleet, LAST_DAY, day.models)

    def _last_run(self) -> Iterator[Metric]:
        run, fleet = self._state.last_run, [self._state.fleet]
        if run is None:
            return
        yield _gauge(
            "last_run_timestamp_seconds", "When the last run ended", ["fleet"], [(fleet, run.ended_at.timestamp())]
        )
        yield _gauge("last_run_seconds", "Seconds that the last run took", ["fleet"], [(fleet, run.seconds)])
        yield _gauge(
            "last_run_successful",
            "Whether all steps of the last run succeeded",
            ["fleet"],
            [(fleet, int(run.is_successful))],
        )
        yield _gauge(
            "check_passed",
            "Whether a check of the last run passed (1) or found something (0)",
            ["fleet", "table", "check", "severity"],
            [([*fleet, one.table, one.check, one.severity], int(one.is_passed)) for one in run.checks],
        )


def is_valid(today: Today, now: datetime) -> bool:
    """Whether a tick still shows the running day."""
    return today.on == now.astimezone(UTC).date() and now - today.asked_until_at < TICK_VALID


def _per_model(
    kind: str, fleet: str, families: dict[str, tuple[str, str]], models: Sequence[ModelToday | ModelDay]
) -> Iterator[Metric]:
    shown = sorted(models, key=lambda one: -(one.energy_joules or 0))[:MOST_MODELS]
    for name, (column, meaning) in families.items():
        samples = [([fleet, one.model, one.meter_scope], getattr(one, column)) for one in shown]
        yield _gauge(f"{kind}_{name}", meaning, PER_MODEL, [(of, value) for of, value in samples if value is not None])
    yield _gauge(
        f"{kind}_in_doubt",
        "1 for each reason why a hundredth or more of its joules or tokens is in doubt",
        [*PER_MODEL, "reason"],
        [
            ([fleet, one.model, one.meter_scope, reason], 1)
            for one in shown
            for reason in (one.doubt.reasons if one.doubt else ())
        ],
    )
    yield _gauge(
        f"{kind}_models_left_out",
        f"Models and scopes of meters that are not shown, of more than {MOST_MODELS}",
        ["fleet"],
        [([fleet], len(models) - len(shown))],
    )


def _gauge(
    name: str, meaning: str, labels: Sequence[str], samples: Iterable[tuple[Sequence[str], float]]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"{PREFIX}_{name}", f"{meaning}.", labels=list(labels))
    for values, value in samples:
        family.add_metric(list(values), value)
    return family


def _start_of(on: date) -> datetime:
    return datetime.combine(on, time(), UTC)
