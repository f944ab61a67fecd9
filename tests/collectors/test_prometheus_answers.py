"""The Prometheus collector on HTTP answers that a good server gives rarely or never."""

import gzip
import ssl
import time
import tracemalloc
from datetime import timedelta

import orjson
import pytest

from collectors.limits import Limits
from collectors.protocols.http_client import HttpClient
from collectors.protocols.prometheus import PrometheusCollector
from collectors.samples import SourceError, Window
from tests.collectors.test_prometheus import FAMILIES, GPU, POWER, START, START_S, collected
from tests.servers import fields_of, free_port, http_server, own_certificate, reply


def matrix(*series):
    return orjson.dumps({"status": "success", "data": {"resultType": "matrix", "result": list(series)}})


SAMPLE = matrix({"metric": {"__name__": POWER, **GPU}, "values": [[START_S + 1, "250.5"]]})
ROW = ("power", POWER, '{"Hostname":"n1","UUID":"GPU-a"}', 1000.0, 250.5)
ONE = {POWER: FAMILIES[POWER]}


def server(answer, tls=None):
    """A server whose names endpoint knows POWER, and which answers queries through `answer(handler, fields)`."""

    def both(handler):
        path, fields = fields_of(handler)
        if path.endswith("/label/__name__/values"):
            reply(handler, 200, orjson.dumps({"status": "success", "data": [POWER]}))
        elif path.endswith("/export"):
            reply(handler, 404, b"404 page not found", "text/plain")
        else:
            answer(handler, fields)

    return http_server(both, tls)


def failure(answer, url_part="", **options):
    with server(answer) as url:
        with pytest.raises(SourceError) as caught:
            collected(url.replace("http://", f"http://{url_part}"), families=ONE, **options)
        assert caught.value.url == f"{url}/api/v1/query"
        assert "window [2026-10-01T00:00:00+00:00, 2026-10-01T01:00:00+00:00)" in str(caught.value)
        return caught.value


def test_a_refusal_is_not_retried_and_names_the_status_but_no_secret(monkeypatch):
    asked = []

    def refuse(handler, _):
        asked.append(handler.headers["Authorization"])
        reply(handler, 401, b"token hunter2 is not valid", "text/plain")

    monkeypatch.setenv("PROM_TOKEN", "hunter2")
    error = failure(refuse, "bob:hunter3@", bearer_env="PROM_TOKEN")
    assert error.status == 401
    assert "refused: token *** is not valid" in str(error)
    assert "hunter" not in str(error)
    assert asked == ["Bearer hunter2"]


@pytest.mark.parametrize(
    ("options", "url_part"),
    [({"username_env": "PROM_USER", "password_env": "PROM_PASSWORD"}, ""), ({}, "bob:p%40ss@")],
)
def test_basic_authentication_from_the_environment_or_the_url(monkeypatch, options, url_part):
    monkeypatch.setenv("PROM_USER", "bob")
    monkeypatch.setenv("PROM_PASSWORD", "p@ss")
    seen = []

    def answer(handler, _):
        seen.append(handler.headers["Authorization"])
        reply(handler, 200, SAMPLE)

    with server(answer) as url:
        assert collected(url.replace("http://", f"http://{url_part}"), families=ONE, **options)[0] == [ROW]
    assert set(seen) == {"Basic Ym9iOnBAc3M="}


