"""Secrets in texts of others: what a server repeats of a password or a token is masked, however it spells it.

Add here a spelling in which a text may hold a secret. Keep out which texts are secrets (whoever sends them knows) and
URLs as a whole (`samples.url_without_secrets`).
"""

from __future__ import annotations

import base64
import re
from functools import cache
from html.entities import html5
from urllib.parse import unquote

MASK = "***"
# A shorter text is in half of all words: it is masked only where it is a value.
FEWEST_CHARACTERS = 4
# A piece of base64 that is shorter may be anything.
_FEWEST_BASE64 = 4

_NAMES: dict[str, list[str]] = {}
for _name, _value in html5.items():
    _NAMES.setdefault(_value, []).append(_name.rstrip(";"))


class Secrets:
    """The secrets of one server or store, and the texts of others without them."""

    def __init__(self) -> None:
        self._texts: set[str] = set()
        self._pattern: re.Pattern[str] | None = None

    def add(self, text: str | None, *, user: str | None = None) -> None:
        """Keep a secret: as it is, and without its percent-encoding. With `user`, as the password of that user, also
        the two together, as a URL and basic authentication write them."""
        if text:
            self._texts |= {text, unquote(text)}
            if user:
                self._texts |= {f"{user}:{text}", f"{unquote(user)}:{unquote(text)}"}
            self._pattern = None

    def forget(self, text: str) -> None:
        """Keep a secret no more that was added alone: a server does not repeat what has been replaced long ago."""
        self._texts -= {text, unquote(text)}
        self._pattern = None

    def masked(self, text: str) -> str:
        """The text with *** for each secret: literal, percent-encoded, as JSON or HTML escape it, or in base64."""
        if not self._texts:
            return text
        if self._pattern is None:
            # The longest first, as one may be a part of another.
            ordered = sorted(self._texts, key=len, reverse=True)
            self._pattern = re.compile("|".join([*map(_spelled, ordered), *filter(None, map(_in_base64, ordered))]))
        return self._pattern.sub(MASK, text)


def _spelled(secret: str) -> str:
    """A pattern of a secret in which each character may be escaped or not."""
    pattern = "".join(map(_character, secret))
    if len(secret) >= FEWEST_CHARACTERS:
        return pattern
    return rf"(?:(?<=[:='\"])|(?<=%3[aAdD])){pattern}(?![\w.-])"


@cache
def _character(one: str) -> str:
    percent = "".join(f"%(?:25)*{_hex(f'{byte:02x}')}" for byte in one.encode("utf-8", "surrogatepass"))
    units = one.encode("utf-16-be", "surrogatepass").hex()
    escaped = "".join(rf"\\+u{_hex(units[start : start + 4])}" for start in range(0, len(units), 4))
    names = "|".join([*map(re.escape, _NAMES.get(one, [])), f"#0*{ord(one)}", f"#[xX]0*{_hex(f'{ord(one):x}')}"])
    spellings = [percent, escaped, f"&(?:amp;)*(?:{names});?"]
    if one == " ":
        spellings.append(r"\+")
    # As JSON and Python write it: \/ and \" and, of a backslash, as many as they like.
    literal = r"\\+" if one == "\\" else rf"\\*{re.escape(one)}" if one in "/\"'" else re.escape(one)
    controls = {"\n": r"\\+n", "\t": r"\\+t", "\r": r"\\+r"}
    return f"(?:{'|'.join([*spellings, *filter(None, [controls.get(one)]), literal])})"


def _hex(digits: str) -> str:
    return "".join(f"[{one}{one.upper()}]" if one.isalpha() else one for one in digits)


def _in_base64(secret: str) -> str | None:
    """A pattern of what base64, of either alphabet, makes of a secret, at each of the three places within a group."""
    payload = secret.encode("utf-8", "surrogatepass")
    found = set()
    for before in range(3):
        text = base64.b64encode(bytes(before) + payload + bytes(2)).decode()
        # Characters that hold bits of the secret alone; the ones beside them hold some of its neighbours.
        start, stop = -(-8 * before // 6), 8 * (before + len(payload)) // 6
        if stop - start >= _FEWEST_BASE64:
            beside = "[A-Za-z0-9+/_=-]?"
            found.add(
                (beside if before else "") + "".join(map(_base64_character, text[start:stop])) + beside + "={0,2}"
            )
    return "|".join(sorted(found)) or None


def _base64_character(one: str) -> str:
    if one == "+":
        return r"(?:[+-]|%2[bB])"
    if one == "/":
        return r"(?:_|\\*/|%2[fF])"
    return one
