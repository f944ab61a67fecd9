"""Samples from CSV and Parquet files, wide (a column per metric) or long (a column that names the metric).

Add here what a file's own shape demands. Keep out formats of single tools (`collectors.formats`): of any other file the
fleet file states which column is what.
"""

from __future__ import annotations

import zlib
from collections.abc import Generator, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from collectors import cells
from collectors.formats.named_formats import NamedFiles
from collectors.protocols.file_batches import record_batches
from collectors.protocols.mapped_files import FileMapping, Key, MappedFile
from collectors.protocols.rows_of_a_moment import in_ticks, whole_moments
from collectors.rows import BAD_ROWS_RATIO, Rejects
from collectors.samples import Batch, Family, SourceError, Window
from collectors.series import SeriesRegister
from collectors.text_files import paths_of


class FilesCollector:
    """Reads the mapped files in the order given, in record batches: memory does not grow with the files.

    Rows without a readable time are counted as rejects of their series in the window of the row before them; text
    where a number belongs is landed as NaN, which is a reject too; an empty value is no sample.

    Rows without a time, with a wrong number of fields or with labels that are no JSON are also counted in
    `register.rejects`, and so is a file that breaks off (what came before is kept) or that does not hold what its
    mapping states: no such column, no time in any row, text in every cell of a column of values, several rows of
    one time with equal labels. SourceError where more
    than `bad_rows_ratio` of the rows, or every file, is refused, and where no metric is of the catalogue.
    """

    def __init__(
        self, source: str, files: Sequence[FileMapping | NamedFiles], bad_rows_ratio: float = BAD_ROWS_RATIO
    ) -> None:
        self.source = source
        self.files = tuple(files)
        self.bad_rows_ratio = bad_rows_ratio

    def collect(self, window: Window, families: Mapping[str, Family], register: SeriesRegister) -> Iterator[Batch]:
        """Batches of the samples in the window, in file order; SourceError names file, column and what there is."""
        unknown: dict[str, set[Key]] = {}
        files: list[MappedFile] = []
        refusals: list[SourceError] = []
        unread = 0  # files of which it is not even known what their columns are
        rejects = register.rejects = Rejects(self.bad_rows_ratio)
        for stated in self.files:
            for path in paths_of(stated.path):
                for mapping in stated.of_file(path):
                    if isinstance(mapping, SourceError):
                        rejects.add(mapping.url, mapping.reason)
                        unread += 1
                        refusals.append(mapping)
                        continue
                    file = MappedFile(path, mapping, window, families=families, register=register, unknown=unknown)
                    files.append(file)
                    refusal = yield from _samples_of(file, rejects)
                    refusals += [refusal] if refusal else []
        if refusals and len(refusals) == len(files) + unread:
            raise refusals[0]
        rejects.check(", ".join(dict.fromkeys(mapping.path for mapping in self.files)))
        for metric, series in unknown.items():
            register.unknown(metric, len(series))
        if unknown and not any(file.has_known_metric for file in files):
            raise _nothing_known(files, next(iter(unknown)))


def _samples_of(file: MappedFile, rejects: Rejects) -> Generator[Batch, None, SourceError | None]:
    """The samples of a file, as far as it can be read; why it was refused, if it was. What else goes wrong, such as too
    many series in the window, is no fault of the file."""
    batches = _timed_batches(file)
    if file.mapping.rows_are:
        batches = whole_moments(batches if file.mapping.text_columns else in_ticks(batches))
    while True:
        try:
            found = next(batches, None)
        except SourceError as refusal:
            rejects.add(refusal.url, refusal.reason)
            return None if file.has_rows else refusal
        if found is None:
            break
        try:
            file.look_for_identity(*found)
        except SourceError as refusal:
            rejects.add(refusal.url, refusal.reason)
            return refusal
        try:
            yield from file.batches(*found)
        except (pa.ArrowException, UnicodeDecodeError) as error:
            unread = SourceError(file.path, None, f"cannot be read: {error}")
            rejects.add(unread.url, unread.reason)
            return unread
    try:
        file.check()
    except SourceError as refusal:
        # Rows without a time are counted already.
        rejects.add(refusal.url, refusal.reason, rows=0 if file.is_untimed else 1)
        return refusal
    return None


def _timed_batches(file: MappedFile) -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
    """The rows of a file with their times. SourceError where it cannot be read, also when some rows were."""
    try:
        for rows in record_batches(file):
            yield rows, file.times_us(rows)
    except (OSError, EOFError, zlib.error, pa.ArrowException, UnicodeDecodeError, ValueError, KeyError) as error:
        raise SourceError(file.path, None, f"cannot be read: {error}") from error


def _nothing_known(files: Sequence[MappedFile], metric: str) -> SourceError:
    """All that came is of families that the catalogue lacks: more likely the wrong column than nothing to land."""
    file = next(file for file in files if file.has_unknown_metric)
    where = f"column {file.mapping.metric!r} names" if file.mapping.metric else "values names"
    reason = f"{where} no metric of the catalogue; the first is {cells.shown(metric)}"
    return SourceError(file.path, None, f"{reason}, expected one of dbt_project/seeds/metric_catalog.csv")
