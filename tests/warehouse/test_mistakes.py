"""Plain mistakes end in one line that names the thing and the remedy; a bug of ours still leaves its traceback."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pipelines.fleet.places import PROJECT
from pipelines.warehouse import database, mistakes
from tests import commands, optional
from tests.books import arguments, command, environment

TINY = """
fleet: tiny
synthetic: true
period: {start: 2026-10-01, end: 2026-10-02}
sources: [{name: synthetic, kind: synthetic, scenario: demo, interval_seconds: 60}]
"""


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return written(tmp_path, TINY)


@pytest.fixture
def held(tmp_path: Path) -> Path:
    """The tiny fleet's warehouse, with some rows in it."""
    path = tmp_path / "data" / "tiny" / "warehouse.duckdb"
    path.parent.mkdir(parents=True)
    connection = database.connect(path)
    connection.execute("create table t as select range as x, hash(range) as y from range(500000)")
    connection.close()
    return path


def written(folder: Path, text: str) -> Path:
    path = folder / "fleet.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def assert_one_line(done: subprocess.CompletedProcess[str], status: int, *words: str) -> str:
    """Its only line of errors, which holds these words; the caller checks the log that it names."""
    assert done.returncode == status, done.stdout + done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    for word in words:
        assert word in done.stderr
    return done.stderr


def log_of(line: str) -> str:
    """The text of the log file that a line names."""
    return Path(re.search(r"(/\S+\.log)", line)[1]).read_text(encoding="utf-8")


def checked(path: Path, **more: str) -> subprocess.CompletedProcess[str]:
    return commands.run(
        ["check", "--offline", "--fleet", str(path)], environment(path.parent / "data", **more), timeout=60
    )


# --- questions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--start", "2026-13-01"], ("--start", "got '2026-13-01'", "expected a UTC date such as 2026-10-01")),
        (["--end", "01.10.2026"], ("--end", "got '01.10.2026'", "expected a UTC date such as 2026-10-01")),
        (["--start", "2026-10-05", "--end", "2026-10-03"], ("--start 2026-10-05 --end 2026-10-03", "end after the")),
        (["--start", "2026-09-01", "--end", "2026-10-02"], ("--start 2026-09-01", "from 2026-10-01", "to 2026-10-02,")),
        (["--strat", "2026-10-01"], ("unknown option: --strat", "--help")),
    ],
)
def test_a_wrong_date_or_option(tiny: Path, options: list[str], words: tuple[str, ...]) -> None:
    assert_one_line(command(tiny, tiny.parent / "data", *options), 2, *words)


def test_a_wrong_environment_variable(tiny: Path) -> None:
    for name, value, word in (
        ("WATTLEDGER_LOCK_SECONDS", "soon", "expected seconds such as 900"),
        ("WATTLEDGER_THREADS", "many", "INT64"),
        ("WATTLEDGER_MEMORY_LIMIT", "lots", "1GB"),
    ):
        assert_one_line(command(tiny, tiny.parent / "data", **{name: value}), 2, name, value, word)


