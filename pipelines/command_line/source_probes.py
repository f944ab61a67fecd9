"""What the sources of a fleet file answer now, a line per source: `wattledger check` asks them before a run does.

Add a kind of source here with what is asked of it. Keep out the questions themselves (`collectors`) and what the file
alone shows. Nothing is landed, and nothing is removed from a spool.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from collectors.samples import Family, SourceError, Window, microseconds, url_without_secrets
from collectors.series import SeriesRegister
from collectors.text_files import paths_of
from pipelines.fleet import catalog
from pipelines.fleet.fleet_keys import Fleet
from pipelines.fleet.plausibility import Finding, values
from pipelines.fleet.sources import AnySource, FilesSource, PrometheusSource, SpoolSource

if TYPE_CHECKING:
    from collectors.protocols.prometheus import PrometheusCollector
    from collectors.protocols.server_probe import Load

# Samples that are read to find out how long a day takes.
SAMPLES_TIMED = 1_000_000
# Files up to so many bytes are read to find their newest sample.
BYTES_READ = 256 << 20
MOST_SECONDS_OFF = 60
_NEEDS_LOGIN = (401, 403)
STALE_AFTER = timedelta(hours=1)
DAY_SECONDS = 86_400
# Of a measured interval over the stated one; scrapes may be a little late.
MOST_INTERVALS_OFF = 1.5
# What else the file reads.
_FILES = (
    "requests[].path",
    "benchmarks[].path",
    "cost_rate_files[].path",
    "prices.files[].path",
    "bills.files[].path",
    "run_windows.files[].path",
    "grid_intensity.files[].path",
    "focus_exports[].path",
)


class Answer(NamedTuple):
    """What one source answers, in a line, and what is wrong or doubtful with it."""

    source: str
    kind: str
    at: str
    text: str
    findings: tuple[Finding, ...] = ()


def answers(fleet: Fleet) -> Iterator[Answer]:
    """One for each source, in the file's order; then one for each other file that is missing."""
    for source in fleet.sources:
        families = catalog.families(prefix=source.metric_prefix)
        key = f"sources[{source.name}]"
        try:
            if isinstance(source, PrometheusSource):
                yield _of_server(key, source, families, fleet.period.end)
            elif isinstance(source, FilesSource):
                yield _of_files(key, source, families, fleet)
            elif isinstance(source, SpoolSource):
                yield _of_spool(key, source, families)
            else:
                yield Answer(source.name, source.kind, "", "generates its samples itself")
        except SourceError as refusal:
            yield _refused(key, source, refusal)
    for path in _FILES:
        for key, pattern in values(fleet, path):
            try:
                paths_of(pattern)
            except SourceError as refusal:
                found = Finding(key, f"{refusal.url}: {refusal.reason}", severity="error")
                yield Answer(key.partition(".")[0], "file", pattern, refusal.reason, (found,))


def _refused(key: str, source: AnySource, refusal: SourceError) -> Answer:
    status = f"HTTP {refusal.status}: " if refusal.status else ""
    text = f"{status}{refusal.reason}"
    what = f"no answer from {refusal.url}: {text}"
    name = "url" if source.kind == "prometheus" else "path"
    if refusal.status in _NEEDS_LOGIN:
        needed = "It needs a login: auth: {bearer_env: VARIABLE}, or a user and a password"
        has_login = isinstance(source, PrometheusSource) and source.auth is not None
        name, what = "auth", f"{what}. {'It refuses this login' if has_login else needed}"
    return Answer(source.name, source.kind, _place(source), text, (Finding(f"{key}.{name}", what, severity="error"),))


def _place(source: AnySource) -> str:
    if isinstance(source, PrometheusSource):
        return url_without_secrets(source.url)
    return source.path if isinstance(source, SpoolSource) else ""


# --- servers ----------------------------------------------------------------------------------------------------------


class _Server(NamedTuple):
    """What a server answered: `now` is its own, and `day_seconds` what reading a day of its samples takes."""

    program: str
    load: Load
    ahead_seconds: float
    now: datetime
    day_seconds: float


