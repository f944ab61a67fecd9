"""Answers without end, landed by a child process, so that its memory can be measured: others are unharmed."""

import json
import subprocess
import sys
import time
import zlib
from contextlib import ExitStack
from pathlib import Path

import pytest

from collectors.protocols.exposition import ExpositionPage
from collectors.protocols.mapped_files import FileMapping
from collectors.protocols.prometheus import PrometheusCollector
from collectors.protocols.sample_files import FilesCollector
from tests.collectors.test_hostile_sources import (
    POWER,
    SERVED,
    Fleet,
    PageCollector,
    as_export,
    as_matrix,
    as_page,
    served_url,
)
from tests.servers import reply

pytestmark = pytest.mark.slow


def landed_by_a_child(tmp_path, sources):
    """Outcomes by kind of (kind, URL or path), landed one after the other, and the child's peak in MiB and seconds."""
    began = time.monotonic()
    command = [
        sys.executable,
        "-m",
        "tests.collectors.test_answers_without_end",
        tmp_path / "child.duckdb",
        json.dumps(sources),
    ]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    result = json.loads(printed.stdout)
    return result["outcomes"], result["peak_mib"], time.monotonic() - began


@pytest.mark.rest
def test_a_gzip_bomb_costs_little_more_than_the_limits(tmp_path):
    packer, bomb_bytes = zlib.compressobj(wbits=31), 1 << 30
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(bomb_bytes >> 20)) + packer.flush()
    (tmp_path / "watts.csv.gz").write_bytes(bomb)
    with ExitStack() as stack:
        sources = [("csv.gz", str(tmp_path / "watts.csv.gz"))]
        for kind, (media_type, _) in SERVED.items():

            def explode(handler, media_type=media_type):
                reply(handler, 200, bomb, media_type, Content_Encoding="gzip")

            sources.append((kind, stack.enter_context(served_url(explode, kind))))
        outcomes, peak_mib, seconds = landed_by_a_child(tmp_path, sources)
    assert outcomes["csv.gz"][0] == outcomes["page"][0] == "failed"
    assert outcomes["prometheus"] == ["failed", "the answer is over 67108864 bytes"]
    assert outcomes["victoria_metrics"] == ["failed", "a line is over 67108864 bytes"]
    assert outcomes["csv.gz"][1].startswith("its header does not end within 65,536 characters; it begins with '")
    assert outcomes["page"][1] == "the answer is over 33554432 bytes"
    assert outcomes["well"] == ["landed", None]
    assert peak_mib < 600
    assert seconds < 60


@pytest.mark.rest
def test_a_million_series_are_refused_before_they_fill_the_memory(tmp_path):
    def line(spelled):
        before, _, after = spelled.partition(b"GPU-0000000")
        return b"".join(b"%sGPU-%07d%s" % (before, n, after) for n in range(1_000_000))

    one = [({"UUID": "GPU-0000000"}, [(0, 250.0)])]
    empty, matrix = as_matrix([]), as_matrix(one)
    at = empty.index(b"[]") + 1
    series = matrix[at : len(matrix) - (len(empty) - at)]
    bodies = {
        "prometheus": empty[:at] + line(series + b",")[:-1] + empty[at:],
        "victoria_metrics": line(as_export(one)),
        "page": line(as_page(one)),
    }
    with ExitStack() as stack:
        sources = []
        for kind, (media_type, _) in SERVED.items():

            def flood(handler, body=bodies[kind], media_type=media_type):
                reply(handler, 200, body, media_type)

            sources.append((kind, stack.enter_context(served_url(flood, kind))))
        outcomes, peak_mib, seconds = landed_by_a_child(tmp_path, sources)
    assert outcomes["prometheus"] == ["failed", "the answer is over 67108864 bytes"]
    assert outcomes["victoria_metrics"][0] == "failed"
    assert outcomes["victoria_metrics"][1].startswith(f"more than 500,000 series, now of {POWER}")
    assert outcomes["page"] == ["failed", "the answer is over 33554432 bytes"]
    assert outcomes["well"] == ["landed", None]
    assert peak_mib < 1200
    assert seconds < 60


def main():
    path, sources = sys.argv[1], json.loads(sys.argv[2])
    fleet = Fleet(path)
    outcomes = {}
    for kind, where in sources:
        if kind == "csv.gz":
            mapping = FileMapping(where, time="at", time_unit="ms", values={POWER: "watts"})
            unwell = FilesCollector("unwell", [mapping])
        elif kind == "page":
            unwell = PageCollector(ExpositionPage(where))
        else:
            unwell = PrometheusCollector("unwell", where, attempts=2, backoff_seconds=0.01)
        result = fleet.land(unwell)
        outcomes[kind] = (result.outcome, (result.detail or "").partition("; window")[0])
    result = fleet.land(fleet.well)
    outcomes["well"] = (result.outcome, result.detail)
    # Of this program alone: ru_maxrss also holds what the test's own process had when it forked.
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    peak_mib = int(status.partition("VmHWM:")[2].split()[0]) // 1024
    print(json.dumps({"outcomes": outcomes, "peak_mib": peak_mib}))


if __name__ == "__main__":
    main()
