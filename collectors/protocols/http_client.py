"""Asking a Prometheus-compatible server or another JSON API: secrets by environment name, patience, limits on answers.

Add here what concerns the connection (authentication, retries, sizes). Keep out what the answers mean: `prometheus`,
`grid_apis`.
"""

from __future__ import annotations

import base64
import os
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

import orjson
import urllib3

from collectors.cells import shown
from collectors.samples import SourceError, url_without_secrets

RETRY_AFTER_LIMIT_SECONDS = 30.0
# Lines are handed on in groups of about this size.
GROUP_BYTES = 4 << 20
# A server that drips bytes never runs into a socket's timeout: an answer, or a group of lines, has this many of them.
TIMEOUTS_PER_ANSWER = 4
OPENING_BYTES = 200
_ERROR_TEXT_BYTES = 65536
_RETRIED = frozenset({429, 500, 502, 503, 504})
_OVER_LIMIT = frozenset({413, 422})
_FORM = {"Content-Type": "application/x-www-form-urlencoded"}
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class OverLimitError(SourceError):
    """The answer is more than the server or this side will move at once: ask for less."""


class PrometheusServer:
    """One server's API root. Secrets are read from the named environment variables when the first request is made.

    `url` is the root (`/api/v1/…` is appended); its user info serves as basic authentication and its query fields
    (VictoriaMetrics' `extra_filters[]`, a proxy's tenant) go with every request; neither is ever logged. `header_envs`
    maps the header of an API's own way to log in to the variable that holds its value. An answer of
    more than `body_limit_bytes`, after decompression, is an OverLimitError. Whatever else fails is a SourceError, after
    `attempts` tries for what may pass (connection errors, 429, 5xx), `backoff_seconds` doubling between them. What
    drips in for longer than four times `timeout_seconds` fails.
    """

    def __init__(
        self,
        url: str,
        *,
        bearer_env: str | None = None,
        username_env: str | None = None,
        password_env: str | None = None,
        ca_file_env: str | None = None,
        cert_file_env: str | None = None,
        key_file_env: str | None = None,
        header_envs: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float = 120.0,
        attempts: int = 5,
        backoff_seconds: float = 0.5,
        body_limit_bytes: int = 64 << 20,
    ) -> None:
        self.url = url_without_secrets(url).rstrip("/")
        self._parts = urlsplit(url)
        if self._parts.scheme not in ("http", "https") or not self._parts.hostname:
            raise SourceError(url, None, "not an http or https URL")
        self._fields = parse_qsl(self._parts.query, keep_blank_values=True)
        self._envs = {
            "bearer_env": bearer_env,
            "username_env": username_env,
            "password_env": password_env,
            "ca_file_env": ca_file_env,
            "cert_file_env": cert_file_env,
            "key_file_env": key_file_env,
        }
        self._header_envs = dict(header_envs or {})
        self._envs |= {f"header {header}": name for header, name in self._header_envs.items()}
        self._headers = dict(headers or {})
        self._timeout = urllib3.Timeout(connect=10.0, read=timeout_seconds)
        self._patience_seconds = TIMEOUTS_PER_ANSWER * timeout_seconds
        self._attempts = attempts
        self._backoff_seconds = backoff_seconds
        self.body_limit_bytes = body_limit_bytes
        self._method = "POST"
        # What a server may repeat in its answer and nobody may read in an audit; of the URL, what may be a token.
        self._secrets = [text for _, text in self._fields if len(text) >= 4]
        self._secrets += filter(None, [self._parts.password])
        self._pool: urllib3.PoolManager | None = None

    def ask(self, path: str, fields: Iterable[tuple[str, str]], *, method: str | None = None) -> bytes:
        """The body of a JSON answer to `path` below the root; fields are posted unless the server takes GET only."""
        for attempt in range(1, self._attempts + 1):
            try:
                with self._answer(path, fields, method or self._method) as response:
                    return self._body(path, response)
            except _MayPassError as failure:
                self._wait(failure, attempt)
        raise AssertionError("unreachable")

    def stream(
        self, path: str, fields: Iterable[tuple[str, str]], kind: str, key: Callable[[bytes], bytes]
    ) -> Iterator[list[bytes]]:
        """The lines of an answer of media type `kind`, some MiB at a time, each whole and without its end.

        A stream that breaks off is asked for again from its beginning: then the lines whose `key` came before are left
        out. A line of more than `body_limit_bytes` is an OverLimitError.
        """
        came: set[bytes] = set()
        for attempt in range(1, self._attempts + 1):
            before = frozenset(came)
            try:
                for lines in self._lines(path, fields, kind):
                    fresh = [line for line in lines if key(line) not in before] if before else lines
                    came.update(map(key, fresh))
                    yield fresh
                return
            except _MayPassError as failure:
                self._wait(failure, attempt)

    def opening(self, answer: bytes) -> str:
        """How an answer begins, as a message may quote it: without what this side has sent as a secret."""
        return self._clean(shown(answer[:OPENING_BYTES].decode("utf-8", "replace"), OPENING_BYTES))

    def log_in(self, token: str) -> None:
        """Send this token, which the server itself has given, with what follows."""
        self._secrets.append(token)
        self._pool.headers["Authorization"] = f"Bearer {token}"

    def close(self) -> None:
        """Close the connections; the next request opens them again."""
        if self._pool is not None:
            self._pool.clear()
            self._pool = None

    def _connect(self) -> None:
        headers = {"Accept": "application/json", "User-Agent": "wattledger", **self._headers}
        # Compressing costs the server more than the loopback saves.
        headers["Accept-Encoding"] = "identity" if self._parts.hostname in _LOOPBACK else "gzip"
        username, password = self._secret("username_env"), self._secret("password_env")
        if username is None and self._parts.username:
            username, password = unquote(self._parts.username), unquote(self._parts.password or "")
            self._secrets.append(password)
        if username is not None:
            basic = base64.b64encode(f"{username}:{password or ''}".encode()).decode()
            headers["Authorization"] = f"Basic {basic}"
            self._secrets.append(basic)
        bearer = self._secret("bearer_env")
        if bearer is not None:
            headers["Authorization"] = f"Bearer {bearer}"
        headers |= {header: self._secret(f"header {header}") for header in self._header_envs}
        self._pool = urllib3.PoolManager(
            num_pools=1, maxsize=1, headers=headers, timeout=self._timeout, retries=False, ssl_context=self._tls()
        )

    def _tls(self) -> ssl.SSLContext | None:
        if self._parts.scheme != "https":
            return None
        try:
            tls = ssl.create_default_context(cafile=self._secret("ca_file_env"))
            cert_file = self._secret("cert_file_env")
            if cert_file is not None:
                tls.load_cert_chain(cert_file, self._secret("key_file_env"))
        except OSError as error:
            raise SourceError(self.url, None, f"TLS files cannot be read: {error}") from error
        return tls

    def _secret(self, key: str) -> str | None:
        name = self._envs[key]
        if name is None:
            return None
        value = os.environ.get(name, "").strip()
        if not value:
            raise SourceError(self.url, None, f"environment variable {name} ({key}) is not set")
        if not key.endswith("_file_env"):
            self._secrets.append(value)
        return value

    def _wait(self, failure: _MayPassError, attempt: int) -> None:
        """Wait before the next attempt; SourceError after the last one."""
        if attempt == self._attempts:
            raise SourceError(failure.url, failure.status, f"{failure.reason} ({attempt} attempts)") from failure
        delay = self._backoff_seconds * 2 ** (attempt - 1)
        time.sleep(min(failure.retry_after_seconds or delay, RETRY_AFTER_LIMIT_SECONDS))

    @contextmanager
    def _answer(self, path: str, fields: Iterable[tuple[str, str]], method: str) -> Iterator[urllib3.BaseHTTPResponse]:
        """A response of status 200, its body unread; SourceError for any other, and when it breaks off."""
        if self._pool is None:
            self._connect()
        # Built by hand: a user's password must not travel in the request line or in urllib3's messages.
        target = f"{self._parts.scheme}://{self._parts.netloc.rpartition('@')[2]}{self._parts.path.rstrip('/')}{path}"
        form = urlencode([*self._fields, *fields])
        try:
            response = self._pool.request(
                method,
                f"{target}?{form}" if method == "GET" and form else target,
                body=form if method == "POST" else None,
                headers={**self._pool.headers, **(_FORM if method == "POST" else {})},
                preload_content=False,
                redirect=False,
            )
        except urllib3.exceptions.SSLError as error:
            raise SourceError(self.url + path, None, self._clean(f"TLS failed: {error}")) from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise _MayPassError(self.url + path, None, self._clean(f"cannot be reached: {error}")) from error
        try:
            if response.status == 405 and method == "POST":
                response.drain_conn()
                self._method = "GET"
                with self._answer(path, fields, "GET") as again:
                    yield again
            elif response.status == 200:
                yield response
            else:
                raise self._refusal(path, response)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            reason = self._clean(f"the answer broke off: {error}")
            raise _MayPassError(self.url + path, response.status, reason) from error
        finally:
            # A whole answer has given its connection back already; a broken or refused one must not be used again.
            response.close()

    def _body(self, path: str, response: urllib3.BaseHTTPResponse) -> bytes:
        kind = _kind(response)
        if kind not in ("application/json", ""):
            text = self._clean(f"answered {kind}, not JSON; a login page or another server?")
            raise SourceError(self.url + path, response.status, text)
        body = self._read(path, response, self.body_limit_bytes)
        if body.lstrip()[:1] != b"{":
            raise SourceError(self.url + path, response.status, "answered something that is not JSON; a login page?")
        return body

    def _read(self, path: str, response: urllib3.BaseHTTPResponse, limit_bytes: int) -> bytes:
        bites, size = [], 0
        deadline_seconds = time.monotonic() + self._patience_seconds
        for bite in _bites(response):
            size += len(bite)
            if size > limit_bytes:
                raise OverLimitError(self.url + path, response.status, f"the answer is over {limit_bytes} bytes")
            self._check_patience(path, response, deadline_seconds)
            bites.append(bite)
        return b"".join(bites)

    def _lines(self, path: str, fields: Iterable[tuple[str, str]], kind: str) -> Iterator[list[bytes]]:
        """Groups of whole lines of one answer."""
        with self._answer(path, fields, self._method) as response:
            if _kind(response) != kind:
                reason = self._clean(f"answered {_kind(response) or 'without a type'}, not {kind}")
                raise SourceError(self.url + path, response.status, reason)
            whole, begun, size, begun_size = [], [], 0, 0
            deadline_seconds = time.monotonic() + self._patience_seconds
            for bite in _bites(response):
                end = bite.rfind(b"\n") + 1
                if end:
                    whole += [*begun, bite[:end]]
                    size += begun_size + end
                    begun, begun_size = [], 0
                begun.append(bite[end:])
                begun_size += len(bite) - end
                if begun_size > self.body_limit_bytes:
                    reason = f"a line is over {self.body_limit_bytes} bytes"
                    raise OverLimitError(self.url + path, response.status, reason)
                self._check_patience(path, response, deadline_seconds)
                if size >= GROUP_BYTES:
                    yield _split(whole)
                    whole, size = [], 0
                    deadline_seconds = time.monotonic() + self._patience_seconds
            if begun_size:
                # Also how a server tells of what went wrong after its first line.
                told = b"".join(begun)[:200].decode("utf-8", "replace")
                raise _MayPassError(
                    self.url + path, response.status, self._clean(f"the answer breaks off within a line: {told}")
                )
            if whole:
                yield _split(whole)

    def _check_patience(self, path: str, response: urllib3.BaseHTTPResponse, deadline_seconds: float) -> None:
        if time.monotonic() > deadline_seconds:
            reason = f"the answer took longer than {self._patience_seconds:g} s"
            raise SourceError(self.url + path, response.status, reason)

    def _refusal(self, path: str, response: urllib3.BaseHTTPResponse) -> SourceError:
        status = response.status
        if 300 <= status < 400:
            where = url_without_secrets(response.headers.get("Location", "nowhere"))
            return SourceError(self.url + path, status, f"redirects to {where}; a login page?")
        try:
            text = self._read(path, response, _ERROR_TEXT_BYTES)
        except OverLimitError:
            text = b""
        kind, reason = _error_of(text)
        reason = self._clean(reason)
        if status in _OVER_LIMIT or (status == 503 and kind == "timeout"):
            return OverLimitError(self.url + path, status, reason)
        if status in _RETRIED:
            failure = _MayPassError(self.url + path, status, reason)
            failure.retry_after_seconds = _retry_after_seconds(response.headers.get("Retry-After"))
            return failure
        return SourceError(self.url + path, status, reason)

    def _clean(self, text: str) -> str:
        for secret in filter(None, self._secrets):
            text = text.replace(secret, "***")
        return text


