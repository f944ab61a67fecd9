"""The site's page of columns, from the YAML of the marts: no file of the repository repeats it.

Add here what the page shows of a table. Keep out how a page becomes part of the site (`hooks`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from pathlib import Path

OPENING = """# Columns

> **For** everyone who reads a table. **Answers:** what is one row, which unit has a column, and what does NULL mean?

`make docs` writes this page from the descriptions of the marts. A publication holds the same texts as comments.
The questions are in [which table answers what](tables.md).
"""
BLOCK = re.compile(r"{% docs (\w+) %}\n(.*?)\n{% enddocs %}", re.DOTALL)
NAMED = re.compile(r"{{\s*doc\('(\w+)'\)\s*}}")
# A type that differs on Spark: the other one is that of DuckDB, which publishes.
OF_DUCKDB = re.compile(r"{{ '\w+' if target\.type == 'spark' else '(\w+)' }}")


def markdown(models: Path) -> str:
    """A section per mart below a folder: its description, then a row per column."""
    texts = {
        name: text for path in sorted(models.rglob("*.md")) for name, text in BLOCK.findall(path.read_text("utf-8"))
    }
    marts = [
        model
        for path in sorted(models.rglob("*.yml"))
        for model in (yaml.safe_load(path.read_text("utf-8")) or {}).get("models", ())
        if any("data_type" in column for column in model.get("columns", ()))  # what has a contract
    ]
    return OPENING + "".join(_section(mart, texts) for mart in sorted(marts, key=lambda mart: str(mart["name"])))


def _section(model: dict[str, Any], texts: dict[str, str]) -> str:
    def in_words(text: str) -> str:
        return " ".join(NAMED.sub(lambda found: texts[found[1]], text).split())

    rows = [
        (name_and_type(column), in_words(column.get("description", "")).replace("|", "&#124;"))
        for column in model.get("columns", ())
    ]
    table = "".join(f"| {name} | {description} |\n" for name, description in rows)
    return f"\n## {model['name']}\n\n{in_words(model['description'])}\n\n| column | type | |\n|---|---|---|\n{table}"


def name_and_type(column: dict[str, Any]) -> str:
    """The first two cells of a column's row."""
    data_type = OF_DUCKDB.sub(lambda found: found[1], str(column.get("data_type", "")))
    return f"`{column['name']}` | {data_type}"
