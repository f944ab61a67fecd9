"""`discover` of a file or a folder of logs: what each file is, what is doubtful, and a fleet file that reads them.

Add here what a person is shown of a folder. Keep out what a file is: that is `collectors.recognition`.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from collectors.recognition.folders import recognise
from collectors.recognition.recognised import Recognised
from collectors.samples import SourceError, printable
from pipelines.discovery.fleet_text import SCHEMA, sites
from pipelines.warehouse.refusals import QuestionError

SHOWN = 12
# More days than this between the first and the last sample are rarely of one log.
LONG_DAYS = 366
FIRST_LINE = f"# yaml-language-server: $schema={SCHEMA}"


def look(path: Path, name: str, out: Path | None) -> tuple[Recognised, Path]:
    """What the folder holds, and where its fleet file is to be written: inside it, so that paths in it are relative.
    QuestionError where a file is there."""
    folder = path if path.is_dir() else path.parent
    target = (out or folder / f"{name}.yaml").absolute()
    if target.exists():
        raise QuestionError(f"{target} is there already: name another file with --out, or remove it")
    if not path.absolute().is_relative_to(target.parent):
        raise QuestionError(
            f"{target}: a fleet file reads files beside it and below, and {path} is elsewhere: write it there (--out)"
        )
    try:
        found = recognise(path.absolute())
        files = tuple(file for file in found.files if not _is_written(Path(file.path)))
        return replace(found, files=files, counted=found.counted - len(found.files) + len(files)), target
    except SourceError as failure:
        raise QuestionError(failure) from None


def _is_written(file: Path) -> bool:
    """Whether `discover` wrote it: a fleet file, or the schema beside it."""
    if file.suffix != ".yaml":
        return file.name == SCHEMA
    with file.open("rb") as opened:
        return opened.read(len(FIRST_LINE)) == FIRST_LINE.encode()


def described(found: Recognised) -> Iterator[str]:
    """The lines that a person reads: formats with their numbers of files, spans, what was not read."""
    readable = list(found.readable())
    yield f"{found.path}: {found.counted:,} files, {len(readable):,} of which can be read"
    formats = Counter((file.format or "unknown", file.kind) for file in readable)
    for (kind, what), count in formats.most_common():
        of_kind = [file for file in readable if (file.format or "unknown") == kind]
        times = [at for file in of_kind for at in (file.first_at, file.last_at) if at is not None]
        span = f", {min(times):%Y-%m-%d %H:%M} to {max(times):%Y-%m-%d %H:%M}" if times else ""
        models = sorted({model for file in of_kind for model in file.models})
        boards = {board for file in of_kind for board in file.boards}
        held = [f"{len(boards)} boards"] * bool(boards) + [f"models {', '.join(models[:4])}"] * bool(models)
        yield f"  {kind:<20} {count:,} of {what}{span}{''.join(f', {one}' for one in held)}"


def doubtful(found: Recognised) -> Iterator[str]:
    """What only a person can settle, and what was not read, each with its reason."""
    if apart := found.disjoint():
        yield apart
    period = found.period()
    if period is not None and (days := (period[1] - period[0]).days) > LONG_DAYS:
        yield f"The files are of {days:,} days, each of which is booked: files of other times belong in other folders."
    doubts = Counter(doubt for file in found.readable() for doubt in file.doubts)
    for doubt, count in doubts.most_common(SHOWN):
        yield doubt if count == 1 else f"{doubt} ({count:,} files)"
    unread = [f"{file.path}: {file.reason}" for file in found.files if file.entry is None and file.reason]
    yield from [*unread, *found.skipped][:SHOWN]
    if (left := len(unread) + len(found.skipped) - SHOWN) > 0:
        yield f"and {left:,} more files that are not read"


def text(name: str, found: Recognised, target: Path) -> str:
    """The fleet file of the folder. QuestionError where nothing in it can be read."""
    parts: dict[str, Any] = found.fleet_parts(beside=target.parent)
    if not parts:
        raise QuestionError(f"{found.path} has no file that can be read (docs/files.md lists what can)")
    period = found.period()
    head = {"fleet": name}
    lines = [
        FIRST_LINE,
        "# Written by `wattledger discover`. Every key: wattledger help fleet_file.",
        yaml.safe_dump(head, sort_keys=False).rstrip(),
        "",
    ]
    if period is not None:
        lines += [f"period: {{start: {period[0].isoformat()}, end: {period[1].isoformat()}}}   # UTC dates", ""]
    else:
        lines += ["# No file has times that are known. State the dates that the fleet is about.", ""]
        lines += [f"period: {{start: {_as_of(parts)}, end: {_as_of(parts, 1)}}}", ""]
    lines += [yaml.safe_dump(parts, sort_keys=False, allow_unicode=True, width=110).rstrip(), "", *sites()]
    return "\n".join(lines) + "\n"


def show(found: Recognised) -> None:
    """Print what was found and what is doubtful."""
    print(printable_lines(described(found)))
    lines = list(doubtful(found))
    print("\nWhat is doubtful")
    print(printable_lines(f"  - {line}" for line in lines) or "  - nothing that the files show")
    sys.stdout.flush()


def printable_lines(lines: Iterator[str]) -> str:
    """Lines as a terminal may show them."""
    return "\n".join(printable(line) for line in lines)


def _as_of(parts: dict[str, Any], days: int = 0) -> str:
    newest: date = max((entry["as_of"] for entry in parts.get("benchmarks", [])), default=datetime.now(UTC).date())
    return (newest + timedelta(days=days)).isoformat()
