"""A real Spark standalone cluster on free ports of this machine."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

# Executors in the driver's own process, without a network between: for what is the same wherever Spark runs.
LOCAL = "local[2]"
WORKER_MEMORY = "1200m"
EXECUTOR_MEMORY = "1g"
# With little data an executor lives as long as Java needs to compile it: only its first, fast compiler, and one thread
# of garbage collection, as the machine's cores are the two workers'.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC"
# By default each hash table takes a page of up to 64 MiB, also for a few rows: full collections of such garbage took
# 342 of 870 s of builds.
PAGE_SIZE = "1m"
# With little data a driver plans, some 170 models a build: room in which a plan ends before it is copied (garbage
# collection was a fifth of the time), and not Java's second compiler: a quarter of its first 190 processor seconds.
DRIVER_MEMORY = "4g"
DRIVER_JAVA_OPTIONS = f"{JAVA_OPTIONS} -Xmn2500m"
# A few rows are read before Java code for them is made, and need no second look at the plan. Not so millions: of the
# build of ordinary mess (2.5 million samples) tasks then were 217 of the driver's first 565 processor seconds.
FOR_FEW_ROWS = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
# Spark's own, set again where a driver has had the others.
FOR_MANY_ROWS = {
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.sql.adaptive.enabled": "true",
}

T = TypeVar("T")


@dataclass
class Cluster:
    """A master and its workers, each a process of this test."""

    master: str
    web: str
    folder: Path
    workers: list[subprocess.Popen[bytes]]

    def kill_worker(self) -> None:
        """kill -9 of one worker's JVM; its executor dies with it, and the master sees that."""
        left = self.alive() - 1
        worker = self.workers.pop()
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        _wait_for(lambda: self.alive() <= left, "the master sees that a worker died")

    def add_worker(self) -> None:
        """Start one more one-core worker and wait until the master knows it."""
        expected = self.alive() + 1
        arguments = ["--host", "127.0.0.1", "--cores", "1", "--memory", WORKER_MEMORY, "--webui-port", str(free_port())]
        folder = self.folder / f"worker-{len(list(self.folder.iterdir()))}"
        arguments += ["--work-dir", str(folder), self.master]
        self.workers.append(_start("org.apache.spark.deploy.worker.Worker", arguments, folder.with_suffix(".log")))
        _wait_for(lambda: self.alive() >= expected, "a worker starts")

    def alive(self) -> int:
        """How many workers the master counts on."""
        with urllib.request.urlopen(f"{self.web}/json/", timeout=5) as answer:
            return int(json.load(answer)["aliveworkers"])

    def environment(
        self,
        *,
        java_options: str = JAVA_OPTIONS,
        driver_java_options: str = DRIVER_JAVA_OPTIONS,
        settings: Mapping[str, str] = {},
        **more: str,
    ) -> dict[str, str]:
        """What makes `pipelines.spark.driver` use this cluster. `settings` are Spark's own, `more` other variables."""
        written = {
            "spark.driver.memory": DRIVER_MEMORY,
            "spark.executor.memory": EXECUTOR_MEMORY,
            "spark.driver.host": "127.0.0.1",
            "spark.buffer.pageSize": PAGE_SIZE,
            "spark.driver.extraJavaOptions": driver_java_options,
            "spark.executor.extraJavaOptions": java_options,
            **settings,
        }
        configuration = Path(tempfile.mkdtemp(prefix="configuration-", dir=self.folder))
        lines = [f"{name} {value}\n" for name, value in written.items()]
        (configuration / "spark-defaults.conf").write_text("".join(lines))
        return {
            "WATTLEDGER_SPARK_MASTER": self.master,
            "SPARK_CONF_DIR": str(configuration),
            "SPARK_LOCAL_IP": "127.0.0.1",
            **more,
        }

    @contextmanager
    def driver(self, **options: Any) -> Iterator[Driver]:
        """One process in which `pipelines.spark.driver` uses this cluster; its JVM ends with it."""
        driver = Driver(self, self.environment(**options))
        try:
            yield driver
        finally:
            driver.end()


@dataclass
class Driver:
    """A process that keeps its JVM from one build to the next: what Java compiled once is there for all of them."""

    cluster: Cluster
    variables: Mapping[str, str]
    pool: ProcessPoolExecutor | None = None

    def end(self) -> None:
        """End the process, which holds up to 5 GB; the next build starts another."""
        if self.pool is not None:
            self.pool.shutdown()
            self.pool = None

    def submit(
        self,
        work: Callable[..., T],
        *arguments: Any,
        master: str | None = None,
        settings: Mapping[str, str] = FOR_MANY_ROWS,
        **named: Any,
    ) -> Future[T]:
        """Start `work` in the process, on the cluster or on another `master`, with these settings of Spark."""
        on = master or self.cluster.master
        if self.pool is None:
            context = multiprocessing.get_context("spawn")
            self.pool = ProcessPoolExecutor(
                1, mp_context=context, initializer=_set_variables, initargs=(self.variables,)
            )
        return self.pool.submit(_on_master, on, dict(settings), work, arguments, named)


@contextmanager
def running(folder: Path, workers: int) -> Iterator[Cluster]:
    """A cluster that ends with the `with` block."""
    folder.mkdir(parents=True)
    port, web = free_port(), free_port()
    arguments = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", str(web)]
    master = _start("org.apache.spark.deploy.master.Master", arguments, folder / "master.log")
    cluster = Cluster(f"spark://127.0.0.1:{port}", f"http://127.0.0.1:{web}", folder, [])
    try:
        _wait_for(lambda: cluster.alive() == 0, "the master starts")
        for _ in range(workers):
            cluster.add_worker()
        yield cluster
    finally:
        for process in [*cluster.workers, master]:
            process.terminate()
        for process in [*cluster.workers, master]:
            process.wait(timeout=30)


def _set_variables(variables: Mapping[str, str]) -> None:
    os.environ.update(variables)


def _on_master(
    master: str,
    settings: dict[str, str],
    work: Callable[..., Any],
    arguments: tuple[Any, ...],
    named: dict[str, Any],
) -> Any:
    from pyspark import SparkContext  # noqa: PLC0415 (an optional group)

    os.environ["WATTLEDGER_SPARK_MASTER"] = master
    for name, value in settings.items():
        SparkContext.setSystemProperty(name, value)
    return work(*arguments, **named)


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
        except (OSError, ValueError):
            pass  # no process listens yet, or not all of its pages are there: the master's first one is HTML
        time.sleep(0.2)
    raise AssertionError(f"not within {seconds:g} s: {what}")
