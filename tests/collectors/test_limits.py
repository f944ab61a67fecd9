"""Limits that hold: bytes, seconds and series of answers and files, whatever a server or a file does.

Each limit was first seen broken: the docstring of a test has what happened without it. Memory is that of a child
process (VmHWM), because the test's own process has been larger before.
"""

import gzip
import json
import logging
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import orjson
import pytest

from collectors.limits import Limits
from collectors.protocols import http_client
from collectors.protocols.exposition import ExpositionPage, parse_page
from collectors.protocols.grid_apis import UkCarbonIntensityCollector
from collectors.protocols.mapped_files import FileMapping
from collectors.protocols.prometheus import EXPORT_KIND, PrometheusCollector
from collectors.protocols.sample_files import FilesCollector
from collectors.rows import Rejects
from collectors.samples import Family, SourceError, Window, printable, shown_variable
from collectors.series import SeriesRegister
from collectors.text_files import paths_of
from tests.servers import fields_of, http_server, reply, running

pytestmark = pytest.mark.sampled

ROOT = Path(__file__).parents[2]
START = datetime(2026, 10, 1, tzinfo=UTC)
HOUR = Window(START, START + timedelta(hours=1))
POWER = "DCGM_FI_DEV_POWER_USAGE"
FAMILIES = {POWER: Family(POWER, "power", "dcgm_exporter")}
MIB = 1 << 20
ESCAPES = "\x1b[31mred\x1b[0m \x9b2J \u202edesrever"


def collected(collector, window=HOUR, most_series=500_000):
    register = SeriesRegister(collector.source, window, (), most_series)
    return list(collector.collect(window, FAMILIES, register))


def peak_of(program, *arguments, seconds=60):
    """What a child process printed, and its peak in MiB."""
    measured = (
        "import sys\nfrom pathlib import Path\nmost = 6 << 30\n"
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (most, most))\n"
        f"{program}\n"
        "status = Path('/proc/self/status').read_text()\n"
        "print(int(status.partition('VmHWM:')[2].split()[0]) // 1024)\n"
    )
    command = [sys.executable, "-c", measured, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=seconds, check=False)
    assert done.returncode == 0, done.stderr[-500:]
    *printed, peak_mib = done.stdout.splitlines()
    return "\n".join(printed), int(peak_mib)


def endless(handler, kind, part, status=200):
    """An answer without end: it stops when the other side does."""
    handler.send_response(status)
    handler.send_header("Content-Type", kind)
    handler.send_header("Connection", "close")
    handler.end_headers()
    handler.close_connection = True
    while True:
        handler.wfile.write(part)


# --- pages: the agent -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        f"{POWER}{' ' * 1_000_000}x",
        f"{POWER}{{{'}' * 1_000_000}x",
        " " * 1_000_000 + "{",
        f"{POWER}{{" + ",".join(f'l{n}="v"' for n in range(100_000)) + "} 1",
    ],
    ids=["spaces", "braces", "indented", "labels"],
)
@pytest.mark.parametrize("is_openmetrics", [False, True])
def test_a_line_of_a_million_characters_is_refused_at_once(line, is_openmetrics):
    """The pattern of a sample line took a time that grew with the square: 1,000,000 spaces took minutes."""
    program = (
        "from collectors.protocols.exposition import parse_page\n"
        "from collectors.rows import Rejects\n"
        "rejects = Rejects()\n"
        "parse_page(sys.stdin.read(), rejects, is_openmetrics=sys.argv[1] == 'True')\n"
        "print(rejects)\n"
    )
    text = f"{line}\n# EOF\n"
    command = [sys.executable, "-c", f"import sys\n{program}", str(is_openmetrics)]
    done = subprocess.run(command, input=text, capture_output=True, text=True, cwd=ROOT, timeout=10, check=True)
    assert done.stdout.startswith("1 of 1 rows rejected: a line begins with ")
    assert done.stdout.endswith(": it is over 65,536 characters\n")


