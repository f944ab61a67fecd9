"""How the process of a command ends: at once, with its status, and after all that has to be done at the end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.fleet.places import PROJECT

# A command that leaves an object whose end can be seen, a thread at work and something to do at the end.
PROGRAM = """
import atexit, logging, sys, tempfile, threading, time
from pipelines import process_exit

class Left:
    def __del__(self):
        print("freed")

def work():
    time.sleep(0.2)
    print("thread done")

left = Left()
left.itself = left
folder = tempfile.TemporaryDirectory()
atexit.register(print, "registered")
threading.Thread(target=work).start()
print(folder.name)
STATUS
"""


def ended(tmp_path: Path, status: str) -> tuple[int, list[str], str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("STATUS", status)],
        check=False,
        cwd=PROJECT,
        env={"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    folder, *lines = done.stdout.splitlines()
    assert not Path(folder).exists()
    return done.returncode, lines, done.stderr


@pytest.mark.parametrize("status", [0, 1])
def test_a_command_that_is_over_ends_the_process_before_python_frees_its_objects(tmp_path: Path, status: int) -> None:
    assert ended(tmp_path, f"sys.exit(process_exit.noted({status}))") == (status, ["thread done", "registered"], "")


def test_a_process_that_ends_otherwise_ends_as_python_ends_it(tmp_path: Path) -> None:
    status, lines, error = ended(tmp_path, "raise KeyError('no status')")
    assert (status, lines) == (1, ["thread done", "registered", "freed"])
    assert "KeyError: 'no status'" in error


def test_an_output_that_cannot_be_written_is_reported_by_python() -> None:
    program = "import sys; from pipelines import process_exit; print('row'); sys.exit(process_exit.noted(0))"
    command = [sys.executable, "-c", program]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command, check=False, cwd=PROJECT, env={}, stdout=full, stderr=subprocess.PIPE, timeout=60
        )
    assert done.returncode == 120
    assert b"No space left on device" in done.stderr
