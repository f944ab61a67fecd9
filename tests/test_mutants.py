"""The list of mutants, and how a trial of one comes to its verdict: on a project of one function."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.fleet.places import DBT_PROJECT, PROJECT
from tests.mutants.listed import Mutant, TextNotFound, mutants, textual_tests
from tests.mutants.results import Result, Results, table
from tests.mutants.trees import Tree
from tests.mutants.trials import Trials, bisected, grouped, near

# Beside the topics of dbt, what has two mutants or more.
AREAS = (
    *(
        f"pipelines/{name}/"
        for name in ("alarming", "analysis", "booking", "command_line", "fleet", "landing", "report")
    ),
    *("pipelines/publishing/", "pipelines/publishing/month_closing.py", "pipelines/warehouse/", "collectors/"),
    "dbt_project/macros/",
)


def mutant(name: str, file: str = "pipelines/price.py", text: str = "2", replacement: str = "3") -> Mutant:
    return Mutant(name, file, text, replacement, "a price")


def of_sql(name: str, model: str) -> Mutant:
    return mutant(name, f"dbt_project/models/{model}.sql")


# --- the list ---------------------------------------------------------------------------------------------------------


def test_each_mutants_text_is_in_its_file_once_and_changes_it() -> None:
    wrong = [
        f"{listed.name}: {count} times"
        for listed in mutants().values()
        if (count := (PROJECT / listed.file).read_text(encoding="utf-8").count(listed.text)) != 1
        or listed.text == listed.replacement
    ]
    assert wrong == []


def test_each_topic_and_area_has_two_mutants() -> None:
    topics = [f"dbt_project/models/{path.name}/" for path in (DBT_PROJECT / "models").iterdir() if path.is_dir()]
    files = [listed.file for listed in mutants().values() if not listed.control]
    counts = {area: sum(file.startswith(area) for file in files) for area in (*topics, *AREAS)}
    assert {area: count for area, count in counts.items() if count < 2} == {}


def test_each_formula_of_the_method_has_a_mutant() -> None:
    method = (PROJECT / "docs" / "method.md").read_text(encoding="utf-8")
    fractions, numbers = re.findall(r"\n\| (?:column|number) \|.*?\n\n", method, re.DOTALL)
    formulas = set(re.findall(r"^\| `(\w+)` \|", fractions + numbers, re.MULTILINE))
    assert len(formulas) > 15
    assert formulas == {listed.formula for listed in mutants().values() if listed.formula}


def test_the_tests_that_kill_nothing_are_there() -> None:
    files = {name.partition("::")[0] for name in textual_tests()}
    assert {file for file in files if not (PROJECT / file).exists()} == set()


# --- applying ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("contents", "count"), [("1", 0), ("2 and 2", 2)])
def test_a_text_that_is_not_there_once_is_refused(tmp_path: Path, contents: str, count: int) -> None:
    (tmp_path / "price.py").write_text(contents)
    with pytest.raises(TextNotFound, match=f"its text is in price.py {count} times, expected once"):
        mutant("dear", "price.py").apply(tmp_path)
    assert (tmp_path / "price.py").read_text() == contents


def test_the_tests_of_the_mutants_folder_are_the_nearest() -> None:
    assert near("dbt_project/models/cost/steps/int_site_fees.sql", PROJECT) == ["tests/ledger/cost", "tests/ledger"]
    assert near("pipelines/fleet/money/tariffs.py", PROJECT) == ["tests/fleet"]
    assert near("pipelines/analysis/savings.py", PROJECT)[0].endswith("advice")


# --- groups and halves ------------------------------------------------------------------------------------------------


def test_no_group_has_two_mutants_of_one_model_its_ancestors_or_one_file() -> None:
    """`daily` reads `book`, as `prices` does; the macro is used by `prices` alone."""
    graph = {
        "nodes_of": {
            **{f"dbt_project/models/{name}.sql": [f"model.{name}"] for name in ("book", "daily", "prices")},
            "dbt_project/macros/tax.sql": ["model.prices"],
        },
        "parents": {"model.daily": ["model.book"], "model.prices": ["model.book"], "model.book": []},
    }
    listed = [
        of_sql("book", "book"),
        of_sql("daily", "daily"),
        of_sql("prices", "prices"),
        of_sql("prices again", "prices"),
        mutant("tax", "dbt_project/macros/tax.sql"),
        mutant("setting", "dbt_project/dbt_project.yml"),
        mutant("price"),
        mutant("price again"),
    ]
    names = [[member.name for member in group] for group in grouped(listed, graph)]
    assert names == [["book", "price"], ["daily", "prices", "price again"], ["prices again"], ["tax"], ["setting"]]


def test_halving_finds_each_mutant_that_fails_a_test() -> None:
    group = [mutant(name) for name in "abcdefg"]
    tried = []

    def first_failure(part: list[Mutant]) -> str:
        names = {member.name for member in part}
        tried.append(names)
        return "test_c" if "c" in names else "test_f" if "f" in names else ""

    assert bisected(group, first_failure) == {"c": "test_c", "f": "test_f"}
    assert {"d", "e"} & set().union(*(names for names in tried if len(names) == 1)) == set()


# --- trials -----------------------------------------------------------------------------------------------------------

PRICE = "def price():\n    return 2\n\n\ndef unused():\n    return 5\n"
TESTS = "from pipelines.price import price\n\ndef test_price():\n    assert price() == 2\n"
# With a mutant the first of these fails because of its text alone, the second one once; the third fails in any case.
BAD_TESTS = """
from pathlib import Path