def test_the_pattern_of_a_sample_line_is_linear():
    """Below the longest line too: 60,000 spaces took 0.3 s, and a page may have 500 such lines."""
    began = time.monotonic()
    for _ in range(20):
        rejects = Rejects()
        assert parse_page(f"{POWER}{' ' * 60_000}x\n", rejects) == ([], {})
        assert rejects.rows == 1
    assert time.monotonic() - began < 1


@pytest.mark.parametrize(
    "line",
    [
        f'  {POWER} {{UUID="GPU-a"}}  250.5',
        f'{POWER}{{UUID="}} 7 {{"}} 250.5',
        f"{POWER}\t+250.5",
        f'{POWER}{{UUID="{"a" * 60_000}"}} 250.5',
    ],
)
def test_a_line_that_a_page_may_have_is_read(line):
    samples, _ = parse_page(f"{line}\n", Rejects())
    assert [sample.value for sample in samples] == [250.5]


def test_an_agent_whose_page_is_hostile_still_stops_at_a_signal(tmp_path):
    """The pattern held Python's lock: SIGINT was not seen for minutes."""
    asked = []

    def page(handler):
        asked.append(1)
        reply(handler, 200, f"{POWER}{' ' * 1_000_000}x\n".encode(), "text/plain")

    with http_server(page) as url:
        options = ["--page", f"{url}/metrics", "--page-interval", "0.2", "--spool", tmp_path / "spool", "--host", "a"]
        with running([sys.executable, "-m", "collectors", "agent", *options], cwd=ROOT) as agent:
            deadline = time.monotonic() + 20
            while not asked and time.monotonic() < deadline:
                time.sleep(0.05)
            time.sleep(0.5)
            agent.send_signal(signal.SIGINT)
            assert agent.wait(timeout=15) == 0


def test_a_page_of_too_many_series_is_refused():
    page = "".join(f'{POWER}{{UUID="GPU-{n}"}} 1\n' for n in range(4))
    assert len(parse_page(page, Rejects(), most_series=4)[0]) == 4
    with pytest.raises(ValueError, match=r"the page has over 3 series of known metrics \(limits\.series\)"):
        parse_page(page, Rejects(), most_series=3)
    # Those of other metrics are only counted.
    assert parse_page(page + "other 1\n" * 9, Rejects(), {POWER}, most_series=4)[1] == {"other": 9}


def test_an_agent_may_read_pages_for_ever():
    """The bytes of a window are those of one look."""
    body = f"{POWER} 1\n".encode()
    limits = Limits(answer_bytes=100, window_bytes=100)
    with http_server(lambda handler: reply(handler, 200, body, "text/plain")) as url:
        page = ExpositionPage(f"{url}/metrics", limits=limits)
        assert [len(page.look()) for _ in range(9)] == [1] * 9


def test_a_page_follows_no_redirect_to_another_server():
    """It would be read in this server's place, and sent the labels of the request."""
    asked = []

    def elsewhere(handler):
        asked.append(handler.path)
        reply(handler, 200, f"{POWER} 1\n".encode(), "text/plain")

    with (
        http_server(elsewhere) as other,
        http_server(lambda handler: reply(handler, 302, b"", Location=f"{other}/metrics")) as url,
        pytest.raises(SourceError, match=rf"redirects to {other}/metrics"),
    ):
        ExpositionPage(f"{url}/metrics").look()
    assert asked == []


# --- servers: bytes ---------------------------------------------------------------------------------------------------