def test_the_machines_own_python(tmp_path: Path) -> None:
    bare = [sys.executable, "-S", "-m", "pipelines", "table"]  # without the packages beside it
    done = subprocess.run(bare, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert_one_line(done, 1, "has no package", "make setup", ".venv/bin/wattledger")


def test_a_table_before_the_first_run(tiny: Path) -> None:
    command_line = [sys.executable, "-m", "pipelines", "table", "--fleet", str(tiny)]
    env = environment(tiny.parent / "data")
    done = subprocess.run(command_line, cwd=PROJECT, env=env, capture_output=True, text=True, check=False)
    assert_one_line(done, 2, "nothing is published for fleet tiny yet", "wattledger run")


# --- fleet files ------------------------------------------------------------------------------------------------------


def exploding() -> str:
    # In nodes a0 is 3 and each next one twice the last and 1 more: up to a17, in line 23, they are 2**20 - 22.
    lines = ["a0: &a0 [x, x]", *(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 40))]
    return TINY + "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (TINY + "models: " + "[" * 5000 + "]" * 5000, ("line 6", "nest")),
        (TINY + "teams: " + "{a: " * 3000 + "1" + "}" * 3000, ("line 6", "nest")),
        (exploding(), ("more than 1,000,000 values, with aliases written out", "line 23")),
        (TINY + "teams: &a {a: *a}", ("line 6", "an alias inside of what it is the name of")),
        (TINY.replace("start: 2026-10-01", "start: 2026-13-01"), ("line 4", "got '2026-13-01'", "month must be in 1")),
        (TINY + "grid_seconds: " + "1" * 5000, ("line 6", "Exceeds the limit")),
        (TINY + "sites: a: b", ("line 6, column 9", "mapping values are not allowed in this context")),
        (TINY + "sites:\n\t- a", ("line 7 begins with a tab", "expected spaces")),
        (TINY + 'run_windows: {files: [{path: "${NOWHERE}/w.csv"}]}', ("run_windows.files[0].path", "NOWHERE is not")),
        ("", ("expected a mapping with the keys fleet, period, sources",)),
    ],
    ids=["lists", "mappings", "aliases", "itself", "date", "number", "colon", "tab", "variable", "empty"],
)
def test_a_fleet_file_that_cannot_be_used(tmp_path: Path, text: str, words: tuple[str, ...]) -> None:
    assert_one_line(checked(written(tmp_path, text)), 2, str(tmp_path / "fleet.yaml"), *words)


def test_a_fleet_file_that_is_not_there_or_is_a_folder(tmp_path: Path) -> None:
    assert_one_line(checked(tmp_path / "none.yaml"), 2, "none.yaml: cannot be read: No such file", "fleets/README.md")
    assert_one_line(checked(tmp_path), 2, f"{tmp_path}: cannot be read: Is a directory", "expected a fleet file")
    unreadable = written(tmp_path, TINY)
    unreadable.chmod(0)
    if os.access(unreadable, os.R_OK):  # root reads everything
        return
    assert_one_line(checked(unreadable), 2, "cannot be read: Permission denied")


def test_a_variable_that_is_not_set_is_one_mistake_however_many_keys_use_it(tmp_path: Path) -> None:
    windows = (
        "run_windows: {files: [{path: '${NOWHERE}/a.csv'}, {path: '${NOWHERE}/b.csv'}, {path: '${NOWHERE}/c.csv'}]}"
    )
    assert_one_line(checked(written(tmp_path, TINY + windows)), 2, "NOWHERE is not set", "(2 more keys use it)")
    other = windows.replace("${NOWHERE}/c", "${ELSEWHERE}/c")
    done = checked(written(tmp_path, TINY + other))
    assert done.stderr.splitlines()[0].endswith("2 problems")


def test_aliases_and_depth_that_a_fleet_file_needs_are_taken(tmp_path: Path) -> None:
    sites = "\n".join(
        f"  - {{name: s{n}, zone: DE, pue: 1.2, tariff: {'&t ' if not n else '*t'}"
        + ("[{usd_per_kwh: 0.2, local_hours: [0, 24]}]}" if not n else "}")
        for n in range(200)
    )
    done = checked(written(tmp_path, TINY + f"sites:\n{sites}\n"))
    assert (done.returncode, done.stderr) == (0, "")


# --- the warehouse ----------------------------------------------------------------------------------------------------


@contextmanager
def another(program: str, *words: object) -> Iterator[subprocess.Popen]:
    """A process that prints `ready` once it has locked what the test needs locked."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, *map(str, words)], cwd=PROJECT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.wait()


OPENED = "import sys, time, duckdb; c = duckdb.connect(sys.argv[1]); print('ready', flush=True); time.sleep(60)"
WRITING = """
import sys, time, pathlib
from pipelines.warehouse import database
with database.writing(pathlib.Path(sys.argv[1]), "landing"):
    print("ready", flush=True)
    time.sleep(float(sys.argv[2]))
