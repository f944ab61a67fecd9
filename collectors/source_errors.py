"""The error of a source that cannot be read, and how a message shows the texts of others.

Add here what a message must not repeat or not show as it is. Keep out secrets that this side sends (`secret_texts`),
and anything that needs arrays: the agent, which has neither NumPy nor pyarrow, reads this module.
"""

from __future__ import annotations

import re
import reprlib
from urllib.parse import urlsplit, urlunsplit

# PROM_TOKEN, HOME and PROM_2 are names; AKIAIOSFODNN7EXAMPLE, an access key, is none.
_USUAL_VARIABLE = re.compile(r"(?=.{1,40}$)[A-Z]+(_[A-Z0-9]+)*")
_SHOWN_CHARACTERS = 60
_REPR = reprlib.Repr()
_REPR.maxstring = _SHOWN_CHARACTERS


def url_without_secrets(url: str) -> str:
    """The URL for logs: without user info, query and fragment, which may contain passwords and tokens."""
    if url.startswith(("/", ".")):
        return url  # a file's path, in which these characters mean nothing
    try:
        parts = urlsplit(url)
        if not parts.netloc:
            return urlunsplit((parts.scheme, "", parts.path.rpartition("@")[2], "", ""))
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
    except ValueError:
        return "<unreadable url>"


def printable(text: str) -> str:
    """Text of a server or a file as a terminal may show it: what is not printable becomes an escape such as \\x1b.

    A control character could move the cursor, recolour or rewrite what a person reads.
    """
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape", "backslashreplace").decode("ascii") for one in text
    )


def shown_variable(name: str) -> str:
    """The name of an environment variable as a message may show it, or a placeholder, as it may be a secret.

    Only what is spelled as variables usually are is shown: capitals, with underscores between them.
    """
    return name if _USUAL_VARIABLE.fullmatch(name) else "(its name is not shown, it may be a secret)"


class SourceError(Exception):
    """A source that is unreachable, refuses, or sends an invalid answer.

    `url` carries no secret, `status` is the HTTP status if there was one, `reason` is for whoever reads the audit. Both
    texts are printable, whatever the source wrote into them.
    """

    def __init__(self, url: str, status: int | None, reason: str) -> None:
        self.url = printable(url_without_secrets(url))
        self.status = status
        self.reason = reason = printable(reason)
        super().__init__(f"{self.url}: {reason}" if status is None else f"{self.url}: HTTP {status}: {reason}")


def shown(value: object, characters: int = _SHOWN_CHARACTERS) -> str:
    """A cell, or a longer text, as a message quotes it."""
    if value is None:
        return "an empty cell"
    if isinstance(value, str):
        text = repr(value[: characters + 1])
    else:
        # Lists and objects may be as deep and as long as a file is.
        text = printable(_REPR.repr(value) if isinstance(value, list | dict) else str(value))
    return text if len(text) <= characters else f"{text[:characters]}…"
