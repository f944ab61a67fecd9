"""The message for a failure outside the code: one line that names the thing and the remedy.

Add a row to `_KNOWN` when an ordinary failure of a machine (a full disk, a locked file) ends in a traceback. Keep out
mistakes in a fleet file: these are in `fleet_errors`. An error that matches no row counts as a bug of ours: its
traceback goes to a log file, which the line names.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pipelines.warehouse.refusals import busy

if TYPE_CHECKING:
    from pipelines.fleet.fleet_file import Fleet

KEPT_LOGS = 20
STDERR = 2  # what children inherit


class _Link(NamedTuple):
    """One exception of a chain, from this process or as Dagster keeps it."""

    kind: str
    message: str


def explained(error: Any, fleet: Fleet | None) -> str | None:
    """One line with the failure and what to do, when an exception (or Dagster's record of one) is an ordinary failure
    of the machine; None for everything else."""
    for link in _chain(error):
        if link.kind == "WarehouseBusy":
            return _flat(link.message)
        text = f"{link.kind}: {_flat(link.message)}"
        for pattern, remedy in _KNOWN:
            if pattern.search(text):
                return remedy(fleet, text)
    return None


def unexplained(error: Any) -> str:
    """The innermost cause of an error that counts as a bug, in one line."""
    last = list(_chain(error))[-1]
    return f"{last.kind}: {_flat(last.message)}" if last.message else last.kind


def is_interrupt(error: Any) -> bool:
    """Whether a step ended because a person stopped the run."""
    return any(link.kind in ("DagsterExecutionInterruptedError", "KeyboardInterrupt") for link in _chain(error))


@contextmanager
def stderr_aside() -> Iterator[list[str]]:
    """Capture what this process and its children write to standard error in the `with` block; it is in the list
    afterwards. We report a failure once: Dagster repeats an error of its storage for each logged line, and each child
    reports its own interrupt."""
    captured: list[str] = []
    sys.stderr.flush()
    kept = os.dup(STDERR)
    with tempfile.TemporaryFile() as aside:
        os.dup2(aside.fileno(), STDERR)
        try:
            yield captured
        except BaseException as error:
            aside.seek(0)
            error.add_note(f"on standard error meanwhile:\n{aside.read().decode(errors='replace')}")
            raise
        finally:
            sys.stderr.flush()
            os.dup2(kept, STDERR)
            os.close(kept)
            aside.seek(0)
            captured.append(aside.read().decode(errors="replace"))
            # A generator that is closed because of the error would print a warning after our last line.
            sys.unraisablehook = lambda _: None


def ended(error: BaseException, fleet: Fleet | None) -> str:
    """The last line of a command that raised `error`; its traceback is in the log file that the line names."""
    known = explained(error, fleet)
    if known is not None and _is_busy(error):
        return known
    path = write_log(fleet, "".join(traceback.format_exception(error)))
    if known is not None:
        return f"{known} (details: {path})" if path else known
    line = f"internal error, a bug in Wattledger: {unexplained(error)}."
    return f"{line} Please report it with its traceback: {path}" if path else f"{line}\n{traceback.format_exc()}"


def failures(steps: Sequence[tuple[str, Any]], fleet: Fleet, aside: Sequence[str] = ()) -> Iterator[str]:
    """One line per reason why steps failed, then the path of the tracebacks. Ten steps that fail on one full disk give
    one line. `steps` has (step, Dagster's record of its error); `aside` is more text for the log file."""
    if not steps:
        return
    yield from reasons(fleet, steps)
    if all(error is not None and (_is_busy(error) or _is_our_message(error)) for _, error in steps):
        return
    tracebacks = [f"step {step}\n{error.to_string() if error is not None else ''}" for step, error in steps]
    path = write_log(fleet, "\n\n".join([*tracebacks, *aside]))
    if path is not None:
        yield f"details: {path}"


def reasons(fleet: Fleet, steps: Sequence[tuple[str, Any]]) -> list[str]:
    """One line per reason why steps failed; '' is a run without any step."""
    lines: dict[str, None] = {}
    for step, error in steps:
        known = explained(error, fleet) if error is not None else None
        what = f"step {step} failed" if step else "the run failed"
        lines[known or f"{what}: {_deepest_message(error)}"] = None
    return [*lines]


def write_log(fleet: Fleet | None, text: str) -> Path | None:
    """Write details that the console does not show into data/<fleet>/logs, else into the machine's temporary folder.
    Returns the file's path; None where neither can be written."""
    now = datetime.now(UTC)
    for folder in ([fleet.root / "logs"] if fleet is not None else []) + [Path(tempfile.gettempdir()) / "wattledger"]:
        path = folder / f"failed-{now:%Y%m%dT%H%M%S%f}Z-{os.getpid()}.log"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{now.isoformat(timespec='seconds')}\n{text}\n", encoding="utf-8")
            for old in sorted(folder.glob("failed-*.log"))[:-KEPT_LOGS]:
                old.unlink(missing_ok=True)
        except OSError:
            continue
        return path
    return None


def _is_busy(error: Any) -> bool:
    """Whether another process has the warehouse: then a traceback adds nothing to the line."""
    return any(link.kind == "WarehouseBusy" for link in _chain(error))


def _chain(error: Any) -> Iterator[_Link]:
    """An exception and its causes, outermost first."""
    while error is not None:
        if isinstance(error, BaseException):
            yield _Link(type(error).__name__, str(error))
            error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        else:
            # Dagster's message begins with the exception's qualified name.
            name = error.cls_name or "Error"
            yield _Link(name, re.sub(rf"^[\w.]*{re.escape(name)}: ", "", error.message))
            error = error.cause or error.context


def _deepest(error: Any) -> Any:
    while error.cause is not None:
        error = error.cause
    return error


def _deepest_message(error: Any) -> str:
    if error is None:
        return "for a reason that Dagster did not record"
    text = _deepest(error).message.strip()
    return _QUALIFIED.sub("", text) if _is_our_message(error) else text


def _is_our_message(error: Any) -> bool:
    """Whether our own code raised this with a message for a person; then the exception's name adds nothing."""
    return _QUALIFIED.match(_deepest(error).message) is not None


# These exceptions have a message for a person. Any other is a bug, such as a plan that breaks its own rules.
_QUALIFIED = re.compile(
    r"^(dagster\._core\.definitions\.events\.Failure"
    r"|(pipelines|collectors)\.[\w.]+\.(LakeError|SparkError|SourceError)): "
)


def _flat(text: str) -> str:
    return " ".join(text.split())


def _path(text: str) -> Path | None:
    """The absolute path that a system's message quotes."""
    found = re.search(r"""['"](/[^'"]+)['"]""", text)
    return Path(found[1]) if found else None


def _place(fleet: Fleet | None, text: str) -> Path:
    return _path(text) or (fleet.root if fleet is not None else Path.cwd())


def _disk_full(fleet: Fleet | None, text: str) -> str:
    place = _place(fleet, text) if fleet is None else fleet.root
    return (
        f"no space left for {place} ({_free(place)} free on its disk; a temporary folder may be full as well)."
        " Free some, or set WATTLEDGER_DATA to a folder on a bigger disk, and run again: nothing published is lost."
    )


def _disk_refuses(fleet: Fleet | None, text: str) -> str:
    place = _place(fleet, text) if fleet is None else fleet.root
    return (
        f"the disk of {place} refuses to write (I/O error, {_free(place)} free): it may be full, over its quota or"
        " broken. Check it, or set WATTLEDGER_DATA to a folder on another disk, and run again."
    )


def _free(place: Path) -> str:
    existing = next(path for path in (place, *place.parents) if path.exists())
    return f"{shutil.disk_usage(existing).free / 2**20:,.0f} MiB"


def _not_writable(fleet: Fleet | None, text: str) -> str:
    place = _place(fleet, text)
    is_data = fleet is None or place.is_relative_to(fleet.root) or fleet.root.is_relative_to(place)
    another = ", or set WATTLEDGER_DATA to a folder of your own," if is_data else ""
    return (
        f"{place} cannot be written or read by this user ({_reason(text)}). Change its permissions{another} and run"
        " again."
    )


def _no_folder(fleet: Fleet | None, text: str) -> str:
    place = _place(fleet, text)
    file = next((path for path in (place, *place.parents) if path.is_file()), place)
    return (
        f"{file} is not a folder, where one is needed ({_reason(text)})."
        " Move it away, or set WATTLEDGER_DATA to a folder, and run again."
    )


def _corrupt(fleet: Fleet | None, text: str) -> str:
    place = _path(text) or (fleet.warehouse if fleet is not None else "the database")
    return (
        f"{place} is damaged, or is no DuckDB file. Restore it from a backup (docs/operations.md); or move it away,"
        " with its .wal file if there is one, and run again: the run then lists the next steps."
    )


def _other_version(fleet: Fleet | None, text: str) -> str:
    place = _path(text) or (fleet.warehouse if fleet is not None else "the database")
    return (
        f"{place} was written by another version of DuckDB than the one installed here."
        " Run `make setup` in the checkout that wrote it last, or restore a backup of the file."
    )


def _opened_elsewhere(fleet: Fleet | None, text: str) -> str:
    return busy(_path(text) or (fleet.warehouse if fleet is not None else "the warehouse"), text)


def _history_damaged(fleet: Fleet | None, text: str) -> str:
    home = os.environ.get("DAGSTER_HOME", "DAGSTER_HOME")
    return (
        f"Dagster's history in {home} is damaged. Move that folder away and run again:"
        " it holds the history of runs, and nothing of the ledger."
    )


def _out_of_memory(fleet: Fleet | None, text: str) -> str:
    return (
        f"DuckDB ran out of memory ({text[:200]}). Raise WATTLEDGER_MEMORY_LIMIT (such as 12GB), lower"
        " WATTLEDGER_THREADS, or run fewer dates at once with --start and --end."
    )


def _reason(text: str) -> str:
    found = re.search(
        r"Read-only file system|Permission denied|Operation not permitted|Not a directory|File exists", text
    )
    return found[0] if found else text[:120]


# Pattern of an error's text -> the message that replaces it. A pattern names the exception's type wherever a bug could
# cause the same text.
_KNOWN: tuple[tuple[re.Pattern[str], Callable[[Fleet | None, str], str]], ...] = (
    (re.compile(r"No space left on device|Disk quota exceeded|database or disk is full|File too large"), _disk_full),
    (re.compile(r"sqlite3\.OperationalError.*disk I/O error|^OSError: .*Input/output error"), _disk_refuses),
    (re.compile(r"IO Error: .*(Could not set lock on file|Conflicting lock is held)"), _opened_elsewhere),
    (
        re.compile(
            r"not a valid DuckDB database file|Could not read enough bytes from file|Corrupt database file"
            r"|Serialization Error: Failed to deserialize|computed checksum .* does not match"
        ),
        _corrupt,
    ),
    (re.compile(r"Trying to read a database file with version number"), _other_version),
    (re.compile(r"sqlite3\.DatabaseError.*(malformed|not a database)"), _history_damaged),
    (
        re.compile(
            r"^PermissionError: |^OSError: .*Read-only file system"
            r"|IO Error: .*(Permission denied|Read-only file system)"
            r"|sqlite3\.OperationalError.*(readonly database|unable to open database file)"
        ),
        _not_writable,
    ),
    (re.compile(r"^(NotADirectoryError|FileExistsError): "), _no_folder),
    (re.compile(r"^(OutOfMemoryException|MemoryError): |Out of Memory Error: "), _out_of_memory),
)
