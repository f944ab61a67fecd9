"""Plain English in code: words of a private dialect fail here, with the file, the line and what to write instead.

Add a row when a word had to be read twice. Keep out style that ruff checks, and the words that a column may hold
(tests/ledger/test_words.py).
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize

import pytest

from pipelines.fleet.places import PROJECT
from tests import optional

# Names that readers of the marts use already: they change only with a note in CHANGELOG.
PUBLIC_NAMES = ("no_tokens_told", "renamed: {told_output_tokens")
# A word or phrase of comments, docstrings, messages, SQL and YAML -> what to write instead.
PROSE = {
    r"told|heard": "reported, received, given",
    r"untold": "unreported",
    r"tells?|says?|said|speaks?": "has, reports, shows, names, states",
    r"judge[ds]?": "check, validate, assess",
    r"believe[ds]?": "accept, or: the limit is too low",
    r"begun": "started",
    r"bites?": "a verb of what it does",
    r"homes": "locations",
    r"nobody(?:'s)?|no one(?:'s)?|somebody(?:'s)?": "unallocated, no claimant, unknown, another process",
    r"stands?|stood": "is, is in, counts for, is used",
    r"lies?": "is in, is between; of a sample: is wrong",
    r"the house|rooms|one-way doors?": "the packages, their import rules",
    r"at rest": "not running, stored",
    r"gives up|gave up": "stops, raises",
    r"no row is not idleness": "a missing row means unknown, not idle",
    r"how far to believe it": "confidence",
}
# A part of a name, between underscores -> what to call it.
NAMES = {
    r"told|heard|said": "what it is: constants, variables, text, reported",
    r"untold": "unreported, unmeasured",
    r"judged?|judges": "validate, check, assessed",
    r"begun": "mark_due, started",
    r"bites?": "a verb of what it does",
    r"homes|house": "locations, packages",
    r"nobody|nobodys": "unallocated, reserved",
}
_PROSE = {re.compile(rf"\b(?:{words})\b", re.IGNORECASE): instead for words, instead in PROSE.items()}
_NAMES = {re.compile(rf"(?<![a-z])(?:{words})(?![a-z])"): instead for words, instead in NAMES.items()}
# One search per line first: few lines have any of the words.
_ANY_PROSE, _ANY_NAME = (
    re.compile("|".join(pattern.pattern for pattern in patterns), re.IGNORECASE) for patterns in (_PROSE, _NAMES)
)
CODE = ("collectors", "pipelines", "bench", "tests")
SQL_AND_YAML = ("dbt_project", "fleets")
# Recorded inputs, and the lists above.
RECORDED = ("tests/test_words_of_the_project.py",)

Line = tuple[int, str]


def python_lines(source: str, *, with_messages: bool) -> tuple[list[Line], list[Line]]:
    """Prose and names of a Python file, each with its line. Prose is comments and docstrings, and with messages all
    other texts as well."""
    prose, names = [], []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            prose.append((token.start[0], token.string))
        elif token.type == tokenize.NAME:
            names.append((token.start[0], token.string))
    nodes = list(ast.walk(ast.parse(source)))
    docstrings = {
        id(node.body[0].value)
        for node in nodes
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and (with_messages or id(node) in docstrings):
            prose += [(node.lineno + offset, line) for offset, line in enumerate(node.value.splitlines())]
    return prose, names


def found_in(path: str, source: str) -> list[str]:
    """One text per word of the lists in a file: where it is, and what to write instead."""
    for name in PUBLIC_NAMES:
        source = re.sub(rf"\b{name}\b", "public_name", source)
    if not (_ANY_PROSE.search(source) or _ANY_NAME.search(source)):
        return []  # parsing takes longer than all else
    if path.endswith(".py"):
        prose, names = python_lines(source, with_messages=not path.startswith("tests/"))
    else:
        prose = names = list(enumerate(source.splitlines(), 1))
    found = {
        (number, match[0].lower()): instead
        for lines, patterns, any_of_them in ((prose, _PROSE, _ANY_PROSE), (names, _NAMES, _ANY_NAME))
        for number, line in lines
        if any_of_them.search(line)
        for pattern, instead in patterns.items()
        for match in pattern.finditer(line)
    }
    return [f"{path}:{number}: {word!r}; write instead: {instead}" for (number, word), instead in sorted(found.items())]


def files() -> list[str]:
    """The tracked source files whose words are checked."""
    (git,) = optional.required("git")
    listed = subprocess.run(
        [git, "ls-files", *CODE, *SQL_AND_YAML], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    return [
        path
        for path in listed.stdout.splitlines()
        if path.endswith((".py", ".sql", ".yml", ".yaml", ".md")) and not path.startswith(RECORDED)
    ]


@pytest.mark.needs("git")
def test_code_is_in_plain_english() -> None:
    found = [
        line
        for path in files()
        if (PROJECT / path).exists()
        for line in found_in(path, (PROJECT / path).read_text(encoding="utf-8"))
    ]
    assert found == [], "\n".join([f"{len(found)} words to replace:", *found])


@pytest.mark.parametrize(
    ("path", "source", "words"),
    [
        ("pipelines/a.py", "# What the source said.\nx = 1\n", ["pipelines/a.py:1: 'said'"]),
        (
            "pipelines/a.py",
            'def f():\n    """One line.\n\n    Nobody knows.\n    """\n',
            ["pipelines/a.py:4: 'nobody'"],
        ),
        ("pipelines/a.py", "told = 1\n", ["pipelines/a.py:1: 'told'"]),
        ("pipelines/a.py", 'raise ValueError("the file says no")\n', ["pipelines/a.py:1: 'says'"]),
        ("tests/test_a.py", "def test_a_board_that_nobody_holds():\n    pass\n", ["tests/test_a.py:1: 'nobody'"]),
        ("dbt_project/a.sql", "select 1\n-- Stands in its row.\n", ["dbt_project/a.sql:2: 'stands'"]),
        ("dbt_project/a.sql", "with judged as (select 1)\n", ["dbt_project/a.sql:1: 'judged'"]),
        (
            "dbt_project/a.yml",
            "- description: Boards that are at rest.\n",
            ["dbt_project/a.yml:1: 'at rest'"],
        ),
        # Their twins, which are plain.
        ("pipelines/a.py", "# It understands retold warehouses, and soothsayers.\nfold = 1\n", []),
        ("tests/test_a.py", 'labels = {"pod": "told"}\n', []),
        ("dbt_project/a.sql", "select 1 where reason = 'no_tokens_told'\n", []),
    ],
)
def test_the_words_are_found_with_their_line(path: str, source: str, words: list[str]) -> None:
    assert [line.partition(";")[0] for line in found_in(path, source)] == words
