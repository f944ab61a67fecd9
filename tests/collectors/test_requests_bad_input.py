"""Broken request logs: a clear failure or counted rejects, in bounded memory; nothing else ever."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collectors.records.access_logs import AccessLogCollector
from collectors.records.azure_trace import AzureTraceCollector
from collectors.records.litellm import LiteLLMFileCollector
from collectors.records.load_tests import AIPerfCollector, GenAIPerfCollector
from collectors.records.request_records import RequestCollector
from collectors.samples import SourceError
from pipelines.fleet.places import PROJECT
from tests.collectors.test_load_tests import aiperf_record
from tests.collectors.test_requests import NOON_NS, SPEND_LOG, collected

OPENAI = {
    "id": "r1",
    "created": NOON_NS // 10**9,
    "model": "gpt",
    "usage": {"prompt_tokens": 1, "completion_tokens": 2},
}
GENAI_PERF = {
    "timestamp": NOON_NS,
    "response_timestamps": [NOON_NS + 10**9],
    "response_outputs": [],
    "request_inputs": {},
}
READERS: dict[str, tuple[str, Callable[[str], RequestCollector]]] = {
    "access_log": ("log.jsonl", lambda path: AccessLogCollector("s", path, {})),
    "litellm": ("log.jsonl", lambda path: LiteLLMFileCollector("s", path, {})),
    "aiperf": ("profile_export.jsonl", lambda path: AIPerfCollector("s", path, {})),
    "genai_perf": ("profile_export.json", lambda path: GenAIPerfCollector("s", path, {})),
    "azure_trace": ("trace.csv", lambda path: AzureTraceCollector("s", path, {})),
}
GOOD: dict[str, dict[str, Any]] = {"access_log": OPENAI, "litellm": SPEND_LOG, "aiperf": aiperf_record(1, 0, 1)}


def reader(kind: str, folder: Path, held: bytes, ending: str = "") -> RequestCollector:
    name, make = READERS[kind]
    path = folder / (name + ending)
    path.write_bytes(held)
    return make(str(path))


def lines(*rows: Any) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize(
    "held",
    [
        b"<!DOCTYPE html>\n<html><title>Sign in</title></html>\n",
        b'{"error": {"message": "Unauthorized", "code": 401}}\n',
        b"\x00\x01\x02\xff\xfe binary \x1f\x8b\n",
        b"null\n",
        b"[[[[" * 5_000 + b"\n",
    ],
    ids=["html", "json_error", "binary", "null", "deep"],
)
def test_another_thing_than_a_log_is_a_failure_that_names_the_file(tmp_path: Path, kind: str, held: bytes) -> None:
    with pytest.raises(SourceError) as refusal:
        collected(reader(kind, tmp_path, held))
    assert READERS[kind][0] in str(refusal.value)
    assert len(refusal.value.reason) < 1_000


@pytest.mark.parametrize("kind", READERS)
def test_a_file_that_is_not_there_is_a_failure(tmp_path: Path, kind: str) -> None:
    with pytest.raises(SourceError, match="no such file"):
        collected(READERS[kind][1](str(tmp_path / "nothing" / "*.x")))


@pytest.mark.parametrize("kind", ["access_log", "litellm", "aiperf"])
def test_an_empty_log_holds_nothing_and_is_no_failure(tmp_path: Path, kind: str) -> None:
    assert collected(reader(kind, tmp_path, b"\n \n"))[0] == []


@pytest.mark.parametrize("kind", GOOD)
def test_a_line_that_broke_off_costs_itself(tmp_path: Path, kind: str) -> None:
    whole = lines(GOOD[kind], GOOD[kind])
    rows, rejects = collected(reader(kind, tmp_path, whole[:-25]))
    assert (len(rows), rejects.rows) == (1, 1)
    assert f"{READERS[kind][0]}:2: is not JSON" in rejects.first[0]


@pytest.mark.parametrize(
    ("kind", "change", "reason"),
    [
        ("access_log", {"usage": {"prompt_tokens": -1}}, "prompt_tokens: got -1"),
        ("access_log", {"usage": "many"}, "usage: got a text of 4 characters, expected an object"),
        ("access_log", {"usage": {"prompt_tokens": 1e30}}, "prompt_tokens: got 1e+30"),
        ("access_log", {"created": None}, "started_at: there is nothing at created"),
        ("access_log", {"created": "soon"}, "started_at: got a text of 4 characters, expected a time"),
        ("access_log", {"created": NOON_NS}, "expected a time of this century"),
        ("access_log", {"model": {"name": "gpt"}}, "model: got an object, expected a text"),
        ("access_log", {"model": "x" * 1001}, "expected a text of at most 1000 characters"),
        ("litellm", {"startTime": None}, "startTime: missing"),
        ("litellm", {"endTime": "2026-10-01T11:00:00Z"}, "endTime: ends 3600 s before it starts"),
        ("litellm", {"completionStartTime": "2026-10-01T11:00:00Z"}, "completionStartTime: ends 3600 s before"),
        ("litellm", {"prompt_tokens": "NaN"}, "prompt_tokens: got 'NaN', expected a count of tokens"),
        ("litellm", {"spend": -1}, "spend: got -1, expected 0 to 1,000,000 USD"),
        ("litellm", {"metadata": "{"}, "metadata: got a text of 1 character, expected JSON"),
        ("aiperf", {"metadata": None}, "expected an object with metadata and metrics"),
        ("aiperf", {"metadata": {}}, "metadata.request_start_ns: missing"),
        (
            "aiperf",
            {"metrics": {"time_to_first_token": {"value": 1, "unit": "h"}}},
            "got the unit 'h', expected one of ns",
        ),
        ("aiperf", {"metrics": {"output_sequence_length": {"value": -3, "unit": "tokens"}}}, "got -3"),
        (
            "aiperf",
            {"metrics": {"input_sequence_length": {"value": [1], "unit": "tokens"}}},
            "got a list, expected a count",
        ),
    ],
)
def test_an_impossible_row_is_counted_and_named(tmp_path: Path, kind: str, change: dict[str, Any], reason: str) -> None:
    rows, rejects = collected(reader(kind, tmp_path, lines(GOOD[kind], GOOD[kind] | change)))
    assert (len(rows), rejects.rows) == (1, 1)
    assert rejects.first[0].startswith(f"{tmp_path}/{READERS[kind][0]}:2: ")
    assert reason in rejects.first[0]


FAR = {"duration_seconds": "seconds", "duration_ms": "ms", "ttft_ms": "first", "ended_at": "end", "spend_usd": "usd"}


def far(line: dict[str, Any]) -> dict[str, str]:
    """The columns that a line has."""
    return {column: key for column, key in FAR.items() if key in line}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"created": "1" * 400}, "started_at: got a text of 400 characters"),
        ({"created": 9e300}, "started_at: got 9e+300, expected a time of this century"),
        ({"created": "1_790_856_000"}, "started_at: got '1_790_856_000', expected a time such as"),
        ({"created": "١٧٩٠٨٥٦٠٠٠"}, "expected a time"),
        ({"seconds": "inf"}, "duration_seconds: got 'inf', expected a number"),
        ({"seconds": "1e999"}, "duration_seconds: got '1e999', expected 0 to 2592000 s"),
        ({"seconds": "9" * 400}, "expected 0 to 2592000 s"),
        ({"seconds": 9e12}, "duration_seconds: got 9000000000000.0, expected 0 to 2592000 s"),
        ({"seconds": -1}, "duration_seconds: got -1, expected 0 to 2592000 s"),
        ({"ms": 2_592_000_001}, "duration_ms: got 2592000001, expected 0 to 2592000 s"),
        ({"first": "NaN"}, "ttft_ms: got 'NaN', expected a number"),
        ({"end": NOON_NS // 10**9 + 2_592_001}, "ended_at: ends 2.592e+06 s after the start, expected at most 2592000"),
        ({"usd": 1e300}, "spend_usd: got 1e+300, expected 0 to 1,000,000 USD"),
        ({"usage": {"prompt_tokens": 10_000_000_001}}, "prompt_tokens: got 10000000001, expected a count of tokens"),
        ({"model": [[[[[[[[7]]]]]]]]}, "model: got a list, expected a text"),
    ],
)
def test_a_value_beyond_any_request_costs_its_line_and_not_the_log(
    tmp_path: Path, change: dict[str, Any], reason: str
) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(lines(OPENAI, OPENAI | change))
    rows, rejects = collected(AccessLogCollector("s", str(path), {}, far(change)))
    assert (len(rows), rejects.rows, rejects.read) == (1, 1, 1)
    assert rejects.first[0].startswith(f"{path}:2: ")
    assert reason in rejects.first[0]


@pytest.mark.parametrize(
    "change",
    [
        {"seconds": 2_592_000},
        {"seconds": 0, "ms": None},
        {"usage": {"prompt_tokens": 10_000_000_000, "completion_tokens": 0}},
        {"usage": None, "status": 500},
        {"usd": 1_000_000},
    ],
)
def test_what_is_rare_and_can_be_is_read(tmp_path: Path, change: dict[str, Any]) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(lines(OPENAI | change))
    rows, rejects = collected(AccessLogCollector("s", str(path), {}, far(change)))
    assert (len(rows), rejects.rows) == (1, 0)


def test_half_of_a_log_may_be_bad_and_not_more(tmp_path: Path) -> None:
    odd = [OPENAI | {"created": "soon"}] * 5
    rows, rejects = collected(reader("access_log", tmp_path, lines(*[OPENAI] * 5, *odd)))
    assert (len(rows), rejects.rows, len(rejects.first)) == (5, 5, 3)
    with pytest.raises(SourceError) as refusal:
        collected(reader("access_log", tmp_path, lines(*[OPENAI] * 5, *odd, *odd[:1])))
    assert refusal.value.reason.startswith(
        "6 of 11 rows rejected, expected at most 0.5 of all (limits.bad_rows_ratio): "
        f"{tmp_path}/log.jsonl:6: started_at: got a text of 4 characters, expected a time"
    )
    assert refusal.value.reason.count("got a text of 4 characters") == 3
    assert refusal.value.reason.endswith("; …")


def test_rows_outside_the_window_are_read_and_not_bad(tmp_path: Path) -> None:
    later = OPENAI | {"created": NOON_NS // 10**9 + 86_400}
    rows, rejects = collected(reader("access_log", tmp_path, lines(*[later] * 3, {"id": "r"})))
    assert (rows, rejects.rows, rejects.read) == ([], 1, 3)


def test_control_characters_of_a_line_are_not_shown(tmp_path: Path) -> None:
    _, rejects = collected(reader("access_log", tmp_path, lines(OPENAI, OPENAI | {"created": "\x1b[2Jnow\x00"})))
    assert "got a text of 8 characters, expected a time" in rejects.first[0]
    assert rejects.first[0].isprintable()


def test_a_line_that_is_too_long_costs_itself(tmp_path: Path) -> None:
    long = b'{"id": "' + b"x" * (9 << 20) + b'"}\n'
    rows, rejects = collected(reader("access_log", tmp_path, lines(OPENAI) + long + lines(OPENAI | {"id": "r3"})))
    assert [row["request_id"] for row in rows] == ["r1", "r3"]
    assert rejects.first == [f"{tmp_path}/log.jsonl:2: is longer than 8 MiB"]


def test_a_file_that_is_not_a_log_costs_itself_among_others(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(lines(OPENAI))
    (tmp_path / "b.jsonl.gz").write_bytes(b"plain text")
    (tmp_path / "c.jsonl").write_bytes(lines(OPENAI | {"id": "r2"}))
    rows, rejects = collected(AccessLogCollector("s", str(tmp_path), {}))
    assert [row["request_id"] for row in rows] == ["r1", "r2"]
    assert rejects.first == [f"{tmp_path}/b.jsonl.gz: cannot be read from line 1 on: Not a gzipped file (b'pl')"]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (b"2026-10-01 12:00:00,-1,2", "ContextTokens: got '-1'"),
        (b"2026-10-01 12:00:00,1", "got 2 columns, expected 3"),
        (b"yesterday,1,2", "TIMESTAMP: got a text of 9 characters"),
        (b",1,2", "TIMESTAMP: missing"),
        (b"2026-10-01 12:00:00,1.5,2", "ContextTokens: got '1.5'"),
        (b"2026-10-01 12:00:00,\xff,2", "ContextTokens: got a text of 1 character,"),
    ],
)
def test_an_impossible_row_of_a_trace_is_counted(tmp_path: Path, row: bytes, reason: str) -> None:
    held = b"TIMESTAMP,ContextTokens,GeneratedTokens\n2026-10-01 12:00:00,3,4\n" + row
    rows, rejects = collected(reader("azure_trace", tmp_path, held))
    assert (len(rows), rejects.rows) == (1, 1)
    assert f"trace.csv:3: {reason}" in rejects.first[0]


def test_a_trace_without_its_columns_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no column 'ContextTokens'; there are 'TIMESTAMP', 'Tokens'"):
        collected(reader("azure_trace", tmp_path, b"TIMESTAMP,Tokens\n2026-10-01 12:00:00,3\n"))


@pytest.mark.parametrize("name", ["a\nb", 'say "hi"', "\u202emirrored", "\U0001f525" * 300, "a\x00b", "\u0301\u0301"])
def test_odd_names_come_as_they_were_written(tmp_path: Path, name: str) -> None:
    ((row,), _) = collected(reader("access_log", tmp_path, lines(OPENAI | {"model": name})))
    assert row["model"] == name


@pytest.mark.parametrize(
    ("summary", "reason"),
    [("<html>", "is not JSON"), ("[]", "expected an object with input_config"), ("{}", "input_config")],
)
def test_a_run_whose_summary_is_broken_is_read_without_it_and_the_summary_is_named(
    tmp_path: Path, summary: str, reason: str
) -> None:
    (tmp_path / "profile_export_aiperf.json").write_text(summary)
    ((row,), rejects) = collected(reader("aiperf", tmp_path, lines(GOOD["aiperf"])))
    assert (row["request_id"], "model" in row, "stated_concurrency" in row) == ("r1", False, False)
    assert rejects.rows == 1
    assert "profile_export_aiperf.json" in rejects.first[0]
    assert reason in rejects.first[0]


@pytest.mark.parametrize(
    "held", [{}, {"experiments": 3}, {"experiments": [{}]}, {"experiments": [{"requests": {}}]}, [1], "text"]
)
def test_a_genai_perf_file_of_another_shape_is_named(tmp_path: Path, held: Any) -> None:
    with pytest.raises(SourceError, match="expected a"):
        collected(reader("genai_perf", tmp_path, json.dumps(held).encode()))


def test_an_impossible_request_of_genai_perf_is_counted(tmp_path: Path) -> None:
    odd = [3, {}, GENAI_PERF | {"response_timestamps": [NOON_NS - 10**9]}, GENAI_PERF | {"response_timestamps": "late"}]
    requests = [*[GENAI_PERF] * 4, *odd]
    held = {"experiments": [{"experiment": {"mode": "concurrency", "value": 1}, "requests": requests}]}
    rows, rejects = collected(reader("genai_perf", tmp_path, json.dumps(held).encode()))
    assert (len(rows), rejects.rows) == (4, 4)
    assert "experiments[0].requests[4]: expected an object" in rejects.first[0]


@pytest.mark.parametrize("kind", ["access_log", "litellm"])
def test_of_a_gzipped_log_that_broke_off_what_came_before_is_read(tmp_path: Path, kind: str) -> None:
    whole = gzip.compress(lines(*[GOOD[kind] | {"id": f"r{n}", "request_id": f"r{n}"} for n in range(5_000)]))
    assert len(collected(reader(kind, tmp_path, whole, ".gz"))[0]) == 5_000
    rows, rejects = collected(reader(kind, tmp_path, whole[: len(whole) // 2], ".gz"))
    assert [row["request_id"] for row in rows] == [f"r{n}" for n in range(len(rows))]
    assert 1_000 < len(rows) < 5_000
    assert (rejects.rows, rejects.read) == (1, len(rows))
    assert f"log.jsonl.gz: cannot be read from line {len(rows) + 1} on: Compressed file ended" in rejects.first[0]
    damaged = bytes([*whole[:200], whole[200] ^ 0xFF, *whole[201:]])
    with pytest.raises(SourceError, match=r"1 of 1 rows rejected.*cannot be read from line 1 on: Error -3"):
        collected(reader(kind, tmp_path, damaged, ".gz"))
    with pytest.raises(SourceError, match="cannot be read from line 1 on: Not a gzipped file"):
        collected(reader(kind, tmp_path, b"plain text", ".gz"))


def test_bombs_are_stopped_before_they_fill_memory(tmp_path: Path) -> None:
    """A hundred megabytes in a thousandth of that: as one line, as empty lines, as wrong rows, as a document."""
    block = b"0" * (1 << 20)
    for name, content in (
        ("line", block),
        ("lines", b"\n" * (1 << 20)),
        ("rows", b"{}\n" * 349_525),
        ("document", block),
    ):
        with gzip.open(tmp_path / f"{name}.jsonl.gz", "wb", compresslevel=1) as file:
            for _ in range(128):
                file.write(content)
    program = tmp_path / "read.py"
    program.write_text(
        "import json, sys\n"
        "from collectors.records.access_logs import AccessLogCollector\n"
        "from collectors.samples import SourceError\n"
        "from collectors.text_files import document\n"
        "from tests.collectors.test_requests import DAY, collected\n"
        "reasons = []\n"
        "for name in ('line', 'lines', 'rows'):\n"
        "    try:\n"
        "        collected(AccessLogCollector('s', f'{sys.argv[1]}/{name}.jsonl.gz', {}))\n"
        "    except SourceError as refusal:\n"
        "        reasons.append(refusal.reason)\n"
        "try:\n"
        "    document(f'{sys.argv[1]}/document.jsonl.gz')\n"
        "except SourceError as refusal:\n"
        "    reasons.append(refusal.reason)\n"
        "peak = next(line for line in open('/proc/self/status') if line.startswith('VmHWM'))\n"
        "print(json.dumps([reasons, int(peak.split()[1]) >> 10]))\n"
    )
    done = subprocess.run(
        [sys.executable, program, tmp_path],
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    reasons, peak_mib = json.loads(done.stdout)
    line, empty, rows, whole = reasons
    assert "line.jsonl.gz:1: is longer than 8 MiB; " in line
    assert "lines.jsonl.gz: expands to more than 200 times its size" in empty
    assert whole == "expands to more than 200 times its size"
    assert rows.startswith("10,000 of 10,000 rows rejected, expected at most 0.5 of all (limits.bad_rows_ratio): ")
    assert peak_mib < 500


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.sampled_from([NOON_NS, NOON_NS // 10**9, "2026-10-01T12:00:00Z", "1e999", "-0", "nan"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["value", "unit", "cached_tokens", "prompt_tokens", "concurrency"]), inner)
    ),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), kind=st.sampled_from(sorted(GOOD)))
def test_whatever_stands_in_a_field_it_is_a_row_a_reject_or_a_source_error(
    tmp_path: Path, data: st.DataObject, kind: str
) -> None:
    row = dict(GOOD[kind])
    for name in data.draw(st.sets(st.sampled_from(sorted(row)), min_size=1, max_size=3)):
        row[name] = data.draw(json_values)
    rows, rejects = collected(reader(kind, tmp_path, lines(GOOD[kind], row)))
    assert len(rows) + rejects.rows in (1, 2)  # 1: a time that is in no window of the test


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(held=st.binary(max_size=300), kind=st.sampled_from(sorted(READERS)))
def test_whatever_bytes_a_file_holds_nothing_else_is_raised(tmp_path: Path, held: bytes, kind: str) -> None:
    try:
        rows, _ = collected(reader(kind, tmp_path, held))
    except SourceError as refusal:
        assert READERS[kind][0] in str(refusal)
    else:
        assert rows == []
