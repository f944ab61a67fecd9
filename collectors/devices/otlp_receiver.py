"""A receiver of OTLP over HTTP beside the agent: `/v1/traces` and `/v1/metrics`, into the agent's spool.

Add here what HTTP and OTLP's rules for it demand: sizes, encodings, answers. What was answered with 200 is on the disk.
Keep out what of a document is kept (`protocols.otlp`) and how the spool is laid out (`spool`). There is no gRPC.
"""

from __future__ import annotations

import hmac
import logging
import socket
import threading
import time
import uuid
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedReader
from ipaddress import ip_address
from typing import Any, ClassVar, cast

import orjson

from collectors.devices.otlp_messages import JSON, PROTOBUF, TooMuch, answer, parts_of_message, reads_protobuf, refusal
from collectors.devices.spool import Spool, host_folder
from collectors.devices.spool_writer import SpoolWriter
from collectors.personal_labels import PersonalLabels
from collectors.protocols.otlp import (
    SPAN_ATTRIBUTES,
    Bounds,
    Malformed,
    NotTaken,
    Part,
    Span,
    inferences,
    kept_document,
    parts_of_document,
    readings,
)
from collectors.unknown_families import MOST_NAMES

PATHS = {"/v1/traces": "traces", "/v1/metrics": "metrics"}
# A Collector sends 8,192 spans at once; gzip makes a tenth of them. SECURITY.md has these limits.
MOST_BYTES = 16 << 20
MOST_INFLATED_BYTES = 64 << 20
# Each value of a JSON document begins with `{` or `[` or comes after one of these, `,` or `:`. As Python's it has up to
# 120 bytes and its text; texts with such characters are counted as more than they are. 8,192 spans of 100 attributes
# have 5.8 million.
MOST_VALUES = 6_000_000
# Spans or readings that one request may leave; each has a few kB until it is written.
MOST_ROWS = 50_000
# Where files are read a line has at most 8 MiB, and a span whose kept texts are all at their longest some 30 kB.
LINE_SPANS = 100
MOST_AT_ONCE = 8
MOST_CONNECTIONS = 64
# For a request to arrive, and for its turn to be decoded; a connection waits as long for its next one.
ANSWER_SECONDS = 30.0
RETRY_AFTER_SECONDS = 5
# A Collector without network keeps its queue for days; what is ahead of this clock is of one that is not set.
PAST_DAYS, AHEAD_DAYS = 30, 1

_NS = 1_000_000_000

log = logging.getLogger(__name__)


