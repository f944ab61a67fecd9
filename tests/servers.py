"""Real servers for tests, started on loopback and gone afterwards whatever happens.

Add a context manager here when a test needs another kind of real server. Keep out the assertions, and
anything that pretends to be a server we could start for real.
"""

from __future__ import annotations

import contextlib
import http.server
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from tests import optional

READY_SECONDS = 60


def openmetrics(series: Iterable[tuple[str, Mapping[str, str], Iterable[tuple[float, float]]]]) -> Iterator[str]:
    """Lines of an OpenMetrics page from (metric, labels, [(seconds since the epoch, value), …]).

    Series of one metric must come together.
    """
    last = None
    for metric, labels, samples in series:
        if metric != last:
            yield f"# TYPE {metric.removesuffix('_total')} {'counter' if metric.endswith('_total') else 'gauge'}\n"
            last = metric
        quoted = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
        for at, value in samples:
            text = {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}.get(repr(float(value)), repr(float(value)))
            yield f"{metric}{{{quoted}}} {text} {at:.3f}\n"
    yield "# EOF\n"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


@contextlib.contextmanager
def prometheus_with_history(folder: Path, lines: Iterable[str], *flags: str, block_hours: int = 2) -> Iterator[str]:
    """The URL of a Prometheus whose storage holds an OpenMetrics page as history; `folder` is empty and ours. Many days
    are there sooner in longer blocks."""
    _, promtool = optional.required("prometheus")
    page = folder / "history.openmetrics"
    with page.open("w", encoding="utf-8") as file:
        file.writelines(lines)
    length = f"--max-block-duration={block_hours}h"
    blocks = ["tsdb", "create-blocks-from", length, "openmetrics", page, folder / "data"]
    subprocess.run([promtool, *blocks], check=True, capture_output=True, timeout=600)
    page.unlink()
    with _prometheus(folder, "scrape_configs: []\n", *flags) as url:
        yield url


@contextlib.contextmanager
def victoria_metrics_with_history(folder: Path, lines: Iterable[str], *flags: str) -> Iterator[str]:
    """The URL of a VictoriaMetrics that holds the samples of an OpenMetrics page; `folder` is empty and ours."""
    with _victoria_metrics(folder, *flags) as url:
        # Its import takes milliseconds where OpenMetrics has seconds.
        page = "".join(re.sub(r"\.(\d{3})\n$", r"\1\n", line) for line in lines if not line.startswith("#"))
        for path, body in (("api/v1/import/prometheus", page.encode()), ("internal/force_flush", b"")):
            with urllib.request.urlopen(f"{url}/{path}", data=body, timeout=600) as answer:
                answer.read()
        yield url


@contextlib.contextmanager
def _victoria_metrics(folder: Path, *flags: str) -> Iterator[str]:
    (binary,) = optional.required("victoria-metrics")
    port = free_port()
    command = [
        binary,
        f"-storageDataPath={folder / 'data'}",
        f"-httpListenAddr=127.0.0.1:{port}",
        "-retentionPeriod=100y",
        "-search.latencyOffset=0s",
        "-loggerLevel=WARN",
        *flags,
    ]
    log = folder / "victoria-metrics.log"
    with log.open("wb") as output, running(command, stdout=output, stderr=subprocess.STDOUT) as process:
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: _is_ready(f"{url}/health"), process, log)
        yield url


@contextlib.contextmanager
def prometheus_scraping(
    folder: Path, target: str, *flags: str, interval_seconds: int = 1, rules: Iterable[Path] = ()
) -> Iterator[str]:
    """The URL of a Prometheus that scrapes `target` (host:port, path /metrics) as job "live", with files of rules."""
    config = _scraping(target, interval_seconds)
    config += f"rule_files: {list(map(str, rules))}\n"
    with _prometheus(folder, config, *flags) as url:
        yield url


