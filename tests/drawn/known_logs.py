"""Logs of power and of requests whose joules and tokens are known, as tools and shells leave them, drawn from a seed:
what `discover` writes about each is read, and is right; or the log is refused by a line.

Add here a shape that a log has in the wild and that leaves what it shows as it is. Keep out fields that are odd in
themselves (`odd_files`).
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa
import yaml

from collectors.recognition.folders import recognise
from collectors.records.access_logs import AccessLogCollector
from collectors.rows import Rejects
from collectors.samples import SourceError, Window, microseconds
from collectors.series import SeriesRegister
from pipelines.fleet import catalog
from pipelines.fleet.fleet_file import load_fleet

START = datetime(2026, 10, 1, 8, tzinfo=UTC)
DAY = Window(datetime(2026, 10, 1, tzinfo=UTC), datetime(2026, 10, 2, tzinfo=UTC))
# An interval at the beginning or end of a session may be read or not.
NEAR = 0.03


class Log(NamedTuple):
    """A log: its bytes, what it shows (joules, or input and output tokens), and what was drawn."""

    held: bytes
    truth: tuple[float, ...]
    drawn: dict[str, Any]


class Row(NamedTuple):
    """A board's watts at a moment, in seconds after START."""

    at: float
    board: int
    watts: float


def _ticks(random: Random, drawn: dict[str, Any]) -> tuple[list[list[Row]], float]:
    """The rows of each tick, and their joules: each board draws the same all along."""
    boards, step = random.choice((1, 1, 2, 4, 8)), random.choice((0.1, 0.5, 1, 1, 2, 5, 10))
    count, drift = random.randint(12, 40), random.choice((0, 0, 0.001, 0.002, 0.004))
    watts = [round(random.uniform(60, 700), 2) for _ in range(boards)]
    hung = random.choice((None, None, None, random.randrange(3, count - 3)))
    drift = min(drift, step / boards / 4)
    drawn |= {"boards": boards, "step": step, "count": count, "drift": drift, "hung": hung}
    begins = [step * n + (60 if hung is not None and n > hung else 0) for n in range(count)]
    ticks = [[Row(at + drift * board, board, watts[board]) for board in range(boards)] for at in begins]
    return ticks, sum(watts) * (begins[-1] - begins[0])


def _stamp(at: float, form: str) -> str:
    when = START + timedelta(seconds=at)
    if form == "epoch":
        return f"{when.timestamp():.3f}"
    return when.strftime("%Y/%m/%d %H:%M:%S.") + f"{when.microsecond // 1000:03}"


def nvidia_smi(random: Random) -> Log:
    """`nvidia-smi --query-gpu=… -l`: with or without index and uuid, units in header, cells or nowhere, a preface, a
    header that comes again, unchanged or in another order."""
    drawn: dict[str, Any] = {}
    ticks, joules = _ticks(random, drawn)
    identity = random.choice(("uuid", "index", None))
    columns = ["timestamp", "name", "power.draw", "utilization.gpu", *([identity] if identity else [])]
    again = random.choice((None, None, "same", "other order", "no units"))
    unit = random.choice(("header", "cells", "both", "none"))
    lines, at_tick = [], random.randrange(2, len(ticks) - 2)
    drawn |= {"identity": identity, "again": again, "unit": unit}

    def header(order: list[str], how: str) -> str:
        units = {"power.draw": " [W]", "utilization.gpu": " [%]"} if how in ("header", "both") else {}
        return ", ".join(name + units.get(name, "") for name in order)

    order = columns[:]
    lines += random.choice(([], [], ["Unable to determine the device handle for GPU0: Unknown Error"]))
    lines.append(header(order, unit))
    for n, tick in enumerate(ticks):
        if n == at_tick and again is not None:
            if again == "other order":
                random.shuffle(order)
            unit = "none" if again == "no units" else unit
            lines.append(header(order, unit))
        for row in tick:
            cells = {
                "timestamp": _stamp(row.at, "smi"),
                "name": "NVIDIA A100-SXM4-80GB",
                "power.draw": f"{row.watts:.2f}" + (" W" if unit in ("cells", "both") else ""),
                "utilization.gpu": "50" + (" %" if unit in ("cells", "both") else ""),
                "uuid": f"GPU-{row.board:08}",
                "index": str(row.board),
            }
            lines.append(", ".join(cells[name] for name in order))
    return Log(_packed(random, "\n".join(lines) + "\n", drawn), (joules,), drawn)


