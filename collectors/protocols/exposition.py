"""Any `/metrics` page: Prometheus text 0.0.4 or OpenMetrics, fetched over HTTP and read at one moment.

Add here how a page is parsed and what may be wrong with it. Keep out what a metric means, and Prometheus servers: those
have history and an API of their own.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import SplitResult, urlsplit

from prometheus_client import parser as prometheus_parser
from prometheus_client.openmetrics import parser as openmetrics_parser

from collectors.limits import PAGE_LIMITS, Limits
from collectors.personal_labels import PersonalLabels
from collectors.protocols.http_client import HttpClient
from collectors.readings import Reading, labels_json
from collectors.rows import Reject, Rejects, readable
from collectors.source_errors import SourceError, url_without_secrets
from collectors.unknown_families import MOST_DEVICES, MOST_FAMILIES_WITH_DEVICES, device_of, is_drawn_power

# OpenMetrics is read where a page sends it, not asked for: in it Go exporters append `_total` to counters that people
# have always known without (DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION).
ACCEPT = "text/plain;version=0.0.4;q=1,application/openmetrics-text;version=1.0.0;q=0.3,*/*;q=0.1"
PAGE_TYPES = ("text/plain", "application/openmetrics-text", "application/octet-stream", "")
UNKNOWN_KIND = "page"
REDIRECTS = 3
# The parser's time grows with the square of a line's labels. The longest known line has 1,000 characters.
LINE_CHARACTERS = 1 << 16
# A family of one host's devices has less; its labels are written into each file of the spool.
MOST_DEVICE_SERIES = 1_000
DEVICE_CHARACTERS = 1_000
# For some garbage the library's parser raises exceptions of any type.
PARSER_ERRORS = (ValueError, KeyError, IndexError, TypeError, OverflowError)
YEAR_10000_SECONDS = 253_402_300_800

# Possessive (`*+`): what was taken is not given back, so the time grows with the line and not with its square.
_SAMPLE_LINE = re.compile(
    r"[ \t]*+([a-zA-Z_:][a-zA-Z0-9_:]*+)[ \t]*+(?:\{.*\}[ \t]*+)?[-+]?(?:[0-9.]|nan|inf)", re.IGNORECASE
)
_OPENMETRICS_SUFFIXES = ("", "_total", "_created", "_count", "_sum", "_bucket", "_gcount", "_gsum", "_info")


class PageSample(NamedTuple):
    """One sample under the name it was exposed with; `timestamp_seconds` is None where the page gives none."""

    metric: str
    labels: Mapping[str, str]
    value: float
    timestamp_seconds: float | None


def parse_page(
    text: str,
    rejects: Rejects,
    wanted: Collection[str] | None = None,
    *,
    is_openmetrics: bool = False,
    most_series: int = PAGE_LIMITS.series,
) -> tuple[list[PageSample], dict[str, int]]:
    """The samples whose metric is in `wanted` (None: all), and for each other metric its number of series. A line that
    is no sample is a reject.

    Lines are filtered by name before they are parsed: a vLLM page of 425 series parses in 16 ms whole, in 1 ms with
    the 28 series that the catalogue knows. ValueError when the text is not a whole page, holds nothing, or has more
    than `most_series` samples to keep.
    """
    if not text.endswith("\n"):
        raise ValueError("the page is truncated: its last line does not end")
    if is_openmetrics and not text.endswith("# EOF\n"):
        raise ValueError("the page is truncated: # EOF is missing")
    kept, unwanted = (_openmetrics_lines if is_openmetrics else _prometheus_lines)(text, wanted, rejects)
    if len(kept) > most_series:
        raise ValueError(f"the page has over {most_series:,} series of known metrics (limits.series)")
    rejects.read += sum(unwanted.values())
    try:
        samples = _parsed(kept, wanted, is_openmetrics=is_openmetrics)
    except (Reject, *PARSER_ERRORS):
        samples = _parsed_by_line(kept, wanted, rejects, is_openmetrics=is_openmetrics)
    else:
        rejects.read += len(samples)
    if not samples and not unwanted and not rejects.rows:
        raise ValueError("the page holds no samples")
    return samples, dict(unwanted)


def _parsed(lines: list[str], wanted: Collection[str] | None, *, is_openmetrics: bool) -> list[PageSample]:
    """The wanted samples of whole lines; one of PARSER_ERRORS or Reject where any line is no sample."""
    parser = openmetrics_parser if is_openmetrics else prometheus_parser
    samples = []
    for family in parser.text_string_to_metric_families("\n".join([*lines, "# EOF"]) + "\n"):
        for sample in family.samples:
            if wanted is None or sample.name in wanted:
                at = None if sample.timestamp is None else float(sample.timestamp)
                if at is not None and not 0 <= at < YEAR_10000_SECONDS:
                    raise Reject(f"{sample.name} is stamped {at!r}, which is no time")
                samples.append(PageSample(sample.name, sample.labels, float(sample.value), at))
    return samples


def _parsed_by_line(
    lines: list[str], wanted: Collection[str] | None, rejects: Rejects, *, is_openmetrics: bool
) -> list[PageSample]:
    """The wanted samples of a page on which the parser stops: each line for itself, without its family's TYPE."""
    rows = (
        (_opening(line), line)
        for line in lines
        if line[0] != "#" and (wanted is None or (metric := _metric_of(line)) == "" or metric in wanted)
    )
    found = readable(rows, partial(_parsed_line, wanted=wanted, is_openmetrics=is_openmetrics), rejects)
    return [sample for samples in found for sample in samples]


