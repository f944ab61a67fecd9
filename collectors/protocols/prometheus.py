"""Raw samples of a Prometheus-compatible server: Prometheus, VictoriaMetrics, Thanos, Mimir.

Add here what the query API can answer about samples and series. Keep out the connection (`http_client`) and every
per-exporter rule: which metrics to ask for comes from the catalogue.

Samples come through range selectors, `metric{…}[1h]` on /api/v1/query at the chunk's last millisecond. /query_range
would move samples to its own step and carry a value for five minutes over a gap. Where the server has VictoriaMetrics'
/api/v1/export, the same samples come through that, as one stream per metric and day.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import orjson
import pyarrow as pa

from collectors.limits import DEFAULTS, Limits
from collectors.protocols import sample_counts
from collectors.protocols.family_listing import NAMES, FamilyListing
from collectors.protocols.http_client import HttpClient
from collectors.protocols.http_errors import OverLimitError
from collectors.protocols.matrix import Matrix, data_of, metric_of, parse_export, parse_matrix
from collectors.samples import Batch, Family, SourceError, Window, sample_batch
from collectors.series import SeriesRegister

FIRST_CHUNK_MS = 3_600_000
SHORTEST_CHUNK_MS = 1_000
LONGEST_CHUNK_MS = 86_400_000
DAY_US = 86_400_000_000
# A chunk may double while answers stay below this and no limit was met, so that quiet metrics cost few requests.
SMALL_BODY_BYTES = 4 << 20
# One millisecond of one metric: a few series, if any.
PROBE_BYTES = 1 << 20
# Samples are counted by the hour, of so many families in one query: its text then fits into a URL.
COUNTED_MS = 3_600_000
COUNTED_AT_ONCE = 10

EXPORT = "/api/v1/export"
EXPORT_KIND = "application/stream+json"

# Words with which many programs begin their metrics: they identify no exporter, and node_ alone has hundreds.
_COMMON_WORDS = ("e2e", "generation", "input", "node", "num", "output", "process", "prompt", "request", "time")
_COMMON = frozenset(f"{word}_" for word in _COMMON_WORDS)

Answer = TypeVar("Answer")

logger = logging.getLogger(__name__)


class PrometheusCollector:
    """Reads the families of the catalogue from one server; at most one chunk of one metric is in memory.

    Whether the server has an export is asked anew for each window, because a proxy between may allow it or not.

    `matchers` are PromQL label matchers as text (`namespace="llm"`), applied to every selector. Further keywords are
    those of HttpClient: bearer_env, bearer_file, username_env, password_env, ca_file_env, cert_file_env, key_file_env,
    headers, attempts, backoff_seconds. Series that differ only in the replica labels of the register become one; range
    selectors merge them in time order chunk by chunk.
    """

    def __init__(
        self,
        source: str,
        url: str,
        *,
        matchers: Sequence[str] = (),
        limits: Limits = DEFAULTS,
        **server: Any,
    ) -> None:
        self.source = source
        self.limits = limits
        self.server = HttpClient(url, limits=limits, **server)
        self._listing = FamilyListing(url, matchers, limits, **server)
        self._matchers = tuple(matchers)
        self._query_method: str | None = None

    @property
    def url(self) -> str:
        """The server's URL as it may be logged."""
        return self.server.url

    def collect(self, window: Window, families: Mapping[str, Family], register: SeriesRegister) -> Iterator[Batch]:
        """Batches of the samples in the window, by metric, then by time; SourceError names URL, status and window."""
        self.server.start_window()
        try:
            names = self._names(window, families)
            samples_of = self._exported if self._has_export(window) else self._selected
            for metric in sorted(families if names is None else names & families.keys()):
                yield from samples_of(window, families[metric], register)
            is_day = window.end_us - window.start_us >= DAY_US
            self._listing.note(window, (names or set()) - families.keys(), families, register, is_day=is_day)
        except SourceError as error:
            reason = f"{self.server.masked(error.reason)}; window {window}"
            raise type(error)(error.url, error.status, reason) from error
        finally:
            self.server.close()

    def check(self, window: Window) -> None:
        """SourceError where the server gives no answer at all to the smallest question; a refusal is an answer."""
        fields = [("query", "vector(1)"), ("time", _seconds(_milliseconds(window)[0]))]
        try:
            self.server.ask("/api/v1/query", fields)
        except SourceError as error:
            if error.status is None:
                raise
        finally:
            self.server.close()

    def counted(self, window: Window, families: Mapping[str, Family]) -> pa.Table:
        """How many samples the server holds of the window, as COUNTS, by hour. The same question has another answer
        where samples came late or were forgotten. SourceError as of `collect`."""
        self.server.start_window()
        try:
            names = self._names(window, families)
            asked = sorted(families if names is None else names & families.keys())
            start_ms, end_ms = _milliseconds(window)
            hours = {}
            for first_ms in range(start_ms, end_ms, COUNTED_MS):
                hours[first_ms] = dict[str, tuple[int, int | None]]()
                for nth in range(0, len(asked), COUNTED_AT_ONCE):
                    some = [families[metric] for metric in asked[nth : nth + COUNTED_AT_ONCE]]
                    hours[first_ms] |= self._counts(some, first_ms, min(first_ms + COUNTED_MS, end_ms))
            return sample_counts.table_of(hours)
        except SourceError as error:
            reason = f"{self.server.masked(error.reason)}; asked for the number of samples in {window}"
            raise type(error)(error.url, error.status, reason) from error
        finally:
            self.server.close()

    def _counts(self, families: Sequence[Family], start_ms: int, stop_ms: int) -> sample_counts.Counts:
        """What is too much for the server at once is asked in halves: of the families, then of the time."""
        selectors = {family.metric: self._selector(*_matchers_of(family)) for family in families}
        try:
            # VictoriaMetrics would answer from what it has kept of older questions.
            body = self._query(sample_counts.question(selectors, stop_ms - start_ms), stop_ms - 1, ("nocache", "1"))
        except OverLimitError:
            half, half_ms = len(families) // 2, (stop_ms - start_ms) // 2
            if half:
                return {
                    **self._counts(families[:half], start_ms, stop_ms),
                    **self._counts(families[half:], start_ms, stop_ms),
                }
            if half_ms < SHORTEST_CHUNK_MS:
                raise
            spans = ((start_ms, start_ms + half_ms), (start_ms + half_ms, stop_ms))
            return sample_counts.added(self._counts(families, *span) for span in spans)
        return self._parsed(body, sample_counts.counts_of)

    def _has_export(self, window: Window) -> bool:
        """Whether the server answers an export of one millisecond. Any refusal means no."""
        start_ms, _ = _milliseconds(window)
        fields = self._export_fields(['__name__="up"'], start_ms, start_ms + 1)
        try:
            self.server.read(EXPORT, fields, kinds=(EXPORT_KIND,), expected=EXPORT_KIND, limit_bytes=PROBE_BYTES)
        except SourceError as refusal:
            if refusal.status is None:
                raise
            # Prometheus has no export, which needs no message; a proxy that refuses it does.
            level = logging.DEBUG if refusal.status == 404 else logging.INFO
            logger.log(level, "source %s is read through range selectors: %s", self.source, refusal)
            return False
        return True

    def _export_fields(self, matchers: Sequence[str], start_ms: int, stop_ms: int) -> list[tuple[str, str]]:
        return [
            ("match[]", self._selector(*matchers)),
            # Both ends are closed there.
            ("start", _seconds(start_ms)),
            ("end", _seconds(stop_ms - 1)),
            # A cluster: half an answer would look like lower use.
            ("deny_partial_response", "1"),
        ]

    def _exported(self, window: Window, family: Family, register: SeriesRegister) -> Iterator[Batch]:
        start_ms, end_ms = _milliseconds(window)
        for first_ms in range(start_ms, end_ms, LONGEST_CHUNK_MS):
            stop_ms = min(first_ms + LONGEST_CHUNK_MS, end_ms)
            fields = self._export_fields(_matchers_of(family), first_ms, stop_ms)
            for lines in self.server.stream(EXPORT, fields, EXPORT_KIND, metric_of):
                try:
                    matrix = parse_export(lines)
                except ValueError as error:
                    raise SourceError(self.url + EXPORT, 200, f"answered what cannot be read: {error}") from error
                samples = self._samples(matrix, (first_ms, stop_ms), family, register)
                if samples.num_rows:
                    register.observe(samples)
                    yield Batch(family.stream, samples)

    def _selected(self, window: Window, family: Family, register: SeriesRegister) -> Iterator[Batch]:
        start_ms, end_ms = _milliseconds(window)
        chunk_ms, longest_ms = FIRST_CHUNK_MS, LONGEST_CHUNK_MS
        while start_ms < end_ms:
            stop_ms = min(start_ms + chunk_ms, end_ms)
            try:
                body = self._query(f"{self._selector(*_matchers_of(family))}[{stop_ms - start_ms}ms]", stop_ms - 1)
            except OverLimitError:
                if stop_ms - start_ms <= SHORTEST_CHUNK_MS:
                    raise
                chunk_ms = longest_ms = max((stop_ms - start_ms) // 2, SHORTEST_CHUNK_MS)
                continue
            samples = self._samples(self._parsed(body, parse_matrix), (start_ms, stop_ms), family, register)
            if len(body) < SMALL_BODY_BYTES:
                chunk_ms = min(2 * chunk_ms, longest_ms)
            del body
            if samples.num_rows:
                register.observe(samples)
                yield Batch(family.stream, samples)
            start_ms = stop_ms

    @staticmethod
    def _samples(
        matrix: Matrix, inside_ms: tuple[int, int], family: Family, register: SeriesRegister
    ) -> pa.RecordBatch:
        labels, counts, times_ms, values = matrix
        series_ids = np.array([register.series_id(family, one) for one in labels], dtype=np.int64)
        ids = np.repeat(series_ids, counts)
        # Range selectors are closed on the left up to Prometheus 2 and open since 3.
        keep = (times_ms >= inside_ms[0]) & (times_ms < inside_ms[1])
        if not keep.all():
            ids, times_ms, values = ids[keep], times_ms[keep], values[keep]
        if len(np.unique(series_ids)) < len(series_ids):
            order = np.lexsort((times_ms, ids))
            ids, times_ms, values = ids[order], times_ms[order], values[order]
        return sample_batch(ids, times_ms * 1000, values)

    def _selector(self, *matchers: str) -> str:
        return "{" + ",".join([*matchers, *self._matchers]) + "}"

    def _query(self, promql: str, at_ms: int, *more: tuple[str, str]) -> bytes:
        fields = [
            ("query", promql),
            ("time", _seconds(at_ms)),
            # Thanos: half an answer would look like lower use. Others ignore the field.
            ("partial_response", "false"),
            *more,
        ]
        try:
            return self.server.ask("/api/v1/query", fields, method=self._query_method)
        except SourceError as refusal:
            # Google Cloud has this path for GET alone. A POST to it is of no path there.
            if refusal.status != 404 or self._query_method == "GET":
                raise
        self._query_method = "GET"
        return self.server.ask("/api/v1/query", fields, method="GET")

    def _parsed(self, body: bytes, parse: Callable[[bytes], Answer]) -> Answer:
        try:
            return parse(body)
        except ValueError as error:
            reason = f"answered what cannot be read: {error}; it begins with {self.server.opening(body)}"
            raise SourceError(self.url + "/api/v1/query", 200, reason) from error

    def _names(self, window: Window, families: Mapping[str, Family]) -> set[str] | None:
        """Metric names in the window that are, or look like, those of the catalogue; None if the server lists none."""
        prefixes = {metric: re.sub(r"(?<=[_:]).*", "", metric) for metric in families}
        patterns = {
            re.escape(metric) if prefix in _COMMON else f"{re.escape(prefix)}.*" for metric, prefix in prefixes.items()
        }
        pattern = "|".join(sorted(patterns))
        fields = [
            ("match[]", self._selector(f"__name__=~{json.dumps(pattern)}")),
            ("start", str(window.start_us // 1_000_000)),
            ("end", str(-(-window.end_us // 1_000_000))),
        ]
        try:
            body = self.server.ask(NAMES, fields, method="GET")
            names = data_of(orjson.loads(body))
        except (SourceError, ValueError) as error:
            # Proxies that guard the query API often lack this one: then every family is asked for.
            if getattr(error, "status", 0) in (None, 401):
                raise
            return None
        if names is None:
            return None
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            reason = f"answered {self.server.opening(body)}, expected a list of metric names in 'data'"
            raise SourceError(self.url + NAMES, 200, reason)
        return set(names)


def _milliseconds(window: Window) -> tuple[int, int]:
    """First millisecond inside and first outside: timestamps are whole milliseconds there."""
    return -(-window.start_us // 1000), -(-window.end_us // 1000)


def _matchers_of(family: Family) -> list[str]:
    named = [f"__name__={json.dumps(family.metric)}"]
    return named if family.label is None else [*named, f'{family.label}!=""']


def _seconds(at_ms: int) -> str:
    return f"{at_ms // 1000}.{at_ms % 1000:03d}"
