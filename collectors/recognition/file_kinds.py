"""What one file is: each kind is asked in turn, from the most particular shape to the least.

Add a kind's function in its place. Keep out what a kind's files look like (`sample_kinds`, `record_kinds`,
`named_kinds`).
"""

from __future__ import annotations

from collectors.formats.openings import Opening, opening_of
from collectors.recognition.named_kinds import metrics_page, named_only
from collectors.recognition.recognised import RecognisedFile
from collectors.recognition.record_kinds import records
from collectors.recognition.sample_kinds import mapping_of, named_samples, parquet, table
from collectors.samples import SourceError


def recognised_file(path: str) -> RecognisedFile:
    """What a file is, by its first 64 KiB and, where it is not packed, its last 16. Never raises: what cannot be read
    is unknown, with the reason."""
    try:
        return _recognised(opening_of(path))
    except SourceError as refusal:
        return RecognisedFile(path, None, "unknown", reason=refusal.reason)
    except (ValueError, LookupError, RecursionError, OSError, OverflowError) as error:
        return RecognisedFile(path, None, "unknown", reason=f"cannot be read: {error}"[:300])


def _recognised(opening: Opening) -> RecognisedFile:
    if not opening.head:
        return RecognisedFile(opening.path, None, "unknown", reason="is empty")
    if opening.head[:4] == b"PAR1":
        return parquet(opening)
    if b"\0" in opening.head[:4096]:
        return RecognisedFile(opening.path, None, "unknown", reason="is no text")
    kinds = (kind(opening) for kind in (named_samples, records, table, metrics_page, named_only))
    first = next((line.strip() for line in opening.lines if line.strip()), "")[:80]
    why = f"is of no known format; it begins with {first!r}{mapping_of(opening)}"
    unknown = RecognisedFile(opening.path, None, "unknown", reason=why)
    return next((found for found in kinds if found is not None), unknown)