def _parsed_line(line: str, *, wanted: Collection[str] | None, is_openmetrics: bool) -> list[PageSample]:
    try:
        return _parsed([line], wanted, is_openmetrics=is_openmetrics)
    except PARSER_ERRORS as error:
        # An exemplar is allowed by its family's TYPE only.
        bare = line.rpartition(" # {")[0] if is_openmetrics else ""
        with suppress(*PARSER_ERRORS):
            if bare:
                return _parsed([bare], wanted, is_openmetrics=is_openmetrics)
        raise Reject(str(error) or "cannot be parsed") from error


def _opening(line: str) -> str:
    return f"a line begins with {line.strip()[:60]!r}"


def _metric_of(line: str) -> str:
    """The metric of a sample line, "" where it is a quoted (UTF-8) name that only the parser can read. Reject where it
    is none."""
    if len(line) > LINE_CHARACTERS:
        raise Reject(f"it is over {LINE_CHARACTERS:,} characters")
    match = _SAMPLE_LINE.match(line)
    if match:
        return match[1]
    if line.lstrip().startswith('{"'):
        return ""
    raise Reject("it is no sample")


def _prometheus_lines(text: str, wanted: Collection[str] | None, rejects: Rejects) -> tuple[list[str], Counter[str]]:
    # TYPE lines are left out: with them the parser renames a counter without `_total`.
    kept: list[str] = []
    unwanted: Counter[str] = Counter()
    for line in text.split("\n"):
        if not line or line[0] == "#" or line.isspace():
            continue
        try:
            metric = _metric_of(line)
        except Reject as reason:
            rejects.add(_opening(line), reason)
            continue
        if wanted is None or not metric or metric in wanted:
            kept.append(line)
        else:
            unwanted[metric] += 1
    return kept, unwanted


def _openmetrics_lines(text: str, wanted: Collection[str] | None, rejects: Rejects) -> tuple[list[str], Counter[str]]:
    # Families are kept whole with their TYPE: the parser checks them as a whole, and allows exemplars by type.
    kept: list[str] = []
    unwanted: Counter[str] = Counter()
    names: set[str] = set()
    lines: list[str] = []
    counts: Counter[str] = Counter()

    def close_family() -> None:
        if wanted is None or "" in counts or any(metric in wanted for metric in counts):
            kept.extend(lines)
        for metric, series in counts.items():
            if wanted is not None and metric and metric not in wanted:
                unwanted[metric] += series

    for line in text.split("\n"):
        if line.startswith("# TYPE "):
            close_family()
            family = line.split(" ")[2]
            names, lines, counts = {family + suffix for suffix in _OPENMETRICS_SUFFIXES}, [line], Counter()
        elif line and line[0] != "#":
            try:
                metric = _metric_of(line)
            except Reject as reason:
                rejects.add(_opening(line), reason)
                continue
            if metric not in names:
                close_family()
                names, lines, counts = {metric}, [], Counter()
            lines.append(line)
            counts[metric] += 1
    close_family()
    return kept, unwanted


