"""The wheel alone, without a checkout: it books, it writes nothing where it is installed, and it starts quickly."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.installation.installed import Installed, built_wheel, installed
from tests.optional import PROJECT

# What takes a second to load, and what no reading of a publication needs.
HEAVY = ["dagster", "dbt", "pandas"]

# One accelerator that draws 360 W for a day, and an engine that gives 10 tokens a second: 36 J per token.
FLEET = """\
fleet: steady
period: {start: 2026-11-01, end: 2026-11-02}
sources:
  - name: board
    kind: files
    interval_seconds: 60
    files:
      - {path: board.csv, time: time, labels: {UUID: uuid, Hostname: host}, values: {DCGM_FI_DEV_POWER_USAGE: watts}}
  - name: engine
    kind: files
    interval_seconds: 60
    files:
      - path: engine.csv
        time: time
        labels: {instance: host, model_name: model}
        values: {"vllm:generation_tokens_total": output, "vllm:prompt_tokens_total": prompt}
engines: [{engine: "n1:8000", model: m, node: n1}]
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_wheel(PROJECT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def product(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    with installed(tmp_path_factory.mktemp("home"), wheel) as unpacked:
        yield unpacked


def test_the_wheel_has_the_files_of_the_project_and_no_others(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    tops = {name.split("/")[0] for name in names}
    assert tops == {"collectors", "pipelines", next(top for top in tops if top.endswith(".dist-info"))}
    bundled = {name for name in names if name.startswith("pipelines/bundled/")}
    generated = {"target", "logs", "dbt_packages", "__pycache__"}
    expected = {
        f"pipelines/bundled/{path.relative_to(PROJECT)}"
        for folder in ("dbt_project", "fleets")
        for path in (PROJECT / folder).rglob("*")
        if path.is_file() and not generated & set(path.parts) and path.name != ".user.yml"
    }
    expected |= {f"pipelines/bundled/{path.relative_to(PROJECT)}" for path in PROJECT.glob("docs/**/*.md")}
    tools = ("charts", "prometheus")
    of_tools = {path for tool in tools for path in (PROJECT / "bi" / tool).rglob("*") if path.is_file()}
    expected |= {f"pipelines/bundled/{path.relative_to(PROJECT)}" for path in of_tools if path.suffix != ".pyc"}
    assert bundled == {name for name in expected if not name.startswith("pipelines/bundled/docs/decisions/")}


@pytest.mark.long
@pytest.mark.needs("root")
def test_the_wheel_books_from_a_disk_that_is_read_only(product: Installed, tmp_path: Path) -> None:
    moments = [f"2026-11-{1 + minute // 1440:02}T{minute // 60 % 24:02}:{minute % 60:02}:00Z" for minute in range(1441)]
    board = [f"{moment},GPU-1,n1,360" for moment in moments]
    engine = [f"{moment},n1:8000,m,{600 * n},0" for n, moment in enumerate(moments)]
    (tmp_path / "board.csv").write_text("\n".join(["time,uuid,host,watts", *board]), encoding="utf-8")
    (tmp_path / "engine.csv").write_text("\n".join(["time,host,model,output,prompt", *engine]), encoding="utf-8")
    fleet = tmp_path / "steady.yaml"
    fleet.write_text(FLEET, encoding="utf-8")

    ran = product.run("run", "--fleet", str(fleet))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stderr == ""
    # Beside the fleet file, whatever the working directory is.
    assert (tmp_path / "data" / "steady" / "published" / "wattledger.duckdb").exists()
    columns = "joules_per_output_token as j, energy_joules as joules, output_tokens"
    query = f"select {columns} from marts.model_daily where model = 'm'"
    found = product.run("sql", query, "--format", "json", "--fleet", str(fleet))
    assert json.loads(found.stdout) == [{"j": 36.0, "joules": 31_104_000, "output_tokens": 864_000}]
    assert "### nodes_have_one_name" in product.run("help", "nodes_have_one_name").stdout
    written = product.run("report", "--fleet", str(fleet))
    assert Path(written.stdout.strip()).read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.needs("root")
def test_data_of_a_bundled_fleet_is_the_users(product: Installed, tmp_path: Path) -> None:
    asked = "from pipelines.fleet.fleet_file import load_fleet; from pipelines.fleet.places import DEFAULT_FLEET"
    for more, expected in (
        ({}, product.home / ".local/share/wattledger/demo"),
        ({"XDG_DATA_HOME": str(tmp_path)}, tmp_path / "wattledger" / "demo"),
        ({"XDG_DATA_HOME": "relative"}, product.home / ".local/share/wattledger/demo"),
        ({"WATTLEDGER_DATA": str(tmp_path)}, tmp_path / "demo"),
    ):
        done = product.python("-c", f"{asked}; print(load_fleet(DEFAULT_FLEET).root)", **more)
        assert (done.stdout.strip(), done.stderr) == (str(expected), "")


@pytest.mark.needs("root")
@pytest.mark.parametrize(
    "words", [["--help"], ["table"], ["sql", "--tables"], ["check", "--offline"], ["schema"], ["completion", "bash"]]
)
def test_commands_that_read_wait_for_no_heavy_package(product: Installed, words: list[str]) -> None:
    code = (
        f"import sys; sys.argv = ['wattledger', *{words!r}]\n"
        "from pipelines.command_line.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    assert product.python("-c", code).stdout.splitlines()[-1] == "[]"


COMMANDS = (
    "run",
    "table",
    "report",
    "sql",
    "explain",
    "export",
    "alarms",
    "dev",
    "discover",
    "check",
    "today",
    "serve",
    "receipt",
    "close",
    "prune",
    "erase",
    "doctor",
    "backup",
    "schema",
    "completion",
)
EACH_HELP = f"""
import contextlib, io, json, sys
from pipelines.command_line.main import main
shown = {{}}
for command in {COMMANDS!r}:
    sys.argv, printed, status = ["wattledger", command, "--help"], io.StringIO(), 0
    with contextlib.redirect_stdout(printed):
        try:
            main()
        except SystemExit as end:
            status = end.code or 0
    shown[command] = (status, len(printed.getvalue().splitlines()))
print(json.dumps(shown))
"""


@pytest.mark.needs("root")
def test_each_command_explains_itself_on_one_screen(product: Installed) -> None:
    shown = json.loads(product.python("-c", EACH_HELP).stdout)
    assert list(shown) == list(COMMANDS)
    assert {command for command, (status, lines) in shown.items() if status != 0 or not 3 <= lines <= 24} == set()
    # Twenty-five commands, a line each.
    assert len(product.run("--help").stdout.splitlines()) <= 35
