"""A receiver of OTLP over HTTP beside the agent: `/v1/traces` and `/v1/metrics`, into the agent's spool.

Add here what HTTP and OTLP's rules for it demand: sizes, encodings, answers. What was answered with 200 is on the disk.
Keep out what of a document is kept (`protocols.otlp`) and how the spool is laid out (`spool`). There is no gRPC.
"""

from __future__ import annotations

import hmac
import logging
import threading
import uuid
import zlib
from collections.abc import Collection, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from typing import Any, ClassVar

import orjson

from collectors.devices.otlp_messages import JSON, PROTOBUF, answer, document_of, reads_protobuf, refusal
from collectors.devices.spool import Spool, host_folder
from collectors.devices.spool_writer import SpoolWriter
from collectors.personal_labels import PersonalLabels
from collectors.protocols.otlp import Span, inferences, kept_document, readings

PATHS = {"/v1/traces": "traces", "/v1/metrics": "metrics"}
# An exporter sends some hundred spans at once; gzip makes a tenth of them.
MOST_BYTES = 16 << 20
MOST_INFLATED_BYTES = 64 << 20
MOST_AT_ONCE = 8
ANSWER_SECONDS = 30.0
RETRY_AFTER_SECONDS = 5
# Times of spans outside this century are of a clock that is not set.
_FIRST_NS, _END_NS = 946_684_800_000_000_000, 4_102_444_800_000_000_000

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
    ) -> None:
        if bearer is None and not _is_loopback(address[0]):
            raise ValueError(f"{address[0]} can be reached from elsewhere: name the variable of a bearer token")
        self._spool = spool
        self._host = host
        self._families = families
        self._bearer = bearer
        self._stated = tuple(stated)
        self._labels = PersonalLabels({*stated, *(name.replace(".", "_") for name in stated)})
        self._lock = threading.Lock()
        self._places = threading.BoundedSemaphore(MOST_AT_ONCE)
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
        """Write what a request holds; the body of the answer 200. Refused for what cannot be taken."""
        signal = PATHS[path]
        document = _document(signal, kind, _inflated(body, encoding))
        try:
            rejected, reason = (self._traces if signal == "traces" else self._metrics)(document)
        except ValueError as error:
            raise Refused(400, str(error)) from None
        return answer(signal, kind, rejected, reason)

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

    def _traces(self, document: Mapping[str, Any]) -> tuple[int, str]:
        by_day: dict[str, list[Span]] = {}
        rejected = 0
        for span in inferences(document, self._stated):
            started_ns = int(span.fields["startTimeUnixNano"])
            if not _FIRST_NS <= started_ns < _END_NS:
                rejected += 1
                continue
            started = datetime.fromtimestamp(started_ns // 1_000_000_000, UTC)
            by_day.setdefault(started.date().isoformat(), []).append(span)
        for day, spans in by_day.items():
            self._put(day, orjson.dumps(kept_document(spans)) + b"\n")
        return rejected, f"{rejected} spans do not start in this century" if rejected else ""

    def _put(self, day: str, payload: bytes) -> None:
        with self._lock:
            self._sequence += 1
            name = f"requests/{host_folder(self._host)}/date={day}/{self._prefix}-{self._sequence:06d}.jsonl"
        try:
            self._spool.put(name, payload)
        except Exception as error:  # each store raises its own kinds
            raise Refused(503, f"the spool cannot be written: {type(error).__name__}") from error

    def _metrics(self, document: Mapping[str, Any]) -> tuple[int, str]:
        found = readings(document, self._families, self._labels)
        if found.kept or found.unknown:
            # A writer of its own per request: one that waits with rows would answer for those of others.
            writer = SpoolWriter(self._spool, self._host)
            writer.add(found.kept, found.unknown)
            if not writer.flush():
                raise Refused(503, "the spool cannot be written")
        return found.rejected, found.reason


class _Server(ThreadingHTTPServer):
    daemon_threads = True

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
    protocol_version = "HTTP/1.1"
    timeout = ANSWER_SECONDS
    server_version, sys_version = "wattledger", ""

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
        if not length.isdigit() or self.headers.get("Transfer-Encoding"):
            raise Refused(411, "expected a Content-Length")
        if int(length) > MOST_BYTES:
            raise Refused(413, f"expected at most {MOST_BYTES:,} bytes")
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            raise Refused(400, "the body ends early")
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
    return whole


def _document(signal: str, kind: str, body: bytes) -> Mapping[str, Any]:
    try:
        held = orjson.loads(body) if kind == JSON else document_of(signal, body)
    except ValueError:
        # The library's reason quotes the body.
        raise Refused(400, f"the body is no export of {signal} as {kind}") from None
    if not isinstance(held, dict):
        raise Refused(400, f"the body is no export of {signal}")
    return held


def _is_loopback(host: str) -> bool:
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost"