"""


def test_a_warehouse_that_another_process_has_open(tiny: Path, held: Path) -> None:
    with another(OPENED, held) as holder:
        done = command(tiny, tiny.parent / "data", WATTLEDGER_LOCK_SECONDS="1")
        who = f"{held} is open in another process ({holder.pid}, "
        assert_one_line(done, 1, who, "Close it there", "published/wattledger.duckdb")
    assert done.stdout.count("waiting up to 1 s") == 1


def test_a_warehouse_that_another_run_writes(tiny: Path, held: Path) -> None:
    with another(WRITING, held, 60) as holder:
        done = command(tiny, tiny.parent / "data", WATTLEDGER_LOCK_SECONDS="1")
        who = f"{held} is being written by process {holder.pid} on "
        line = assert_one_line(done, 1, who, "(landing, since 20", "waited 1 s", "WATTLEDGER_LOCK_SECONDS")
    assert done.stdout.count(f"waiting up to 1 s: {who}") == 1
    assert ".log" not in line  # a traceback would add nothing


def test_waiting_names_the_holder_and_then_continues(held: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "pipelines")
    with another(WRITING, held, 2) as holder, database.writing(held, "test"):
        pass
    waits = [record.message for record in caplog.records if "waiting" in record.message]
    assert len(waits) == 1
    assert f"is being written by process {holder.pid} on " in waits[0]
    caplog.clear()
    with database.writing(held, "test"):
        pass
    assert not caplog.records


def scribbled(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[20000::3] = bytes(byte ^ 0x5A for byte in content[20000::3])
    path.write_bytes(content)


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_text("this is not a database, " * 100),
        lambda path: path.write_bytes(path.read_bytes()[:300_000]),
        scribbled,
    ],
    ids=["text", "truncated", "scribbled"],
)
def test_a_damaged_warehouse(tiny: Path, held: Path, damage: Callable[[Path], object]) -> None:
    damage(held)
    done = command(tiny, tiny.parent / "data")
    line = assert_one_line(
        done, 1, f"{held} is damaged, or is no DuckDB file", "Restore it from a backup", "move it away"
    )
    assert "Traceback" in log_of(line)


# --- the disk ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Makes a disk of so many MiB; needs root."""
    disks = []

    def make(mebibytes: int) -> Path:
        disk = tmp_path / f"disk_of_{mebibytes}"
        disk.mkdir()
        mounting = ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "none", str(disk)]
        optional.required("root")
        subprocess.run(mounting, check=True)
        disks.append(disk)
        return disk

    yield make
    for disk in disks:
        subprocess.run(["umount", str(disk)], check=True)


# Dagster, and the booking, hit the end of these.
@pytest.mark.rest
@pytest.mark.needs("root")
@pytest.mark.parametrize("mebibytes", [1, 33])
def test_a_full_disk(tiny: Path, small_disk: Callable[[int], Path], mebibytes: int) -> None:
    disk = small_disk(mebibytes)
    line = assert_one_line(
        command(tiny, disk), 1, f"no space left for {disk}/tiny", "Free some", "WATTLEDGER_DATA", "run again"
    )
    assert "Traceback" in log_of(line)


@pytest.mark.rest
def test_a_file_that_may_not_grow(tiny: Path) -> None:
    program = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20));"
        " from pipelines.command_line.main import main; sys.exit(main(sys.argv[1:]))"
    )
    line = assert_one_line(python(program, tiny), 1, "refuses to write", "may be full", "WATTLEDGER_DATA")
    assert "Traceback" in log_of(line)


