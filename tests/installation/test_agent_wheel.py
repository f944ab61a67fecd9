"""The agent's wheel alone: its command samples, and writes a spool that the ledger reads, with few small packages."""

from __future__ import annotations

import ast
import signal
import subprocess
import sys
import tarfile
import time
import tomllib
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from importlib.metadata import distribution, packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from agent.hatch_build import SEEDS, modules, renamed
from collectors.__main__ import EXTRAS, STORES
from collectors.devices.spool_collector import SpoolCollector
from collectors.samples import Family, Window
from collectors.series import SeriesRegister, series_id
from pipelines import __version__
from tests.installation.installed import Installed, built_sdist, built_wheel, installed
from tests.optional import PROJECT
from tests.servers import http_server, reply

AGENT = PROJECT / "agent"
# It has the ledger's version.
RELEASE = f"wattledger_agent-{__version__}"
# What the ledger needs and a GPU host does not have. None in sys.modules: an import fails as where it is not installed.
HEAVY = ["pyarrow", "numpy", "pandas", "duckdb", "dagster", "collectors", "pipelines"]
WITHOUT_HEAVY = (
    f"import sys; sys.modules.update(dict.fromkeys({HEAVY!r}));"
    " from wattledger_agent.__main__ import main; sys.exit(main())"
)
MOST_BYTES = 60_000_000
PAGE = b'vllm:generation_tokens_total{model_name="m"} 1234\npython_info{version="3"} 1\n'
TOKENS = "vllm:generation_tokens_total"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_wheel(AGENT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def agent(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    with installed(tmp_path_factory.mktemp("home"), wheel) as unpacked:
        yield unpacked


@contextmanager
def page() -> Iterator[str]:
    with http_server(lambda request: reply(request, 200, PAGE, "text/plain")) as url:
        yield f"{url}/metrics"


def program(agent: Installed) -> str:
    return str(agent.packages / "bin" / "wattledger-agent")


def dependencies() -> list[Requirement]:
    stated = tomllib.loads((AGENT / "pyproject.toml").read_text(encoding="utf-8"))
    return [Requirement(text) for text in stated["project"]["dependencies"]]


def test_the_package_is_the_command_and_what_it_leads_to() -> None:
    names = {str(path.relative_to(PROJECT / "collectors")) for path in modules(PROJECT)}
    assert {"__init__.py", "__main__.py", "devices/__init__.py", "devices/nvml.py", "protocols/exposition.py"} <= names
    # The landing's end, and what reads files.
    assert not {"devices/spool_collector.py", "samples.py", "series.py", "cells.py"} & names


def test_only_imports_are_renamed() -> None:
    text = (
        "from collectors import limits\n"
        "from collectors.devices.nvml import (\n    READERS,\n)\n"
        "from collectorsish.x import y\n"
        "def f():\n    from collectors.rows import Rejects  # of collectors\n"
        "NAME = 'collectors.devices'\n"
    )
    assert renamed(text) == (
        "from wattledger_agent import limits\n"
        "from wattledger_agent.devices.nvml import (\n    READERS,\n)\n"
        "from collectorsish.x import y\n"
        "def f():\n    from wattledger_agent.rows import Rejects  # of collectors\n"
        "NAME = 'collectors.devices'\n"
    )
    with pytest.raises(ValueError, match="write `from collectors import …`"):
        renamed("import collectors.rows\n")


def test_the_wheel_has_the_package_alone(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name.split("/")[0] for name in names} == {"wattledger_agent", f"{RELEASE}.dist-info"}
    beside = {name for name in names if name.startswith("wattledger_agent/") and not name.endswith(".py")}
    assert beside == {f"wattledger_agent/{name}" for name in ("LICENSE", *SEEDS)}


def test_a_source_distribution_makes_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(built_sdist(AGENT, tmp_path)) as archive:
        archive.extractall(tmp_path, filter="data")
    again = built_wheel(tmp_path / RELEASE, tmp_path / "wheel")
    assert again.read_bytes() == wheel.read_bytes()
    assert not (AGENT / "wattledger_agent").exists()


def test_the_package_asks_for_what_it_imports(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as unpacked:
        texts = [unpacked.read(name) for name in unpacked.namelist() if name.endswith(".py")]
    nodes = [node for text in texts for node in ast.walk(ast.parse(text))]
    imported = {alias.name.split(".")[0] for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module).split(".")[0] for node in nodes if isinstance(node, ast.ImportFrom)}
    # Protobuf is an extra; it is imported where a message of it comes.
    others = imported - sys.stdlib_module_names - {"wattledger_agent", "google", "opentelemetry"}
    of = packages_distributions()
    found = {canonicalize_name(name) for other in others for name in of[other]}
    # pyarrow opens a spool in an object store where fsspec has no package for it, if it is there.
    assert found - {"pyarrow"} == {one.name for one in dependencies()}


def test_the_agent_with_its_packages_is_small(wheel: Path) -> None:
    waiting, held = [one.name for one in dependencies()], set()
    while waiting:
        name = waiting.pop()
        held.add(name)
        needs = [Requirement(text) for text in distribution(name).requires or []]
        waiting += [need.name for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})]
    files = [(distribution(name), file) for name in held for file in distribution(name).files or []]
    sizes = [Path(str(of.locate_file(file))).stat().st_size for of, file in files if file.suffix != ".pyc"]
    own = sum(entry.file_size for entry in zipfile.ZipFile(wheel).infolist())
    assert held <= {"arro3-core", "arro3-io", *(one.name for one in dependencies()), "typing-extensions"}
    assert 30_000_000 < sum(sizes) + own <= MOST_BYTES


