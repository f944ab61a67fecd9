"""Files that do not hold what their mapping names: the whole file fails by name, with the reason."""

import math
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from collectors.protocols.sample_files import FileMapping
from collectors.samples import Family, SourceError, Window
from tests.collectors.test_files import DAY, FAMILIES, WALL, collected, written

ISO_HELP = (
    "expected text such as 2026-07-18T15:52:43.787Z, 2026-07-18 15:52:43+02:00 or 2026/07/18 15:52:43.787"
    " (UTC where it has no offset), or numbers with time_unit: s, ms, us or ns."
    " Correct `time` in the fleet file, or write the times so"
)


def refusal(*mappings, window=DAY):
    with pytest.raises(SourceError) as refused:
        collected(*mappings, window=window)
    return refused.value.url, refused.value.reason


@pytest.mark.parametrize(
    ("cells", "unit", "reason"),
    [
        (
            ("18.07.2026 15:52:43", "18.07.2026 15:52:44"),
            None,
            f"column 'at' holds no time; the first value is '18.07.2026 15:52:43', {ISO_HELP}",
        ),
        # Month or day first: two meanings, so none is read.
        (
            ("07/08/2026 15:52:43",),
            None,
            f"column 'at' holds no time; the first value is '07/08/2026 15:52:43', {ISO_HELP}",
        ),
        (("",), None, f"column 'at' holds no time; the first value is an empty cell, {ISO_HELP}"),
        (
            ("1790812800.5", "1790812801.5"),
            None,
            "column 'at' holds no time; the first value is '1790812800.5',"
            " expected text such as 2026-07-18T15:52:43Z. For numbers since 1970, add time_unit: s, ms, us or ns",
        ),
        (
            ("2026-10-01T00:00:00Z",),
            "ms",
            "column 'at' holds no time; the first value is '2026-10-01T00:00:00Z', expected a number of ms since"
            " 1970-01-01T00:00:00Z, because the fleet file has time_unit: ms."
            " Correct time_unit, or remove it if the column holds text such as 2026-07-18T15:52:43Z",
        ),
    ],
)
@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_a_file_without_a_readable_time_fails_by_name(tmp_path, cells, unit, reason, ending):
    path = str(tmp_path / f"p{ending}")
    if ending == ".csv":
        written(tmp_path / "p.csv", "node,at,watts\n" + "".join(f"n1,{cell},1\n" for cell in cells))
    else:
        times = pa.array([cell or None for cell in cells], pa.string())
        pq.write_table(pa.table({"node": ["n1"] * len(cells), "at": times, "watts": [1.0] * len(cells)}), path)
    assert refusal(FileMapping(path, **WALL, time_unit=unit)) == (path, reason)


def test_one_unreadable_file_among_readable_ones_is_named(tmp_path):
    written(tmp_path / "a.csv", "node,at,watts\nn1,2026-10-01T00:00:00Z,1\n")
    bad = written(tmp_path / "b.csv", "node,at,watts\nn1,noon,1\n")
    rows, register = collected(FileMapping(str(tmp_path / "*.csv"), **WALL))
    assert [row[4] for row in rows] == [1.0]
    assert register.rejects.first[-1].startswith(f"{bad}: column 'at' holds no time; the first value is 'noon'")


def test_one_readable_time_is_enough_even_outside_the_window(tmp_path):
    text = "node,at,watts\nn1,noon,1\nn1,2026-09-30T00:00:00Z,2\nn1,later,3\nn1,2026-09-30T00:00:00Z,4\n"
    rows, register = collected(FileMapping(written(tmp_path / "p.csv", text), **WALL))
    assert (rows, register.chunk_table().num_rows) == ([], 0)


SMI = (
    "timestamp, uuid, power.draw [W], utilization.gpu [%], memory.used [MiB]\n"
    "2026/10/01 15:52:43.787, GPU-a, 68.12 W, 7 %, 2163 MiB\n"
    "2026/10/01 15:52:44.788, GPU-b, [N/A], 100 %, 9941 MiB\n"
)
SMI_US = 57_163_787_000  # 15:52:43.787 after midnight


def smi_mapping(path):
    return FileMapping(
        path,
        time="timestamp",
        labels={"uuid": "uuid"},
        values={"nvml_power_watts": "power.draw [W]", "activity": "utilization.gpu [%]", "memory": "memory.used [MiB]"},
    )


