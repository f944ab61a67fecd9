"""Files of run windows and lists of GPU prices: a row that cannot be costs itself, and is named with its line."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from collectors.rows import Rejects
from collectors.samples import SourceError
from pipelines.fleet.money.cost_rates import CostRateFile
from pipelines.fleet.run_windows import RunWindow, RunWindowFile

HEADER = "window_id,node,engine,model,start_at,end_at,output_tokens,total_tokens\n"
GOOD = "w{n},n1,,,2026-10-01T00:00:00Z,2026-10-01T01:00:00Z,7,\n"


def windows_of(tmp_path: Path, text: str | bytes, **more: object) -> tuple[list[RunWindow], Rejects]:
    path = tmp_path / "windows.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    file = RunWindowFile.model_construct(**{**RunWindowFile.model_construct().__dict__, "path": str(path), **more})
    rejects = Rejects()
    return list(file.windows(str(path), {"inline"}, rejects)), rejects


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (",n1,,,2026-10-01T00:00:00Z,2026-10-01T01:00:00Z,,", "window_id: missing, expected a value"),
        ("w,,,,2026-10-01T00:00:00Z,2026-10-01T01:00:00Z,,", "expected at least one of node, engine and model"),
        ("w,n1,,,soon,2026-10-01T01:00:00Z,,", "start_at: got 'soon', expected a time of this century"),
        (
            "w,n1,,,2026-10-01T00:00:00Z,9999-12-31T23:59:59-23:59,,",
            "end_at: got '9999-12-31T23:59:59-23:59', expected",
        ),
        ("w,n1,,,1790856000,2026-10-01T01:00:00Z,,", "start_at: got '1790856000', expected a time of this century"),
        (
            "w,n1,,,2026-10-01T02:00:00Z,2026-10-01T01:00:00Z,,",
            "end_at: got 2026-10-01 01:00:00+00:00, expected a time",
        ),
        ("w,n1,,,2026-10-01T00:00:00Z,2026-10-01T01:00:00Z,many,", "output_tokens: got 'many', expected 0 to 1,0"),
        ("w,n1,,,2026-10-01T00:00:00Z,2026-10-01T01:00:00Z,,-1", "total_tokens: got '-1', expected 0 to 1,000,0"),
        ("w,n1,,,2026-10-01T00:00:00Z,2026-10-01T01:00:00Z,1e999,", "output_tokens: got '1e999', expected 0 to 1"),
        ("w1,n1,,,2026-10-01T00:00:00Z,2026-10-01T01:00:00Z,,", "window_id: 'w1' is there already, expected unique"),
        ("inline,n1,,,2026-10-01T00:00:00Z,2026-10-01T01:00:00Z,,", "window_id: 'inline' is there already, expected"),
        ('"w,n1,,,2026-10-01T00:00:00Z', "is not CSV"),
    ],
)
def test_a_row_that_is_no_window_costs_itself(tmp_path: Path, row: str, reason: str) -> None:
    found, rejects = windows_of(tmp_path, HEADER + GOOD.format(n=1) + row + "\n" + GOOD.format(n=2))
    assert [window.window_id for window in found] == ["w1", "w2"]
    assert (rejects.rows, rejects.read) == (1, 2)
    assert rejects.first[0].startswith(f"{tmp_path}/windows.csv:3: ")
    assert reason in rejects.first[0]


def test_a_windows_times_without_an_offset_are_utc_and_empty_cells_unknown(tmp_path: Path) -> None:
    rows = "w1,n1,,,2026-10-01 00:00,2026-10-01 03:00:00.5+02:00,,12\n"
    (window,), rejects = windows_of(tmp_path, HEADER + rows)
    assert window.model_dump() == {
        "window_id": "w1",
        "start_at": datetime(2026, 10, 1, tzinfo=UTC),
        "end_at": datetime(2026, 10, 1, 1, 0, 0, 500_000, tzinfo=UTC),
        "node": "n1",
        "engine": None,
        "model": None,
        "output_tokens": None,
        "total_tokens": 12.0,
    }
    assert str(rejects) == ""


def test_exactly_half_bad_is_read_one_more_is_refused_and_a_header_alone_is_no_window(tmp_path: Path) -> None:
    _, rejects = windows_of(tmp_path, HEADER + GOOD.format(n=1) + "bad\n")
    rejects.check("windows.csv")
    assert (rejects.rows, rejects.read) == (1, 1)
    _, rejects = windows_of(tmp_path, HEADER + GOOD.format(n=1) + "bad\nworse\n")
    with pytest.raises(SourceError, match="2 of 3 rows rejected, expected at most"):
        rejects.check("windows.csv")
    assert windows_of(tmp_path, HEADER) == ([], Rejects())


@pytest.mark.parametrize(
    ("held", "reason"),
    [
        ("", "no column end_at, start_at, window_id; there are none"),
        ("<html>Sign in</html>\n", "no column end_at, start_at, window_id; there are <html>Sign in</html>"),
        (b"\xff\xff\n", "is not CSV: 'utf-8' codec"),
    ],
)
def test_a_file_that_holds_no_windows_is_refused_by_name(tmp_path: Path, held: str | bytes, reason: str) -> None:
    with pytest.raises(SourceError, match=r"windows\.csv: ") as refused:
        windows_of(tmp_path, held)
    assert reason in refused.value.reason


@pytest.mark.parametrize("unit", ["us", "ns", "s"])
def test_of_a_parquet_file_a_row_beyond_the_calendar_costs_itself(tmp_path: Path, unit: str) -> None:
    last = 9 * 10**18 if unit != "s" else 9 * 10**13
    second = {"us": 10**6, "ns": 10**9, "s": 1}[unit]
    times = pa.array([1_790_856_000 * second, last], pa.timestamp(unit, "UTC"))
    ends = pa.array([1_790_856_060 * second, last], pa.timestamp(unit, "UTC"))
    path = tmp_path / "windows.parquet"
    pq.write_table(pa.table({"window_id": ["a", "b"], "node": ["n1", "n1"], "start_at": times, "end_at": ends}), path)
    rejects = Rejects()
    (window,) = RunWindowFile.model_construct(path=str(path), columns={}).windows(str(path), set(), rejects)
    assert (window.end_at - window.start_at).total_seconds() == 60
    assert rejects.rows == 1
    assert rejects.first[0].startswith(f"{path}, row 2: start_at: got ")


# --- lists of GPU prices ----------------------------------------------------------------------------------------------

GPUS = "provider,gpu,gpu_count,usd_per_hour_ondemand\n"


def rates_of(tmp_path: Path, text: str, **more: object) -> tuple[list[float], Rejects]:
    path = tmp_path / "gpus.csv"
    path.write_text(text, encoding="utf-8")
    fields = {"path": str(path), "source": "list", "device_types": {"H100": "h100-sxm5-80gb"}, **more}
    rejects = Rejects()
    rates = CostRateFile.model_construct(**{**CostRateFile.model_construct().__dict__, **fields}).rates(rejects)
    return [rate["usd_per_gpu_hour"] for rate in rates], rejects


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("a,H100,0,2", "H100: got '2' USD for '0' GPUs, expected a price and a count of GPUs"),
        ("a,H100,1,nan", "H100: got 'nan' USD for '1' GPUs"),
        ("a,H100,1,1_000", "H100: got '1_000' USD for '1' GPUs"),
        ("a,H100,,3", "H100: got '3' USD for '' GPUs"),
        ("a,H100,1,2,3,4", "has 6 cells, the header 4"),
        ('a,"H100,1,2', "is not CSV"),
    ],
)
def test_a_row_without_a_possible_price_costs_itself(tmp_path: Path, row: str, reason: str) -> None:
    prices, rejects = rates_of(tmp_path, f"{GPUS}a,H100,8,24\n{row}\na,H200,1,4\n")
    assert prices == [3.0]
    assert (rejects.rows, rejects.read) == (1, 2)
    assert rejects.first[0].startswith(f"{tmp_path}/gpus.csv:3: {reason}")


def test_odd_rows_that_are_not_asked_for_are_no_rejects(tmp_path: Path) -> None:
    """Of another GPU or provider, or without a price on demand."""
    text = f"{GPUS}a,H100,8,24\nb,H100,x,y\na,H200,x,y\na,H100,1,\n"
    prices, rejects = rates_of(tmp_path, text, where={"provider": "a"})
    assert (prices, rejects.rows) == ([3.0], 0)


def test_a_list_of_which_half_is_bad_is_read_and_of_which_more_is_refused(tmp_path: Path) -> None:
    assert rates_of(tmp_path, f"{GPUS}a,H100,8,24\na,H100,8,x\n")[0] == [3.0]
    with pytest.raises(SourceError, match="2 of 3 rows rejected, expected at most"):
        rates_of(tmp_path, f"{GPUS}a,H100,8,24\na,H100,8,x\na,H100,8,x\n")
    with pytest.raises(SourceError, match=r"0 rows of H100 where \{\}: expected one price per GPU-hour, found none"):
        rates_of(tmp_path, GPUS)
