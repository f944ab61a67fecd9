"""Who asked, as it may be stored: names of tenants and teams; of users at most a keyed digest.

Add here what of a log may name a person. Keep out the columns of requests (`request_records`), and the random key that
is a tenant in the book (`pipelines.warehouse.tenants.tenant_names`).
"""

from __future__ import annotations

import hashlib
import hmac
import os
from dataclasses import dataclass

from collectors.personal_labels import is_personal

USER = "user-"
_HEX_DIGITS = 32


@dataclass(frozen=True)
class Askers:
    """What is kept of who asked. `key_env` names the environment variable with the key of users' digests; without it
    the ids of users are dropped."""

    key_env: str | None = None

    def tenant(self, name: str | None, user: str | None = None, otherwise: str | None = None) -> str | None:
        """The tenant of a request: the name that the log gives it, else its user, if users are kept, else
        `otherwise`. A name that is an e-mail or network address is a user's."""
        if name is not None and not _is_personal(name):
            return name
        user = name or user
        if user is not None and self.key_env is not None:
            key = os.environ[self.key_env].encode()
            digest = hmac.new(key, user.encode("utf-8", "surrogatepass"), hashlib.sha256)
            return USER + digest.hexdigest()[:_HEX_DIGITS]
        return team(otherwise)


NO_USERS = Askers()


def team(name: str | None) -> str | None:
    """The team of a request; None for an e-mail or network address."""
    return None if name is None or _is_personal(name) else name


def _is_personal(name: str) -> bool:
    """Also of an address with a port."""
    return is_personal(name) or is_personal(name.rpartition(":")[0])
