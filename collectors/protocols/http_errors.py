"""Why a server's answer cannot be used, in one sentence that is the same for equal failures.

Add here what urllib3 or a server may report of a failure. Keep out when an attempt is repeated: see `http_client`.
"""

from __future__ import annotations

import re

import orjson
import urllib3

from collectors.source_errors import SourceError

OPENING_BYTES = 200
_BROKE_OFF = "the answer broke off"
# How OpenSSL calls the opening of an answer that is plain HTTP.
_NO_TLS = re.compile("WRONG_VERSION_NUMBER|RECORD_LAYER_FAILURE|PACKET_LENGTH_TOO_LONG|UNKNOWN_PROTOCOL")


class OverLimitError(SourceError):
    """The answer is more than the server or this side moves at once: ask for less."""


class MayPassError(SourceError):
    """A failure that may be over at the next attempt."""

    retry_after_seconds: float | None = None


def error_of(body: str) -> tuple[str, str]:
    """(errorType, error) as the API writes them, or the beginning of whatever else came."""
    try:
        answer = orjson.loads(body)
        return str(answer.get("errorType", "")), str(answer["error"])[:500]
    except (orjson.JSONDecodeError, AttributeError, KeyError):
        text = " ".join(body[:OPENING_BYTES].split())
        return "", f"refused: {text}" if text else "refused"


def retry_after_seconds(response: urllib3.BaseHTTPResponse) -> float | None:
    """How long the server asks to wait; None where it does not, or writes no time."""
    try:
        return urllib3.Retry().get_retry_after(response)
    except (urllib3.exceptions.HTTPError, ValueError, OverflowError):
        return None


def unreachable(error: Exception) -> str:
    """Why there is no answer at all."""
    return f"cannot be reached: {plain_reason(error)}"


def broken_off(error: Exception) -> str:
    """Why an answer that began did not end."""
    reason = plain_reason(error)
    return reason if reason.startswith(_BROKE_OFF) else f"{_BROKE_OFF}: {reason}"


def plain_reason(error: Exception) -> str:
    """The reason without the addresses of objects that urllib3 puts into its own; of a proxy, with its URL."""
    if isinstance(error, urllib3.exceptions.ProxyError):
        return f"{error.args[0]}: {_reason(error.original_error)}"
    return _reason(error)


def _reason(error: Exception) -> str:
    if isinstance(error, urllib3.exceptions.NameResolutionError):
        return "the host name cannot be resolved"
    if isinstance(error, urllib3.exceptions.NewConnectionError):
        return str(error).rpartition(": ")[2]
    if isinstance(error, urllib3.exceptions.ConnectTimeoutError):
        return "no connection within the time limit"
    if isinstance(error, urllib3.exceptions.ProtocolError):
        return _BROKE_OFF
    if isinstance(error, urllib3.exceptions.SSLError):
        no_tls = "it does not answer in TLS at this port, expected http:// instead of https://, or another port"
        return no_tls if _NO_TLS.search(str(error)) else f"TLS failed: {error.args[0] if error.args else error}"
    return str(error)