def test_a_data_folder_that_cannot_be_written(tiny: Path) -> None:
    # Not even root makes folders there.
    assert_one_line(
        command(tiny, Path("/sys/kernel/ledger")), 1, "/sys/kernel/ledger cannot be written", "WATTLEDGER_DATA"
    )
    file = tiny.parent / "file"
    file.write_text("")
    assert_one_line(command(tiny, file), 1, f"{file} is not a folder", "Move it away", "WATTLEDGER_DATA")


def test_a_history_of_dagster_that_is_damaged(tiny: Path) -> None:
    runs = tiny.parent / "data" / "tiny" / ".dagster" / "history" / "runs.db"
    runs.parent.mkdir(parents=True)
    runs.write_text("this is not a database, " * 100)
    home = runs.parent.parent
    assert_one_line(command(tiny, tiny.parent / "data"), 1, f"history in {home} is damaged", "Move that folder away")


# --- what is no mistake of the user -----------------------------------------------------------------------------------


def python(program: str, fleet: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, "run", "--fleet", str(fleet)],
        cwd=PROJECT,
        env=environment(fleet.parent / "data"),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.rest
def test_a_bug_of_ours_before_the_run_is_called_one_and_leaves_its_traceback(tiny: Path) -> None:
    program = (
        "import sys; from pipelines.landing import stores; from pipelines.command_line.main import main\n"
        "def planted(fleet): return {}['no such key']\n"
        "stores.validate = planted\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    line = assert_one_line(python(program, tiny), 1, "a bug in Wattledger: KeyError: 'no such key'")
    assert str(tiny.parent / "data" / "tiny" / "logs") in line
    assert "in planted" in log_of(line)


@pytest.mark.rest
def test_a_bug_of_ours_in_a_step_names_the_step_and_leaves_its_traceback(tiny: Path) -> None:
    program = (
        "import sys; from pipelines.landing import landing_days; from pipelines.command_line.main import main\n"
        "def planted(*words, **options): raise FileNotFoundError('no file of ours')\n"
        "landing_days.land_days = planted\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    done = python(program, tiny)
    failed, details = done.stderr.splitlines()
    assert done.returncode == 1
    assert failed == "step telemetry failed: FileNotFoundError: no file of ours"
    assert "in planted" in log_of(details)


@pytest.mark.long
def test_a_refusal_in_our_own_words_needs_no_traceback(tiny: Path) -> None:
    missing = "run_windows: {files: [{path: windows.csv}]}\n"
    done = command(written(tiny.parent, TINY + missing), tiny.parent / "data")
    # The file costs its check alone: all else is booked and published.
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"{tiny.parent}/windows.csv: there is no such file" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    assert not (tiny.parent / "data" / "tiny" / "logs").exists()


@pytest.mark.parametrize(
    "error", [ValueError("disk"), RuntimeError("Permission denied"), KeyError("lock"), OSError(5, "x")]
)
def test_words_alone_do_not_make_a_mistake(error: Exception) -> None:
    assert mistakes.explained(error, None) is None


def test_logs_do_not_pile_up(tmp_path: Path) -> None:
    from pipelines.fleet.fleet_file import load_fleet  # noqa: PLC0415

    fleet = load_fleet(written(tmp_path, TINY), {"WATTLEDGER_DATA": str(tmp_path)})
    paths = [mistakes.write_log(fleet, f"{n}") for n in range(mistakes.KEPT_LOGS + 3)]
    assert sorted(path for path in (tmp_path / "tiny" / "logs").iterdir()) == sorted(paths[3:])


@pytest.mark.rest
def test_a_run_that_is_stopped_reports_it(tiny: Path) -> None:
    process = subprocess.Popen(
        arguments(tiny),
        cwd=PROJECT,
        env=environment(tiny.parent / "data"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    for line in process.stdout:
        if "booking" in line:
            break
    time.sleep(1)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does on Ctrl-C
    _, stderr = process.communicate(timeout=120)
    assert (process.returncode, stderr.count("\n")) == (130, 1), stderr
    assert "run again to continue" in stderr
