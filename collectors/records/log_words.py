"""What of a log's texts may be repeated: in a message, and as the status of a request.

Add here a text that a program wrote. Keep out who asked (`askers`).
"""

from __future__ import annotations

import re
from typing import Any

# What a message quotes of a log: numbers and times. A text may be someone's words.
_QUOTED = re.compile(r"(?i:[+-]?(inf|infinity|nan))|[0-9eTZ.:+\-/ ,_]{1,40}( BC)?")
_SHAPES = {dict: "an object", list: "a list", type(None): "nothing"}
# What a status is: 200, success, stop_sequence. A longer text may be an error message that quotes a prompt.
_STATUS = re.compile(r"[\w.-]{1,64}")


def quoted(value: Any) -> str:
    """A value of a log as a message may quote it: a number or a time; of any other text how long it is."""
    if isinstance(value, bool | int | float):
        return str(value)
    if isinstance(value, str):
        of_text = f"a text of {len(value):,} character{'' if len(value) == 1 else 's'}"
        return repr(value) if _QUOTED.fullmatch(value) else of_text
    return _SHAPES.get(type(value), "another value")


def status_of(text: str | None) -> str | None:
    """How a request ended, in one word; None where the log has none, or a whole message."""
    return text if text is None or _STATUS.fullmatch(text) else None
