"""Any `/metrics` page: Prometheus text 0.0.4 or OpenMetrics, fetched over HTTP and read at one moment.

Add here what a page may do wrong on the way to its samples. Keep out what a metric means, and Prometheus servers: those
have history and an API of their own.
"""

from __future__ import annotations

import base64
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

import urllib3
from prometheus_client import parser as prometheus_parser
from prometheus_client.openmetrics import parser as openmetrics_parser

from collectors.readings import Reading, labels_json, reading_batches
from collectors.samples import Batch, Family, SourceError, Window, url_without_secrets
from collectors.series import SeriesRegister

# OpenMetrics is read where a page insists, not asked for: in it Go exporters append `_total` to counters that people
# have always known without (DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION).
ACCEPT = "text/plain;version=0.0.4;q=1,application/openmetrics-text;version=1.0.0;q=0.3,*/*;q=0.1"
PAGE_TYPES = ("text/plain", "application/openmetrics-text", "application/octet-stream", "")
UNKNOWN_KIND = "page"
MAX_PAGE_BYTES = 32 * 2**20
YEAR_10000_SECONDS = 253_402_300_800

_SAMPLE_LINE = re.compile(
    r"[ \t]*([a-zA-Z_:][a-zA-Z0-9_:]*)[ \t]*(?:\{.*\})?[ \t]*[-+]?(?:[0-9.]|nan|inf)", re.IGNORECASE
)
_OPENMETRICS_SUFFIXES = ("", "_total", "_created", "_count", "_sum", "_bucket", "_gcount", "_gsum", "_info")


class PageSample(NamedTuple):
    """One sample under the name it was exposed with; `timestamp_seconds` is None where the page gives none."""

    metric: str
    labels: Mapping[str, str]
    value: float
    timestamp_seconds: float | None


def parse_page(
    text: str, wanted: Collection[str] | None = None, *, is_openmetrics: bool = False
) -> tuple[list[PageSample], dict[str, int]]:
    """The samples whose metric is in `wanted` (None: all), and for each other metric its number of series.

    Lines are filtered by name before they are parsed: a vLLM page of 425 series parses in 16 ms whole, in 1 ms with
    the 28 series that the catalogue knows. ValueError when the text is no metrics page, or not a whole one.
    """
    if not text.endswith("\n"):
        raise ValueError("the page is truncated: its last line does not end")
    if is_openmetrics and not text.endswith("# EOF\n"):
        raise ValueError("the page is truncated: # EOF is missing")
    kept, unwanted = (_openmetrics_lines if is_openmetrics else _prometheus_lines)(text, wanted)
    if not kept and not unwanted:
        raise ValueError("the page holds no samples")
    samples = []
    parser = openmetrics_parser if is_openmetrics else prometheus_parser
    for family in parser.text_string_to_metric_families("\n".join(kept) + "\n"):
        for sample in family.samples:
            if wanted is None or sample.name in wanted:
                at = None if sample.timestamp is None else float(sample.timestamp)
                samples.append(PageSample(sample.name, sample.labels, float(sample.value), at))
    return samples, dict(unwanted)


def _metric_of(line: str) -> str:
    """The metric of a sample line, "" where it is a quoted (UTF-8) name that only the parser can read."""
    match = _SAMPLE_LINE.match(line)
    if match:
        return match[1]
    if line.lstrip().startswith('{"'):
        return ""
    raise ValueError(f"not a metrics page, it says {line.strip()[:60]!r}")


def _prometheus_lines(text: str, wanted: Collection[str] | None) -> tuple[list[str], Counter[str]]:
    # TYPE lines are left out: with them the parser renames a counter without `_total`.
    kept: list[str] = []
    unwanted: Counter[str] = Counter()
    for line in text.split("\n"):
        if not line or line[0] == "#" or line.isspace():
            continue
        metric = _metric_of(line)
        if wanted is None or not metric or metric in wanted:
            kept.append(line)
        else:
            unwanted[metric] += 1
    return kept, unwanted


