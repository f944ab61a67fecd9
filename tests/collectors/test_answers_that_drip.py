"""An answer ends at its time limit, whatever part of it drips: the collector reports it, and the next answer is read.

Each server here sends some bytes now and then, so that no time-out of a socket ever comes; each once held a collector
for ever, or for as long as it liked.
"""

import gzip
import socket
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import orjson
import pytest

from collectors.limits import Limits
from collectors.protocols.exposition import ExpositionPage
from collectors.protocols.grid_apis import UkCarbonIntensityCollector
from collectors.protocols.http_client import HttpClient
from collectors.protocols.prometheus import EXPORT_KIND, PrometheusCollector
from collectors.samples import Family, SourceError, Window
from collectors.series import SeriesRegister
from tests.servers import fields_of, http_server, own_certificate, reply
from tests.talking_servers import talking_server

pytestmark = pytest.mark.sampled

START = datetime(2026, 10, 1, tzinfo=UTC)
HOUR = Window(START, START + timedelta(hours=1))
POWER = "DCGM_FI_DEV_POWER_USAGE"
FAMILIES = {POWER: Family(POWER, "power", "dcgm_exporter")}
SECOND = Limits(answer_seconds=1.0)
OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
GZIPPED = OK + b"Content-Encoding: gzip\r\n\r\n"
# A stored block of no bytes: as many as one likes may come before the last one.
NOTHING = b"\x00\x00\x00\xff\xff"
LINE = b"%s 1\n" % POWER.encode()


def outcome_within(seconds, ask):
    """What `ask` raised, or returned; an assertion where it takes longer."""
    found = []

    def run():
        try:
            found.append(ask())
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), f"no end within {seconds} s"
    return found[0]


def asked(connection):
    """Read a request's header."""
    text = b""
    while b"\r\n\r\n" not in text:
        text += connection.recv(65536)
    return text


def dripping(start, part, pause_seconds=0.1):
    def talk(connection):
        asked(connection)
        connection.sendall(start)
        while True:
            connection.sendall(part)
            time.sleep(pause_seconds)

    return talk


def redirecting(connection):
    while True:
        asked(connection)
        for byte in b"HTTP/1.1 302 Found\r\nLocation: /metrics/\r\nContent-Length: 0\r\n\r\n":
            connection.sendall(bytes([byte]))
            time.sleep(0.03)


