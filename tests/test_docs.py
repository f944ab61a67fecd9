"""The documentation against the project: links, what it lists of the code, and its plain English.

Its queries and the printed page are compared in tests/ledger/test_book_demo.py, its YAML in
tests/landing/test_source_pages.py. Add here what a page states and the code decides.
"""

from __future__ import annotations

import importlib
import re
from functools import cache
from pathlib import Path

import pytest
import yaml

from pipelines.command_line.upkeep_commands.help_command import whole
from pipelines.fleet.places import PROJECT
from tests.models import finance, mart_entries, marts

DOCS = PROJECT / "docs"
PAGES = sorted(
    [
        *DOCS.rglob("*.md"),
        *(PROJECT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
        *(PROJECT / folder / "README.md" for folder in ("bi", "fleets", "dbt_project/seeds", "dbt_project/models")),
    ]
)
MARTS = marts()
# Pages of sources all have one form, which their list explains; bench.md is what a command printed.
OPENED = [
    page for page in PAGES if page.is_relative_to(DOCS) and page.parent.name != "sources" and page.name != "bench.md"
]
# Words that the product's own prose had, and that were misread.
DIALECT = (
    r"\bnobody\b",
    r"\bno one holds\b",
    r"\bstands? (?:beside|behind|there|on|in)\b",
    r"\blies under\b",
    r"\bthe house\b",
    r"one-way doors?",
    r"no row is not idleness",
    r"how far to (?:believe|trust)",
    r"\b(?:told|heard|untold)\b",
)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def without_code(text: str) -> str:
    return re.sub(r"^ *```.*?^ *```$", "", text, flags=re.DOTALL | re.MULTILINE)


@cache
def text_of(page: Path) -> str:
    return without_code(whole(page))


def anchors_of(page: Path) -> set[str]:
    """Where a link may lead, in the repository too: to headings of the page as git has it."""
    headings = re.findall(r"^#+ (.*)$", without_code(page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def named(page: Path) -> str:
    return page.relative_to(PROJECT).as_posix()


def test_every_link_leads_somewhere() -> None:
    broken = []
    for page in PAGES:
        for link in LINK.findall(text_of(page)):
            path, _, anchor = link.partition("#")
            if "://" in link or link.startswith("mailto:"):
                continue
            target = (page.parent / path).resolve() if path else page
            if not target.exists() or (anchor and anchor not in anchors_of(target)):
                broken.append((named(page), link))
    assert broken == []


def test_every_page_opens_with_whom_it_is_for_and_what_it_answers() -> None:
    openings = {named(page): page.read_text(encoding="utf-8").split("\n\n")[1] for page in OPENED}
    form = re.compile(r"> \*\*For\*\* .*\*\*Answers:\*\* ")
    assert {page: opening[:80] for page, opening in openings.items() if not form.match(opening)} == {}


def test_pages_are_in_plain_english() -> None:
    """Phrases that readers had to read twice; names in code font are the code's own."""
    misread = [
        (named(page), match[0])
        for page in OPENED
        for phrase in DIALECT
        for match in re.finditer(phrase, re.sub(r"`[^`]*`", "", text_of(page)), re.IGNORECASE)
    ]
    assert misread == []


def test_every_page_that_the_code_names_is_there() -> None:
    files = [
        path
        for folder in (
            "pipelines",
            "collectors",
            "bench",
            "dbt_project/models",
            "dbt_project/macros",
            "dbt_project/tests",
        )
        for path in (PROJECT / folder).rglob("*")
        if path.suffix in (".py", ".sql", ".yml", ".md")
    ]
    files += [PROJECT / name for name in ("Makefile", "pyproject.toml", "README.md")]
    files.append(PROJECT / "pipelines/command_line/dagster.yaml")
    named_pages = {
        (named(path), page)
        for path in files
        for page in re.findall(r"(?<![\w/])docs/[\w/]+\.md", path.read_text(encoding="utf-8"))
    }
    assert len(named_pages) > 20
    assert {(path, page) for path, page in named_pages if not (PROJECT / page).exists()} == set()


def test_the_marts_that_naming_lists_as_readers_of_raw_are_those_that_do() -> None:
    page = (DOCS / "naming.md").read_text(encoding="utf-8")
    table = page.partition("| mart | reads from `raw` | reason |\n|---|---|---|\n")[2].partition("\n\n")[0]
    listed = {name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert listed == {mart.stem for mart in MARTS if "source('raw'" in mart.read_text(encoding="utf-8")}


def test_the_words_of_meter_scope_are_those_of_the_catalogue_of_words() -> None:
    page = (DOCS / "naming.md").read_text(encoding="utf-8")
    (sentence,) = re.findall(r"`meter_scope` is part of every grain\. Its words are (.*?)\.", page)
    words: set[str] = set()
    for path in mart_entries():
        for model in (yaml.safe_load(path.read_text(encoding="utf-8")) or {}).get("models", ()):
            for column in model.get("columns", ()):
                if column["name"] == "meter_scope":
                    words |= set(column.get("config", {}).get("meta", {}).get("words", ()))
    assert set(re.findall(r"`(\w+)`", sentence)) == words - {None, "null"}


def test_every_mart_is_in_the_list_of_tables() -> None:
    questions = (DOCS / "tables.md").read_text(encoding="utf-8").partition("## Joins")[0]
    missing = {mart.stem for mart in MARTS} - set(re.findall(r"`(\w+)`", questions))
    assert missing == set()


def test_the_site_has_a_page_of_all_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(DOCS)
    page = importlib.import_module("columns_page").markdown(PROJECT / "dbt_project" / "models")
    assert set(re.findall(r"^## (\w+)$", page, re.MULTILINE)) == {path.stem for path in (*MARTS, *finance())}
    assert "| `date` | date | UTC date of the row. |\n" in page  # a text that many columns share
    assert "| `BillingPeriodEnd` | timestamptz | First moment after the site's calendar month, UTC. |\n" in page
    assert [mark for mark in ("{{", "{%") if mark in page] == []


def test_every_reason_of_a_recommendation_is_explained() -> None:
    """Every word that the two tables of recommendations may write as reason_code, as their code spells it."""
    explained = set(re.findall(r"`(\w+)`", (DOCS / "recommendations" / "reason_codes.md").read_text(encoding="utf-8")))
    analysis = PROJECT / "pipelines" / "analysis"
    written = {
        word
        for name in ("right_sizing", "consolidation", "packing")
        for pattern in (
            r'^ {8,}\((?!")[^\n]*, "([a-z_]+)"\),$',
            r'"reason_code"\]?\s*[:=]\s*"(\w+)"',
            r'"obstacle"\] = "(\w+)"',
        )
        for word in re.findall(pattern, (analysis / f"{name}.py").read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert len(written) > 20
    # Columns of a pair, and an engine that stays because of another one.
    assert written - {"gpus_before", "gpus_after", "fixed"} <= explained


def test_every_page_is_in_the_menu_of_the_site_or_listed_by_a_page_that_is() -> None:
    site = yaml.safe_load((PROJECT / "mkdocs.yml").read_text(encoding="utf-8"))

    def leaves(entries: object) -> list[str]:
        if isinstance(entries, str):
            return [entries]
        values = entries.values() if isinstance(entries, dict) else entries
        return [leaf for entry in values for leaf in leaves(entry)]

    menu = set(leaves(site["nav"]))
    listed = {
        (DOCS / page).parent.joinpath(link.partition("#")[0]).resolve().relative_to(DOCS).as_posix()
        for page in ("sources.md", "decisions/README.md")
        for link in LINK.findall((DOCS / page).read_text(encoding="utf-8"))
        if "://" not in link and not link.startswith("../")
    }
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    assert pages - menu - listed == set()