class ExpositionPage:
    """One `/metrics` page.

    `families` maps the metrics to keep to their source kind; None keeps all. Samples get the label `instance`
    (host:port) where they have none; where the URL is a loopback address and `host` is given, `instance` names that
    host and the label `node` too, as two hosts' localhost:8000 are two engines. Of a gateway's labels that may name
    persons only `tenant_labels` are kept. `secrets` name environment variables
    as HttpClient has them: bearer_env, username_env, password_env, ca_file_env, cert_file_env, key_file_env, and
    bearer_file, which is a path.
    """

    def __init__(
        self,
        url: str,
        families: Mapping[str, str] | None = None,
        *,
        host: str | None = None,
        limits: Limits = PAGE_LIMITS,
        clock_ns: Callable[[], int] = time.time_ns,
        tenant_labels: Collection[str] = (),
        **secrets: Any,
    ) -> None:
        # The next look is the retry; vLLM and SGLang redirect /metrics to /metrics/.
        self._server = HttpClient(
            url, limits=limits, attempts=1, redirects=REDIRECTS, headers={"Accept": ACCEPT}, **secrets
        )
        self.url = url_without_secrets(url)
        self.families = families
        self.problems: list[str] = []
        self.unknown: dict[str, int] = {}
        self.unknown_labels: dict[str, list[str]] = {}
        self.limits = limits
        # The families whose labels are noted, with their series.
        self._devices_of: dict[str, int] = {}
        self._added = _added_labels(urlsplit(url), host)
        self._clock_ns = clock_ns
        self._personal = PersonalLabels(tenant_labels)

    def look(self) -> list[Reading]:
        """The page's readings, stamped with the time the request went out unless the page stamps its samples itself.

        `unknown` then holds the metrics that were not kept, with their number of series, and `unknown_labels` labels of
        those that look like a device's power or energy, bounded in number. `problems` names lines that were left out.
        Raises SourceError when the page is unreachable, refuses, is over a limit, truncated or no metrics page: more
        than half of its samples' lines are none.
        """
        observed_us = self._clock_ns() // 1000
        self.problems = []
        rejects = Rejects(setting=None)
        text, is_openmetrics = self._fetch(rejects)
        undecoded = replace(rejects, first=list(rejects.first))
        try:
            samples, self.unknown = parse_page(
                text, rejects, self.families, is_openmetrics=is_openmetrics, most_series=self.limits.series
            )
            if rejects.rows:
                # A reason quotes the beginning of a line: the text is masked before it is cut.
                masked = self._server.masked(text)
                parse_page(masked, undecoded, self.families, is_openmetrics=is_openmetrics)
                rejects.first = undecoded.first
            rejects.check(self.url)
        except ValueError as error:
            raise SourceError(self.url, None, self._server.masked(str(error))) from error
        except SourceError as refusal:
            reason = f"not a metrics page; {refusal.reason}"
            raise SourceError(self.url, None, self._server.masked(reason)) from None
        if rejects.rows:
            self.problems = [self._server.masked(str(rejects))]
        self._note_devices(text, is_openmetrics=is_openmetrics)
        return [self._reading(sample, observed_us) for sample in samples]

    def _note_devices(self, text: str, *, is_openmetrics: bool) -> None:
        """Labels of the unknown families of power and energy, read anew where their series have changed."""
        drawn = sorted(m for m, series in self.unknown.items() if series <= MOST_DEVICE_SERIES and is_drawn_power(m))
        counts = {metric: self.unknown[metric] for metric in drawn[:MOST_FAMILIES_WITH_DEVICES]}
        if counts == self._devices_of:
            return
        self._devices_of, self.unknown_labels = counts, {}
        try:
            samples, _ = parse_page(text, Rejects(), counts, is_openmetrics=is_openmetrics) if counts else ([], {})
        except ValueError:
            return  # what is kept of the page can be read
        for sample in samples:
            labels = self.unknown_labels.setdefault(sample.metric, [])
            text = labels_json({**self._added, **sample.labels})
            if len(labels) < MOST_DEVICES and len(text) <= DEVICE_CHARACTERS and device_of(sample.labels):
                labels.append(text)

    def _reading(self, sample: PageSample, observed_us: int) -> Reading:
        if sample.timestamp_seconds is not None:
            observed_us = round(sample.timestamp_seconds * 1e6)
        kind = (self.families or {}).get(sample.metric, UNKNOWN_KIND)
        labels = labels_json(self._personal.without(kind, {**self._added, **sample.labels}))
        return Reading(observed_us, kind, sample.metric, labels, sample.value)

    def _fetch(self, rejects: Rejects) -> tuple[str, bool]:
        self._server.start_window()
        body, kind = self._server.read(
            "", method="GET", kinds=PAGE_TYPES, expected="metrics; a login page or another server?"
        )
        return _decoded(body, rejects, self._server.masked), kind == "application/openmetrics-text"


def _decoded(body: bytes, rejects: Rejects, masked: Callable[[str], str]) -> str:
    """The page's text; a line that is not UTF-8 is a reject, and empty."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        lines = body.split(b"\n")
    for nth, line in enumerate(lines):
        try:
            line.decode()
        except UnicodeDecodeError:
            rejects.add(_opening(masked(line.decode("utf-8", "replace"))), "it is not UTF-8 text")
            lines[nth] = b""
    return b"\n".join(lines).decode()


def _added_labels(parts: SplitResult, host: str | None) -> dict[str, str]:
    name, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    if host and (name in ("localhost", "::1") or name.startswith("127.")):
        return {"instance": f"{host}:{port}", "node": host}
    return {"instance": f"[{name}]:{port}" if ":" in name else f"{name}:{port}"}
