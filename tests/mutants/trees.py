"""Trees of a commit beside the user's own, in which mutants are written and tests run: nothing is broken at home.

A tree is a git worktree in the folder for temporary files, with the packages of this `.venv` and the code of its
commit. Add here what is done in one. Keep out which mutants and tests (`trials`).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest import ExitCode

from tests.mutants.listed import Mutant

PROJECT = Path(__file__).parents[2]
PLUGIN = Path(__file__).parent / "plugin"
# A run of all tests by one process, on a busy machine; of a trial that has its minutes, a multiple of them.
LIMIT_SECONDS = 3 * 3600
TIMES_SLOWER = 10


class TrialFailed(Exception):
    """Tests could not be run in a tree: the message has what was printed."""


class NoEnd(Exception):
    """A trial did not end: whoever waits for the tests sees it."""


running = set[subprocess.Popen[str]]()


@dataclass(frozen=True)
class Answer:
    """What came of a run of pytest: the tests that failed, whether it ran all, and what it took of the processor."""

    failed: list[str]
    is_whole: bool
    count: int
    seconds: float


@dataclass(frozen=True)
class Tree:
    """A worktree of one commit."""

    path: Path

    @classmethod
    def of(cls, commit: str, name: str) -> Tree:
        """The tree of this name, made or taken over from a run that was stopped, without a mutant."""
        folder = trees_folder() / f"{commit[:12]}-{name}"
        tree = cls(folder)
        if not folder.exists():
            _git(PROJECT, "worktree", "prune")
            _git(PROJECT, "worktree", "add", "--quiet", "--detach", str(folder), commit)
        if not (folder / ".venv").exists():
            (folder / ".venv").symlink_to(PROJECT / ".venv")
        tree.clear()
        # The packages of .venv include this checkout itself, as an editable one: a tree has to come before it.
        code = tree._python("-c", "import pipelines; print(pipelines.__path__[0])").strip()
        if Path(code) != folder / "pipelines":
            raise RuntimeError(f"tests in {folder} would run the code of {code}: expected that of the tree")
        return tree

    def clear(self) -> None:
        """Take every mutant out."""
        _git(self.path, "checkout", "--quiet", "--force", "HEAD", "--", ".")

    def remove(self) -> None:
        """Remove the tree."""
        _git(PROJECT, "worktree", "remove", "--force", str(self.path))

    def write(self, mutants: Sequence[Mutant]) -> None:
        """Have just these mutants in the tree; the digest of changed SQL is declared, as if it changed no figure."""
        self.clear()
        for mutant in mutants:
            mutant.apply(self.path)
        if any(mutant.file.startswith("dbt_project/") for mutant in mutants):
            self._python(str(PLUGIN / "changed_sql.py"), "digest", "-")

    def graph(self) -> dict[str, Any]:
        """Which nodes of dbt each file of SQL makes or changes, and the parents of each node."""
        return self._asked("graph")

    def failed_units(self, files: Sequence[str]) -> list[str]:
        """The unit tests of dbt that fail, of the models that these files make or change."""
        return self._asked("units", *files)

    def pytest(self, *arguments: str, **plan: Any) -> Answer:
        """Run these tests by a plan (`plugin/counted_tests.py`)."""
        with tempfile.TemporaryDirectory(dir=os.environ.get("PYTEST_DEBUG_TEMPROOT")) as folder:
            answer = Path(folder, "answer.json")
            plan = {"near": [], "words": [], "ignored": [], "seconds": 0, **plan, "answer": str(answer)}
            Path(folder, "plan.json").write_text(json.dumps(plan), encoding="utf-8")
            words = ("-m", "pytest", "-p", "counted_tests", "-p", "no:cacheprovider", "-n", "0", "-q", *arguments)
            environment = {
                "MUTANTS_PLAN": f"{folder}/plan.json",
                "PYTEST_DEBUG_TEMPROOT": folder,
                # In the tree's folder the tree's code comes first. No path of code is added: an installed wheel that a
                # test starts has to run its own.
                "PYTHONPATH": str(PLUGIN),
            }
            limit = TIMES_SLOWER * plan["seconds"] or LIMIT_SECONDS
            printed = self._python(*words, is_checked=False, limit=limit, **environment)
            if not answer.exists():
                raise TrialFailed(f"pytest in {self.path} ended without an answer:\n{printed[-3000:]}")
            answered = json.loads(answer.read_text(encoding="utf-8"))
        if answered["status"] in (ExitCode.INTERNAL_ERROR, ExitCode.USAGE_ERROR):
            raise TrialFailed(f"pytest in {self.path} failed itself:\n{printed[-3000:]}")
        if Path(answered["code"]) != self.path / "pipelines":
            raise RuntimeError(f"tests in {self.path} ran the code of {answered['code']}: expected that of the tree")
        return Answer(*(answered[key] for key in ("failed", "is_whole", "count", "seconds")))

    def _asked(self, word: str, *files: str) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            answer = Path(folder, "answer.json")
            self._python(str(PLUGIN / "changed_sql.py"), word, str(answer), *files)
            return json.loads(answer.read_text(encoding="utf-8"))

    def _python(self, *words: str, is_checked: bool = True, limit: float = LIMIT_SECONDS, **more: str) -> str:
        """Run Python in the tree; what it printed. A trial that is stopped leaves no process."""
        process = subprocess.Popen(
            [str(self.path / ".venv" / "bin" / Path(sys.executable).name), *words],
            cwd=self.path,
            env={**os.environ, **more},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        running.add(process)
        try:
            printed, _ = process.communicate(timeout=limit)
        except BaseException as stopped:
            os.killpg(process.pid, signal.SIGINT)
            try:
                process.communicate(timeout=60)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
            if isinstance(stopped, subprocess.TimeoutExpired):
                raise NoEnd(f"no end within {limit:.0f} s") from None
            raise
        finally:
            running.discard(process)
        if is_checked and process.returncode:
            raise TrialFailed(f"{' '.join(words[:2])} failed in {self.path}:\n{printed[-3000:]}")
        return printed


def stop_all() -> None:
    """Stop what runs in any tree."""
    for process in tuple(running):
        os.killpg(process.pid, signal.SIGINT)


def trees_folder() -> Path:
    """Where this user's trees are."""
    folder = Path(tempfile.gettempdir()) / f"wattledger-mutants-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def commit_of(checkout: str) -> str:
    """The commit that a name, or the folder of another checkout, is of."""
    if Path(checkout).is_dir():
        return _git(Path(checkout), "rev-parse", "HEAD").strip()
    return _git(PROJECT, "rev-parse", f"{checkout}^{{commit}}").strip()


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"git {' '.join(words)} failed in {folder}: {done.stderr.strip()}")
    return done.stdout
