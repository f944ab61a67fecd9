"""The proxy between this host and a server, as `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY` of the environment have it.

Add here which proxy a URL goes through. Keep out how a connection through one is made (`connections`).
"""

from __future__ import annotations

import ipaddress
from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined]

from urllib3.util import make_headers

from collectors.secret_texts import Secrets
from collectors.source_errors import printable, url_without_secrets

DEFAULT_PORT = 80


class Proxy(NamedTuple):
    """A proxy: its URL as it may be logged, where it listens, and the headers that log in at it."""

    url: str
    host: str
    port: int
    headers: dict[str, str]


def proxy_of(parts: SplitResult, secrets: Secrets) -> Proxy | None:
    """The proxy for a server's URL, None where it is asked directly. `secrets` learns the proxy's password.

    This host itself is always asked directly. ValueError where the variable's value is no proxy.
    """
    proxies = getproxies_environment()
    stated = proxies.get(parts.scheme)
    if not stated or _is_excepted(parts, proxies):
        return None
    stated = stated if "://" in stated else f"http://{stated}"
    try:
        proxy = urlsplit(stated)
        port = proxy.port or DEFAULT_PORT
    except ValueError:
        proxy, port = urlsplit(""), 0
    if proxy.scheme != "http" or not proxy.hostname:
        what = f"{parts.scheme.upper()}_PROXY is {printable(url_without_secrets(stated))}"
        raise ValueError(f"{what}: expected http://host:port, a proxy that is spoken to without TLS")
    headers: dict[str, str] = {}
    if proxy.username is not None:
        user, password = unquote(proxy.username), unquote(proxy.password or "")
        secrets.add(password, user=user)
        headers = dict(make_headers(proxy_basic_auth=f"{user}:{password}".encode().decode("latin-1")))
    host = f"[{proxy.hostname}]" if ":" in proxy.hostname else proxy.hostname
    return Proxy(f"http://{host}:{port}", proxy.hostname, port, headers)


def _is_excepted(parts: SplitResult, proxies: dict[str, str]) -> bool:
    """Whether `NO_PROXY` names this host (a name, the end of names, `*`, or a network of addresses), or it is here."""
    host = str(parts.hostname)
    if proxy_bypass_environment(parts.netloc.rpartition("@")[2], proxies):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    return address.is_loopback or any(address in network for network in _networks(proxies.get("no", "")))


def _networks(excepted: str) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    found = []
    for entry in excepted.split(","):
        if "/" in entry:
            try:
                found.append(ipaddress.ip_network(entry.strip(), strict=False))
            except ValueError:
                continue  # as of a name that is none
    return found
