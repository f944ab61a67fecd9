"""Texts of CSV files that people open in a spreadsheet.

A spreadsheet runs a cell that begins like a formula, also in a quoted cell (OWASP, CSV injection), and names in the
marts come from servers and files. Add here what a spreadsheet takes for a formula. Keep out how a file is written.
"""

from __future__ import annotations

import pyarrow as pa

# A formula by itself. The last one is the full-width form, which a spreadsheet in Japanese reads alike.
ALWAYS = "=＝"
# Of a cell that begins with one of these, a spreadsheet can run only a call, a DDE link or a reference to a sheet, and
# each has one of CALLS. So -1.5, +1 and @cf/meta/llama are left alone.
WITH_A_CALL = "+-@＋－＠"
CALLS = "(|!（｜！"
# With these in front some programs read the rest as a cell of its own.
BREAKS = "\t\r\n"
FORMULA_BEGINS = (*ALWAYS, *WITH_A_CALL, *BREAKS)


def harmless(text: str) -> str:
    """Text that a spreadsheet shows as it is: with an apostrophe in front where it would be run.

    Apostrophes that are there already do not count, so that taking one away always gives the text back.
    """
    return f"'{text}" if _is_run(text.lstrip("'")) else text


def harmless_column(texts: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The same of each text of a column; unknown ones stay unknown."""
    whole = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    encoded = whole.dictionary_encode()
    return pa.array(map(harmless, encoded.dictionary.to_pylist()), pa.string()).take(encoded.indices)


def _is_run(text: str) -> bool:
    if text.startswith(tuple(BREAKS)):
        return True
    # Spaces and what is not seen in front: some programs cut them off as they read a file.
    first = next((one for one in text if one.isprintable() and not one.isspace()), "")
    if not first or first in ALWAYS:
        return bool(first)
    return first in WITH_A_CALL and any(one in text for one in CALLS)
