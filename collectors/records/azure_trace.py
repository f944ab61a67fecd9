"""Requests of the Azure LLM inference traces: CSV of a time (naive, UTC), context tokens and generated tokens.

Add here what another year of the trace writes differently. Keep out other CSV files of requests (`access_logs`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import pyarrow as pa

from collectors.records.request_records import Batches, Reject, Rejects, checked_tokens, instant_us, requests_of, tokens
from collectors.samples import SourceError, Window
from collectors.text_files import lines, paths_of

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


class AzureTraceCollector:
    """Reads CSV files with the columns of COLUMNS in any order; `constants` are columns that no file has."""

    def __init__(self, source: str, path: str, constants: Mapping[str, Any]) -> None:
        self.source = source
        self.path = path
        self.constants = constants

    def collect(self, window: Window, rejects: Rejects) -> Iterator[pa.RecordBatch]:
        """Batches of the requests that began in the window, in file order; a file without a column is a SourceError."""
        batches = Batches(window, "azure_trace", self.constants)
        for path in paths_of(self.path, "*.csv"):
            held = lines(path)
            places = _places(path, next(held, (1, b""))[1])
            rows = ((f"{path}:{number}", line) for number, line in held)
            for request in requests_of(path, rows, partial(_request, places), rejects):
                yield from batches.add(request)
        yield from batches.rest()


def _places(path: str, header: bytes) -> list[int]:
    names = header.decode("utf-8-sig", "replace").strip().split(",")
    missing = [column for column in COLUMNS if column not in names]
    if missing:
        raise SourceError(path, None, f"no column {missing[0]!r}; there are {', '.join(map(repr, names))}"[:500])
    return [names.index(column) for column in COLUMNS]


def _request(places: list[int], line: bytes) -> dict[str, Any]:
    cells = line.decode("utf-8", "replace").strip().split(",")
    if len(cells) <= max(places):
        raise Reject(f"got {len(cells)} columns, expected {max(places) + 1}")
    at, context_cell, generated = (cells[place] for place in places)
    started_us = instant_us(at, "TIMESTAMP")
    if started_us is None:
        raise Reject("TIMESTAMP: missing")
    context = tokens(context_cell, "ContextTokens")
    output = tokens(generated, "GeneratedTokens")
    return {"started_at": started_us, **checked_tokens(context, None, None, output, None, basis="reported")}