class Refused(Exception):
    """What a request is refused with: the status, and what was expected."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class Receiver:
    """Takes what exporters send. `address` is (host, port), `bearer` the token that each request must have; without one
    only this host's own programs may send. `stated` are the labels and attributes that name who asked. ValueError for
    an address that others can reach without a token; OSError where it cannot be bound.

    Spans become files `requests/host=<host>/date=<UTC day>/….jsonl` of the spool, one per request that had any; points
    of metrics become its samples.
    """

    def __init__(
        self,
        address: tuple[str, int],
        spool: Spool,
        host: str,
        families: Mapping[str, str],
        *,
        bearer: str | None = None,
        stated: Collection[str] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        if bearer is None and not _is_loopback(address[0]):
            raise ValueError(f"{address[0]} can be reached from elsewhere: name the variable of a bearer token")
        self._spool = spool
        self._host = host
        self._families = families
        self._bearer = bearer
        self._stated = tuple(stated)
        self._clock = clock
        self._labels = PersonalLabels({*stated, *(name.replace(".", "_") for name in stated)})
        self._lock = threading.Lock()
        self._places = threading.BoundedSemaphore(MOST_AT_ONCE)
        self._turn = threading.Lock()
        self._prefix = f"{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}-{uuid.uuid4().hex[:8]}"
        self._sequence = 0
        self._server = _Server(address, _handler_of(self))
        self._thread = threading.Thread(target=self._server.serve_forever, name="otlp", daemon=True)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Take requests until `stop`."""
        self._thread.start()
        log.info("OTLP is received on port %d%s", self.port, "" if reads_protobuf() else ", as JSON alone")

    def stop(self) -> None:
        """Take no more; requests in progress are answered."""
        self._server.shutdown()
        self._server.server_close()

    def take(self, path: str, kind: str, encoding: str, body: bytes) -> bytes:
        """Write what a request holds; the body of the answer 200. Refused for what cannot be taken.

        One request at a time is decoded: what is in memory of all of them is its document, and the others' bodies.
        """
        signal = PATHS[path]
        if not self._turn.acquire(timeout=ANSWER_SECONDS):
            raise Refused(503, f"earlier requests took more than {ANSWER_SECONDS:g} s")
        try:
            not_taken = NotTaken()
            parts = self._parts(signal, kind, _inflated(body, encoding), not_taken)
            (self._traces if signal == "traces" else self._metrics)(parts, not_taken)
        except TooMuch as error:
            raise Refused(413, str(error)) from None
        except Malformed as error:
            raise Refused(400, str(error)) from None
        except ValueError:
            # The library's reason quotes the body.
            raise Refused(400, f"the body is no export of {signal} as {kind}") from None
        except MemoryError:
            raise Refused(503, "there is no memory for the request") from None
        finally:
            self._turn.release()
        return answer(signal, kind, not_taken.total(), str(not_taken))

    def check_token(self, given: str) -> None:
        """Refused without the token."""
        if self._bearer is None:
            return
        if not hmac.compare_digest(given.encode(), f"Bearer {self._bearer}".encode()):
            raise Refused(401, "expected the bearer token of this receiver")

    @contextmanager
    def place(self) -> Any:
        """A place among the requests at once; Refused where all are taken."""
        if not self._places.acquire(blocking=False):
            raise Refused(429, f"{MOST_AT_ONCE} requests are in progress")
        try:
            yield
        finally:
            self._places.release()

    def _parts(self, signal: str, kind: str, body: bytes, not_taken: NotTaken) -> Iterator[Part]:
        if kind == PROTOBUF:
            return parts_of_message(signal, body, SPAN_ATTRIBUTES | set(self._stated), not_taken)
        if sum(body.count(byte) for byte in (b"{", b"[", b",", b":")) > MOST_VALUES:
            raise TooMuch(f"expected at most {MOST_VALUES:,} values, as '{{', '[', ',' and ':' are counted")
        return parts_of_document(orjson.loads(body), signal)

    def _bounds(self) -> Bounds:
        now = int(self._clock())
        return Bounds((now - PAST_DAYS * 86_400) * _NS, (now + AHEAD_DAYS * 86_400) * _NS, MOST_ROWS)

    def _traces(self, parts: Iterator[Part], not_taken: NotTaken) -> None:
        by_day: dict[str, list[Span]] = {}
        bounds, taken = self._bounds(), 0
        for span in inferences(parts, self._stated):
            started_ns, ended_ns = (int(span.fields[name]) for name in ("startTimeUnixNano", "endTimeUnixNano"))
            # A span that has not ended has the end 0.
            if reason := bounds.broken(taken, started_ns, ended_ns or started_ns):
                not_taken[reason] += 1
                continue
            taken += 1
            started = datetime.fromtimestamp(started_ns // _NS, UTC)
            by_day.setdefault(started.date().isoformat(), []).append(span)
        for day, spans in by_day.items():
            lines = [spans[first : first + LINE_SPANS] for first in range(0, len(spans), LINE_SPANS)]
            self._put(day, b"".join(orjson.dumps(kept_document(line)) + b"\n" for line in lines))

    def _put(self, day: str, payload: bytes) -> None:
        with self._lock:
            self._sequence += 1
            name = f"requests/{host_folder(self._host)}/date={day}/{self._prefix}-{self._sequence:06d}.jsonl"
        try:
            self._spool.put(name, payload)
        except Exception as error:  # each store raises its own kinds
            raise Refused(503, f"the spool cannot be written: {type(error).__name__}") from error

    def _metrics(self, parts: Iterator[Part], not_taken: NotTaken) -> None:
        found = readings(parts, self._families, self._labels, self._bounds())
        not_taken.update(found.not_taken)
        for name in list(found.unknown)[MOST_NAMES:]:
            not_taken[f"more than {MOST_NAMES} metrics that the catalogue does not have"] += found.unknown.pop(name)
        if found.kept or found.unknown:
            # A writer of its own per request: one that waits with rows would answer for those of others.
            writer = SpoolWriter(self._spool, self._host)
            writer.add(found.kept, found.unknown)
            if not writer.flush():
                raise Refused(503, "the spool cannot be written")


class _Server(ThreadingHTTPServer):
    """Ends connections whose request does not arrive in time, and the oldest of these where there are too many."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        # Connections whose next request has not arrived whole, and when each must have.
        self.arriving: dict[Any, float] = {}
        super().__init__(address, handler)

    def await_request(self, connection: Any) -> None:
        """From now on a request must arrive."""
        self.arriving[connection] = time.monotonic() + ANSWER_SECONDS

    def process_request(self, request: Any, client_address: Any) -> None:
        """One more connection."""
        self._end(list(self.arriving)[: max(0, len(self.arriving) - MOST_CONNECTIONS + 1)])
        self.await_request(request)
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """What `serve_forever` does at least twice a second."""
        now = time.monotonic()
        self._end([one for one, due in self.arriving.copy().items() if due < now])

    def shutdown_request(self, request: Any) -> None:
        """A connection has ended."""
        self.arriving.pop(request, None)
        super().shutdown_request(request)

    def _end(self, connections: list[Any]) -> None:
        for one in connections:
            self.arriving.pop(one, None)
            with suppress(OSError):
                # A read that waits ends by this, not by closing.
                one.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no error."""
        log.debug("a request ended early", exc_info=True)


def _handler_of(receiver: Receiver) -> type[BaseHTTPRequestHandler]:
    class Handler(_Handler):
        pass

    Handler.receiver = receiver
    return Handler


class _Handler(BaseHTTPRequestHandler):
    receiver: ClassVar[Receiver]
    server: _Server
    protocol_version = "HTTP/1.1"
    timeout = ANSWER_SECONDS
    server_version, sys_version = "wattledger", ""

    def handle_one_request(self) -> None:
        """The time of a request begins with its first byte."""
        self.server.await_request(self.connection)
        with suppress(TimeoutError):
            if cast(BufferedReader, self.rfile).peek(1):
                self.server.await_request(self.connection)
                super().handle_one_request()
                return
        self.close_connection = True

    def do_POST(self) -> None:
        """One export."""
        kind = JSON
        try:
            self.receiver.check_token(self.headers.get("Authorization", ""))
            if self.path not in PATHS:
                raise Refused(404, f"expected one of {', '.join(PATHS)}")
            kind = kind_of(self.headers.get("Content-Type", ""))
            with self.receiver.place():
                body = self.receiver.take(self.path, kind, self.headers.get("Content-Encoding", ""), self._body())
        except Refused as refused:
            self._answer(refused.status, kind, refusal(kind, refused.reason))
        except Exception:
            log.exception("an export could not be taken")
            self._answer(500, kind, refusal(kind, "the receiver failed"))
        else:
            self._answer(200, kind, body)

    def do_GET(self) -> None:
        """Nothing is given."""
        self._answer(405, JSON, refusal(JSON, "expected POST"))

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()) or self.headers.get("Transfer-Encoding"):
            raise Refused(411, "expected a Content-Length")
        if len(length) > 12 or int(length) > MOST_BYTES:
            raise Refused(413, f"expected at most {MOST_BYTES:,} bytes")
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            raise Refused(400, "the body ends early")
        self.server.arriving.pop(self.connection, None)
        return body

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if status in (429, 503):
            self.send_header("Retry-After", str(RETRY_AFTER_SECONDS))
        if status != 200:
            # Of a refused request the body may not have been read.
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """A path may hold what it should not."""


