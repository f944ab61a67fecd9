"""A real Spark standalone cluster on free ports of this machine."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

WORKER_MEMORY = "1200m"
EXECUTOR_MEMORY = "1g"
# With little data a build lasts as long as Java needs to compile it: only its first, fast compiler, and one thread of
# garbage collection, as the machine's cores are the two workers'. Its code cache is 48 MB by default, and once that
# is full Java interprets what comes after: the planner takes minutes.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC"


@dataclass
class Cluster:
    """A master and its workers, each a process of this test."""

    master: str
    web: str
    folder: Path
    workers: list[subprocess.Popen[bytes]]

    def kill_worker(self) -> None:
        """kill -9 of one worker's JVM; its executor dies with it."""
        worker = self.workers.pop()
        worker.send_signal(signal.SIGKILL)
        worker.wait()

    def add_worker(self) -> None:
        """Start one more one-core worker and wait until the master knows it."""
        expected = self.alive() + 1
        arguments = ["--host", "127.0.0.1", "--cores", "1", "--memory", WORKER_MEMORY, "--webui-port", str(free_port())]
        folder = self.folder / f"worker-{len(list(self.folder.iterdir()))}"
        arguments += ["--work-dir", str(folder), self.master]
        self.workers.append(_start("org.apache.spark.deploy.worker.Worker", arguments, folder.with_suffix(".log")))
        _wait_for(lambda: self.alive() >= expected, "the worker")

    def alive(self) -> int:
        """How many workers the master counts on."""
        with urllib.request.urlopen(f"{self.web}/json/", timeout=5) as answer:
            return int(json.load(answer)["aliveworkers"])

    def environment(self, *, java_options: str = JAVA_OPTIONS) -> dict[str, str]:
        """What makes `pipelines.spark.driver` use this cluster."""
        configuration = self.folder / "configuration"
        configuration.mkdir(exist_ok=True)
        (configuration / "spark-defaults.conf").write_text(
            f"spark.driver.memory 2g\nspark.executor.memory {EXECUTOR_MEMORY}\nspark.driver.host 127.0.0.1\n"
            f"spark.driver.extraJavaOptions {java_options}\nspark.executor.extraJavaOptions {java_options}\n"
        )
        return {
            "WATTLEDGER_SPARK_MASTER": self.master,
            "SPARK_CONF_DIR": str(configuration),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }

    @contextmanager
    def process(self, *, java_options: str = JAVA_OPTIONS, **more: str) -> Iterator[ProcessPoolExecutor]:
        """One process in which `pipelines.spark.driver` uses this cluster; its JVM ends with it."""
        variables = {**self.environment(java_options=java_options), **more}
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=context, initializer=_set_variables, initargs=(variables,)) as pool:
            yield pool


@contextmanager
def running(folder: Path, workers: int) -> Iterator[Cluster]:
    """A cluster that ends with the `with` block."""
    folder.mkdir(parents=True)
    port, web = free_port(), free_port()
    arguments = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", str(web)]
    master = _start("org.apache.spark.deploy.master.Master", arguments, folder / "master.log")
    cluster = Cluster(f"spark://127.0.0.1:{port}", f"http://127.0.0.1:{web}", folder, [])
    try:
        _wait_for(lambda: cluster.alive() == 0, "the master")
        for _ in range(workers):
            cluster.add_worker()
        yield cluster
    finally:
        for process in [*cluster.workers, master]:
            process.terminate()
        for process in [*cluster.workers, master]:
            process.wait(timeout=30)


def _set_variables(variables: dict[str, str]) -> None:
    os.environ.update(variables)


def free_port() -> int:
    """A TCP port on which no process listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _start(name: str, arguments: list[str], log: Path) -> subprocess.Popen[bytes]:
    import pyspark  # noqa: PLC0415 (an optional group)

    spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS}
    with log.open("wb") as output:
        return subprocess.Popen([spark_class, name, *arguments], env=environment, stdout=output, stderr=output)


def _wait_for(is_there: Callable[[], bool], what: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if is_there():
                return
        except OSError:
            pass  # no process listens yet
        time.sleep(0.2)
    raise AssertionError(f"{what} did not start within {seconds:g} s")