DRIPS = {
    "nothing at all": dripping(b"", b""),
    "the status line": dripping(b"HTTP/1.1 200 ", b"O"),
    "headers": dripping(OK, b"X-More: 1\r\n", 0.25),
    "one header": dripping(OK + b"X-More: ", b"1"),
    "100 Continue": dripping(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "100 Continue at full speed": dripping(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100, 0.0),
    "redirects": redirecting,
    "a chunk's size": dripping(CHUNKED, b"0"),
    "a chunk's data": dripping(CHUNKED + b"ffff\r\n", b"#"),
    "trailers": dripping(CHUNKED + b"%x\r\n%s\r\n0\r\n" % (len(LINE), LINE), b"X-More: 1\r\n"),
    "a body of a known length": dripping(OK + b"Content-Length: 99999\r\n\r\n", b"#"),
    "a body that ends with the connection": dripping(OK + b"\r\n", LINE),
    "a gzip stream of nothing": dripping(GZIPPED + gzip.compress(b"")[:10], NOTHING),
    "a gzip stream of nothing at full speed": dripping(GZIPPED + gzip.compress(b"")[:10], NOTHING * 1000, 0.0),
    "an error's text": dripping(b"HTTP/1.1 500 No\r\nContent-Length: 99999\r\n\r\n", b"#"),
}


@pytest.mark.parametrize("drip", DRIPS)
def test_an_answer_ends_at_its_time_limit_whatever_part_of_it_drips(drip):
    with talking_server(DRIPS[drip]) as place:
        page = ExpositionPage(f"http://{place}/metrics", limits=SECOND)
        failure = outcome_within(5.0, page.look)
    assert isinstance(failure, SourceError)
    assert "within 1 s (limits.answer_seconds)" in failure.reason or "longer than 1 s (limits.ans" in failure.reason
    assert failure.url == f"http://{place}/metrics"


@pytest.mark.parametrize("part", [b"", b"\x16\x03\x03\x40\x00"], ids=["silence", "a record that never ends"])
def test_a_tls_handshake_that_never_ends_ends_at_the_time_limit(part):
    def talk(connection):
        while True:
            connection.sendall(part[:5])
            connection.sendall(b"\x00" if part else b"")
            time.sleep(0.1)

    with talking_server(talk) as place:
        failure = outcome_within(5.0, ExpositionPage(f"https://{place}/metrics", limits=SECOND).look)
    assert isinstance(failure, SourceError)


@pytest.mark.needs("openssl")
@pytest.mark.parametrize("part", ["headers", "body"])
def test_an_answer_through_tls_ends_at_its_time_limit(part, monkeypatch, tmp_path):
    certificate, context = own_certificate(tmp_path)

    def talk(connection):
        with context.wrap_socket(connection, server_side=True) as inside:
            dripping(OK if part == "headers" else OK + b"\r\n", b"X: 1\r\n" if part == "headers" else LINE, 0.2)(inside)

    monkeypatch.setenv("CA_FILE", str(certificate))
    with talking_server(talk) as place:
        page = ExpositionPage(f"https://{place}/metrics", limits=SECOND, ca_file_env="CA_FILE")
        failure = outcome_within(5.0, page.look)
    assert isinstance(failure, SourceError)
    assert "1 s (limits.answer_seconds)" in failure.reason


def test_a_request_that_the_server_does_not_read_ends_at_the_time_limit():
    with talking_server(lambda _: time.sleep(19)) as place:
        client = HttpClient(f"http://{place}", limits=SECOND)
        failure = outcome_within(5.0, lambda: client.ask("/", [("query", "x" * (16 << 20))]))
    assert "1 s (limits.answer_seconds)" in failure.reason


def test_a_name_that_is_not_resolved_ends_at_the_time_limit(monkeypatch):
    """A resolver cannot be shut down: it is left alone, in a thread of its own."""
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: time.sleep(19))
    failure = outcome_within(5.0, ExpositionPage("http://far.example/metrics", limits=SECOND).look)
    assert failure.reason == "timed out: no answer within 1 s (limits.answer_seconds)"


def test_a_time_out_is_not_tried_again_and_the_next_question_has_a_connection_of_its_own():
    came = []

    def talk(connection):
        came.append(connection)
        while True:
            text = asked(connection)
            if b"/well" not in text:
                time.sleep(9)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")

    with talking_server(talk) as place:
        client = HttpClient(f"http://{place}", limits=SECOND)
        assert client.ask("/well", [], method="GET") == b"{}"
        assert client.ask("/well", [], method="GET") == b"{}"
        assert len(came) == 1  # kept
        failure = outcome_within(5.0, lambda: client.ask("/ill", [], method="GET"))
        assert "no answer within 1 s" in failure.reason
        assert client.ask("/well", [], method="GET") == b"{}"
    assert len(came) == 2


def test_a_grid_api_that_drips_ends_at_its_time_limit():
    with talking_server(DRIPS["one header"]) as place:
        collector = UkCarbonIntensityCollector("neso", f"http://{place}", region_id=None, limits=SECOND)
        failure = outcome_within(5.0, lambda: collector.collect(HOUR))
    assert failure.reason == "timed out: no answer within 1 s (limits.answer_seconds)"


# --- streams ----------------------------------------------------------------------------------------------------------


def exporting(answer):
    """A server whose export of POWER is answered by `answer(handler)`."""

    def both(handler):
        path, fields = fields_of(handler)
        if path.endswith("/values"):
            reply(handler, 200, orjson.dumps({"status": "success", "data": [POWER]}))
        elif '"up"' in fields.get("match[]", ""):
            reply(handler, 200, b"", EXPORT_KIND)
        else:
            handler.send_response(200)
            handler.send_header("Content-Type", EXPORT_KIND)
            handler.send_header("Connection", "close")
            handler.end_headers()
            handler.close_connection = True
            answer(handler)

    return http_server(both)