def test_an_endless_answer_to_the_question_for_an_export_is_cut_off():
    """It was kept whole: 6 GB in 32 s."""
    line = b'{"metric":{"__name__":"up"},"values":[1],"timestamps":[1790812800000]}\n' * 10_000
    seen = []

    def answer(handler):
        path, fields = fields_of(handler)
        seen.append(path)
        if path.endswith("/export"):
            assert '"up"' in fields["match[]"]
            endless(handler, EXPORT_KIND, line)
        elif path.endswith("/values"):
            reply(handler, 200, orjson.dumps({"status": "success", "data": [POWER]}))
        else:
            reply(handler, 200, b'{"status":"success","data":{"resultType":"matrix","result":[]}}')

    program = f"""
from datetime import datetime, timedelta, UTC
from collectors.protocols.prometheus import PrometheusCollector
from collectors.samples import Family, Window
from collectors.series import SeriesRegister
start = datetime(2026, 10, 1, tzinfo=UTC)
window = Window(start, start + timedelta(hours=1))
families = {{"{POWER}": Family("{POWER}", "power", "dcgm_exporter")}}
print(len(list(PrometheusCollector("c", sys.argv[1]).collect(window, families, SeriesRegister("c", window)))))
"""
    with http_server(answer) as url:
        printed, peak_mib = peak_of(program, url)
    assert printed == "0"
    assert peak_mib < 400
    # As where a server has no export.
    assert seen[-1].endswith("/api/v1/query")


def exporter(answer):
    def both(handler):
        path, fields = fields_of(handler)
        if path.endswith("/values"):
            reply(handler, 200, orjson.dumps({"status": "success", "data": [POWER]}))
        elif '"up"' in fields.get("match[]", ""):
            reply(handler, 200, b"", EXPORT_KIND)
        else:
            answer(handler)

    return http_server(both)


def test_the_bytes_of_all_answers_of_a_window_are_limited():
    """A stream of whole lines had no end: it filled the disk."""
    line = b'{"metric":{"__name__":"%s"},"values":[1],"timestamps":[1790812800000]}\n' % POWER.encode()
    with exporter(lambda handler: endless(handler, EXPORT_KIND, line * 10_000)) as url:
        collector = PrometheusCollector("cluster", url, limits=Limits(window_bytes=20 * MIB))
        with pytest.raises(SourceError, match=r"all answers are over 20971520 bytes \(limits\.window_bytes\)"):
            collected(collector)
    # Each window has its own: what one took is not missing in the next.
    with exporter(lambda handler: reply(handler, 200, line * 1000, EXPORT_KIND)) as url:
        collector = PrometheusCollector("cluster", url, limits=Limits(window_bytes=len(line) * 1500))
        assert [sum(batch.samples.num_rows for batch in collected(collector)) for _ in range(3)] == [1000] * 3


def test_the_series_of_a_window_are_limited_per_source():
    line = b'{"metric":{"__name__":"%s","UUID":"%d"},"values":[1],"timestamps":[1790812800000]}\n'
    body = b"".join(line % (POWER.encode(), n) for n in range(5))
    with exporter(lambda handler: reply(handler, 200, body, EXPORT_KIND)) as url:
        assert len(collected(PrometheusCollector("cluster", url), most_series=5)[0].samples) == 5
        with pytest.raises(SourceError, match=r"more than 4 series, .* raise limits\.series"):
            collected(PrometheusCollector("cluster", url), most_series=4)


# --- servers: seconds -------------------------------------------------------------------------------------------------


def test_a_server_that_hangs_is_asked_once_and_for_the_time_of_an_answer():
    """It was asked five times, 120 s each: a window took 611 s, in which nothing else could write the warehouse."""
    asked = []

    def hang(handler):
        asked.append(1)
        time.sleep(3)

    with http_server(hang) as url:
        began = time.monotonic()
        collector = PrometheusCollector("cluster", url, limits=Limits(answer_seconds=0.5))
        with pytest.raises(SourceError, match=r"no answer within 0\.5 s \(limits\.answer_seconds\)"):
            collected(collector)
        assert time.monotonic() - began < 2
    assert asked == [1]
    # The time-out of a fleet that sets none.
    assert Limits().answer_seconds == 60.0
    assert Limits().window_seconds == 300.0