@contextlib.contextmanager
def victoria_metrics_scraping(folder: Path, target: str, *flags: str, interval_seconds: int = 1) -> Iterator[str]:
    """The URL of a VictoriaMetrics that scrapes `target` as `prometheus_scraping` does."""
    config = folder / "scrape.yml"
    config.write_text(_scraping(target, interval_seconds), encoding="utf-8")
    with _victoria_metrics(folder, f"-promscrape.config={config}", *flags) as url:
        yield url


def _scraping(target: str, interval_seconds: int) -> str:
    return (
        f"global: {{scrape_interval: {interval_seconds}s, scrape_timeout: {interval_seconds}s}}\n"
        f"scrape_configs: [{{job_name: live, static_configs: [{{targets: ['{target}']}}]}}]\n"
    )


@contextlib.contextmanager
def _prometheus(folder: Path, config: str, *flags: str) -> Iterator[str]:
    binary, _ = optional.required("prometheus")
    (folder / "prometheus.yml").write_text(config, encoding="utf-8")
    port = free_port()
    command = [
        binary,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        "--storage.tsdb.retention.time=100y",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
        *flags,
    ]
    log = folder / "prometheus.log"
    with log.open("wb") as output, running(command, stdout=output, stderr=subprocess.STDOUT) as process:
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: _is_ready(f"{url}/-/ready"), process, log)
        yield url


@contextlib.contextmanager
def alertmanager(folder: Path) -> Iterator[str]:
    """The URL of an Alertmanager that passes nothing on; `folder` is empty and ours."""
    (binary,) = optional.required("alertmanager")
    (folder / "alertmanager.yml").write_text("route: {receiver: none}\nreceivers: [{name: none}]\n", encoding="utf-8")
    port = free_port()
    command = [
        binary,
        f"--config.file={folder / 'alertmanager.yml'}",
        f"--storage.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
        "--log.level=warn",
    ]
    log = folder / "alertmanager.log"
    with log.open("wb") as output, running(command, stdout=output, stderr=subprocess.STDOUT) as process:
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: _is_ready(f"{url}/-/ready"), process, log)
        yield url


