"""The connection URI of a PostgreSQL, in both forms that libpq takes: how it is completed, shown, and kept from texts.

Add here what holds for any client of PostgreSQL. Keep out what is asked there.
"""

from __future__ import annotations

import re
from contextlib import suppress
from urllib.parse import parse_qsl, urlsplit

from collectors.samples import url_without_secrets
from collectors.secret_texts import Secrets

# libpq waits without limit for a host that does not answer, before and after it connected.
PARAMETERS = {"connect_timeout": "10", "keepalives_idle": "30", "tcp_user_timeout": "60000"}


def with_parameters(uri: str) -> str:
    """The connection URI, or its form with key=value, with PARAMETERS that it does not set itself."""
    if "://" in uri:
        query = urlsplit(uri).query
        given = {name for name, _ in parse_qsl(query, keep_blank_values=True)}
        added = "&".join(f"{name}={value}" for name, value in PARAMETERS.items() if name not in given)
        return f"{uri}{'&' if query else '' if uri.endswith('?') else '?'}{added}"
    added = " ".join(f"{name}={value}" for name, value in PARAMETERS.items() if f"{name}=" not in uri.replace(" ", ""))
    return f"{added} {uri}"


def shown(uri: str, variable: str) -> str:
    """Where the database is, as it may be logged; `variable` holds the URI."""
    return url_without_secrets(uri) if "://" in uri else f"the database of {variable}"


def secrets_of(uri: str) -> Secrets:
    """The URI as a whole, and the password in it."""
    secrets = Secrets()
    secrets.add(uri)
    for word in re.findall(r"password\s*=\s*('(?:[^'\\]|\\.)*'|[^\s&]+)", uri):
        secrets.add(word)
        secrets.add(word.strip("'"))
    with suppress(ValueError):
        parts = urlsplit(uri)
        secrets.add(parts.password, user=parts.username)
    return secrets
