"""The page of what an operator may see, which `make docs` and `wattledger help` show: docs/troubleshooting.md, which is
written by hand, and after it every check and message.

Add here what the page shows of every entry. Keep out which entries there are, and in which order: sections.yml.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from pipelines.fleet.places import PROJECT
from pipelines.fleet.plausibility import RANGES
from pipelines.troubleshooting.all_checks import Check, all_checks
from pipelines.troubleshooting.code_messages import messages

PATH: Path = PROJECT / "docs" / "troubleshooting.md"
SECTIONS = Path(__file__).with_name("sections.yml")


def page() -> str:
    """The page as Markdown."""
    sections = yaml.safe_load(SECTIONS.read_text(encoding="utf-8"))["sections"]
    return "\n\n".join([PATH.read_text(encoding="utf-8").rstrip(), *_sections(sections, all_checks())]) + "\n"


def _sections(sections: list[dict[str, Any]], checks: Mapping[str, Check]) -> Iterator[str]:
    placed = {name for section in sections for entry in section["entries"] for name in entry.get("checks", ())}
    if unknown := placed - checks.keys():
        raise LookupError(f"there is no check {', '.join(sorted(unknown))}: correct it in sections.yml")
    for section in sections:
        yield f"## {section['title']}"
        for entry in section["entries"]:
            if "heading" in entry:
                yield f"### {entry['heading']}"
                yield entry["what"]
            for name, check in checks.items():
                if name not in placed and _belongs(check, entry):
                    yield from _of_check(check)
            for name in entry.get("checks", ()):
                yield from _of_check(checks[name])
            if entry.get("ranges"):
                yield _ranges()
            lines = [line for place in entry.get("lines", ()) for line in messages(place)]
            if lines:
                yield "\n".join(["```text", *dict.fromkeys(lines), "```"])


def _belongs(check: Check, entry: Mapping[str, Any]) -> bool:
    if check.is_invariant:
        return bool(entry.get("invariants"))
    return "tables" in entry and check.table.startswith(entry["tables"])


def _of_check(check: Check) -> Iterator[str]:
    """What a run prints of it, what should hold, and what to do."""
    line = f"`{'FAILED' if check.is_error else 'warned'} {check.table} {check.name}: …`"
    expected = f" Expected: {check.expected}." if check.expected else ""
    yield f"### {check.name}"
    yield f"{line}\n\n**What it checks:** {check.description}{expected}"
    yield f"**What to do:** {check.remedy.rstrip('.')}."


def _ranges() -> str:
    rows = [f"| `{one.key}` | {f'{one.low:g} to {one.high:g} {one.unit}'.strip()} | {one.hint} |" for one in RANGES]
    return "\n".join(["| key | usual | note |", "|---|---|---|", *rows])