@pytest.mark.needs("openssl")
def test_tls_trusts_the_named_authority_only_and_shows_the_named_certificate(tmp_path, monkeypatch):
    _, context = own_certificate(tmp_path)
    context.verify_mode = ssl.CERT_REQUIRED
    monkeypatch.setenv("PROM_CERT", str(tmp_path / "cert.pem"))
    monkeypatch.setenv("PROM_KEY", str(tmp_path / "key.pem"))
    monkeypatch.setenv("PROM_NO_FILE", str(tmp_path / "none.pem"))
    ours = {"cert_file_env": "PROM_CERT", "key_file_env": "PROM_KEY"}
    with server(lambda handler, _: reply(handler, 200, SAMPLE), context) as url:
        assert collected(url, families=ONE, ca_file_env="PROM_CERT", **ours)[0] == [ROW]
        with pytest.raises(SourceError, match=r"TLS failed: .*self-signed certificate"):
            collected(url, families=ONE, **ours)
        with pytest.raises(SourceError, match="TLS files cannot be read"):
            collected(url, families=ONE, ca_file_env="PROM_NO_FILE")
        with pytest.raises(SourceError):
            collected(url, families=ONE, ca_file_env="PROM_CERT", attempts=1)


def test_a_missing_environment_variable_is_named():
    with pytest.raises(SourceError, match=r"environment variable NO_SUCH_TOKEN \(bearer_env\) is not set"):
        collected("http://127.0.0.1:1", bearer_env="NO_SUCH_TOKEN")


def test_server_errors_are_retried_and_then_reported():
    asked = []

    def fail(handler, _):
        asked.append(1)
        reply(handler, 500, b'{"status":"error","errorType":"internal","error":"disk on fire"}')

    error = failure(fail, attempts=3)
    assert (error.status, len(asked)) == (500, 3)
    assert "disk on fire (3 attempts)" in str(error)


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_what_passes_is_waited_for(status):
    asked = []

    def once(handler, _):
        asked.append(1)
        if len(asked) == 1:
            reply(handler, status, b"later", "text/plain", Retry_After="0")
        else:
            reply(handler, 200, SAMPLE)

    with server(once) as url:
        assert collected(url, families=ONE)[0] == [ROW]
    assert len(asked) == 2


def test_retry_after_is_respected():
    asked = []

    def once(handler, _):
        asked.append(time.monotonic())
        reply(handler, *((429, b"", "text/plain") if len(asked) == 1 else (200, SAMPLE)), Retry_After="1")

    with server(once) as url:
        collected(url, families=ONE)
    assert asked[1] - asked[0] >= 1.0


BAD_ANSWERS = {
    "a login page": (200, b"<html>Sign in</html>", "text/html", "answered text/html, not JSON; a login page"),
    "html called JSON": (200, b"<html>Sign in</html>", "application/json", "is not JSON; a login page"),
    "JSON that breaks off in a block": (200, SAMPLE[:-20], "application/json", "breaks off within a series"),
    "JSON that breaks off after it": (200, SAMPLE[:-2], "application/json", "cannot be read"),
    "an error with status 200": (
        200,
        b'{"status":"error","error":"bad"}',
        "application/json",
        "status is not success: bad",
    ),
    "another type": (
        200,
        b'{"status":"success","data":{"resultType":"vector","result":[]}}',
        "application/json",
        "not of type matrix",
    ),
    "a bad query": (
        400,
        b'{"status":"error","errorType":"bad_data","error":"parse error"}',
        "application/json",
        "HTTP 400: parse error",
    ),
    "half an answer": (
        200,
        SAMPLE[:-1] + b',"warnings":["store down"]}',
        "application/json",
        "the answer is partial: store down",
    ),
    "a partial answer": (
        200,
        SAMPLE[:-1] + b',"isPartial":true}',
        "application/json",
        "the answer is partial: isPartial",
    ),
    "no number": (200, SAMPLE.replace(b"250.5", b"watts"), "application/json", "cannot be read"),
}


@pytest.mark.parametrize("case", BAD_ANSWERS)
def test_garbage_is_a_source_error_and_never_a_sample(case):
    status, body, kind, expected = BAD_ANSWERS[case]
    error = failure(lambda handler, _: reply(handler, status, body, kind))
    assert error.status == status
    assert expected in str(error)


def test_a_redirect_is_not_followed_and_its_query_not_shown():
    error = failure(
        lambda handler, _: reply(handler, 302, b"", Location="https://bob:x@login.example/auth?token=secret")
    )
    assert (error.status, "redirects to https://login.example/auth; a login page?" in str(error)) == (302, True)


