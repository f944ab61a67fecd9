"""Raw samples of a Prometheus-compatible server: Prometheus, VictoriaMetrics, Thanos, Mimir.

Add here what the query API can tell about samples and series. Keep out the connection (`prometheus_http`) and every
per-exporter rule: which metrics to ask for comes from the catalogue.

Samples come through range selectors, `metric{…}[1h]` on /api/v1/query at the chunk's last millisecond. /query_range
would move samples to its own step and carry a value for five minutes over a gap.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.csv as pa_csv

from collectors.prometheus_http import OverLimitError, PrometheusServer
from collectors.samples import Batch, Family, SourceError, Window, sample_batch
from collectors.series import SeriesRegister

FIRST_CHUNK_MS = 3_600_000
SHORTEST_CHUNK_MS = 1_000
LONGEST_CHUNK_MS = 86_400_000
# A chunk may double while answers stay below this and no limit was met, so that quiet metrics cost few requests.
SMALL_BODY_BYTES = 4 << 20

_MARK = b'"values":[['
# Where in the window to look for series of unknown families: most live at its end.
_ALIVE_AT = (1.0, 0.75, 0.5, 0.25, 0.0)

Matrix = tuple[list[dict[str, str]], np.ndarray, np.ndarray, np.ndarray]


class PrometheusCollector:
    """Reads the families of the catalogue from one server; at most one chunk of one metric is in memory.

    `matchers` are PromQL label matchers as text (`namespace="llm"`), applied to every selector. Further keywords are
    those of PrometheusServer: bearer_env, username_env, password_env, ca_file_env, cert_file_env, key_file_env,
    headers, timeout_seconds, attempts, backoff_seconds, body_limit_bytes. Series that differ in `replica_labels` only
    become one, merged in time order chunk by chunk.
    """

    def __init__(
        self,
        source: str,
        url: str,
        *,
        matchers: Sequence[str] = (),
        interval_seconds: float | None = None,
        replica_labels: Collection[str] = (),
        **server: object,
    ) -> None:
        self.source = source
        self.interval_seconds = interval_seconds
        self.replica_labels = tuple(replica_labels)
        self.server = PrometheusServer(url, **server)
        self._matchers = tuple(matchers)

    @property
    def url(self) -> str:
        """The server's URL as it may be logged."""
        return self.server.url

    def collect(self, window: Window, families: Mapping[str, Family], register: SeriesRegister) -> Iterator[Batch]:
        """Batches of the samples in the window, by metric and then by time; SourceError names URL, status and window.

        Replica labels must be given to `register` as well: it is the one that forms identities.
        """
        try:
            names = self._names(window, families)
            for metric in sorted(families if names is None else names & families.keys()):
                yield from self._metric(window, families[metric], register)
            if names is not None:
                self._count_unknown(window, names - families.keys(), register)
        except SourceError as error:
            raise type(error)(error.url, error.status, f"{error.reason}; window {window}") from error
        finally:
            self.server.close()

    def _metric(self, window: Window, family: Family, register: SeriesRegister) -> Iterator[Batch]:
        # Timestamps are whole milliseconds there: those at or after start and before end.
        start_ms, end_ms = -(-window.start_us // 1000), -(-window.end_us // 1000)
        chunk_ms, longest_ms = FIRST_CHUNK_MS, LONGEST_CHUNK_MS
        while start_ms < end_ms:
            stop_ms = min(start_ms + chunk_ms, end_ms)
            try:
                body = self._query(
                    f"{self._selector(f'__name__={json.dumps(family.metric)}')}[{stop_ms - start_ms}ms]", stop_ms - 1
                )
            except OverLimitError:
                if stop_ms - start_ms <= SHORTEST_CHUNK_MS:
                    raise
                chunk_ms = longest_ms = max((stop_ms - start_ms) // 2, SHORTEST_CHUNK_MS)
                continue
            samples = self._samples(self._parsed(body), (start_ms, stop_ms), family, register)
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

    def _query(self, promql: str, at_ms: int) -> bytes:
        fields = [
            ("query", promql),
            ("time", f"{at_ms // 1000}.{at_ms % 1000:03d}"),
            # Thanos: half an answer would look like a quiet fleet. Others ignore the field.
            ("partial_response", "false"),
        ]
        return self.server.ask("/api/v1/query", fields)

    def _parsed(self, body: bytes) -> Matrix:
        try:
            return parse_matrix(body)
        except ValueError as error:
            raise SourceError(self.url + "/api/v1/query", 200, f"answered what cannot be read: {error}") from error

    def _names(self, window: Window, families: Mapping[str, Family]) -> set[str] | None:
        """Metric names in the window that are, or look like, those of the catalogue; None if the server won't say."""
        prefixes = sorted({re.match(r"[^_:]*[_:]?", metric)[0] for metric in families})
        pattern = "|".join(f"{re.escape(prefix)}.*" for prefix in prefixes)
        fields = [
            ("match[]", self._selector(f"__name__=~{json.dumps(pattern)}")),
            ("start", str(window.start_us // 1_000_000)),
            ("end", str(-(-window.end_us // 1_000_000))),
        ]
        try:
            body = self.server.ask("/api/v1/label/__name__/values", fields, method="GET")
            return set(_data(orjson.loads(body)) or ())
        except (SourceError, ValueError) as error:
            # Proxies that guard the query API often lack this one: then every family is asked for.
            if getattr(error, "status", 0) in (None, 401):
                raise
            return None

    def _count_unknown(self, window: Window, names: set[str], register: SeriesRegister) -> None:
        """Tell the register of names that are not landed, with how many series were alive at some instant."""
        for share in _ALIVE_AT:
            if not names:
                return
            at_ms = (window.start_us + round((window.end_us - window.start_us) * share)) // 1000 - (share == 1.0)
            pattern = json.dumps("|".join(re.escape(name) for name in sorted(names)))
            try:
                body = self._query(f"count by (__name__) ({self._selector(f'__name__=~{pattern}')})", at_ms)
                for one in _data(orjson.loads(body))["result"]:
                    register.unknown(one["metric"]["__name__"], int(float(one["value"][1])))
                    names = names - {one["metric"]["__name__"]}
            except (SourceError, ValueError, KeyError, TypeError):
                # An audit of what is not landed must not cost the samples that are.
                return


def parse_matrix(body: bytes) -> Matrix:
    """Labels (s dicts, without the name), counts (s,), times in milliseconds (n,) and values (n,) of a query's answer.

    Samples come series by series. ValueError for anything but a complete, successful answer of type matrix.

    The value blocks are cut out of the bytes and read as one CSV; what is left, labels and status, is small and goes
    through a JSON parser, which also proves that the answer is whole. The mark cannot occur inside a JSON string, where
    its second quote would be escaped. What does not fit goes through the JSON parser as a whole.
    """
    skeleton, blocks, position = [], [], 0
    while (found := body.find(_MARK, position)) >= 0:
        begin = found + len(_MARK)
        end = body.find(b"]]", begin)
        if end < 0:
            raise ValueError("the JSON breaks off within a series")
        skeleton += (body[position : begin - 2], b"%d" % len(blocks))
        blocks.append(body[begin : end + 1])
        position = end + 2
    skeleton.append(body[position:])
    result = _result(b"".join(skeleton))
    chosen = [one for one in result if isinstance(one.get("values"), int)]
    # Native histograms have no "values", and a series may have none: both stay out. Values elsewhere need the slow way.
    is_plain = [one["values"] for one in chosen] == list(range(len(blocks))) and len(chosen) == sum(
        one.get("values") not in (None, []) for one in result
    )
    columns = _columns(blocks) if is_plain else None
    if columns is None:
        return _parse_slowly(body)
    counts = np.array([block.count(b"]") for block in blocks], dtype=np.int64)
    if counts.sum() != len(columns[0]):
        return _parse_slowly(body)
    return [_labels(one) for one in chosen], counts, *columns


def _columns(blocks: list[bytes]) -> tuple[np.ndarray, np.ndarray] | None:
    """Milliseconds and values of blocks like `1696118400.123,"1"],[1696118415.123,"+Inf"]`; None if they are not so."""
    if not blocks:
        return np.empty(0, np.int64), np.empty(0, np.float64)
    # The sign of +Inf and of exponents must go for Arrow's parser; the value is the same without.
    text = b",".join(blocks).translate(None, b'["+').replace(b"],", b"\n")
    try:
        table = pa_csv.read_csv(
            pa.py_buffer(text[:-1]),
            read_options=pa_csv.ReadOptions(column_names=["seconds", "value"], use_threads=False),
            parse_options=pa_csv.ParseOptions(quote_char=False),
            convert_options=pa_csv.ConvertOptions(
                column_types={"seconds": pa.float64(), "value": pa.float64()}, null_values=[]
            ),
        )
    except pa.ArrowInvalid:
        return None
    return _milliseconds(table["seconds"].to_numpy()), table["value"].to_numpy()


def _parse_slowly(body: bytes) -> Matrix:
    series = [one for one in _result(body) if one.get("values")]
    samples = [sample for one in series for sample in one["values"]]
    return (
        [_labels(one) for one in series],
        np.array([len(one["values"]) for one in series], dtype=np.int64),
        _milliseconds(np.array([float(at) for at, _ in samples], dtype=np.float64)),
        np.array([float(value) for _, value in samples], dtype=np.float64),
    )


def _milliseconds(seconds: np.ndarray) -> np.ndarray:
    return np.rint(seconds * 1000).astype(np.int64)


def _labels(one: dict) -> dict[str, str]:
    return {name: value for name, value in one["metric"].items() if name != "__name__"}


def _result(body: bytes) -> list[dict]:
    data = _data(orjson.loads(body))
    if not isinstance(data, dict) or data.get("resultType") != "matrix":
        raise ValueError("the result is not of type matrix")
    return data["result"]


def _data(answer: object) -> object:
    """The data of a successful and complete answer; ValueError otherwise."""
    if not isinstance(answer, dict) or answer.get("status") != "success":
        told = answer.get("error", "no status") if isinstance(answer, dict) else "not an object"
        raise ValueError(f"status is not success: {told}")
    # Thanos warns like this when no store holds the window, which is an honest empty answer.
    warnings = [text for text in answer.get("warnings") or () if "No StoreAPIs matched" not in text]
    if warnings or answer.get("isPartial"):
        raise ValueError(f"the answer is partial: {'; '.join(warnings) or 'isPartial'}")
    return answer.get("data")
