"""What a client logs in with: secrets of the environment and of its URL, as headers and as TLS files.

Add here a way to log in. Keep out when a connection is opened (`http_client`), what TLS is (`connections`) and how a
secret is kept out of a text (`secret_texts`).
"""

from __future__ import annotations

import os
import ssl
from collections import deque
from collections.abc import Iterable, Mapping
from urllib.parse import SplitResult, unquote

import urllib3
from urllib3.util import make_headers

from collectors.protocols.connections import tls_context
from collectors.protocols.token_file import TokenFile
from collectors.secret_texts import FEWEST_CHARACTERS, Secrets
from collectors.source_errors import SourceError, shown_variable

# Tokens of a file that a server may still repeat: the newest, and the one before it.
KEPT_TOKENS = 2


class Credentials:
    """What logs in at one server. It is read from the named environment variables whenever a connection is made, and
    from `bearer_file` for each request; a variable that is not set, or no token there, is a SourceError of `url`.

    `secrets` is what a server may repeat in its answer and must not reach the audit; of the URL, what may be a token.
    """

    def __init__(
        self,
        url: str,
        parts: SplitResult,
        fields: Iterable[tuple[str, str]],
        envs: Mapping[str, str | None],
        header_envs: Mapping[str, str],
        *,
        bearer_file: str | None = None,
    ) -> None:
        self._url = url
        self._parts = parts
        self._header_envs = dict(header_envs)
        self._envs = {**envs, **{f"header {header}": name for header, name in header_envs.items()}}
        self._token_file = None if bearer_file is None else TokenFile(bearer_file)
        self._tokens: deque[str] = deque(maxlen=KEPT_TOKENS)
        self.secrets = Secrets()
        for _, text in fields:
            self.secrets.add(text if len(text) >= FEWEST_CHARACTERS else None)
        self.secrets.add(parts.password, user=parts.username)

    def headers(self) -> urllib3.HTTPHeaderDict:
        """The headers that log in: basic authentication, a bearer token in its place, and those of an API."""
        username, password = self._secret("username_env"), self._secret("password_env")
        if username is None and self._parts.username:
            username, password = unquote(self._parts.username), unquote(self._parts.password or "")
        self.secrets.add(password, user=username)
        # make_headers encodes as Latin-1: these are the bytes of UTF-8, which servers expect.
        basic = None if username is None else f"{username}:{password or ''}".encode().decode("latin-1")
        headers = urllib3.HTTPHeaderDict(make_headers(basic_auth=basic))
        bearer = self._secret("bearer_env")
        if bearer is not None:
            headers["Authorization"] = f"Bearer {bearer}"
        for header in self._header_envs:
            headers[header] = self._secret(f"header {header}") or ""
        return headers

    def bearer_of_file(self) -> str | None:
        """The token of the moment, for one request; None where it is in no file."""
        if self._token_file is None:
            return None
        try:
            token = self._token_file.token()
        except ValueError as error:
            raise SourceError(self._url, None, str(error)) from error
        if token not in self._tokens:
            if len(self._tokens) == KEPT_TOKENS:
                self.secrets.forget(self._tokens[0])
            self._tokens.append(token)
            self.secrets.add(token)
        return token

    def tls(self) -> ssl.SSLContext | None:
        """The certificates of an https URL; None of another one."""
        if self._parts.scheme != "https":
            return None
        try:
            return tls_context(*map(self._secret, ("ca_file_env", "cert_file_env", "key_file_env")))
        except OSError as error:
            raise SourceError(self._url, None, f"TLS files cannot be read: {error}") from error

    def _secret(self, key: str) -> str | None:
        name = self._envs[key]
        if name is None:
            return None
        value = os.environ.get(name, "").strip()
        if not value:
            raise SourceError(self._url, None, f"environment variable {shown_variable(name)} ({key}) is not set")
        if not key.endswith("_file_env"):
            self.secrets.add(value)
        return value
