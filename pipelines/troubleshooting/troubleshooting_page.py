"""Writes docs/troubleshooting.md: `python -m pipelines.troubleshooting.troubleshooting_page`.

Add here what the page shows of every entry. Keep out which entries there are, and in which order: sections.yml.
"""

from __future__ import annotations

import re
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
_TABLE = "| what you see | look at |\n|---|---|"


def page(held: str) -> str:
    """The page, whose part before the table of symptoms is written by hand and stays."""
    stated: dict[str, Any] = yaml.safe_load(SECTIONS.read_text(encoding="utf-8"))
    head, _, _ = held.partition(_TABLE)
    body = list(_sections(stated["sections"], all_checks()))
    headings = {text.removeprefix("### ") for text in body if text.startswith("### ")}
    rows = [_symptom(one["see"], one["look"], headings) for one in stated["symptoms"]]
    return "\n\n".join(["\n".join([f"{head}{_TABLE}", *rows]), *body]) + "\n"


def _symptom(see: str, look: list[str], headings: set[str]) -> str:
    if missing := set(look) - headings:
        raise LookupError(f"{see}: no entry is called {', '.join(sorted(missing))}: correct it in sections.yml")
    links = [f"[{f'`{name}`' if _is_check(name) else name}](#{_anchor(name)})" for name in look]
    return f"| {see} | {', '.join(links)} |"


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


def _is_check(name: str) -> bool:
    return " " not in name


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


if __name__ == "__main__":
    PATH.write_text(page(PATH.read_text(encoding="utf-8")), encoding="utf-8")