@pytest.mark.needs("root")
def test_the_command_explains_itself(agent: Installed) -> None:
    shown = agent.python(program(agent), "--help")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.startswith("usage: wattledger-agent [-h] COMMAND ...")
    assert len(shown.stdout.splitlines()) <= 24
    wrong = agent.python(program(agent), "sample")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr == "wattledger-agent: nothing to look at: give --nvml, --page URL, or both\n"


@pytest.mark.needs("root")
def test_sample_shows_a_page_by_the_catalogue(agent: Installed) -> None:
    with page() as url:
        shown = agent.python(program(agent), "sample", "--page", url, "--host", "gpu-a")
    port = url.split(":")[2].split("/")[0]
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout == (
        f"{url}: 1 samples\n"
        f'  {TOKENS}                  1234  {{"instance":"gpu-a:{port}","model_name":"m","node":"gpu-a"}}\n'
        "  and 1 series of 1 metrics that are not kept\n"
    )


@pytest.mark.needs("root")
def test_the_ledger_reads_what_the_agent_wrote_without_heavy_packages(agent: Installed, tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    with page() as url:
        options = ["--page", url, "--spool", str(spool), "--host", "gpu-a", "--page-interval", "0.2", "--rotate", "0.5"]
        command = [sys.executable, "-c", WITHOUT_HEAVY, "agent", *options]
        ran = subprocess.Popen(command, env=agent.environment(), cwd="/", stderr=subprocess.PIPE, text=True)
        give_up_at = time.monotonic() + 30
        while not list(spool.rglob("*.parquet")) and ran.poll() is None and time.monotonic() < give_up_at:
            time.sleep(0.1)
        ran.send_signal(signal.SIGTERM)
        _, logged = ran.communicate(timeout=30)
        port = url.split(":")[2].split("/")[0]
    assert ran.returncode == 0, logged
    assert "0 rows lost" in logged

    window = Window.of_day(datetime.now(UTC).date() - timedelta(days=1))
    window = Window(window.start_at, window.end_at + timedelta(days=1))
    collector, register = SpoolCollector("agents", spool), SeriesRegister("agents", window)
    batches = list(collector.collect(window, {TOKENS: Family(TOKENS, "tokens", "vllm")}, register))
    identity = {"instance": f"gpu-a:{port}", "model_name": "m", "node": "gpu-a"}
    found = {(row["series_id"], row["value"]) for batch in batches for row in batch.samples.to_pylist()}
    assert found == {(series_id("agents", TOKENS, identity), 1234.0)}
    assert register.unknown_table().to_pylist() == [{"metric": "python_info", "series": 1}]
    assert collector.problems == []


@pytest.mark.needs("root")
@pytest.mark.parametrize(("store", "extra"), [("s3", "s3"), ("gs", "gcs"), ("abfss", "azure")])
def test_a_store_without_its_package_is_one_line_with_the_fix(agent: Installed, store: str, extra: str) -> None:
    code = "import sys; sys.modules.update(dict.fromkeys(['s3fs', 'gcsfs', 'adlfs'])); " + WITHOUT_HEAVY
    done = agent.python("-c", code, "agent", "--page", "http://127.0.0.1:1/", "--spool", f"{store}://bucket/spool")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"wattledger-agent: --spool {store}://bucket/spool: ")
    assert line.endswith(f" (pip install 'wattledger-agent[{extra}]')")


def test_the_extras_that_messages_name_are_there() -> None:
    stated = tomllib.loads((AGENT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert {extra: [Requirement(text).name for text in texts] for extra, texts in stated.items()} == {
        extra: [package] for extra, package in EXTRAS.items()
    }
    assert {*STORES.values(), "otlp"} == set(EXTRAS)


@pytest.mark.needs("root")
def test_both_distributions_install_side_by_side(wheel: Path, tmp_path: Path) -> None:
    ledger = built_wheel(PROJECT, tmp_path)
    of_both = [set(zipfile.ZipFile(one).namelist()) for one in (wheel, ledger)]
    assert of_both[0] & of_both[1] == set()
    # The ledger's has one command; the agent's sources stay out of it.
    assert not {"collectors/__main__.py", "collectors/devices/agent.py", "collectors/devices/nvml.py"} & of_both[1]
    code = (
        "import collectors.devices.spool_collector as ledger, wattledger_agent.devices.agent as agent, sys;"
        "print(ledger.__file__, agent.__file__, 'pynvml' in sys.modules)"
    )
    with installed(tmp_path, wheel, ledger) as both:
        done = both.python("-c", code)
        files = ["collectors/devices/spool_collector.py", "wattledger_agent/devices/agent.py"]
        assert done.stdout.split() == [*(f"{both.packages}/{file}" for file in files), "True"]
        assert {path.name for path in (both.packages / "bin").iterdir()} == {"wattledger", "wattledger-agent"}