@contextlib.contextmanager
def s3_bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of an empty bucket in an S3 server of this process, with its credentials in the environment."""
    from moto.server import ThreadedMotoServer  # noqa: PLC0415 (seconds that few tests need)

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        url = f"http://{host}:{port}"
        for name, value in {
            "AWS_ACCESS_KEY_ID": "AKIAWATTLEDGER",
            "AWS_SECRET_ACCESS_KEY": "s3cret",
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": url,
            "AWS_EC2_METADATA_DISABLED": "true",
        }.items():
            monkeypatch.setenv(name, value)
        # moto keeps its buckets with the process, not with the server: a bucket of an earlier test would still be full.
        for method, path in (("POST", "moto-api/reset"), ("PUT", "wattledger")):
            urllib.request.urlopen(urllib.request.Request(f"{url}/{path}", method=method), timeout=10).close()
        yield "s3://wattledger"
    finally:
        server.stop()


@contextlib.contextmanager
def postgresql() -> Iterator[str]:
    """The connection URI of an empty PostgreSQL on loopback, whose user has the password `s3cret`."""
    with Postgresql.installed() as server:
        server.start()
        yield server.uri


class Postgresql:
    """A PostgreSQL on loopback that a test may stop, or kill as a power cut would, and start again on the same data."""

    def __init__(self, folder: Path, postgres: Path, user: str | None) -> None:
        self.folder = folder
        self.user = user
        self.port = free_port()
        self.uri = f"postgresql://wattledger:s3cret@127.0.0.1:{self.port}/postgres"
        settings = ["-c", "fsync=off", "-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={folder}"]
        self._command = [postgres, "-D", folder / "data", "-p", str(self.port), *settings]
        self._running = contextlib.ExitStack()
        self._process: subprocess.Popen | None = None

    @classmethod
    @contextlib.contextmanager
    def installed(cls) -> Iterator[Postgresql]:
        """A server with an empty database, not started yet."""
        initdb, postgres = optional.required("postgresql")
        # It refuses to run as root, and other users may not read root's own folders.
        user = "postgres" if os.geteuid() == 0 else None
        with tempfile.TemporaryDirectory(prefix="postgresql-") as name:
            folder = Path(name)
            password = folder / "password"
            password.write_text("s3cret")
            if user is not None:
                for path in (folder, password):
                    shutil.chown(path, user)
            options = ["--username=wattledger", f"--pwfile={password}", "--auth=scram-sha-256", "--no-sync"]
            command = [initdb, "-D", folder / "data", *options]
            subprocess.run(command, check=True, capture_output=True, timeout=60, user=user, cwd="/")
            server = cls(folder, postgres, user)
            try:
                yield server
            finally:
                server.stop()

    def start(self) -> None:
        """Start it; after a kill it first mends its data."""
        log = self.folder / "log"
        output = self._running.enter_context(log.open("wb"))
        self._process = self._running.enter_context(
            running(self._command, stdout=output, stderr=subprocess.STDOUT, user=self.user, cwd="/")
        )
        wait_until(lambda: b"ready to accept connections" in log.read_bytes(), self._process, log)

    def stop(self) -> None:
        """Stop it, if it runs."""
        self._running.close()

    def kill(self) -> None:
        """kill -9 of the server and of all its sessions at once."""
        main = self._process.pid
        sessions = map(int, Path(f"/proc/{main}/task/{main}/children").read_text().split())
        for pid in (main, *sessions):  # each session leads a process group of its own
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        self.stop()


@contextlib.contextmanager
def running(command: list, **options: object) -> Iterator[subprocess.Popen]:
    """A child process that is terminated, and killed if it must be, when the block is left, with its children."""
    process = subprocess.Popen(command, start_new_session=True, **options)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def wait_until(is_ready: Callable[[], bool], process: subprocess.Popen, log: Path) -> None:
    """Wait for a started server; RuntimeError with its log when it ends or takes longer than READY_SECONDS."""
    deadline = time.monotonic() + READY_SECONDS
    while not is_ready():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{process.args[0]} did not become ready:\n{log.read_text(errors='replace')[-4000:]}")
        time.sleep(0.1)


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False


def free_port() -> int:
    """A TCP port of the loopback interface that was free a moment ago."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextlib.contextmanager
def http_server(
    answer: Callable[[http.server.BaseHTTPRequestHandler], None], tls: ssl.SSLContext | None = None, port: int = 0
) -> Iterator[str]:
    """The URL of a loopback HTTP server that hands every GET and POST to `answer`, body unread; HTTPS with `tls`."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            answer(self)

        def do_POST(self) -> None:
            answer(self)

        def log_message(self, *_: object) -> None:
            """The server prints nothing; tests print what they need."""

    class Server(http.server.ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            """A client that hangs up on a hostile answer is what some tests are about."""
            if not isinstance(sys.exc_info()[1], ConnectionError):
                super().handle_error(*_)

    server = Server(("127.0.0.1", port), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http{'s' if tls else ''}://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def own_certificate(folder: Path) -> tuple[Path, ssl.SSLContext]:
    """The file of a certificate for 127.0.0.1 and prometheus.example that signed itself, beside its key; and a server's
    context with both."""
    files = ["-keyout", folder / "key.pem", "-out", folder / "cert.pem"]
    (openssl,) = optional.required("openssl")
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1,DNS:prometheus.example"]
    command = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject, *files]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=folder / "cert.pem")
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return folder / "cert.pem", context


def reply(
    handler: http.server.BaseHTTPRequestHandler,
    status: int,
    body: bytes,
    kind: str = "application/json",
    **headers: str,
) -> None:
    """Answer a request whole; underscores in header names become dashes."""
    handler.send_response(status)
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **fields}.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(body)


def fields_of(handler: http.server.BaseHTTPRequestHandler) -> tuple[str, dict[str, str]]:
    """Path and form fields of a request, read whole so that the connection can be used again."""
    path, _, query = handler.path.partition("?")
    body = handler.rfile.read(int(handler.headers.get("Content-Length", 0))).decode()
    return path, dict(urllib.parse.parse_qsl(body or query))