def _of_server(key: str, source: PrometheusSource, families: Mapping[str, Family], period_end: date | None) -> Answer:
    """What a server answers now. That a closed period's exporters are gone by now is no doubt."""
    from collectors.protocols import server_probe  # noqa: PLC0415 (numpy and pyarrow, which the file alone needs not)

    collector = source.collector()
    try:
        ahead = server_probe.clock_ahead_seconds(collector.server)
        program = server_probe.program(collector.server)
        try:
            load = server_probe.load(collector.server, families, _metered(source), source.matchers)
            now = datetime.now(UTC) + timedelta(seconds=ahead)
            seconds = _seconds_of_a_day(collector, families, load, now, source)
        except SourceError as refusal:
            if refusal.status is None or refusal.status in _NEEDS_LOGIN:
                raise
            return _uncounted(key, source, program, refusal)
        server = _Server(program, load, ahead, now, seconds)
    finally:
        collector.server.close()
    is_over = period_end is not None and period_end < server.now.date()
    text = f"{server.program}: no known family within a day{', and the period is over' if is_over else ''}"
    if load.families:
        newest = f"newest sample {_age(now - load.newest_at)}" if load.newest_at else "no newest sample"
        text = f"{server.program}: {load.families} known families, {load.series:,} series, {newest}"
    if load.samples_per_hour:
        text += f"; a day is {_many(24 * load.samples_per_hour)} samples, read in at most {max(1, round(seconds)):,} s"
    return Answer(
        source.name, source.kind, _place(source), text, tuple(_doubts_of_server(key, source, server, period_end))
    )


def _metered(source: PrometheusSource) -> set[str]:
    """What is read for its values: a scraper may ask for the labels of pods and nodes at another interval."""
    names = {name for quantity in ("energy", "power", "tokens") for name in catalog.metrics(quantity=quantity)}
    return names | {f"{source.metric_prefix or ''}{name}" for name in names}


def _uncounted(key: str, source: PrometheusSource, program: str, refusal: SourceError) -> Answer:
    """A server that answers, but not this: it may have more series than it counts at once."""
    got = f"HTTP {refusal.status} where its samples are counted: {refusal.reason}"
    doubt = Finding(f"{key}.url", got, "an answer: narrow what is read with matchers, or raise the server's limits")
    return Answer(source.name, source.kind, _place(source), f"{program}: refuses to count its samples", (doubt,))


def _doubts_of_server(
    key: str, source: PrometheusSource, server: _Server, period_end: date | None
) -> Iterator[Finding]:
    load, ahead = server.load, server.ahead_seconds
    is_over = period_end is not None and period_end < server.now.date()
    if abs(ahead) > MOST_SECONDS_OFF:
        side = "ahead of" if ahead > 0 else "behind"
        off = f"a clock {abs(ahead):,.0f} s {side} this machine's"
        yield Finding(f"{key}.clock", off, f"at most {MOST_SECONDS_OFF} s: set the clock that is wrong (NTP)")
    if not load.families and not is_over:
        expected = "families of power or of tokens (docs/sources.md): is it the right server, are matchers too narrow?"
        yield Finding(f"{key}.url", "no family of the catalogue within a day", expected)
    elif not is_over and (load.newest_at is None or server.now - load.newest_at > STALE_AFTER):
        age = f"a newest sample {_age(server.now - load.newest_at)}" if load.newest_at else "no newest sample"
        yield Finding(f"{key}.url", age, "one of the last hour: do its exporters and its scraper run?")
    measured = load.interval_seconds
    if measured is not None and not 1 / MOST_INTERVALS_OFF < source.interval_seconds / measured < MOST_INTERVALS_OFF:
        seen = "by the samples of the last hour of the family of power or tokens with most series"
        expected = f"about {float(f'{measured:.2g}'):g}, {seen}"
        yield Finding(f"{key}.interval_seconds", f"{source.interval_seconds:g}", expected)
    limits = source.limits
    if load.series > limits.series:
        yield Finding(f"{key}.limits.series", f"{limits.series:,}", f"more than its {load.series:,} series: raise it")
    if server.day_seconds > limits.window_seconds:
        least = f"more than the {server.day_seconds:,.0f} s that a day takes: raise it, or read less with matchers"
        yield Finding(f"{key}.limits.window_seconds", f"{limits.window_seconds:g}", least)