def kind_of(content_type: str) -> str:
    """The encoding of a request; Refused for another one."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind == JSON or (kind == PROTOBUF and reads_protobuf()):
        return kind
    if kind == PROTOBUF:
        raise Refused(415, "protobuf needs the extra: pip install 'wattledger-agent[otlp]', or export as http/json")
    raise Refused(415, f"expected Content-Type {PROTOBUF} or {JSON}")


def _inflated(body: bytes, encoding: str) -> bytes:
    if encoding in ("", "identity"):
        return body
    if encoding != "gzip":
        raise Refused(415, "expected Content-Encoding gzip, or none")
    inflater = zlib.decompressobj(zlib.MAX_WBITS | 16)
    try:
        whole = inflater.decompress(body, MOST_INFLATED_BYTES)
    except zlib.error:
        raise Refused(400, "the body is no gzip") from None
    if inflater.unconsumed_tail or not inflater.eof:
        is_large = len(whole) >= MOST_INFLATED_BYTES
        reason = f"expected at most {MOST_INFLATED_BYTES:,} bytes after gzip" if is_large else "the gzip ends early"
        raise Refused(413 if is_large else 400, reason)
    if inflater.unused_data:
        raise Refused(400, "expected nothing after the gzip")
    return whole


def _is_loopback(host: str) -> bool:
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost"