def test_a_connection_that_breaks_off_is_tried_again_and_then_reported():
    asked = []

    def cut(handler, _):
        asked.append(1)
        reply(handler, 200, SAMPLE[:30], Content_Length=str(len(SAMPLE)), Connection="close")
        handler.close_connection = True

    error = failure(cut, attempts=2)
    assert (len(asked), "the answer broke off" in str(error)) == (2, True)


def test_an_unreachable_server_is_reported_with_its_url():
    with pytest.raises(
        SourceError, match=r"http://127\.0\.0\.1:1/api/v1/label/__name__/values: cannot be reached: .*2 attempts"
    ):
        collected("http://bob:secret@127.0.0.1:1", attempts=2)


def test_a_server_that_could_not_be_reached_is_asked_once_until_it_answers():
    """A source that is down costs a run of a month the pauses of one date, not of each."""
    port = free_port()
    client = HttpClient(f"http://127.0.0.1:{port}", attempts=3, backoff_seconds=0.01)

    def reason() -> str:
        with pytest.raises(SourceError) as caught:
            client.ask("/x", [])
        return str(caught.value)

    assert ["attempts" in reason() for _ in range(3)] == [True, False, False]
    with http_server(lambda handler: reply(handler, 503, b"{}"), port=port):
        assert "(3 attempts)" not in reason()  # the first answer after a silence; it may pass, so from now on
        assert "(3 attempts)" in reason()
    assert "(3 attempts)" in reason()


def test_a_url_that_is_none_is_refused_at_once():
    for url in ("prom:9090", "ftp://prom", "bob:hunter2@prom:9090"):
        with pytest.raises(SourceError, match="not an http or https URL") as caught:
            PrometheusCollector("cluster", url)
        assert "hunter2" not in str(caught.value)


def limited_server(most_ms, status, body, closed_at=lambda first_s: first_s, **headers):
    """Answers like a server that allows `most_ms` a query: one sample each 100 s; also the list of what was asked."""
    asked = []

    def answer(handler, fields):
        range_ms = int(fields["query"].rpartition("[")[2].removesuffix("ms]"))
        asked.append(range_ms)
        end_s = float(fields["time"])
        if range_ms > most_ms:
            reply(handler, status, body, **headers)
            return
        first_s = end_s - range_ms / 1000
        inside = [s for s in range(0, 3600, 100) if first_s < START_S + s <= end_s or START_S + s == closed_at(first_s)]
        reply(handler, 200, matrix({"metric": GPU, "values": [[START_S + s, str(s)] for s in inside]}))

    return server(answer), asked


@pytest.mark.parametrize("is_left_open", [False, True], ids=["Prometheus 2", "Prometheus 3"])
def test_no_chunk_edge_loses_or_doubles_a_sample(is_left_open):
    closed_at = (lambda first_s: None) if is_left_open else (lambda first_s: first_s)
    running, asked = limited_server(100_000, 422, b"", closed_at)
    with running as url:
        rows, register = collected(url, families=ONE)
    assert [row[3:] for row in rows] == [(s * 1000.0, float(s)) for s in range(0, 3600, 100)]
    assert register.chunk_table()["duplicates"].to_pylist() == [0]
    assert min(asked) == 56_250


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (
            422,
            b'{"status":"error","error":"query processing would load too many samples into memory"}',
        ),
        (413, b"too large"),
        (503, b'{"status":"error","errorType":"timeout","error":"query timed out"}'),
        (200, b'{"status":"success","data":"' + b"x" * 20_000 + b'"}'),
    ],
    ids=["samples", "size", "timeout", "long body"],
)
def test_an_answer_over_a_limit_halves_the_chunk(status, body):
    running, asked = limited_server(900_000, status, body)
    with running as url:
        rows, _ = collected(url, families=ONE, limits=Limits(answer_bytes=10_000))
    assert [row[3:] for row in rows] == [(s * 1000.0, float(s)) for s in range(0, 3600, 100)]
    assert asked == [3_600_000, 1_800_000, 900_000, 900_000, 900_000, 900_000]


