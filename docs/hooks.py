"""What `make docs` does beside MkDocs: pages from outside docs/ and from the code, and links that leave docs/.

Pages are written to be read in the repository, where a link may name any file. On the site a link to another page
stays a link; one to a file that is no page becomes the file's path. A link to nothing fails the build.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import columns_page
from markdown.extensions.toc import slugify
from mkdocs.structure.files import File, InclusionLevel

from pipelines.fleet import keys_page
from pipelines.troubleshooting import troubleshooting_page

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
MODELS = ROOT / "dbt_project" / "models"
COLUMNS = "columns.md"
# Pages of the site that are kept where people look for them in a repository.
ELSEWHERE = (
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CHANGELOG.md",
    "fleets/README.md",
    "dbt_project/seeds/README.md",
    "dbt_project/models/README.md",
)
# Reached from the page that lists them, so the menu need not.
UNLISTED = "sources/"
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]*)(#[^)\s]*)?\)")

logger = logging.getLogger("mkdocs.hooks")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages from outside docs/, the one of columns, and what two pages go on with."""
    for path in ELSEWHERE:
        files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    files.append(File.generated(config, COLUMNS, content=columns_page.markdown(MODELS)))
    for one in (keys_page, troubleshooting_page):
        files.remove(files.get_file_from_path(one.PATH.name))
        files.append(File.generated(config, one.PATH.name, content=with_links(one.page())))
    for file in files.documentation_pages():
        if file.src_uri.startswith(UNLISTED):
            file.inclusion = InclusionLevel.NOT_IN_NAV
    return files


def with_links(page: str) -> str:
    """The page; of a name in code font before its first section the section that is called so is a link away."""
    head, mark, sections = page.partition("\n## ")
    named = set(re.findall(r"^##+ `?([^`\n]+)`?$", mark + sections, re.MULTILINE))

    def link(found: re.Match[str]) -> str:
        return f"[{found[0]}](#{slugify(found[1], '-')})" if found[1] in named else found[0]

    return re.sub(r"`([^`\n]+)`", link, head) + mark + sections


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links as they are in the repository into links of the site."""
    here = page.file.src_uri
    source = ROOT / here if here in ELSEWHERE else ROOT / "docs" / here

    def of_site(found: re.Match[str]) -> str:
        mark, text, target, anchor = found[1], found[2], found[3], found[4] or ""
        if not target or "://" in target or target.startswith("mailto:"):
            return found[0]
        path = (source.parent / target).resolve()
        if not path.exists() or not path.is_relative_to(ROOT):
            logger.warning("%s links to %s, which is not there", here, target)
            return found[0]
        name = path.relative_to(ROOT).as_posix()
        uri = name.removeprefix("docs/")
        if files.get_file_from_path(uri) is not None and (uri in ELSEWHERE or name.startswith("docs/")):
            return f"{mark}[{text}]({os.path.relpath(uri, os.path.dirname(here) or '.')}{anchor})"  # noqa: PTH120
        plain = text.strip("`")
        return f"`{name}`" if plain in (name, Path(name).name) else f"{text} (`{name}`)"

    return "".join(
        part if part.startswith("```") else LINK.sub(of_site, part)
        for part in re.split(r"(^ *```.*?^ *```$)", markdown, flags=re.DOTALL | re.MULTILINE)
    )
