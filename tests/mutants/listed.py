"""The mutants: small falsifications of the product, each of which some test must see.

They are listed in `mutants.yaml`. Add here what is read of one and how it is written into a tree. Keep out which tests
run on it (`trials`), and where the trees are (`trees`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

LIST = Path(__file__).with_name("mutants.yaml")


class TextNotFound(Exception):
    """A mutant's text is not in its file exactly once."""


@dataclass(frozen=True)
class Mutant:
    """One falsification: `text`, which is in `file` once, becomes `replacement`; `breaks` is what is wrong then.
    `formula` is the number of docs/method.md that it falsifies, `worlds` the rule that it breaks for the drawn worlds.
    `seen_by` is the file of tests that is tried first. A `control` changes no figure, and no test may kill it."""

    name: str
    file: str
    text: str
    replacement: str
    breaks: str
    formula: str = ""
    worlds: str = ""
    seen_by: str = ""
    control: bool = False

    @property
    def words(self) -> list[str]:
        """What it falsifies, by the names that a test may have: its module or model, and columns of the text."""
        return [Path(self.file).stem, *re.findall(r"\bas (\w+)", self.text)]

    def apply(self, tree: Path) -> None:
        """Write the falsification into a copy of the project."""
        path = tree / self.file
        contents = path.read_text(encoding="utf-8") if path.exists() else ""
        if (count := contents.count(self.text)) != 1:
            raise TextNotFound(
                f"mutant {self.name}: its text is in {self.file} {count} times, expected once: change it in"
                f" {LIST.relative_to(LIST.parents[2])}: {self.text!r}"
            )
        path.write_text(contents.replace(self.text, self.replacement), encoding="utf-8")


@cache
def mutants() -> dict[str, Mutant]:
    """Every mutant, by its name."""
    rows = yaml.safe_load(LIST.read_text(encoding="utf-8"))["mutants"]
    by_name = {row["name"]: Mutant(**row) for row in rows}
    if len(by_name) != len(rows):
        names = [row["name"] for row in rows]
        raise ValueError(f"{LIST.name}: more than one mutant is called {max(names, key=names.count)}")
    return by_name


@cache
def textual_tests() -> dict[str, str]:
    """The tests that fail where only text, a digest or the layout changed, and so kill nothing -> the reason. A name is
    the beginning of pytest's: a file, or a file and a test."""
    return yaml.safe_load(LIST.read_text(encoding="utf-8"))["kills_nothing"]