def amd_smi(random: Random) -> Log:
    """`amd-smi monitor -w`, as CSV with its hint on the first line or as an array per tick; whole seconds."""
    drawn: dict[str, Any] = {}
    ticks, joules = _ticks(random, drawn)
    scale = max(1, round(drawn["step"])) / drawn["step"]
    shape = random.choice(("csv", "arrays", "one array"))
    drawn |= {"shape": shape, "step": drawn["step"] * scale}
    whole = [[(round((tick[0].at) * scale), row.board, row.watts) for row in tick] for tick in ticks]
    joules = sum(watts for _, _, watts in whole[0]) * (whole[-1][0][0] - whole[0][0][0])
    begin = int(START.timestamp())
    if shape == "csv":
        lines = random.choice(([], ["'CTRL' + 'C' to stop watching output:"]))
        lines = [*lines, "timestamp,gpu,power_usage,max_power,hotspot_temperature"]
        lines += [f"{begin + at},{board},{watts},750,61" for tick in whole for at, board, watts in tick]
        return Log(_packed(random, "\n".join(lines) + "\n", drawn), (joules,), drawn)
    held = [
        [
            {"timestamp": begin + at, "gpu": board, "power_usage": {"value": watts, "unit": "W"}}
            for at, board, watts in tick
        ]
        for tick in whole
    ]
    text = "".join(json.dumps(tick, indent=random.choice((None, 4))) + "\n" for tick in held)
    if shape == "one array":
        text = json.dumps([row for tick in held for row in tick], indent=4) + "\n"
    return Log(_packed(random, text, drawn), (joules,), drawn)


def table(random: Random) -> Log:
    """A row per board, a column per board, or the watts of a node, with the unit of power in the name or the cells."""
    drawn: dict[str, Any] = {}
    ticks, joules = _ticks(random, drawn)
    shape = random.choice(("rows", "side by side", "node"))
    unit, factor = random.choice((("W", 1.0), ("W", 1.0), ("kW", 1e-3), ("mW", 1e3)))
    in_cells, form, separator = random.random() < 0.5, random.choice(("epoch", "smi")), random.choice(",;\t")
    drawn |= {"shape": shape, "unit": unit, "in_cells": in_cells, "form": form, "separator": separator}

    def cell(watts: float) -> str:
        return f"{watts * factor:.6g}" + (f" {unit}" if in_cells else "")

    name = "" if in_cells else f" ({unit})"
    if shape == "rows":
        rows = [["timestamp", "device", f"power{name}", "temperature (C)"]]
        rows += [[_stamp(row.at, form), f"card{row.board}", cell(row.watts), "61"] for tick in ticks for row in tick]
    elif shape == "side by side":
        rows = [["timestamp", *(f"GPU{row.board} power{name}" for row in ticks[0])]]
        rows += [[_stamp(tick[0].at, form), *(cell(row.watts) for row in tick)] for tick in ticks]
    else:
        rows = [["time", "node", f"power{name}"]]
        rows += [[_stamp(tick[0].at, form), "n1", cell(sum(row.watts for row in tick))] for tick in ticks]
    return Log(_packed(random, "".join(separator.join(row) + "\n" for row in rows), drawn), (joules,), drawn)


def _packed(random: Random, text: str, drawn: dict[str, Any]) -> bytes:
    how = drawn["packed"] = random.choice(("plain", "plain", "gz", "zst", "BOM", "Windows", "cut", "UTF-16"))
    if how == "gz":
        return gzip.compress(text.encode())
    if how == "zst":
        return bytes(pa.Codec("zstd").compress(text.encode(), asbytes=True))
    if how == "UTF-16":
        return text.encode("utf-16")
    if how == "cut":
        return text.encode()[:-3]
    held = text.replace("\n", "\r\n") if how == "Windows" else text
    return (b"\xef\xbb\xbf" if how == "BOM" else b"") + held.encode()


