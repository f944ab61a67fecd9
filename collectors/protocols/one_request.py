"""One request that must be over soon: a message to a receiver, not a question to a source.

Its name, connection, TLS and answer are watched as those of `http_client` are, and it goes through the same proxies.
Nothing is tried again and no redirect is followed. Add here what every such request needs. Keep out what is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import urlsplit

import urllib3
from urllib3.exceptions import HTTPError
from urllib3.util import make_headers

from collectors.limits import DEFAULTS
from collectors.protocols.answer_watch import AnswerWatch, Spent, watched_by
from collectors.protocols.connections import pool_of
from collectors.protocols.credentials import Credentials
from collectors.protocols.http_errors import error_of, unreachable
from collectors.protocols.proxies import proxy_of
from collectors.source_errors import SourceError, url_without_secrets

LOGINS = ("bearer_env", "username_env", "password_env", "ca_file_env", "cert_file_env", "key_file_env")
# Of an answer only its status counts; of a refusal, the beginning.
_ANSWER_BYTES = 4096


def send(
    method: str,
    url: str,
    body: bytes | None,
    seconds: float,
    *,
    is_secret: bool = False,
    logins: Mapping[str, str | None] | None = None,
) -> None:
    """Send JSON, or nothing, to a URL; SourceError unless it is answered with 2xx within `seconds`.

    `logins` names the environment variables of a login and of TLS files. With `is_secret` the URL itself is one, as a
    chat's webhook is: messages have its host alone.
    """
    parts = urlsplit(url)
    shown = f"{parts.scheme}://{parts.hostname}" if is_secret else url_without_secrets(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SourceError("" if is_secret else shown, None, "not an http or https URL")
    credentials = Credentials(shown, parts, [], {name: (logins or {}).get(name) for name in LOGINS}, {})
    if is_secret:
        credentials.secrets.add(url)
        credentials.secrets.add(parts.path.strip("/"))
        credentials.secrets.add(parts.query)
    headers = urllib3.HTTPHeaderDict(make_headers(user_agent="wattledger"))
    headers.update(credentials.headers())
    if body is not None:
        headers["Content-Type"] = "application/json"
    watch = AnswerWatch(replace(DEFAULTS, answer_seconds=seconds, window_seconds=seconds), Spent())
    watch.start()
    response, pool = None, None
    try:
        via = proxy_of(parts, credentials.secrets)
        pool = pool_of(parts, urllib3.Timeout(seconds), headers, credentials.tls(), via)
        with watched_by(watch):
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            response = pool.request(method, target, body=body, preload_content=False, redirect=False)
            opening = response.read(_ANSWER_BYTES, decode_content=True)
        if response.status // 100 != 2:
            _, reason = error_of(credentials.secrets.masked(opening.decode("utf-8", "replace")))
            raise SourceError(shown, response.status, reason)
        if watch.is_over:
            raise SourceError(shown, None, f"no answer within {seconds:g} s")
    except (HTTPError, OSError, ValueError) as error:
        if watch.is_over or isinstance(error, urllib3.exceptions.ReadTimeoutError):
            raise SourceError(shown, None, f"no answer within {seconds:g} s") from error
        raise SourceError(shown, None, credentials.secrets.masked(unreachable(error))) from error
    finally:
        if response is not None:
            response.close()
        if pool is not None:
            pool.close()
        watch.close()
