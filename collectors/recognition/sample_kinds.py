"""Files of samples: named formats, tables of other loggers whose columns have telling names, and Parquet.

Add a name that a column of samples has in the wild. Keep out formats that a fleet file names (`collectors.formats`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from collectors.cells import TimeForm
from collectors.formats.found_columns import (
    MADE_TIME,
    UNITS_OF_POWER,
    FoundColumns,
    Unusable,
    bare,
    basis_of,
    unit_of_cells,
)
from collectors.formats.monitors import JSON_TIME
from collectors.formats.named_formats import FORMATS, found_in, missing_start
from collectors.formats.openings import Opening
from collectors.protocols.rows_of_a_moment import BOARDS, UNIQUE, least_gap_us
from collectors.recognition.recognised import Kind, RecognisedFile
from collectors.recognition.spans import moments, usual_step_seconds
from collectors.samples import SourceError, microseconds

ROWS_OF_PARQUET = 2_000
SHOWN_COLUMNS = 12
LEAST_STEP, FEW_ROWS = timedelta(milliseconds=50), 64
_TIMES = ("observed_at", "timestamp", "ts_utc", "time", "ts", "datetime", "date_time", "at", "time_s")
_NODES = ("node", "hostname", "host", "instance")
_WATTS = ("watts", "power_watts", "power_w", "wall_watts", "power", "wall_power_watts")
_SIDES = ("output", "input")
_TOKENS = ("input_tokens_total", "output_tokens_total")
_GPU = re.compile(
    r"(?:gpu|board|card|device)[ _-]?(\d+)(?:[ _-]?(?:power|watts|w|power_w|power_watts))?", re.IGNORECASE
)
# What shows in a name that numbers are power.
_OF_POWER = re.compile(r"power|watt|(?:^|[ _-])(?:pwr|w)(?:$|[ _.-])", re.IGNORECASE)
_OF_A_LIMIT = re.compile(r"limit|max|min|cap|default|budget", re.IGNORECASE)
_DMON_TIME = re.compile(r"^\s*(\d{4})[-/]?(\d\d)[-/]?(\d\d)\s+(\d\d:\d\d:\d\d)\s")
_LONG = {"observed_at", "metric", "labels", "value"}
CLOCK = "Its times are of a clock in an unknown zone and are taken as UTC: state its time_zone."


def named_samples(opening: Opening) -> RecognisedFile | None:
    """A file of one of the named formats."""
    for name, format_of in FORMATS.items():
        try:
            held = found_in(opening, format_of)
        except Unusable as why:
            return RecognisedFile(opening.path, name, "power samples", reason=str(why))
        if held is not None:
            below, found = held
            return _with_times(_of_a_format(below, name, found), below, found)
    return None


def _of_a_format(opening: Opening, name: str, found: FoundColumns) -> RecognisedFile:
    entry: dict[str, Any] = {"path": opening.path, "format": name}
    doubts = []
    is_placed = "uuid" in found.labels
    if not is_placed:
        node = Path(opening.path).name.partition(".")[0]
        entry["constant_labels"] = {"node": node}
        doubts.append(f"Its boards have no uuid: node {node!r} is the file's name; write the host's.")
    units = {**{column: unit for column in found.columns if (unit := bare(column)[1])}, **found.units}
    boards = _boards(opening, found)
    reason = None
    if found.basis not in ("moment", "clock"):
        reason = missing_start(found)
        doubts.append(f"{reason[0].upper()}{reason[1:]}.")
    return RecognisedFile(
        opening.path, name, "power samples", "sources", None if reason else entry, reason,
        found.columns, units, boards, doubts=tuple(doubts),
    )  # fmt: skip


def _boards(opening: Opening, found: FoundColumns) -> tuple[str, ...]:
    column = next((found.labels[label] for label in ("uuid", "index", "gpu_id", "gpu") if label in found.labels), None)
    if found.layout == "csv" and column is not None:
        rows = opening.cells()
        at = rows[0].index(column)
        return tuple(dict.fromkeys(row[at] for row in rows[1:] if len(row) == len(rows[0]) and row != rows[0]))
    return ()


def _with_times(file: RecognisedFile, opening: Opening, found: FoundColumns) -> RecognisedFile:
    """The file with its span, and how far apart its moments are."""
    if found.basis not in ("moment", "clock"):
        return file
    early, late = (_times_of(lines, opening, found) for lines in (opening.lines, opening.ending))
    form = TimeForm(found.time_unit)
    first, last = moments(early, form), moments(late, form)
    every = [*first, *last]
    doubts = file.doubts if found.basis == "moment" else (*file.doubts, CLOCK)
    return replace(
        file,
        first_at=min(every, default=None),
        last_at=max(every, default=None) if last or opening.is_whole else None,
        is_zone_stated=found.basis == "moment",
        interval_seconds=_interval_seconds(first),
        doubts=doubts,
    )


def _interval_seconds(times: Sequence[datetime]) -> float | None:
    """How far apart the ticks of a log usually are. Where a second header leaves too few to show them, rows that are
    less than LEAST_STEP apart are of one."""
    step = usual_step_seconds(_ticks(times))
    if step is None or step >= LEAST_STEP.total_seconds() or len(times) > FEW_ROWS:
        return step
    begins = [b for a, b in zip([times[0] - 2 * LEAST_STEP, *times], times, strict=False) if b - a >= LEAST_STEP]
    return usual_step_seconds(begins) or step


def _ticks(times: Sequence[datetime]) -> Sequence[datetime]:
    """Of times the first one of each tick, as landing has them."""
    times_us = np.array([microseconds(at) for at in times], np.int64)
    least = least_gap_us(times_us)
    return [at for at, gap in zip(times, np.diff(times_us, prepend=times_us[:1] - least), strict=True) if gap >= least]


def _times_of(lines: Sequence[str], opening: Opening, found: FoundColumns) -> list[str]:
    if found.layout == "amd_smi_json":
        return [one.strip() for line in lines for one in JSON_TIME.findall(line)]
    if found.time == MADE_TIME:
        stamped = [_DMON_TIME.match(line) for line in lines]
        if any(stamped):
            return [f"{one[1]}-{one[2]}-{one[3]} {one[4]}" for one in stamped if one]
        return [line.split()[0] for line in lines if line.split()]
    header = opening.cells()[0]
    at = header.index(found.time)
    return [row[at] for row in opening.cells(tuple(lines)) if len(row) == len(header)]


# --- tables of other loggers ------------------------------------------------------------------------------------------


def table(opening: Opening) -> RecognisedFile | None:
    """A CSV whose columns have telling names: watts of a node, of boards side by side, or counters of tokens."""
    rows = opening.cells()
    header = rows[0] if rows else []
    if len(header) < 2 or any(not name for name in header):
        return None
    body = [row for row in rows[1:] if len(row) == len(header)]
    held = {name: [row[at] for row in body] for at, name in enumerate(header)}
    ending = [row for row in opening.cells(opening.ending) if len(row) == len(header)]
    late = {name: [row[at] for row in ending] for at, name in enumerate(header)}
    if opening.separator == "|":
        return None
    return _table(opening.path, held, late, is_whole=opening.is_whole)


def mapping_of(opening: Opening) -> str:
    """What the columns of a CSV look like and, of one with a column of times, how its entry begins for whoever knows
    what its numbers are; empty where it is no CSV."""
    rows = opening.cells()
    header = rows[0] if rows else []
    body = [row for row in rows[1:] if len(row) == len(header)]
    if len(header) < 2 or not all(header) or not body:
        return ""
    held = {name: [row[at] for row in body] for at, name in enumerate(header)}
    plain = {bare(name)[0].lower(): name for name in reversed(header)}
    time = next((plain[name] for name in _TIMES if name in plain), None)
    looks = {name: "times" if name == time else _look(name, cells) for name, cells in held.items()}
    shown = f". Its columns are {', '.join(f'{name} ({look})' for name, look in list(looks.items())[:SHOWN_COLUMNS])}"
    values = {f"{side}_tokens_total": plain[f"{side}_tokens"] for side in _SIDES if f"{side}_tokens" in plain}
    counts = [*values.values()]
    if not values:
        watts = [name for name, look in looks.items() if look.partition(" ")[0] in {"numbers", *UNITS_OF_POWER}]
        values = {"nvml_power_watts": watts[0]} if watts else {}
    if time is None or not values:
        return shown
    labels = {label: plain[label] for label in ("model", "engine", "node") if label in plain}
    stated = f", labels: {_braced(labels)}" if labels else ""
    is_delta = counts and len(body) > 1 and all(looks[name] == "numbers" for name in counts)
    how = ", temporality: delta" if is_delta else ""
    return (
        f"{shown}. If one is power or tokens, write under sources, kind: files{how}, {{path: {Path(opening.path).name},"
        f" time: {time}{stated}, values: {_braced(values)}}} (docs/sources/wall_meter.md)"
    )


def _look(name: str, cells: Sequence[str]) -> str:
    """The unit of a column, whether its numbers rise, or that it has texts."""
    if unit := bare(name)[1] or unit_of_cells(cells):
        return unit
    try:
        numbers = [float(cell) for cell in cells if cell]
    except ValueError:
        return "texts"
    return "numbers that rise" if numbers == sorted(numbers) and len({*numbers}) > 1 else "numbers"


def _braced(mapping: Mapping[str, str]) -> str:
    return f"{{{', '.join(f'{key}: {value}' for key, value in mapping.items())}}}"


def _table(
    path: str, held: Mapping[str, Sequence[str]], late: Mapping[str, Sequence[str]], *, is_whole: bool
) -> RecognisedFile | None:
    plain = {bare(name)[0].lower(): name for name in reversed(list(held))}
    time = next((plain[name] for name in _TIMES if name in plain), None)
    how = basis_of(held[time]) if time else None
    if time is None or how is None:
        return None
    basis, unit = how
    entry: dict[str, Any] = {"path": path, "time": time} | ({"time_unit": unit} if unit else {})
    try:
        made = _roles(held, plain, entry)
    except Unusable as why:
        return RecognisedFile(path, None, "unknown", reason=str(why))
    if made is None:
        return None
    kind, name, more, doubts = made
    found = FoundColumns("csv", time, basis, unit)
    reason = None if basis in ("moment", "clock") else missing_start(found)
    early, last = moments(held[time], TimeForm(unit)), moments(late.get(time, ()), TimeForm(unit))
    return RecognisedFile(
        path, name, kind, "sources", None if reason else {**entry, **more}, reason,
        tuple(held), {column: stated for column in held if (stated := bare(column)[1])},
        first_at=min([*early, *last], default=None),
        last_at=max([*early, *last], default=None) if last or is_whole else None,
        is_zone_stated=basis == "moment",
        interval_seconds=_interval_seconds(early),
        doubts=(*doubts, *([CLOCK] if basis == "clock" else [])),
    )  # fmt: skip


def _roles(
    held: Mapping[str, Sequence[str]], plain: Mapping[str, str], entry: Mapping[str, Any]
) -> tuple[Kind, str, dict[str, Any], list[str]] | None:
    if plain.keys() >= _LONG:
        long = {"metric": plain["metric"], "labels_json": plain["labels"], "value": plain["value"]}
        return "samples", "samples", long, []
    node = next((plain[name] for name in _NODES if name in plain), None)
    tokens = {metric: plain[metric] for metric in _TOKENS if metric in plain}
    if tokens:
        labels = {label: plain[label] for label in ("model", "engine", "node") if label in plain}
        return "token samples", "token_log", {"labels": labels, "values": tokens}, []
    watts = next((plain[name] for name in _WATTS if name in plain), None)
    if watts is not None and node is not None and _is_in_watts(watts, held[watts]):
        placed = {"labels": {"node": node}, "values": {"wall_power_watts": watts}}
        return "power samples", "wall_meter", placed, [f"Column {watts!r} is taken as the wall power of a whole node."]
    boards = {found[1]: name for name in held if (found := _GPU.fullmatch(bare(name)[0]))}
    if boards and all(_is_in_watts(name, held[name]) for name in boards.values()):
        return _side_by_side(boards, held, entry)
    return _row_by_row(held, plain, Path(str(entry["path"])))


def _row_by_row(
    held: Mapping[str, Sequence[str]], plain: Mapping[str, str], path: Path
) -> tuple[Kind, str, dict[str, Any], list[str]] | None:
    """A row per board with its watts, as rocm-smi and xpu-smi write it: the first column of watts that has numbers."""
    board = next((plain[name] for name in BOARDS if name in plain), None)
    watts = [
        name
        for name in held
        if _OF_POWER.search(name)
        and not _OF_A_LIMIT.search(name)
        and (bare(name)[1] or unit_of_cells(held[name])) in UNITS_OF_POWER
    ]
    column = next((name for name in watts if any(cell[:1].isdigit() for cell in held[name])), None)
    if board is None or column is None:
        return None
    node = path.name.partition(".")[0]
    more = {
        "labels": {"uuid" if board.strip().lower() in UNIQUE else "index": board},
        "values": {"nvml_power_watts": column},
    }
    if board.strip().lower() in UNIQUE:
        return "power samples", "boards_in_rows", more, []
    doubt = f"Its boards have no uuid: node {node!r} is the file's name; write the host's."
    return "power samples", "boards_in_rows", {**more, "constant_labels": {"node": node}}, [doubt]


def _side_by_side(
    boards: Mapping[str, str], held: Mapping[str, Sequence[str]], entry: Mapping[str, Any]
) -> tuple[Kind, str, dict[str, Any], list[str]]:
    """A column per board: the entry is of the first one; `recognised.fleet_parts` writes one for each (`columns`).
    Unusable where neither the columns nor the file's name shows that the numbers are watts."""
    path = Path(str(entry["path"]))
    node = path.name.partition(".")[0]
    more = {"boards": dict(boards), "constant_labels": {"node": node}}
    doubts = [f"Node {node!r} is the file's name; write the host's."]
    if not all(_OF_POWER.search(name) or bare(name)[1] or unit_of_cells(held[name]) for name in boards.values()):
        names = ", ".join(boards.values())
        if not _OF_POWER.search(path.name):
            time, (index, column) = entry["time"], next(iter(boards.items()))
            raise Unusable(
                f"has columns {names} without a unit: degrees or percent of boards, or watts? If they are watts, write"
                f" under sources, kind: files, for each of them {{path: {path.name}, time: {time}, values:"
                f" {{nvml_power_watts: {column}}}, constant_labels: {{node: {node}, index: '{index}'}}}}"
            )
        doubts.insert(
            0, f"Its columns {names} have no unit and are taken as watts of boards, as the file's name has it."
        )
    return "power samples", "boards_side_by_side", more, doubts


