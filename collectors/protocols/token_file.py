"""A bearer token in a file, for servers whose tokens are replaced while a process runs, as Kubernetes does.

Add here what a file with a secret may be. Keep out what the token is sent with (`credentials`).
"""

from __future__ import annotations

import logging
import stat
from pathlib import Path

# A token of a service account has one or two thousand.
MOST_BYTES = 65_536

logger = logging.getLogger(__name__)
# One source has several clients.
_WARNED_OF: set[Path] = set()


class TokenFile:
    """The file at `path`. It is opened anew for each token."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def token(self) -> str:
        """What is in the file now, without its line's end. ValueError, with the path, where that is no token."""
        try:
            if self._path.exists() and not self._path.is_file():
                raise ValueError(self._refusal("is no file"))
            with self._path.open("rb") as file:
                content = file.read(MOST_BYTES + 1)
            mode = self._path.stat().st_mode
        except OSError as error:
            raise ValueError(self._refusal(f"cannot be read: {error.strerror}")) from error
        if len(content) > MOST_BYTES:
            raise ValueError(self._refusal(f"has over {MOST_BYTES:,} bytes, expected a token"))
        text = content.decode("utf-8", "replace").strip()
        if not text:
            raise ValueError(self._refusal("is empty, expected a token"))
        if len(text.splitlines()) > 1:
            raise ValueError(self._refusal("has more than one line, expected the token alone"))
        if not (text.isascii() and text.isprintable()) or " " in text:
            raise ValueError(self._refusal("has characters that no token has: expected ASCII without spaces"))
        self._warn_of_readers(mode)
        return text

    def _warn_of_readers(self, mode: int) -> None:
        # A volume that Kubernetes writes has the mode that the pod states, behind this link, and no other users.
        is_volume = (self._path.parent / "..data").exists()
        if mode & (stat.S_IRGRP | stat.S_IROTH) and not is_volume and self._path not in _WARNED_OF:
            logger.warning("%s", self._refusal(f"can be read by other users (mode {mode & 0o777:o}): chmod 600 it"))
            _WARNED_OF.add(self._path)

    def _refusal(self, what: str) -> str:
        return f"bearer_file {self._path} {what}"
