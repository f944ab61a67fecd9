"""What `dev` starts ends with it: real processes, of which some start others, wait or ignore signals."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.fleet.places import PROJECT

RUN = """
import fcntl, os, sys
from pipelines.command_line.process_group import run_together
if sys.argv[2]:
    lock = os.open(sys.argv[2], os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.set_inheritable(lock, True)
sys.exit(run_together(sys.argv[3:], float(sys.argv[1])))
"""


def started(*command: str, grace_seconds: float = 8, lock: Path | None = None) -> subprocess.Popen[str]:
    """The command in a process as a shell starts it in the background: it ignores SIGINT, and SIGHUP only where the
    tests run under nohup, which `env` undoes."""
    words = [sys.executable, "-c", RUN, str(grace_seconds), str(lock or ""), *command]
    words = ["env", "--default-signal=HUP", "sh", "-c", 'trap "" INT; exec "$@"', "sh", *words]
    return subprocess.Popen(words, cwd=PROJECT, stdout=subprocess.PIPE, text=True)


def is_alive(process: int) -> bool:
    """Whether a process runs; one that has ended and waits to be asked for its status does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_command_and_what_it_started(number: signal.Signals) -> None:
    process = started("sh", "-c", "sleep 600 & echo $!; echo $$; wait")
    pids = [int(process.stdout.readline()) for _ in range(2)]
    assert all(is_alive(pid) for pid in pids)
    began = time.monotonic()
    process.send_signal(number)
    assert process.wait(timeout=10) == 0
    assert time.monotonic() - began < 5
    assert not any(is_alive(pid) for pid in pids)


def test_what_ignores_the_signal_is_killed_when_the_grace_is_over() -> None:
    process = started("sh", "-c", 'trap "" TERM; (sleep 600) & echo $!; echo $$; wait', grace_seconds=0.5)
    pids = [int(process.stdout.readline()) for _ in range(2)]
    process.terminate()
    assert process.wait(timeout=10) == 0
    assert not any(is_alive(pid) for pid in pids)


def test_what_the_command_leaves_behind_ends_with_it_and_its_status_is_passed_on() -> None:
    process = started("sh", "-c", "sleep 600 & echo $!; exit 7")
    left = int(process.stdout.readline())
    assert process.wait(timeout=10) == 7
    time.sleep(0.1)
    assert not is_alive(left)


def test_what_was_started_ends_where_the_caller_is_killed() -> None:
    """kill -9, or the kernel without memory: nothing is left that goes on booking."""
    process = started("sh", "-c", "sleep 600 & echo $!; echo $$; wait")
    pids = [int(process.stdout.readline()) for _ in range(2)]
    process.kill()
    assert process.wait(timeout=10) == -signal.SIGKILL
    assert comes(lambda: not any(is_alive(pid) for pid in pids))


def test_what_ignores_the_signal_is_killed_too_where_the_caller_is() -> None:
    process = started("sh", "-c", 'trap "" TERM; (sleep 600) & echo $!; echo $$; wait', grace_seconds=0.5)
    pids = [int(process.stdout.readline()) for _ in range(2)]
    assert all(is_alive(pid) for pid in pids)
    process.kill()
    process.wait(timeout=10)
    assert comes(lambda: not any(is_alive(pid) for pid in pids))


def test_what_was_started_ends_where_its_guard_is_killed() -> None:
    process = started("sh", "-c", "sleep 600 & echo $!; echo $$; wait")
    pids = [int(process.stdout.readline()) for _ in range(2)]
    assert all(is_alive(pid) for pid in pids)
    os.kill(os.getpgid(pids[0]), signal.SIGKILL)
    process.wait(timeout=10)
    assert comes(lambda: not any(is_alive(pid) for pid in pids))


def test_a_second_signal_ends_the_grace() -> None:
    process = started("sh", "-c", 'trap "" TERM; (sleep 600) & echo $!; wait', grace_seconds=60)
    last = int(process.stdout.readline())
    process.terminate()
    time.sleep(0.5)
    assert is_alive(last)
    process.terminate()
    assert process.wait(timeout=10) == 0
    assert not is_alive(last)


def test_the_locks_of_a_killed_caller_are_held_until_all_has_ended(tmp_path: Path) -> None:
    """A second `dev` would start a second daemon beside what is still ending."""
    lock = tmp_path / "dev.lock"
    process = started(
        *("sh", "-c", 'trap "" TERM; sleep 600 & sleep 600 & echo $!; wait'), grace_seconds=1.5, lock=lock
    )
    last = int(process.stdout.readline())
    process.kill()
    process.wait(timeout=10)
    assert not is_free(lock)
    assert comes(lambda: is_free(lock))
    assert not is_alive(last)


def is_free(lock: Path) -> bool:
    with lock.open("a") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def comes(is_over: Callable[[], bool]) -> bool:
    """Whether it is so within ten seconds."""
    deadline = time.monotonic() + 10
    while not is_over():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def test_a_signal_that_the_caller_ignores_stays_ignored() -> None:
    words = [sys.executable, "-c", RUN, "8", "", "sh", "-c", "echo up; sleep 1; exit 3"]
    with subprocess.Popen(["nohup", *words], cwd=PROJECT, stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGHUP)
        assert process.wait(timeout=10) == 3
