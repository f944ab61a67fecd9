"""The one HTTP client: for Prometheus-compatible servers, `/metrics` pages and grid APIs.

Add here what concerns the connection: retries, limits on answers. Keep out what logs in (`credentials`) and what an
answer means: that is in `prometheus`, `exposition` and `grid_apis`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit

import urllib3
from urllib3.exceptions import HTTPError
from urllib3.util import make_headers

from collectors.limits import DEFAULTS, Limits
from collectors.protocols import http_errors
from collectors.protocols.answer_watch import AnswerWatch, Spent, watched_by
from collectors.protocols.connections import pool_of
from collectors.protocols.credentials import Credentials
from collectors.protocols.http_errors import (
    OPENING_BYTES,
    MayPassError,
    OverLimitError,
    broken_off,
    error_of,
    unreachable,
)
from collectors.protocols.proxies import proxy_of
from collectors.source_errors import SourceError, shown, url_without_secrets

CONNECT_SECONDS = 10.0
# The longest pause between two attempts, also where a server's Retry-After asks for more.
LONGEST_PAUSE_SECONDS = 30.0
# Lines are handed on in groups of about this size.
GROUP_BYTES = 4 << 20
JSON_KINDS = ("application/json", "")
_ERROR_TEXT_BYTES = 65536
_RETRIED = frozenset({429, 500, 502, 503, 504})
_OVER_LIMIT = frozenset({413, 422})
_FORM_HEADERS = {"content-type": "application/x-www-form-urlencoded"}
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class HttpClient:
    """A client of one server's root URL. It reads secrets from the named environment variables at its first request,
    and the token of `bearer_file` at each. Servers elsewhere are asked through the environment's proxy (`proxies`).

    `url` is the root, below which paths are asked for. Its user info serves as basic authentication and its query
    fields (VictoriaMetrics' `extra_filters[]`, a proxy's tenant) go with every request; neither is ever logged.
    `header_envs` maps a header, by which an API logs its users in, to the variable that holds its value.

    What may pass (connection errors, broken answers, 429, 5xx) is tried `attempts` times, `backoff_seconds` doubling
    between them; of a server that could not be reached in that time, once from then on until it answers. A time-out is
    not tried again, because the server may be overloaded. `limits` bounds each answer to its last byte, and all answers
    since `start_window`, without the time in which the consumer of a stream works. Redirects are followed only within
    the server, `redirects` times. Whatever fails is a SourceError.
    """

    def __init__(
        self,
        url: str,
        *,
        bearer_env: str | None = None,
        bearer_file: str | None = None,
        username_env: str | None = None,
        password_env: str | None = None,
        ca_file_env: str | None = None,
        cert_file_env: str | None = None,
        key_file_env: str | None = None,
        header_envs: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        limits: Limits = DEFAULTS,
        attempts: int = 5,
        backoff_seconds: float = 0.5,
        redirects: int = 0,
    ) -> None:
        self.url = url_without_secrets(url).rstrip("/")
        self.limits = limits
        self._parts = urlsplit(url)
        if self._parts.scheme not in ("http", "https") or not self._parts.hostname:
            raise SourceError(url, None, "not an http or https URL")
        self._fields = parse_qsl(self._parts.query, keep_blank_values=True)
        envs = {
            "bearer_env": bearer_env,
            "username_env": username_env,
            "password_env": password_env,
            "ca_file_env": ca_file_env,
            "cert_file_env": cert_file_env,
            "key_file_env": key_file_env,
        }
        self._credentials = Credentials(
            self.url, self._parts, self._fields, envs, header_envs or {}, bearer_file=bearer_file
        )
        self._headers = {"Accept": "application/json", **(headers or {})}
        self._retries = urllib3.Retry(attempts - 1, backoff_factor=backoff_seconds, allowed_methods=None)
        self._retries.backoff_max = LONGEST_PAUSE_SECONDS
        self._redirects = redirects
        self._method, self._is_away = "POST", False
        self._spent = Spent()
        self._pool: urllib3.HTTPConnectionPool | None = None

    def start_window(self) -> None:
        """Count the bytes and seconds of a window from here on."""
        self._spent = Spent()

    def ask(self, path: str, fields: Iterable[tuple[str, str]], *, method: str | None = None) -> bytes:
        """The body of a JSON answer to `path` below the root; fields are posted unless the server takes GET only."""
        body, _ = self.read(
            path, fields, method=method, kinds=JSON_KINDS, expected="JSON; a login page or another server?"
        )
        if body.lstrip()[:1] != b"{":
            raise SourceError(self.url + path, 200, "answered something that is not JSON; a login page?")
        return body

    def read(
        self,
        path: str,
        fields: Iterable[tuple[str, str]] = (),
        *,
        kinds: Collection[str],
        expected: str,
        method: str | None = None,
        limit_bytes: int | None = None,
    ) -> tuple[bytes, str]:
        """A whole body and its media type, which is one of `kinds`; a message calls those `expected`.

        A body over `limit_bytes` (the limit of an answer, where none is given) is an OverLimitError.
        """
        fields = list(fields)
        retries = self._retries.new(total=0) if self._is_away else self._retries
        while True:
            try:
                with self._answer(path, fields, method or self._method) as (response, watch):
                    kind = self._checked_kind(path, response, kinds, expected)
                    limit = self.limits.answer_bytes if limit_bytes is None else limit_bytes
                    return self._body(path, response, limit, watch), kind
            except MayPassError as failure:
                retries = self._next_attempt(retries, failure)

    def stream(
        self, path: str, fields: Iterable[tuple[str, str]], kind: str, key: Callable[[bytes], bytes]
    ) -> Iterator[list[bytes]]:
        """The lines of an answer of media type `kind`, some MiB at a time, each whole and without its end.

        A stream that breaks off is asked for again from its beginning: then the lines whose `key` came before are left
        out. A line over the limit of an answer is an OverLimitError.
        """
        fields = list(fields)
        came: set[bytes] = set()
        retries = self._retries.new(total=0) if self._is_away else self._retries
        while True:
            before = frozenset(came)
            try:
                for lines in self._lines(path, fields, kind):
                    fresh = [line for line in lines if key(line) not in before] if before else lines
                    came.update(map(key, fresh))
                    yield fresh
                return
            except MayPassError as failure:
                retries = self._next_attempt(retries, failure)

    def opening(self, answer: bytes) -> str:
        """How an answer begins, as a message may quote it: without what this side has sent as a secret."""
        return shown(self.masked(answer[:_ERROR_TEXT_BYTES].decode("utf-8", "replace")), OPENING_BYTES)

    def masked(self, text: str) -> str:
        """A text, which may repeat what the server sent, without what this side has sent as a secret."""
        return self._credentials.secrets.masked(text)

    def log_in(self, token: str) -> None:
        """Send this token, which the server itself has given, with what follows."""
        self._credentials.secrets.add(token)
        pool = self._opened()
        headers = urllib3.HTTPHeaderDict(pool.headers)
        headers["Authorization"] = f"Bearer {token}"
        pool.headers = headers

    def close(self) -> None:
        """Close the connections; the next request opens them again."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    # --- the connection -----------------------------------------------------------------------------------------------

    def _opened(self) -> urllib3.HTTPConnectionPool:
        if self._pool is None:
            self._pool = self._connect()
        return self._pool

    def _connect(self) -> urllib3.HTTPConnectionPool:
        # Compressing costs the server more than the loopback saves.
        encoding = "identity" if self._parts.hostname in _LOOPBACK else "gzip"
        made = make_headers(accept_encoding=encoding, user_agent="wattledger")
        headers = urllib3.HTTPHeaderDict(made | self._headers)
        headers.update(self._credentials.headers())
        timeout = urllib3.Timeout(
            connect=min(CONNECT_SECONDS, self.limits.answer_seconds), read=self.limits.answer_seconds
        )
        try:
            via = proxy_of(self._parts, self._credentials.secrets)
        except ValueError as error:
            raise SourceError(self.url, None, str(error)) from error
        return pool_of(self._parts, timeout, headers, self._credentials.tls(), via)

    # --- one attempt --------------------------------------------------------------------------------------------------

    @contextmanager
    def _answer(
        self, path: str, fields: list[tuple[str, str]], method: str
    ) -> Iterator[tuple[urllib3.BaseHTTPResponse, AnswerWatch]]:
        """A response of status 200, its body unread, and the watch that ends it; SourceError for any other outcome."""
        watch = AnswerWatch(self.limits, self._spent)
        watch.start()
        response = None
        try:
            response = self._followed(path, fields, method, watch)
            if response.status == 405 and method == "POST":
                self._method = "GET"
                response.close()
                response = self._followed(path, fields, "GET", watch)
            self._is_away = False
            if response.status != 200:
                raise self._refusal(path, response, watch)
            yield response, watch
        except (HTTPError, OSError, ValueError) as error:
            raise self._failure(path, response, error, watch) from error
        finally:
            # A whole answer has given its connection back already; a broken or refused one must not be used again.
            if response is not None:
                response.close()
            watch.close()

    def _followed(
        self, path: str, fields: list[tuple[str, str]], method: str, watch: AnswerWatch
    ) -> urllib3.BaseHTTPResponse:
        """The response behind the redirects within the server."""
        # Built by hand: a user's password must not travel in the request line or in urllib3's messages.
        root = f"{self._parts.scheme}://{self._parts.netloc.rpartition('@')[2]}"
        target = f"{root}{self._parts.path.rstrip('/')}{path}" if path else f"{root}{self._parts.path}"
        for followed in range(self._redirects + 1):
            response = self._send(target.removeprefix(root) or "/", fields, method, watch)
            if watch.is_over:  # its headers may end where the watch ended them
                response.close()
                raise SourceError(self.url + path, None, watch.reason(has_headers=False))
            there = response.get_redirect_location()
            # Its query is ours, which _send adds.
            target = urljoin(target, there).partition("?")[0] if there else target
            if not there or followed == self._redirects or not target.startswith(f"{root}/"):
                break
            response.close()
        return response

    def _send(
        self, target: str, fields: list[tuple[str, str]], method: str, watch: AnswerWatch
    ) -> urllib3.BaseHTTPResponse:
        pool = self._opened()
        form = urlencode([*self._fields, *fields])
        headers = urllib3.HTTPHeaderDict(pool.headers)
        bearer = self._credentials.bearer_of_file()
        if bearer is not None:
            headers["Authorization"] = f"Bearer {bearer}"
        with watched_by(watch):
            return pool.request(
                method,
                f"{target}?{form}" if method == "GET" and form else target,
                body=form if method == "POST" else None,
                headers=headers | _FORM_HEADERS if method == "POST" else headers,
                preload_content=False,
                redirect=False,
            )

    def _checked_kind(
        self, path: str, response: urllib3.BaseHTTPResponse, kinds: Collection[str], expected: str
    ) -> str:
        kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if kind not in kinds:
            text = self.masked(f"answered {kind or 'without a type'}, not {expected}")
            raise SourceError(self.url + path, response.status, text)
        return kind

    def _body(self, path: str, response: urllib3.BaseHTTPResponse, limit_bytes: int, watch: AnswerWatch) -> bytes:
        parts, size = [], 0
        for part in self._parts_of(path, response, watch):
            size += len(part)
            if size > limit_bytes:
                raise OverLimitError(self.url + path, response.status, f"the answer is over {limit_bytes} bytes")
            parts.append(part)
        return b"".join(parts)

    def _lines(self, path: str, fields: list[tuple[str, str]], kind: str) -> Iterator[list[bytes]]:
        """Groups of whole lines of one answer."""
        with self._answer(path, fields, self._method) as (response, watch):
            self._checked_kind(path, response, (kind,), kind)
            whole, unfinished, size, unfinished_size = list[bytes](), list[bytes](), 0, 0
            for part in self._parts_of(path, response, watch):
                end = part.rfind(b"\n") + 1
                if end:
                    whole += [*unfinished, part[:end]]
                    size += unfinished_size + end
                    unfinished, unfinished_size = [], 0
                unfinished.append(part[end:])
                unfinished_size += len(part) - end
                if unfinished_size > self.limits.answer_bytes:
                    reason = f"a line is over {self.limits.answer_bytes} bytes"
                    raise OverLimitError(self.url + path, response.status, reason)
                if size >= GROUP_BYTES:
                    watch.stop()
                    yield _split(whole)
                    watch.start()
                    whole, size = [], 0
            watch.stop()
            if unfinished_size:
                # A server also reports here what went wrong after its first line.
                rest = self.masked(b"".join(unfinished)[:_ERROR_TEXT_BYTES].decode("utf-8", "replace"))
                reason = f"the answer breaks off within a line: {rest[:OPENING_BYTES]}"
                raise MayPassError(self.url + path, response.status, reason)
            if whole:
                yield _split(whole)

    def _parts_of(self, path: str, response: urllib3.BaseHTTPResponse, watch: AnswerWatch) -> Iterator[bytes]:
        """The body as it arrives. Small parts of a compressed one: a gzip bomb costs what one part unpacks to."""
        size = 1 << 14 if response.headers.get("Content-Encoding") else 1 << 20
        # Not response.stream(): that waits until a part is full, however slowly it drips in.
        while part := response.read1(size, decode_content=True):
            watch.spent.bytes += len(part)
            if watch.spent.bytes > self.limits.window_bytes:
                reason = f"all answers are over {self.limits.window_bytes} bytes (limits.window_bytes)"
                raise SourceError(self.url + path, response.status, reason)
            if watch.is_over:
                break
            yield part
        if watch.is_over:  # the end may be of the watch's own making
            raise SourceError(self.url + path, response.status, watch.reason(has_headers=True))

    # --- what goes wrong ----------------------------------------------------------------------------------------------

    def _next_attempt(self, retries: urllib3.Retry, failure: MayPassError) -> urllib3.Retry:
        """Wait before the next attempt; SourceError after the last one."""
        try:
            retries = retries.increment(error=failure)
        except urllib3.exceptions.MaxRetryError:
            self._is_away = failure.status is None
            attempts = len(retries.history) + 1
            reason = f"{failure.reason} ({attempts} attempts)" if attempts > 1 else failure.reason
            raise SourceError(failure.url, failure.status, reason) from failure
        pause_seconds = min(failure.retry_after_seconds or retries.get_backoff_time(), LONGEST_PAUSE_SECONDS)
        time.sleep(pause_seconds)
        self._spent.seconds += pause_seconds
        return retries

    def _failure(
        self, path: str, response: urllib3.BaseHTTPResponse | None, error: Exception, watch: AnswerWatch
    ) -> SourceError:
        """Why there is no whole answer; equal failures give equal texts."""
        status = None if response is None else response.status
        if watch.is_over or isinstance(error, urllib3.exceptions.ReadTimeoutError):
            return SourceError(self.url + path, status, watch.reason(has_headers=response is not None))
        text = self.masked(broken_off(error) if response is not None else unreachable(error))
        kind = SourceError if isinstance(error, urllib3.exceptions.SSLError | ValueError) else MayPassError
        return kind(self.url + path, status, text)

    def _refusal(self, path: str, response: urllib3.BaseHTTPResponse, watch: AnswerWatch) -> SourceError:
        status = response.status
        if 300 <= status < 400:
            where = self.masked(url_without_secrets(response.headers.get("Location", "nowhere")))
            return SourceError(self.url + path, status, f"redirects to {where}; a login page?")
        try:
            text = self._body(path, response, _ERROR_TEXT_BYTES, watch)
        except OverLimitError:
            text = b""
        kind, reason = error_of(self.masked(text.decode("utf-8", "replace")))
        if status in _OVER_LIMIT or (status == 503 and kind == "timeout"):
            return OverLimitError(self.url + path, status, reason)
        if status in _RETRIED:
            failure = MayPassError(self.url + path, status, reason)
            failure.retry_after_seconds = http_errors.retry_after_seconds(response)
            return failure
        return SourceError(self.url + path, status, reason)


def _split(parts: list[bytes]) -> list[bytes]:
    return [line for line in b"".join(parts).split(b"\n") if line]