is_mutant = "return 2" not in Path("pipelines/price.py").read_text()

def test_text():
    if is_mutant:
        raise AssertionError("price.py holds 0 times, expected once: return 2")

def test_once():
    if is_mutant and not Path("failed").exists():
        Path("failed").touch()
        assert False

def test_ever():
    assert False
"""


@pytest.fixture
def trees(tmp_path: Path) -> list[Tree]:
    """Two trees of a project with one function that is tested twice, and one that is not."""
    made = []
    for name in ("broken", "sound"):
        tree = tmp_path / name
        for path in ("pipelines/__init__.py", "tests/any/test_any.py", "tests/price/test_price.py"):
            (tree / path).parent.mkdir(parents=True)
            (tree / path).write_text("" if path.startswith("pipelines") else TESTS)
        (tree / "pipelines" / "price.py").write_text(PRICE)
        subprocess.run(["git", "init", "-q"], cwd=tree, check=True)
        commit(tree)
        (tree / ".venv").symlink_to(Path(sys.prefix))
        made.append(Tree(tree))
    return made


def commit(tree: Path) -> None:
    identity = ["-c", "user.name=tests", "-c", "user.email=tests@example.org"]
    for words in (["add", "."], [*identity, "commit", "-qm", "as it is"]):
        subprocess.run(["git", *words], cwd=tree, check=True)


def trials(trees: list[Tree], results: Results) -> Trials:
    return Trials("after", "c0ffee", trees[:1], trees[1], results, 60)


@pytest.mark.needs("git")
def test_a_trial_kills_what_a_test_sees_and_a_stopped_run_goes_on(trees: list[Tree], tmp_path: Path) -> None:
    seen = mutant("dear", text="return 2", replacement="return 3")
    unseen = mutant("unused", text="return 5", replacement="return 6")
    gone = mutant("gone", text="return 7")
    results = Results(tmp_path / "results.csv")
    trials(trees, results).run([seen, unseen, gone], "test")
    rows = (tmp_path / "results.csv").read_text().splitlines()
    assert [re.sub(r",\d+,c0ffee$", "", row) for row in rows] == [
        "column,mutant,suite,verdict,killed_by,seconds,commit",
        "after,dear,test,killed,tests/price/test_price.py::test_price",
        "after,gone,test,text not there,",
        "after,unused,test,survives,",
    ]
    # What has a verdict is not tried again: in a tree that is not there it could not be.
    again = Results(tmp_path / "results.csv")
    trials([Tree(tmp_path / "none"), trees[1]], again).run([seen, unseen, gone], "test")
    assert again.killed_in("after", "dear") == "test"


@pytest.mark.needs("git")
def test_what_fails_once_without_a_mutant_or_for_its_text_alone_kills_nothing(
    trees: list[Tree], tmp_path: Path
) -> None:
    for tree in trees:
        (tree.path / "tests" / "any" / "test_any.py").write_text(BAD_TESTS)
        (tree.path / "tests" / "price" / "test_price.py").unlink()
        commit(tree.path)
    results = Results(tmp_path / "results.csv")
    trials(trees, results).run([mutant("dear", text="return 2", replacement="return 3")], "test")
    assert results.verdict("after", "dear", "test") == "survives"


# --- the table --------------------------------------------------------------------------------------------------------


def test_the_table_names_what_moved_down(tmp_path: Path) -> None:
    results = Results(tmp_path / "results.csv")
    for column, name, suite, verdict in (
        ("before", "kept", "test", "killed"),
        ("after", "kept", "test", "killed"),
        ("before", "lower", "test", "killed"),
        ("after", "lower", "test", "survives"),
        ("after", "lower", "test-rest", "killed"),
        ("before", "higher", "test", "survives"),
        ("before", "higher", "test-rest", "survives"),
        ("after", "higher", "test", "killed"),
        ("before", "waits", "test", "not yet"),
    ):
        results.write(Result(column, name, suite, verdict, "t" if verdict == "killed" else "", 1, "c0ffee"))
    lines, moved_down = table(
        Results(tmp_path / "results.csv"), ["kept", "lower", "higher", "waits"], "before", "after"
    )
    assert lines == [
        "mutant · before · after · killed by",
        "kept · test · test · t",
        "lower · test · test-rest · t · moved down",
        "higher · survives · test · t",
        "waits · not yet · – · ",
    ]
    assert moved_down == ["lower"]
