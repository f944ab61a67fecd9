"""Requests of the Azure LLM inference traces: CSV of a time (naive, UTC), context tokens and generated tokens.

Add here what differs in the trace of another year. Keep out other CSV files of requests (`access_logs`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from collectors.records.request_records import FileCollector, instant_us, tokens
from collectors.records.token_readings import checked_tokens
from collectors.rows import Reject, Rejects
from collectors.samples import SourceError
from collectors.text_files import lines

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


class AzureTraceCollector(FileCollector):
    """Reads CSV files with the columns of COLUMNS in any order."""

    source_kind, inside = "azure_trace", "*.csv"

    def read(
        self, path: str, rejects: Rejects
    ) -> tuple[Iterator[tuple[str, bytes]], Callable[[bytes], dict[str, Any]]]:
        """The lines behind the header; a file without a column is a SourceError."""
        held = lines(path, rejects)
        header = next(held, None)
        if header is None:
            return iter(()), partial(_request, [])
        places = _places(path, header[1])
        return ((f"{path}:{number}", line) for number, line in held), partial(_request, places)


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
