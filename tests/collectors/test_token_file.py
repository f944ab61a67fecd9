"""A bearer token in a file is read for each request, and a file that has none is one clear line."""

from __future__ import annotations

import logging
from pathlib import Path

import orjson
import pytest

from collectors.protocols.exposition import ExpositionPage
from collectors.protocols.http_client import HttpClient
from collectors.protocols.token_file import TokenFile
from collectors.samples import SourceError
from tests.servers import http_server, reply

# As Kubernetes has them, which are JSON Web Tokens.
FIRST, SECOND = "eyJhbGciOiJSUzI1NiJ9.eyJleHAiOjF9.c2ln", "eyJhbGciOiJSUzI1NiJ9.eyJleHAiOjJ9.c2ln"


def token_in(folder: Path, text: str = FIRST) -> Path:
    file = folder / "token"
    file.write_text(text, encoding="utf-8")
    file.chmod(0o600)
    return file


def test_each_request_has_the_token_of_the_moment(tmp_path: Path) -> None:
    file, seen = token_in(tmp_path), []

    def answer(handler) -> None:
        seen.append(handler.headers["Authorization"])
        reply(handler, 200, b"{}")

    with http_server(answer) as url:
        client = HttpClient(url, bearer_file=str(file))
        client.ask("/one", [])
        file.write_text(SECOND)
        client.ask("/two", [])
        client.ask("/three", [], method="GET")
    assert seen == [f"Bearer {FIRST}", f"Bearer {SECOND}", f"Bearer {SECOND}"]


def test_a_token_that_kubernetes_replaces_is_followed_through_its_links(tmp_path: Path) -> None:
    for number, token in ((1, FIRST), (2, SECOND)):
        (tmp_path / f"..{number}").mkdir()
        (tmp_path / f"..{number}" / "token").write_text(token)
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "token").symlink_to("..data/token")
    file = TokenFile(str(tmp_path / "token"))
    assert file.token() == FIRST
    (tmp_path / "..data").unlink()
    (tmp_path / "..data").symlink_to("..2")
    assert file.token() == SECOND


@pytest.mark.parametrize("text", [FIRST, f"{FIRST}\n", f"{FIRST}\r\n", f"  {FIRST}\n\n"])
def test_the_end_of_a_line_is_no_part_of_the_token(tmp_path: Path, text: str) -> None:
    assert TokenFile(str(token_in(tmp_path, text))).token() == FIRST


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is empty, expected a token"),
        (" \n", "is empty, expected a token"),
        (f"{FIRST}\n{SECOND}\n", "has more than one line, expected the token alone"),
        ("Bearer abc", "has characters that no token has: expected ASCII without spaces"),
        ("tökén", "has characters that no token has: expected ASCII without spaces"),
        ("a\x00b", "has characters that no token has: expected ASCII without spaces"),
        ("a" * 65_537, "has over 65,536 bytes, expected a token"),
    ],
)
def test_what_is_no_token_is_refused_before_anything_is_sent(tmp_path: Path, text: str, reason: str) -> None:
    file = token_in(tmp_path, text)
    # Nothing listens there: the refusal is of the file.
    with pytest.raises(SourceError) as refused:
        HttpClient("http://127.0.0.1:1", bearer_file=str(file)).ask("/api/v1/query", [])
    assert str(refused.value) == f"http://127.0.0.1:1: bearer_file {file} {reason}"


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path, reason in (
        (tmp_path / "none", "cannot be read: No such file or directory"),
        (tmp_path, "is no file"),
        (tmp_path / ("x" * 300), "cannot be read: File name too long"),
    ):
        with pytest.raises(ValueError) as refused:
            TokenFile(str(path)).token()
        assert str(refused.value) == f"bearer_file {path} {reason}"


def test_a_file_of_which_others_can_read_is_a_warning_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = token_in(tmp_path)
    path.chmod(0o640)
    with caplog.at_level(logging.WARNING):
        assert [TokenFile(str(path)).token() for _ in range(2)] == [FIRST, FIRST]
    assert [record.getMessage() for record in caplog.records] == [
        f"bearer_file {path} can be read by other users (mode 640): chmod 600 it"
    ]


@pytest.mark.parametrize("is_volume", [False, True])
def test_no_warning_where_there_are_no_other_readers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_volume: bool
) -> None:
    path = token_in(tmp_path)
    if is_volume:
        # What Kubernetes mounts has mode 644, in a container of its own.
        path.chmod(0o644)
        (tmp_path / "..data").mkdir()
    assert TokenFile(str(path)).token() == FIRST
    assert caplog.records == []


def test_no_message_repeats_a_token_of_the_file(tmp_path: Path) -> None:
    file, seen = token_in(tmp_path), []

    def refuse(handler) -> None:
        seen.append(handler.headers["Authorization"].removeprefix("Bearer "))
        reply(handler, 401, f"neither {FIRST} nor {seen[-1]} is known".encode(), "text/plain")

    with http_server(refuse) as url:
        client = HttpClient(url, bearer_file=str(file))
        for token in (FIRST, SECOND):
            file.write_text(token)
            with pytest.raises(SourceError) as refused:
                client.ask("/", [])
            assert refused.value.reason == "refused: neither *** nor *** is known"


def test_a_page_takes_it_too(tmp_path: Path) -> None:
    seen = []

    def answer(handler) -> None:
        seen.append(handler.headers["Authorization"])
        reply(handler, 200, b"up 1\n", "text/plain")

    with http_server(answer) as url:
        page = ExpositionPage(f"{url}/metrics", bearer_file=str(token_in(tmp_path)))
        assert [reading.value for reading in page.look()] == [1.0]
    assert seen == [f"Bearer {FIRST}"]


def test_tokens_of_the_past_are_not_kept(tmp_path: Path) -> None:
    file = token_in(tmp_path)
    with http_server(lambda handler: reply(handler, 200, orjson.dumps({}))) as url:
        client = HttpClient(url, bearer_file=str(file))
        for number in range(50):
            file.write_text(f"token-number-{number}")
            client.ask("/", [])
    # A server may still repeat the one before; older ones are no secrets any more.
    assert client.masked("token-number-49 token-number-48") == "*** ***"
    assert client.masked("token-number-07") == "token-number-07"