def exported(n, text="GPU"):
    return b'{"metric":{"__name__":"%s","UUID":"%s-%d"},"values":[1],"timestamps":[1790812800000]}\n' % (
        POWER.encode(),
        text.encode(),
        n,
    )


def rows(collector, pause_seconds=0.0):
    register = SeriesRegister(collector.source, HOUR, (), 500_000)
    count = 0
    for batch in collector.collect(HOUR, FAMILIES, register):
        count += batch.samples.num_rows
        time.sleep(pause_seconds)
    return count


def test_a_stream_that_drips_ends_at_the_time_limit_of_an_answer():
    def drip(handler):
        for n in range(1000):
            handler.wfile.write(exported(n))
            time.sleep(0.1)

    with exporting(drip) as url:
        failure = outcome_within(5.0, lambda: rows(PrometheusCollector("cluster", url, limits=SECOND)))
    assert "the answer took longer than 1 s (limits.answer_seconds)" in failure.reason


def test_a_stream_whose_groups_all_come_in_time_ends_at_the_time_limit_of_the_window(monkeypatch):
    monkeypatch.setattr("collectors.protocols.http_client.GROUP_BYTES", 1)

    def drip(handler):
        for n in range(1000):
            handler.wfile.write(exported(n))
            time.sleep(0.1)

    limits = Limits(answer_seconds=1.0, window_seconds=1.5)
    with exporting(drip) as url:
        failure = outcome_within(5.0, lambda: rows(PrometheusCollector("cluster", url, limits=limits)))
    assert "the window took longer than 1.5 s (limits.window_seconds)" in failure.reason


@pytest.mark.rest
def test_a_stream_that_is_slow_and_large_is_read_to_its_end(monkeypatch):
    """10,000 boards, in groups that each come in time, over longer than the limit of one answer."""
    monkeypatch.setattr("collectors.protocols.http_client.GROUP_BYTES", 1 << 16)

    def slowly(handler):
        for first in range(0, 10_000, 1000):
            handler.wfile.write(b"".join(map(exported, range(first, first + 1000))))
            time.sleep(0.2)

    with exporting(slowly) as url:
        assert outcome_within(20.0, lambda: rows(PrometheusCollector("cluster", url, limits=SECOND))) == 10_000


@pytest.mark.rest
def test_a_consumer_that_takes_longer_than_the_limits_loses_nothing(monkeypatch):
    """DuckDB may take its time between two groups: neither an answer's seconds nor a window's count meanwhile."""
    monkeypatch.setattr("collectors.protocols.http_client.GROUP_BYTES", 1 << 20)
    whole = b"".join(exported(n, "GPU" * 100) for n in range(10_000))
    limits = Limits(answer_seconds=1.0, window_seconds=2.0)
    with exporting(lambda handler: handler.wfile.write(whole)) as url:
        collector = PrometheusCollector("cluster", url, limits=limits)
        assert outcome_within(20.0, lambda: rows(collector, pause_seconds=1.2)) == 10_000


def test_a_large_answer_that_comes_in_time_is_read_to_its_end():
    whole = b"".join(b'%s{UUID="GPU-%d"} 1\n' % (POWER.encode(), n) for n in range(10_000))

    def slowly(connection):
        asked(connection)
        connection.sendall(OK + b"Content-Length: %d\r\n\r\n" % len(whole))
        for start in range(0, len(whole), 1 << 15):
            connection.sendall(whole[start : start + (1 << 15)])
            time.sleep(0.05)

    with talking_server(slowly) as place:
        readings = outcome_within(9.0, ExpositionPage(f"http://{place}/metrics", limits=Limits(answer_seconds=5)).look)
    assert len(readings) == 10_000


def test_hundreds_of_answers_leave_no_timer_and_no_socket_behind():
    def timers():
        return [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]

    with http_server(lambda handler: reply(handler, 200, LINE, "text/plain")) as url:
        page = ExpositionPage(f"{url}/metrics", limits=SECOND)
        page.look()
        sockets = len([*Path("/proc/self/fd").iterdir()])
        for _ in range(300):
            page.look()
        assert len([*Path("/proc/self/fd").iterdir()]) <= sockets
        ends = time.monotonic() + 5
        while timers() and time.monotonic() < ends:
            time.sleep(0.05)
        assert timers() == []