def _openmetrics_lines(text: str, wanted: Collection[str] | None) -> tuple[list[str], Counter[str]]:
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
            metric = _metric_of(line)
            if metric not in names:
                close_family()
                names, lines, counts = {metric}, [], Counter()
            lines.append(line)
            counts[metric] += 1
    close_family()
    return ([*kept, "# EOF"] if kept or unwanted else []), unwanted


class ExpositionPage:
    """One `/metrics` page.

    `families` maps the metrics to keep to their source kind; None keeps all. Samples get the label `instance`
    (host:port) where they have none; where the URL is a loopback address and `host` is given, `instance` names that
    host and the label `node` too, as two hosts' localhost:8000 are two engines. Secrets and TLS files come from the
    environment variables named, read at the first look; the URL's user info serves as basic authentication.
    """

    def __init__(
        self,
        url: str,
        families: Mapping[str, str] | None = None,
        *,
        host: str | None = None,
        bearer_env: str | None = None,
        username_env: str | None = None,
        password_env: str | None = None,
        ca_file_env: str | None = None,
        cert_file_env: str | None = None,
        key_file_env: str | None = None,
        timeout_seconds: float = 5.0,
        max_bytes: int = MAX_PAGE_BYTES,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._parts = urlsplit(url)
        if self._parts.scheme not in ("http", "https") or not self._parts.hostname:
            raise SourceError(url, None, "not an http or https URL")
        self.url = url_without_secrets(url)
        self.families = families
        self.problems: list[str] = []
        self.unknown: dict[str, int] = {}
        self._added = _added_labels(self._parts, host)
        self._envs = {
            "bearer_env": bearer_env,
            "username_env": username_env,
            "password_env": password_env,
            "ca_file_env": ca_file_env,
            "cert_file_env": cert_file_env,
            "key_file_env": key_file_env,
        }
        self._max_bytes = max_bytes
        self._timeout_seconds = timeout_seconds
        self._clock_ns = clock_ns
        self._pool: urllib3.PoolManager | None = None

    def look(self) -> list[Reading]:
        """The page's readings, stamped with the time the request went out unless the page stamps its samples itself.

        `unknown` then holds the metrics that were not kept, with their number of series. Raises SourceError when the
        page is unreachable, refuses, is oversized, truncated or no metrics page.
        """
        observed_us = self._clock_ns() // 1000
        text, is_openmetrics = self._fetch()
        try:
            samples, self.unknown = parse_page(text, self.families, is_openmetrics=is_openmetrics)
            return [self._reading(sample, observed_us) for sample in samples]
        except (ValueError, KeyError, IndexError, TypeError, OverflowError) as error:
            # The library's parser meets some garbage with whatever its own lines happen to raise.
            raise SourceError(self.url, None, str(error) or "the page cannot be parsed") from error

    def _reading(self, sample: PageSample, observed_us: int) -> Reading:
        if sample.timestamp_seconds is not None:
            if not 0 <= sample.timestamp_seconds < YEAR_10000_SECONDS:
                raise ValueError(f"{sample.metric} is stamped {sample.timestamp_seconds!r}, which is no time")
            observed_us = round(sample.timestamp_seconds * 1e6)
        kind = (self.families or {}).get(sample.metric, UNKNOWN_KIND)
        labels = labels_json({**self._added, **sample.labels})
        return Reading(observed_us, kind, sample.metric, labels, sample.value)

    def _fetch(self) -> tuple[str, bool]:
        if self._pool is None:
            self._pool = self._connect()
        # User info must not travel in the request line, nor in what urllib3 says of it.
        target = self._parts._replace(netloc=self._parts.netloc.rpartition("@")[2], fragment="").geturl()
        try:
            response = self._pool.request(
                "GET",
                target,
                timeout=self._timeout_seconds,
                # The next look is the retry; vLLM and SGLang redirect /metrics to /metrics/.
                retries=urllib3.Retry(
                    connect=0, read=0, status=0, other=0, redirect=3, respect_retry_after_header=False
                ),
                preload_content=False,
            )
            try:
                body = self._body(response)
            finally:
                response.release_conn() if response.length_remaining == 0 else response.close()
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise SourceError(self.url, None, _plain_reason(error)) from error
        media_type = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if response.status != 200:
            raise SourceError(self.url, response.status, "the page is refused")
        if media_type not in PAGE_TYPES:
            raise SourceError(self.url, 200, f"answers {media_type}, not metrics (a login page or another API?)")
        try:
            return body.decode(), media_type == "application/openmetrics-text"
        except UnicodeDecodeError as error:
            raise SourceError(self.url, 200, "the page is not UTF-8 text") from error

    def _body(self, response: urllib3.BaseHTTPResponse) -> bytes:
        parts, size = [], 0
        # A server that drips bytes resets the socket's own timeout each time.
        deadline_seconds = time.monotonic() + 4 * self._timeout_seconds
        # Not stream(): that waits until a part is full, however slowly it drips in.
        while part := response.read1(2**16, decode_content=True):
            size += len(part)
            if size > self._max_bytes:
                raise ValueError(f"the page is larger than {self._max_bytes} bytes")
            if time.monotonic() > deadline_seconds:
                raise ValueError(f"the page took longer than {4 * self._timeout_seconds:g} s")
            parts.append(part)
        return b"".join(parts)

    def _connect(self) -> urllib3.PoolManager:
        headers = {"Accept": ACCEPT, "User-Agent": "wattledger"}
        username, password = self._secret("username_env"), self._secret("password_env")
        if username is None and self._parts.username:
            username, password = unquote(self._parts.username), unquote(self._parts.password or "")
        if username is not None:
            headers["Authorization"] = "Basic " + base64.b64encode(f"{username}:{password or ''}".encode()).decode()
        bearer = self._secret("bearer_env")
        if bearer is not None:
            headers["Authorization"] = f"Bearer {bearer}"
        return urllib3.PoolManager(
            num_pools=2,
            headers=headers,
            ca_certs=self._secret("ca_file_env"),
            cert_file=self._secret("cert_file_env"),
            key_file=self._secret("key_file_env"),
        )

    def _secret(self, key: str) -> str | None:
        name = self._envs[key]
        if name is None:
            return None
        value = os.environ.get(name, "").strip()
        if not value:
            raise SourceError(self.url, None, f"environment variable {name} ({key}) is not set")
        return value


class ExpositionCollector:
    """A page as a collector of one moment: what it says now, if now lies in the window."""

    is_additive = True

    def __init__(self, source: str, page: ExpositionPage) -> None:
        self.source = source
        self._page = page

    def collect(self, window: Window, families: Mapping[str, Family], register: SeriesRegister) -> Iterator[Batch]:
        """At most one batch per stream; nothing for a window that does not hold now. Raises SourceError."""
        if not window.start_us <= time.time_ns() // 1000 < window.end_us:
            return
        self._page.families = {metric: family.source_kind for metric, family in families.items()}
        readings = self._page.look()
        for metric, series in self._page.unknown.items():
            register.unknown(metric, series)
        yield from reading_batches(readings, window, families, register)


def _added_labels(parts: SplitResult, host: str | None) -> dict[str, str]:
    name, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    if host and (name in ("localhost", "::1") or name.startswith("127.")):
        return {"instance": f"{host}:{port}", "node": host}
    return {"instance": f"[{name}]:{port}" if ":" in name else f"{name}:{port}"}


def _plain_reason(error: Exception) -> str:
    """A reason that stays the same from one failure to the next: urllib3 puts object addresses into its own."""
    cause: BaseException = error
    while isinstance(cause, urllib3.exceptions.MaxRetryError) and cause.reason is not None:
        cause = cause.reason
    if isinstance(cause, urllib3.exceptions.NameResolutionError):
        return "the host name cannot be resolved"
    if isinstance(cause, urllib3.exceptions.NewConnectionError):
        return "cannot connect: " + str(cause).rpartition(": ")[2]
    if isinstance(cause, urllib3.exceptions.TimeoutError):
        return "timed out"
    if isinstance(cause, urllib3.exceptions.ProtocolError):
        return "the answer broke off"
    if isinstance(cause, urllib3.exceptions.SSLError):
        return f"TLS failed: {cause.args[0] if cause.args else cause}"
    return str(cause)
