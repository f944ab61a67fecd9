"""`recognise(path)`: what a file is, or each file of a folder, in bounded time whatever is there.

Add here what may be wrong with a folder. Keep out what a file holds (`file_kinds`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from collectors.recognition.file_kinds import recognised_file
from collectors.recognition.recognised import Recognised, RecognisedFile
from collectors.samples import SourceError

# So many files are looked into, the newest first would hide an old log: they are taken in order of their names.
MOST_FILES = 20_000
# Folders that hold programs and their parts, never logs.
_PROGRAMS = frozenset({".git", ".venv", "venv", "node_modules", "__pycache__", ".dagster", "site-packages"})


def recognise(path: str | Path, most_files: int = MOST_FILES) -> Recognised:
    """What the file, or each file of the folder, is. SourceError where there is no such path, or it may not be read."""
    root = Path(path)
    try:
        if root.is_file():
            return Recognised(str(root), (recognised_file(str(root)),), (), 1)
        if not root.is_dir():
            raise SourceError(str(root), None, "there is no such file or folder")
        os.listdir(root)  # noqa: PTH208 (raises where the folder may not be read)
    except PermissionError as error:
        raise SourceError(str(root), None, f"cannot be read: {error.strerror}") from None
    skipped: list[str] = []
    found: list[RecognisedFile] = []
    counted = 0
    for name in _files(root, skipped):
        counted += 1
        if counted <= most_files:
            found.append(recognised_file(name))
    if counted > most_files:
        skipped.append(f"{root}: has {counted:,} files, of which the first {most_files:,} were looked at")
    return Recognised(str(root), tuple(found), tuple(skipped), counted)


def _files(root: Path, skipped: list[str]) -> Iterator[str]:
    """Every file below a folder, in order. A link is followed where it leads to a file in the folder itself; one to a
    folder is not, so that no circle has no end."""
    inner = root.resolve()

    def refused(error: OSError) -> None:
        skipped.append(f"{error.filename}: cannot be read: {error.strerror}")

    for folder, folders, files in os.walk(root, onerror=refused):
        kept = []
        for name in sorted(folders):
            if os.path.islink(os.path.join(folder, name)):  # noqa: PTH114, PTH118 (ten thousand files, and no Path)
                skipped.append(f"{Path(folder, name)}: is a link to a folder and is not followed")
            elif name not in _PROGRAMS:
                kept.append(name)
        folders[:] = kept
        for name in sorted(files):
            path = Path(folder, name)
            if path.is_symlink():
                try:
                    target = path.resolve(strict=True)
                except (OSError, RuntimeError):
                    skipped.append(f"{path}: is a link that leads nowhere")
                    continue
                if not target.is_relative_to(inner):
                    skipped.append(f"{path}: is a link that leads out of {root}. Replace the link by the file")
                    continue
            if path.is_file():
                yield str(path)
            else:
                skipped.append(f"{path}: is no regular file")