def test_an_answer_that_drips_ends_at_its_time_limit():
    def drip(handler):
        handler.send_response(200)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", "100000")
        handler.end_headers()
        for _ in range(100):
            handler.wfile.write(b"{")
            handler.wfile.flush()
            time.sleep(0.05)

    with http_server(drip) as url:
        collector = PrometheusCollector("cluster", url, attempts=1, limits=Limits(answer_seconds=0.5))
        with pytest.raises(SourceError, match=r"the answer took longer than 0\.5 s \(limits\.answer_seconds\)"):
            collector.check(HOUR) or collected(collector)


@pytest.mark.parametrize("retry_after", ["86400", "Fri, 31 Dec 2100 23:59:59 GMT", "not a time", "1" * 400])
def test_no_server_makes_a_landing_wait_a_day(monkeypatch, retry_after):
    """`Retry-After: 86400` is waited for as long as the longest pause, an unreadable one not at all."""
    monkeypatch.setattr(http_client, "LONGEST_PAUSE_SECONDS", 0.2)
    asked = []

    def later(handler):
        asked.append(time.monotonic())
        reply(handler, 503, b"", Retry_After=retry_after)

    with exporter(later) as url:
        began = time.monotonic()
        with pytest.raises(SourceError, match=r"refused \(3 attempts\)"):
            collected(PrometheusCollector("cluster", url, attempts=3, backoff_seconds=0.01))
        assert time.monotonic() - began < 2
    assert len(asked) == 3


def test_a_grid_api_keeps_its_own_limits():
    """Its limits were constants; now the fleet file has them."""
    with http_server(lambda handler: endless(handler, "application/json", b"{" * 65536)) as url:
        collector = UkCarbonIntensityCollector("neso", url, region_id=None, limits=Limits(answer_bytes=MIB))
        with pytest.raises(SourceError, match="the answer is over 1048576 bytes"):
            collector.collect(HOUR)


# --- files ------------------------------------------------------------------------------------------------------------


ENDLESS_HEADERS = {
    "a quoted name": (b'at,"', b"a"),
    "quoted names": (b'"', b'a\n","'),
    "a quoted name of many lines": (b'at,"', b"b\n"),
    "no line end": (b"", b"at,"),
}


