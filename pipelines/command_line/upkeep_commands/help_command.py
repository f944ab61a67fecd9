"""The command `help`: what the pages have on a check, a key of the fleet file, a figure, a column, or a whole page.

Messages name pages; a wheel has them beside the package. Two of them go on from the code, here as on the site: a wheel
needs no copy of what the code has. Keep out what the pages have.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from pipelines.fleet import keys_page
from pipelines.fleet.places import PROJECT
from pipelines.troubleshooting import troubleshooting_page
from pipelines.warehouse.refusals import QuestionError

DOCS = PROJECT / "docs"
# The pages that are looked at first; the others follow.
FIRST = ("troubleshooting.md", "figures.md", "fleet_file.md", "glossary.md", "tables.md")
_WRITTEN_ON = {one.PATH: one.page for one in (keys_page, troubleshooting_page)}
# Of a name with its own part, such as source_cluster_answers, the page has source_NAME_answers.
_PART = "NAME"
_HEADING = re.compile(r"(#+) (.*)")
_FIRST_CELL = re.compile(r"\| \[?`([\w.]+)`")


def help_on(word: str) -> int:
    """Print the page, or each section and row about a word. QuestionError with the nearest words of an unknown one."""
    page = DOCS / f"{word.removeprefix('docs/').removesuffix('.md')}.md"
    if page.is_relative_to(DOCS) and ".." not in word and page.is_file():
        print(whole(page).rstrip())
        return 0
    pages = [DOCS / name for name in FIRST]
    pages += sorted({*DOCS.rglob("*.md")} - {*pages, *(DOCS / "decisions").rglob("*")})
    sections = [(path, *section) for path in pages for section in _sections(path)]
    found = [(path, text) for path, name, text in sections if _is(name, word)]
    if not found:
        names = {name.strip("`") for _, name, _ in sections}
        alike = difflib.get_close_matches(word.casefold(), {name for name in names if " " not in name}, n=1)
        raise QuestionError(f"help {word}: no page has it{'; nearest: ' if alike else ''}{''.join(alike)}")
    for path, text in found:
        print(f"docs/{path.relative_to(DOCS)}\n\n{text}\n")
    return 0


def whole(path: Path) -> str:
    """The page, with what it goes on with from the code."""
    return _WRITTEN_ON[path]() if path in _WRITTEN_ON else path.read_text(encoding="utf-8")


def _sections(path: Path) -> Iterator[tuple[str, str]]:
    """Name and text of each section below the page's title, without its subsections, and of each row of a table that
    begins with a name."""
    lines = whole(path).splitlines()
    heads = [(n, found) for n, line in enumerate(lines) if (found := _HEADING.fullmatch(line)) and len(found[1]) > 1]
    for (start, head), (end, _) in pairwise([*heads, (len(lines), None)]):
        yield head[2] if head else "", "\n".join(lines[start:end]).rstrip()
    yield from ((found[1], line) for line in lines if (found := _FIRST_CELL.match(line)))


def _is(name: str, word: str) -> bool:
    """Whether a heading or row is about a word: of `sites[].tariff[]` its last key is one, too."""
    plain = re.sub(r"`( of kind .*)?|\[\]", "", name)
    pattern = re.escape(plain).replace(_PART, r"\w+")
    return re.fullmatch(f"{pattern}|{re.escape(plain.rpartition('.')[2])}", word, re.IGNORECASE) is not None