def _seconds_of_a_day(
    collector: PrometheusCollector,
    families: Mapping[str, Family],
    load: Load,
    now: datetime,
    source: PrometheusSource,
) -> float:
    """How long the samples of a day take, by reading the last hour, or as much of it as has SAMPLES_TIMED."""
    if not load.samples_per_hour:
        return 0.0
    span = timedelta(hours=min(1.0, SAMPLES_TIMED / load.samples_per_hour))
    window = Window(now - span, now)
    register = SeriesRegister(
        source.name, window, source.replica_labels, max(load.series * 2, source.limits.series), source.named_labels
    )
    began = time.monotonic()
    for _ in collector.collect(window, families, register):
        pass
    return (time.monotonic() - began) * DAY_SECONDS / span.total_seconds()


# --- files and spools -------------------------------------------------------------------------------------------------


def _of_files(key: str, source: FilesSource, families: Mapping[str, Family], fleet: Fleet) -> Answer:
    paths: list[str] = []
    for n, mapping in enumerate(source.files):
        try:
            found = paths_of(mapping.path)
        except SourceError as refusal:
            return _without_files(f"{key}.files[{n}].path", source, mapping.path, refusal.reason)
        closed = [path for path in found if not os.access(path, os.R_OK)]
        if closed:
            return _without_files(f"{key}.files[{n}].path", source, closed[0], "cannot be read by this user")
        paths += found
    at = paths[0] if len(paths) == 1 else f"{len(paths):,} files"
    size = sum(Path(path).stat().st_size for path in paths)
    if size > BYTES_READ:
        return Answer(source.name, source.kind, at, f"{size / 2**20:,.0f} MiB, not read here")
    first, end = fleet.period.start, fleet.period.end or datetime.now(UTC).date() + timedelta(days=1)
    window = Window(Window.of_day(first).start_at, Window.of_day(end).start_at)
    samples, newest = _read(source, families, window)
    text = f"{samples:,} samples in the period" + (f", newest {newest:%Y-%m-%d %H:%M} UTC" if newest else "")
    if samples:
        return Answer(source.name, source.kind, at, text)
    doubt = Finding(f"{key}.files", f"no sample from {first} to {end}", "samples in the period: is its year right?")
    return Answer(source.name, source.kind, at, text, (doubt,))


def _without_files(key: str, source: FilesSource, path: str, reason: str) -> Answer:
    return Answer(source.name, source.kind, path, reason, (Finding(key, f"{path}: {reason}", severity="error"),))


def _of_spool(key: str, source: SpoolSource, families: Mapping[str, Family]) -> Answer:
    from collectors.devices.spool_collector import SpoolCollector  # noqa: PLC0415

    days = SpoolCollector(source.name, source.path, source.limits.answer_seconds).days()
    if not days:
        expected = "files of agents; right where a landing has just taken them in, or no agent has written yet"
        return Answer(source.name, source.kind, source.path, "empty", (Finding(f"{key}.path", "no file", expected),))
    samples, newest = _read(source, families, Window.of_day(days[-1]))
    text = f"{len(days)} days wait, {samples:,} samples of {days[-1]}"
    if newest is not None:
        text += f", newest {_age(datetime.now(UTC) - newest)}"
    return Answer(source.name, source.kind, source.path, text)


def _read(
    source: FilesSource | SpoolSource, families: Mapping[str, Family], window: Window
) -> tuple[int, datetime | None]:
    """Samples in the window, and the newest of them."""
    import pyarrow.compute as pc  # noqa: PLC0415

    register = SeriesRegister(source.name, window, source.replica_labels, source.limits.series, source.named_labels)
    samples, newest_us = 0, None
    for batch in source.collector().collect(window, families, register):
        if batch.samples.num_rows:
            samples += batch.samples.num_rows
            newest_us = max(newest_us or 0, microseconds(pc.max(batch.samples.column("observed_at")).as_py()))
    return samples, None if newest_us is None else datetime.fromtimestamp(newest_us / 1e6, UTC)


# --- words ------------------------------------------------------------------------------------------------------------


def _age(age: timedelta) -> str:
    seconds = round(age.total_seconds())
    if seconds < 0:
        return f"{-seconds:,} s ahead of the clock"
    for unit, length in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length:,} {unit} old"
    return f"{seconds} s old"


def _many(samples: int) -> str:
    return f"{samples / 1e6:,.1f} M" if samples >= 1e6 else f"{samples:,}"