@pytest.mark.parametrize("kind", ENDLESS_HEADERS)
def test_a_header_that_never_ends_is_refused_in_bounded_memory(tmp_path, kind):
    """A gzipped CSV of 573 kB took 11.7 GB."""
    with gzip.open(tmp_path / "watts.csv.gz", "wb", compresslevel=9) as file:
        start, part = ENDLESS_HEADERS[kind]
        file.write(start)
        for _ in range(600):
            file.write(part * (MIB // len(part)))
    program = f"""
from datetime import datetime, timedelta, UTC
from collectors.protocols.mapped_files import FileMapping
from collectors.protocols.sample_files import FilesCollector
from collectors.samples import Family, SourceError, Window
from collectors.series import SeriesRegister
start = datetime(2026, 10, 1, tzinfo=UTC)
window = Window(start, start + timedelta(hours=1))
mapping = FileMapping(sys.argv[1], time="at", values={{"{POWER}": "watts"}})
families = {{"{POWER}": Family("{POWER}", "power", "dcgm_exporter")}}
try:
    list(FilesCollector("f", [mapping]).collect(window, families, SeriesRegister("f", window)))
except SourceError as refusal:
    print(refusal.reason[:60])
"""
    printed, peak_mib = peak_of(program, tmp_path / "watts.csv.gz")
    assert printed.startswith("its header does not end within 65,536 characters")
    assert peak_mib < 300


def test_a_header_may_be_long_quoted_and_of_several_lines(tmp_path):
    many = ",".join(f'"column\n{n}"' for n in range(3000))
    (tmp_path / "watts.csv").write_text(f"at,watts,{many}\n2026-10-01T00:00:01Z,5{',1' * 3000}\n")
    mapping = FileMapping(str(tmp_path / "watts.csv"), time="at", values={POWER: "watts"})
    [batch] = collected(FilesCollector("files", [mapping]))
    assert batch.samples.column("value").to_pylist() == [5.0]


def test_a_link_out_of_the_folder_is_refused_and_nothing_of_it_shown(tmp_path):
    """A glob followed it, and the message about the file quoted its first line."""
    (tmp_path / "secret").write_text("root:x:0:0:hunter2\n")
    inside = tmp_path / "runs"
    (inside / "real").mkdir(parents=True)
    (inside / "real" / "a.csv").write_text("at,watts\n2026-10-01T00:00:01Z,5\n")
    (inside / "b.csv").symlink_to(inside / "real" / "a.csv")
    mapping = FileMapping(f"{inside}/*.csv", time="at", values={POWER: "watts"})
    # A link within the folder is as good as a file: Kubernetes mounts files so.
    assert len(collected(FilesCollector("files", [mapping]))) == 1
    (inside / "c.csv").symlink_to(tmp_path / "secret")
    for pattern in (f"{inside}/*.csv", f"{inside}/**/*.csv", str(inside)):
        with pytest.raises(SourceError, match=rf"c\.csv: is a link that leads out of {inside}\.") as caught:
            paths_of(pattern)
        assert "hunter2" not in str(caught.value)
    with pytest.raises(SourceError, match="is a link that leads out of"):
        collected(FilesCollector("files", [mapping]))


def test_a_linked_folder_outside_is_refused_too(tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "log.jsonl").write_text("{}\n")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "linked").symlink_to(tmp_path / "outside")
    with pytest.raises(SourceError, match="is a link that leads out of"):
        paths_of(f"{tmp_path}/runs/*/log.jsonl")


# --- texts of others --------------------------------------------------------------------------------------------------


def test_text_of_a_server_reaches_no_terminal_with_escapes(capsys, caplog):
    """An error message of a server could rewrite what a person had read before."""
    body = json.dumps({"status": "error", "error": ESCAPES}).encode()
    with exporter(lambda handler: reply(handler, 400, body)) as url, pytest.raises(SourceError) as caught:
        collected(PrometheusCollector("cluster", url))
    assert str(caught.value).isprintable()
    assert r"\x1b[31mred\x1b[0m \x9b2J \u202edesrever" in str(caught.value)

    page = f'{POWER}{{UUID="{ESCAPES}"}} 1\n'.encode()
    with http_server(lambda handler: reply(handler, 200, page, "text/plain; charset=utf-8")) as url:
        from collectors.__main__ import main  # noqa: PLC0415

        with caplog.at_level(logging.INFO):
            assert main(["sample", "--page", f"{url}/metrics"]) == 0
    printed = capsys.readouterr().out
    assert "red" in printed
    assert printed.replace("\n", "").isprintable()


def test_text_that_is_printable_stays_as_it_is():
    assert printable("Größe: 5 °C, 日本語, 50 %") == "Größe: 5 °C, 日本語, 50 %"
    assert printable("two\nlines\ttab\x07") == r"two\nlines\ttab\x07"
    assert printable("\udcff") == r"\udcff"


@pytest.mark.parametrize(
    "name", ["hunter2", "ghp_16C7e42F292c6912E7710c838347Ae178B4a", "AKIAIOSFODNN7EXAMPLE", "a" * 32, "X" * 41]
)
def test_what_may_be_a_secret_is_not_shown_as_the_name_of_a_variable(name):
    assert name not in shown_variable(name)
    page = ExpositionPage("http://127.0.0.1:1/metrics", bearer_env=name)
    with pytest.raises(SourceError, match="environment variable") as caught:
        page.look()
    assert name not in str(caught.value)


def test_the_usual_name_of_a_variable_is_shown():
    for name in ("PROM_TOKEN", "TOKEN", "SITE_2_PASSWORD"):
        assert shown_variable(name) == name