def test_small_answers_let_the_chunk_grow_to_a_day_at_most():
    running, asked = limited_server(10**12, 422, b"")
    with running as url:
        collected(url, Window(START, START + timedelta(days=4)), families=ONE)
    assert [range_ms // 3_600_000 for range_ms in asked] == [1, 2, 4, 8, 16, 24, 24, 17]


def test_a_gzip_bomb_costs_little_more_than_the_limit():
    bomb = gzip.compress(bytes(200_000_000))
    running, asked = limited_server(900_000, 200, bomb, Content_Encoding="gzip")
    with running as url:
        tracemalloc.start()
        rows, _ = collected(url, families=ONE, limits=Limits(answer_bytes=1_000_000))
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert len(rows) == 36
    assert asked[:3] == [3_600_000, 1_800_000, 900_000]
    assert peak_bytes < 40_000_000


def test_a_compressed_answer_is_read():
    with server(lambda handler, _: reply(handler, 200, gzip.compress(SAMPLE), Content_Encoding="gzip")) as url:
        assert collected(url, families=ONE)[0] == [ROW]


def test_a_limit_that_even_a_second_is_over_is_an_error():
    running, asked = limited_server(0, 422, b'{"status":"error","error":"too many series"}')
    with running as url, pytest.raises(SourceError, match="HTTP 422: too many series"):
        collected(url, families=ONE)
    assert asked[-1] == 1000
    assert len(asked) == 13


def test_a_server_that_takes_no_post_is_asked_by_get():
    methods = []

    def answer(handler, _):
        methods.append(handler.command)
        reply(handler, 405 if handler.command == "POST" else 200, SAMPLE)

    with server(answer) as url:
        assert collected(url, families=ONE)[0] == [ROW]
    assert methods == ["POST", "GET"]


def test_fields_and_headers_of_the_fleet_file_go_with_every_request():
    seen = []

    def answer(handler, fields):
        seen.append((handler.headers["X-Scope-OrgID"], fields["extra_label"], fields["query"]))
        reply(handler, 200, SAMPLE)

    with server(answer) as url:
        collected(f"{url}/?extra_label=a%3Db", families=ONE, headers={"X-Scope-OrgID": "team"}, matchers=['a="b"'])
    assert seen == [("team", "a=b", '{__name__="DCGM_FI_DEV_POWER_USAGE",a="b"}[3600000ms]')]


def test_a_server_that_hides_its_names_is_asked_for_every_family():
    def answer(handler):
        path, fields = fields_of(handler)
        known = path.endswith("/query") and POWER in fields["query"]
        reply(handler, 200 if path.endswith("/query") else 403, SAMPLE if known else matrix())

    with http_server(answer) as url:
        rows, register = collected(url)
    assert rows == [ROW]
    assert register.unknown_table().num_rows == 0


def test_a_server_that_has_queries_for_get_alone_is_asked_so():
    asked = []

    def answer(handler, fields):
        asked.append((handler.command, fields["query"].partition("[")[0]))
        if handler.command == "GET":
            reply(handler, 200, SAMPLE)
        else:
            reply(handler, 404, b"<html>Error 404 (Not Found)</html>", "text/html")

    with server(answer) as url:
        assert collected(url, families=ONE)[0] == [ROW]
    assert asked[:2] == [("POST", f'{{__name__="{POWER}"}}'), ("GET", f'{{__name__="{POWER}"}}')]
    assert {method for method, _ in asked[2:]} <= {"GET"}


def test_a_server_without_queries_is_refused_after_both():
    asked = []

    def refuse(handler, _):
        asked.append(handler.command)
        reply(handler, 404, b"404 page not found", "text/plain")

    assert failure(refuse).status == 404
    assert asked == ["POST", "GET"]
