"""The agent and its spool: on time, nothing lost but the open batch, every file whole."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.__main__ import main, parser
from collectors.devices.agent import Ticker, families_to_keep, read_families, record
from collectors.devices.nvml import NvmlSampler
from collectors.devices.spool import Spool
from collectors.devices.spool_collector import SPOOL_SCHEMA, SpoolCollector
from collectors.devices.spool_writer import SpoolWriter
from collectors.readings import Reading, labels_json
from collectors.samples import SAMPLE_SCHEMA, Family, SourceError, Window
from collectors.series import SeriesRegister, series_id
from tests.collectors.test_nvml import NOT_SUPPORTED, FakeNvml, board
from tests.servers import http_server, running

ROOT = Path(__file__).parents[2]
DAY = date(2026, 10, 14)
DAY_US = 86_400_000_000
NOON_US = (DAY - date(1970, 1, 1)).days * DAY_US + DAY_US // 2
FAMILIES = {
    "nvml_power_watts": Family("nvml_power_watts", "power", "nvml"),
    "page_reads_total": Family("page_reads_total", "tokens", "vllm"),
}


def window_of(day, days=1):
    start_at = datetime(day.year, day.month, day.day, tzinfo=UTC)
    return Window(start_at, start_at + timedelta(days=days))


def watts(seconds, value=70.0, uuid="GPU-1", metric="nvml_power_watts"):
    return Reading(NOON_US + round(seconds * 1e6), "nvml", metric, labels_json({"uuid": uuid}), value)


def write(path, *readings, host="gpu-a", unknown=None, **options):
    writer = SpoolWriter(Spool(path), host, **options)
    writer.add(readings, unknown)
    assert writer.flush()
    return writer


def collected(collector, window, families=FAMILIES):
    """Rows (stream, series_id, seconds since noon, value), and the register."""
    register = SeriesRegister(collector.source, window)
    rows = []
    for stream, samples in collector.collect(window, families, register):
        assert samples.schema == SAMPLE_SCHEMA
        ids, times, values = (samples.column(name) for name in SAMPLE_SCHEMA.names)
        seconds = [(at - NOON_US) / 1e6 for at in times.cast(pa.int64()).to_pylist()]
        rows += zip([stream] * len(samples), ids.to_pylist(), seconds, values.to_pylist(), strict=True)
    return rows, register


def files(path):
    return sorted(str(file.relative_to(path)) for file in Path(path).rglob("*") if file.is_file())


# --- the spool ---


def test_a_file_is_named_by_host_and_day_and_holds_the_long_format(tmp_path):
    write(tmp_path, watts(0), watts(1, 71.5), host="gpu a/1")
    [name] = files(tmp_path)
    host, day, file = name.split("/")
    assert (host, day) == ("host=gpu%20a%2F1", "date=2026-10-14")
    assert file.endswith("-000001.parquet")
    table = pq.read_table(tmp_path / name, partitioning=None)
    assert table.schema.equals(SPOOL_SCHEMA)
    assert table.to_pylist()[1] == {
        "observed_at": datetime(2026, 10, 14, 12, 0, 1, tzinfo=UTC),
        "source_kind": "nvml",
        "metric": "nvml_power_watts",
        "labels": '{"uuid":"GPU-1"}',
        "value": 71.5,
    }


def test_a_file_never_spans_midnight(tmp_path):
    write(tmp_path, watts(43_199.999999), watts(43_200), watts(-43_200), watts(-43_200.000001))
    assert [name.split("/")[1] for name in files(tmp_path)] == [
        "date=2026-10-13",
        "date=2026-10-14",
        "date=2026-10-15",
    ]
    collector = SpoolCollector("agents", tmp_path)
    assert collector.days() == [date(2026, 10, 13), DAY, date(2026, 10, 15)]
    rows, _ = collected(collector, window_of(DAY))
    assert [row[2] for row in rows] == [43_199.999999, -43_200.0]


def test_a_landing_takes_the_day_and_removes_only_what_it_took(tmp_path):
    write(tmp_path, watts(0), watts(1), Reading(NOON_US, "vllm", "page_reads_total", '{"model":"m"}', 5.0))
    write(tmp_path, watts(0, uuid="GPU-2"), host="gpu-b")
    write(tmp_path, watts(86_400))
    collector = SpoolCollector("agents", tmp_path)
    assert collector.is_additive
    rows, register = collected(collector, window_of(DAY))
    power = series_id("agents", "nvml_power_watts", {"uuid": "GPU-1"})
    assert sorted(rows) == sorted(
        [
            ("power", power, 0.0, 70.0),
            ("power", power, 1.0, 70.0),
            ("power", series_id("agents", "nvml_power_watts", {"uuid": "GPU-2"}), 0.0, 70.0),
            ("tokens", series_id("agents", "page_reads_total", {"model": "m"}), 0.0, 5.0),
        ]
    )
    assert sorted(register.chunk_table().column("samples").to_pylist()) == [1, 1, 2]
    assert sorted(register.series_table().column("source_kind").to_pylist()) == ["nvml", "nvml", "vllm"]
    write(tmp_path, watts(2), host="gpu-c")  # arrives between collecting and landing
    assert collector.landed(window_of(DAY)) == 2
    assert [name.split("/")[:2] for name in files(tmp_path)] == [
        ["host=gpu-a", "date=2026-10-15"],
        ["host=gpu-c", "date=2026-10-14"],
    ]
    assert not (tmp_path / "host=gpu-a" / "date=2026-10-14").exists()
    assert collector.landed(window_of(DAY)) == 0
    assert [row[2] for row in collected(collector, window_of(DAY))[0]] == [2.0]


def test_a_file_that_lies_partly_in_the_window_stays(tmp_path):
    write(tmp_path, watts(0), watts(1))
    collector = SpoolCollector("agents", tmp_path)
    noon = datetime(2026, 10, 14, 12, tzinfo=UTC)
    first_second = Window(noon, noon + timedelta(seconds=1))
    assert [row[2] for row in collected(collector, first_second)[0]] == [0.0]
    assert collector.landed(first_second) == 0
    assert len(files(tmp_path)) == 1


def test_a_landing_that_broke_off_removes_nothing(tmp_path):
    write(tmp_path, watts(0))
    collector = SpoolCollector("agents", tmp_path)
    batches = collector.collect(window_of(DAY), FAMILIES, SeriesRegister("agents", window_of(DAY)))
    next(batches)
    batches.close()
    assert collector.landed(window_of(DAY)) == 0
    assert len(files(tmp_path)) == 1


def test_corrupt_files_are_named_and_left_and_harm_no_other(tmp_path):
    write(tmp_path, watts(0))
    [good] = files(tmp_path)
    folder = (tmp_path / good).parent
    whole = (tmp_path / good).read_bytes()
    (folder / "truncated.parquet").write_bytes(whole[:-40])
    (folder / "empty.parquet").write_bytes(b"")
    pq.write_table(pa.table({"watts": [1.0]}), folder / "other.parquet")
    nulls = pa.table({name: pa.array([None], SPOOL_SCHEMA.field(name).type) for name in SPOOL_SCHEMA.names})
    pq.write_table(nulls, folder / "nulls.parquet")
    (folder / "labels.parquet").write_bytes(_one_row_with_labels("not json"))
    (folder / "list.parquet").write_bytes(_one_row_with_labels("[]"))
    (folder / ".half.parquet.tmp").write_bytes(whole[:10])
    collector = SpoolCollector("agents", tmp_path)
    rows, _ = collected(collector, window_of(DAY))
    assert [row[2:] for row in rows] == [(0.0, 70.0)]
    assert [Path(problem.partition(": ")[0]).name for problem in collector.problems] == [
        "empty.parquet",
        "labels.parquet",
        "list.parquet",
        "nulls.parquet",
        "other.parquet",
        "truncated.parquet",
    ]
    assert collector.landed(window_of(DAY)) == 1
    assert len(files(tmp_path)) == 7


def _one_row_with_labels(text):
    sink = io.BytesIO()
    row = {"observed_at": NOON_US, "source_kind": "nvml", "metric": "nvml_power_watts", "labels": text, "value": 1.0}
    pq.write_table(pa.Table.from_pylist([row], SPOOL_SCHEMA), sink)
    return sink.getvalue()


def test_unknown_families_are_counted_from_rows_and_from_what_the_agent_left_out(tmp_path):
    write(tmp_path, watts(0, metric="later_watts"), watts(0), watts(0, uuid="GPU-2"), unknown={"python_info": 3})
    narrow = {"later_watts": Family("later_watts", "power", "nvml")}
    _, register = collected(SpoolCollector("agents", tmp_path), window_of(DAY), narrow)
    assert register.unknown_table().to_pylist() == [
        {"metric": "nvml_power_watts", "series": 2},
        {"metric": "python_info", "series": 3},
    ]


def test_a_missing_spool_is_a_source_error(tmp_path):
    collector = SpoolCollector("agents", tmp_path / "nowhere")
    with pytest.raises(SourceError, match="there is no such folder"):
        collector.days()
    with pytest.raises(SourceError):
        collected(collector, window_of(DAY))


def test_an_object_store_is_a_spool():
    root = "memory://spool-test/agents"
    write(root, watts(0), watts(86_400))
    collector = SpoolCollector("agents", root)
    assert collector.days() == [DAY, DAY + timedelta(days=1)]
    assert [row[2] for row in collected(collector, window_of(DAY, days=2))[0]] == [0.0, 86_400.0]
    assert collector.landed(window_of(DAY, days=2)) == 2
    assert collector.days() == []
    fsspec.filesystem("memory").rm("/spool-test", recursive=True)


readings = st.builds(
    Reading,
    st.integers(NOON_US - 2 * DAY_US, NOON_US + 2 * DAY_US),
    st.sampled_from(["nvml", "vllm"]),
    st.sampled_from(list(FAMILIES)),
    st.dictionaries(st.text("abc", min_size=1), st.text(min_size=1, max_size=5), max_size=2).map(labels_json),
    st.floats(),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(readings, max_size=40), st.integers(1, 10))
def test_what_is_written_is_what_is_read(tmp_path_factory, some, max_open_rows):
    path = tmp_path_factory.mktemp("spool")
    write(path, *some, max_open_rows=max_open_rows)
    path.mkdir(exist_ok=True)
    collector = SpoolCollector("agents", path)
    window = window_of(DAY - timedelta(days=2), days=5)
    rows, register = collected(collector, window)
    wanted = []
    for observed_us, _, metric, labels, value in some:
        series = series_id("agents", metric, json.loads(labels))
        wanted.append((FAMILIES[metric].stream, series, (observed_us - NOON_US) / 1e6, value))
    assert sorted(map(repr, rows)) == sorted(map(repr, wanted))
    assert collector.days() == sorted({date(1970, 1, 1) + timedelta(days=r.observed_us // DAY_US) for r in some})
    chunks = register.chunk_table()
    counted = sum(chunks.column("samples").to_pylist()) + sum(chunks.column("rejects").to_pylist())
    assert counted == len(some)
    collector.landed(window)
    assert files(path) == []


def test_while_the_spool_is_away_batches_wait_and_the_oldest_go(tmp_path, caplog):
    spool = tmp_path / "share"
    spool.write_text("not a folder")
    writer = SpoolWriter(Spool(spool), "gpu-a", max_waiting_rows=3)
    for second in range(5):
        writer.add([watts(second)])
        assert not writer.flush()
    assert (writer.waiting_rows, writer.dropped_rows) == (3, 2)
    spool.unlink()
    assert writer.flush()
    assert [row[2] for row in collected(SpoolCollector("agents", spool), window_of(DAY))[0]] == [2.0, 3.0, 4.0]
    logged = [record.getMessage() for record in caplog.records]
    assert sum("cannot be written, batches wait" in line for line in logged) == 1
    assert sum("is written again" in line for line in logged) == 1
    assert "dropped the 1 oldest rows (2 in all)" in logged[-2]


def test_a_full_batch_is_due_at_once(tmp_path):
    writer = SpoolWriter(Spool(tmp_path), "gpu-a", rotate_seconds=60, max_open_rows=2, monotonic=lambda: 100.0)
    writer.add([watts(0)])
    assert writer.due_in_seconds() == 60.0
    writer.add([watts(1)])
    assert writer.due_in_seconds() == 0.0
    writer.add([watts(2)])
    assert writer.flush()
    assert [pq.read_metadata(tmp_path / name).num_rows for name in files(tmp_path)] == [2, 1]


def test_an_agent_clears_what_its_killed_forerunner_left_half_written(tmp_path):
    folder = tmp_path / "host=gpu-a" / "date=2026-10-13"
    folder.mkdir(parents=True)
    (folder / ".old.parquet.tmp").write_bytes(b"PAR1")
    (folder / ".new.parquet.tmp").write_bytes(b"PAR1")
    os.utime(folder / ".old.parquet.tmp", (time.time() - 7200,) * 2)
    write(tmp_path, watts(0))
    assert [path.name for path in folder.iterdir()] == [".new.parquet.tmp"]


# --- timing and families ---


def test_ticks_do_not_drift_and_late_ones_are_skipped():
    now = [100.0]
    ticker = Ticker(1.0, lambda: now[0])
    now[0] = 100.25
    assert ticker.wait_seconds() == 0.75
    now[0] = 101.0
    assert ticker.wait_seconds() == 1.0
    now[0] = 101.999  # woken early: still one look per tick
    assert ticker.wait_seconds() == pytest.approx(1.001)
    now[0] = 106.5  # a look that took 3.5 s
    assert ticker.wait_seconds() == 0.5
    assert ticker.skipped == 3


def test_families_from_a_list_from_a_catalogue_and_by_default(tmp_path):
    (tmp_path / "names").write_text("# ours\nvllm:generation_tokens_total\n\nup\n")
    assert read_families(tmp_path / "names") == {"vllm:generation_tokens_total": "page", "up": "page"}
    (tmp_path / "catalogue.csv").write_text("source_kind,metric\nvllm,vllm:generation_tokens_total\n,up\n")
    assert read_families(tmp_path / "catalogue.csv") == {"vllm:generation_tokens_total": "vllm", "up": "page"}
    assert families_to_keep(None)["vllm:generation_tokens_total"] == "vllm"
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(ValueError, match="holds no metric name"):
        read_families(tmp_path / "empty")


# --- the agent as a process ---


@contextmanager
def counting_page():
    """A page whose counter is the number of its reads; the list holds the counts that were sent."""
    sent = []

    def answer(request):
        sent.append(len(sent) + 1)
        body = f'page_reads_total {sent[-1]}\nunwanted{{a="1"}} 1\n'.encode()
        request.send_response(200)
        request.send_header("Content-Type", "text/plain; version=0.0.4")
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    with http_server(answer) as url:
        yield f"{url}/metrics", sent


def agent_command(spool, url, *options, host="gpu-a"):
    names = Path(spool).parent / "families"
    names.write_text("page_reads_total\n")
    command = [sys.executable, "-m", "collectors", "agent", "--page", url, "--spool", str(spool), "--host", host]
    return [*command, "--families", str(names), "--page-interval", "0.1", "--rotate", "0.4", *options]


def wait_for(is_true, seconds=30):
    give_up_at = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < give_up_at
        time.sleep(0.05)


def landed_values(spool):
    day = datetime.now(UTC).date()
    window = window_of(day - timedelta(days=1), days=3)
    collector = SpoolCollector("agents", spool)
    register = SeriesRegister("agents", window)
    batches = list(collector.collect(window, FAMILIES, register))
    assert collector.problems == []
    return [value for batch in batches for value in batch.samples.column("value").to_pylist()], register


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_agent_that_is_asked_to_stop_loses_nothing(tmp_path, number):
    with (
        counting_page() as (url, sent),
        running(agent_command(tmp_path / "spool", url, "--rotate", "60"), cwd=ROOT, stderr=subprocess.PIPE) as agent,
    ):
        wait_for(lambda: len(sent) >= 5)
        agent.send_signal(number)
        assert agent.wait(timeout=20) == 0
        logged = agent.stderr.read().decode()
    values, register = landed_values(tmp_path / "spool")
    assert values == [float(count) for count in sent]
    assert f"stopped: {len(sent)} rows in 1 files, 0 rows lost" in logged
    assert register.unknown_table().to_pylist() == [{"metric": "unwanted", "series": 1}]
    port = url.split(":")[2].partition("/")[0]
    assert register.series_table().column("labels").to_pylist() == [f'{{"instance":"gpu-a:{port}","node":"gpu-a"}}']


def test_a_killed_agent_loses_at_most_the_open_batch(tmp_path):
    spool = tmp_path / "spool"
    with counting_page() as (url, sent), running(agent_command(spool, url), cwd=ROOT) as agent:
        wait_for(lambda: spool.is_dir() and len(list(spool.rglob("*.parquet"))) >= 3)
        agent.kill()
        agent.wait()
    values, _ = landed_values(spool)
    assert values == [float(count) for count in range(1, len(values) + 1)]
    # 0.4 s between files at 0.1 s a look is 4 or 5; the rest is for a machine that is busy.
    assert len(sent) - len(values) <= 20


def test_two_hosts_share_a_spool(tmp_path):
    spool = tmp_path / "spool"
    with (
        counting_page() as (url, sent),
        running(agent_command(spool, url, host="gpu-a"), cwd=ROOT) as one,
        running(agent_command(spool, url, host="gpu-b"), cwd=ROOT) as other,
    ):
        wait_for(lambda: spool.is_dir() and len(list(spool.glob("host=*/date=*/*.parquet"))) >= 4)
        for agent in (one, other):
            agent.send_signal(signal.SIGTERM)
            assert agent.wait(timeout=20) == 0
    values, register = landed_values(spool)
    assert sorted(values) == [float(count) for count in sent]
    labels = register.series_table().column("labels").to_pylist()
    assert sorted(text.partition('"node":')[2] for text in labels) == ['"gpu-a"}', '"gpu-b"}']


def test_a_failing_page_is_logged_once_per_change_and_tried_again(tmp_path):
    is_broken, asked = [True], []

    def answer(request):
        asked.append(is_broken[0])
        body = b"<html>\n" if is_broken[0] else b"page_reads_total 1\n"
        request.send_response(200)
        request.send_header("Content-Type", "text/html" if is_broken[0] else "text/plain")
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    with (
        http_server(answer) as url,
        running(agent_command(tmp_path / "spool", url), cwd=ROOT, stderr=subprocess.PIPE) as agent,
    ):
        wait_for(lambda: len(asked) >= 4)
        is_broken[0] = False
        wait_for(lambda: asked.count(False) >= 4)
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(timeout=20) == 0
        logged = agent.stderr.read().decode()
    assert logged.count("answered text/html, not metrics") == 1
    assert logged.count("answers again") == 1


def test_an_agent_without_nvml_logs_it_once_and_reads_its_page(tmp_path):
    with (
        counting_page() as (url, sent),
        running(
            agent_command(tmp_path / "spool", url, "--nvml", "--nvml-interval", "0.1"), cwd=ROOT, stderr=subprocess.PIPE
        ) as agent,
    ):
        wait_for(lambda: len(sent) >= 5)
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(timeout=20) == 0
        logged = agent.stderr.read().decode()
    # One line whether or not the host of this test has a GPU.
    assert logged.count(" nvml: ") == 1
    assert landed_values(tmp_path / "spool")[0]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["agent", "--spool", "x"], "nothing to look at"),
        (["agent", "--page", "http://127.0.0.1:1/", "--spool", "gopher://x"], "--spool gopher://x: "),
        (["agent", "--page", "127.0.0.1:1", "--spool", "x"], "not an http or https URL"),
        (["sample", "--page", "http://127.0.0.1:1/", "--families", "nowhere.csv"], "nowhere.csv"),
        (
            ["sample", "--page", "http://127.0.0.1:1/", "--bearer-env", "TOKEN", "--bearer-file", "token"],
            "expected one of --bearer-env and --bearer-file",
        ),
        (["record", "--nvml", "--out", "nowhere/x.parquet"], "there is no folder nowhere"),
        (["agent", "--nvml", "--spool", "x", "--nvml-interval", "0"], "expected a number above 0, got '0'"),
    ],
)
def test_a_wrong_option_is_one_line_and_status_2(arguments, reason, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert reason in capsys.readouterr().err


def test_sample_prints_what_one_look_sees(capsys, tmp_path):
    (tmp_path / "families").write_text("page_reads_total\n")
    with counting_page() as (url, _):
        assert main(["sample", "--page", url, "--families", str(tmp_path / "families")]) == 0
    out = capsys.readouterr().out
    assert f"{url}: 1 samples" in out
    assert "page_reads_total                     1" in out
    assert "and 1 series of 1 metrics that are not kept" in out


def test_record_writes_a_row_per_board_and_look_for_the_files_collector(tmp_path):
    fake = FakeNvml(board(1), board(2, TotalEnergyConsumption=NOT_SUPPORTED))
    out = tmp_path / "recorded.parquet"
    rows = record(NvmlSampler(fake, host="gpu-a"), out, duration_seconds=0.25, interval_seconds=0.1)
    table = pq.read_table(out)
    assert table.num_rows == rows
    assert rows in (4, 6, 8)
    first, second = table.slice(0, 2).drop_columns("observed_at").to_pylist()
    assert first == {
        "uuid": "GPU-1",
        "node": "gpu-a",
        "device_type": "NVIDIA H200",
        "pci_bus_id": "00000000:01:00.0",
        "nvml_total_energy_millijoules": 7_000_124.0,
        "nvml_power_watts": 75.312,
        "nvml_utilization_gpu_ratio": 0.42,
        "nvml_memory_used_bytes": 1_073_741_824.0,
        "nvml_power_limit_watts": 700.0,
    }
    assert second["nvml_total_energy_millijoules"] is None
    assert table.schema.metadata[b"wattledger_driver"] == b"580.126.09"
    assert table.schema.metadata[b"wattledger_boards"] == b"NVIDIA H200"


def test_every_command_and_option_is_in_the_documentation():
    page = (ROOT / "docs" / "agent.md").read_text()
    commands = parser()._subparsers._group_actions[0].choices
    for name, command in commands.items():
        assert f"wattledger-agent {name}" in page
        for option in command._option_string_actions:
            assert option in (*("-h", "--help"), *(word for word in page.replace("`", " ").split()))