def _is_in_watts(column: str, cells: Sequence[str]) -> bool:
    return (bare(column)[1] or unit_of_cells(cells) or "W") in UNITS_OF_POWER | {"watts", "Watts"}


# --- Parquet ----------------------------------------------------------------------------------------------------------


def parquet(opening: Opening) -> RecognisedFile:
    """A Parquet file: of the agent's spool, or a table like any other."""
    path = opening.path
    try:
        with pq.ParquetFile(path) as file:
            names = file.schema_arrow.names
            batch = next(file.iter_batches(ROWS_OF_PARQUET), None)
    except (pa.ArrowException, OSError) as error:
        raise SourceError(path, None, f"cannot be read as Parquet: {error}"[:300]) from error
    rows = {} if batch is None else dict(zip(names, batch.columns, strict=True))
    held = {name: [_text(cell) for cell in _as_texts(column)] for name, column in rows.items()}
    found = _table(path, held, {}, is_whole=batch is not None and batch.num_rows < ROWS_OF_PARQUET)
    if found is None:
        there = ", ".join(names)[:200]
        return RecognisedFile(path, None, "unknown", reason=f"is Parquet of no known shape; its columns are {there}")
    if {*names} >= {*_LONG, "source_kind"} and found.entry is not None:
        place = Path(path)
        inside = place.parent.name.startswith("date=") and place.parent.parent.name.startswith("host=")
        where = str(place.parents[2] / "host=*" / "date=*" / "*.parquet") if inside else path
        doubt = "Read as a source of kind spool instead, its files are removed once they have landed."
        return replace(found, format="spool", kind="spool", entry={**found.entry, "path": where}, doubts=(doubt,))
    return found


def _as_texts(column: pa.Array) -> list[Any]:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.string())
    held: list[Any] = column.to_pylist()
    return held


def _text(value: Any) -> str:
    return "" if value is None else str(value)