@pytest.mark.parametrize("options", ["", "nounits"])
def test_a_log_of_nvidia_smi_is_read_as_it_is(tmp_path, options, monkeypatch):
    for metric in ("activity", "memory"):
        monkeypatch.setitem(FAMILIES, metric, Family(metric, "power", "nvml"))
    text = SMI
    if options == "nounits":
        text = text.replace(" W,", ",").replace(" %,", ",").replace(" MiB\n", "\n")
    rows, register = collected(smi_mapping(written(tmp_path / "smi.csv", text)))
    board_a, board_b = '{"uuid":"GPU-a"}', '{"uuid":"GPU-b"}'
    assert [row for row in rows if not math.isnan(row[4])] == [
        ("power", "nvml_power_watts", board_a, SMI_US, 68.12),
        ("power", "activity", board_a, SMI_US, 7.0),
        ("power", "activity", board_b, SMI_US + 1_001_000, 100.0),
        ("power", "memory", board_a, SMI_US, 2163.0),
        ("power", "memory", board_b, SMI_US + 1_001_000, 9941.0),
    ]
    # [N/A] is a reject, as any text where a number belongs.
    assert register.chunk_table()["rejects"].to_pylist().count(1) == 1


def test_another_unit_than_the_header_says_is_no_number(tmp_path):
    text = "node,at,draw [W]\nn1,2026-10-01T00:00:00Z,68.1 W\nn1,2026-10-01T00:00:01Z,68.1 kW\n"
    mapping = FileMapping(
        written(tmp_path / "p.csv", text), time="at", labels={"node": "node"}, values={"wall_power_watts": "draw [W]"}
    )
    rows, _ = collected(mapping)
    assert [row[3:] for row in rows if not math.isnan(row[4])] == [(0, 68.1)]
    assert len(rows) == 2


def test_a_column_of_text_where_numbers_belong_fails_by_name(tmp_path):
    lines = "".join(f"n1,2026-10-0{day}T00:00:00Z,rack {day}\n" for day in (1, 2, 3))
    path = written(tmp_path / "p.csv", "node,at,watts\n" + lines)
    reason = (
        "column 'watts' holds no number; the first value is 'rack 1', expected a number such as 312.5."
        " Correct `values` in the fleet file"
    )
    assert refusal(FileMapping(path, **WALL)) == (path, reason)
    # Also on a day of which it has no row: the file is the wrong one on every day.
    empty_day = Window(datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 11, 2, tzinfo=UTC))
    assert refusal(FileMapping(path, **WALL), window=empty_day) == (path, reason)


@pytest.mark.parametrize("word", ["N/A", "[N/A]", "[Not Supported]", "nan", "null", "-", "", "ERR!", "Unknown"])
def test_a_meter_that_measures_nothing_all_day_is_no_wrong_column(tmp_path, word):
    text = f"node,at,watts\nn1,2026-10-01T00:00:00Z,{word}\nn1,2026-10-01T00:00:01Z,{word}\n"
    rows, register = collected(FileMapping(written(tmp_path / "p.csv", text), **WALL))
    assert all(math.isnan(row[4]) for row in rows)
    assert register.chunk_table()["rejects"].to_pylist() == ([2] if word else [])


def test_a_meter_that_says_a_word_for_a_day_lands_its_other_days(tmp_path):
    text = "node,at,watts\nn1,2026-10-01T00:00:00Z,offline\nn1,2026-10-02T00:00:00Z,5\n"
    _, register = collected(FileMapping(written(tmp_path / "p.csv", text), **WALL))
    assert register.chunk_table()["rejects"].to_pylist() == [1]


def test_a_long_file_whose_metric_column_names_none_of_the_catalogue_fails_by_name(tmp_path):
    path = written(tmp_path / "p.csv", "host,at,value\nn1,2026-10-01T00:00:00Z,5\nn2,2026-10-01T00:00:00Z,5\n")
    assert refusal(FileMapping(path, time="at", metric="host", value="value")) == (
        path,
        "column 'host' names no metric of the catalogue; the first is 'n1',"
        " expected one of dbt_project/seeds/metric_catalog.csv",
    )


def test_unknown_metrics_of_another_day_or_beside_known_ones_are_no_failure(tmp_path):
    text = "metric,at,value\nnew_metric,2026-09-30T00:00:00Z,5\nwall_power_watts,2026-09-29T00:00:00Z,5\n"
    mapping = FileMapping(written(tmp_path / "p.csv", text), time="at", metric="metric", value="value")
    assert collected(mapping)[0] == []


def test_a_page_where_a_file_should_be_fails_by_what_it_says(tmp_path):
    path = written(tmp_path / "p.csv", "<!doctype html>\n<html><body>Sign in</body></html>\n")
    assert refusal(FileMapping(path, **WALL)) == (path, "no column 'at'; there are '<!doctype html>'")


def test_a_header_of_ten_thousand_characters_is_cut_in_the_message(tmp_path):
    _, reason = refusal(FileMapping(written(tmp_path / "p.csv", f"at,{'x' * 10_000},watts\na,b,1\n"), **WALL))
    assert reason.startswith("no column 'node'; there are 'at', 'xxxx")
    assert len(reason) == 500