def usage(random: Random) -> Log:
    """Requests of one model whose parts are within their whole or beside it, of which some have a total. Its tokens are
    known where a total shows them."""
    names = random.choice((
        ("prompt_tokens", "completion_tokens", "prompt_tokens_details.cached_tokens",
         "completion_tokens_details.reasoning_tokens", "total_tokens"),
        ("input_tokens", "output_tokens", "input_tokens_details.cached_tokens",
         "output_tokens_details.reasoning_tokens", "total_tokens"),
    ))  # fmt: skip
    beside = (random.random() < 0.5, random.random() < 0.5)
    totals = random.choice((1.0, 0.5, 0.1))
    drawn = {"names": names[0], "beside": beside, "totals": totals}
    lines, truth = [], [0, 0]
    for n in range(random.randint(3, 30)):
        asked, made = random.randint(100, 3000), random.randint(50, 900)
        parts = (random.choice((0, random.randint(1, asked - 1))), random.choice((0, random.randint(1, made - 1))))
        wholes = tuple(
            one + part * is_beside for one, part, is_beside in zip((asked, made), parts, beside, strict=True)
        )
        values = dict(zip(names, (asked, made, *parts, sum(wholes)), strict=True))
        # The first row shows both parts.
        if n and random.random() > totals:
            del values["total_tokens"]
        elif not n:
            values |= {names[2]: asked // 3, names[3]: made // 4}
            wholes = (asked + asked // 3 * beside[0], made + made // 4 * beside[1])
            values["total_tokens"] = sum(wholes)
        held: dict[str, Any] = {}
        for name, value in values.items():
            above, dot, below = name.partition(".")
            held.setdefault(above, {})[below] = value if dot else None
            if not dot:
                held[above] = value
        truth = [one + whole for one, whole in zip(truth, wholes, strict=True)]
        lines.append({"id": f"r{n}", "created": int(START.timestamp()) + n, "model": "m", "usage": held})
    order = random.sample(lines, len(lines))
    text = "".join(json.dumps(line) + "\n" for line in order)
    return Log(_packed(random, text, drawn | {"lines": len(lines)}), tuple(map(float, truth)), drawn)


ALL: dict[str, Callable[[Random], Log]] = {
    "nvidia_smi log": nvidia_smi, "amd_smi log": amd_smi, "table of watts": table, "usage": usage,
}  # fmt: skip


def joules_of(folder: Path) -> tuple[float, float, Rejects] | str:
    """The joules and the interval of the power that `discover` and landing find in a folder, and what was rejected; or
    why none."""
    found = recognise(folder)
    parts = found.fleet_parts()
    if not parts.get("sources"):
        return "; ".join(file.reason or "" for file in found.files)
    path = folder / "fleet.yaml"
    path.write_text(yaml.safe_dump({"fleet": "f", "period": {"start": DAY.start_at.date()}, **parts}), encoding="utf-8")
    (source,) = load_fleet(path, {"WATTLEDGER_DATA": str(folder)}).sources
    register = SeriesRegister("logs", DAY)
    samples: dict[int, list[tuple[float, float]]] = {}
    try:
        for _, batch in source.collector().collect(DAY, catalog.families(), register):
            columns = (batch.column(name).to_pylist() for name in ("series_id", "observed_at", "value"))
            for series, at, value in zip(*columns, strict=True):
                samples.setdefault(series, []).append((microseconds(at) / 1e6, value))
    except SourceError as refusal:
        return refusal.reason
    of_power = {
        row["series_id"]
        for row in register.series_table().to_pylist()
        if "power" in row["metric"] and "limit" not in row["metric"]
    }
    joules = (
        (t - s) * (a + b) / 2
        for series in of_power & samples.keys()
        for (s, a), (t, b) in pairwise(sorted(samples[series]))
    )
    return sum(joules), source.interval_seconds, register.rejects


def verdict(kind: str, log: Log, folder: Path) -> str | None:
    """What is wrong with what becomes of a log; None where it is right, or refused by a line."""
    (folder / "log.dat").write_bytes(log.held)
    if kind == "usage":
        rejects = Rejects()
        batches = AccessLogCollector("log", str(folder / "log.dat"), {}).collect(DAY, rejects)
        rows = [row for batch in batches for row in batch.to_pylist()]
        tokens = tuple(float(sum(row[f"{side}_tokens"] for row in rows)) for side in ("input", "output"))
        marked = sum(row["tokens_basis"] == "contradicted" for row in rows)
        return None if tokens == log.truth or rejects.rows or marked else f"{tokens}, expected {log.truth}"
    found = joules_of(folder)
    if isinstance(found, str):
        return None if found else "is refused without a reason"
    joules, interval_seconds, rejects = found
    off = joules / log.truth[0] - 1
    if not 0.5 <= interval_seconds / log.drawn["step"] <= 2:
        return f"an interval of {interval_seconds} s, expected {log.drawn['step']}"
    if abs(off) <= max(NEAR, 1.5 / log.drawn["count"]) or (rejects.rows and off < 0):
        return None
    return f"{joules:.0f} J, expected {log.truth[0]:.0f} ({rejects})"


def findings(number: int, count: int, folder: Path) -> Iterator[str]:
    """Read `count` logs of each kind; a sentence for each that is neither right nor refused."""
    for kind, draw in ALL.items():
        for nth in range(count):
            log = draw(Random(f"{number}/{kind}/{nth}"))
            for file in folder.iterdir():
                file.unlink()
            try:
                wrong = verdict(kind, log, folder)
            except SourceError as refusal:
                wrong = None if refusal.reason else "is refused without a reason"
            except Exception as error:
                wrong = f"{type(error).__name__}: {str(error)[:300]}"
            if wrong is not None:
                yield f"log {nth} of {kind}: {wrong}; {log.drawn}"