class _MayPassError(SourceError):
    """A failure that another attempt may not meet."""

    retry_after_seconds: float | None = None


def _kind(response: urllib3.BaseHTTPResponse) -> str:
    return response.headers.get("Content-Type", "").partition(";")[0].strip().lower()


def _bites(response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    """The body as it arrives. Small bites of a compressed one: what one unpacks to is what a gzip bomb can cost."""
    size = 1 << 14 if response.headers.get("Content-Encoding") else 1 << 20
    # Not stream(): that waits until a bite is full, however slowly it drips in.
    while bite := response.read1(size, decode_content=True):
        yield bite


def _split(parts: list[bytes]) -> list[bytes]:
    return [line for line in b"".join(parts).split(b"\n") if line]


def _error_of(body: bytes) -> tuple[str, str]:
    """(errorType, error) as the API tells them, or the beginning of whatever else came."""
    try:
        answer = orjson.loads(body)
        return str(answer.get("errorType", "")), str(answer["error"])[:500]
    except (orjson.JSONDecodeError, AttributeError, KeyError):
        text = " ".join(body[:200].decode("utf-8", "replace").split())
        return "", f"refused: {text}" if text else "refused"


def _retry_after_seconds(value: str | None) -> float | None:
    if value is None:
        return None
    if value.strip().isdigit():
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None
