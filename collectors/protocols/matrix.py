"""The answers of Prometheus-compatible servers as arrays: exact, whole or not at all, whatever the labels hold.

Add a format here when a server sends samples in another one. Keep out how answers are requested (`prometheus`) and how
they are received (`http_client`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.csv as pa_csv

from collectors.cells import shown

_MARK = b'"values":[['

# An exported line is {"metric":{…},"values":[…],"timestamps":[…]}. The marks cannot occur inside a JSON string, where
# their quotes would be escaped.
_LINE = b'{"metric":'
_VALUES = b',"values":['
_TIMESTAMPS = b'],"timestamps":['
_END = b"]}"
# Milliseconds since 1970 have thirteen digits from 2001 to 2286; here with the comma behind them.
_TIME_WIDTH = 14
_ZEROS = int("1" * 13) * ord("0")
_COMMAS_TO_LINES = bytes.maketrans(b",", b"\n")

# Labels (s dicts, without the name), counts (s,), times in milliseconds (n,) and values (n,), series by series.
Matrix = tuple[list[dict[str, str]], np.ndarray, np.ndarray, np.ndarray]


def parse_matrix(body: bytes) -> Matrix:
    """A query's answer. ValueError for anything but a complete, successful answer of type matrix.

    The value blocks are cut out of the bytes and read as one CSV; what is left, labels and status, is small and goes
    through a JSON parser, which also proves that the answer is whole. The mark cannot occur inside a JSON string, where
    its second quote would be escaped. An answer of another layout goes through the JSON parser as a whole.
    """
    skeleton, blocks, position = list[bytes](), list[bytes](), 0
    while (found := body.find(_MARK, position)) >= 0:
        begin = found + len(_MARK)
        end = body.find(b"]]", begin)
        if end < 0:
            raise ValueError("the JSON breaks off within a series")
        skeleton += (body[position : begin - 2], b"%d" % len(blocks))
        blocks.append(body[begin : end + 1])
        position = end + 2
    skeleton.append(body[position:])
    result = _result(b"".join(skeleton))
    chosen = [one for one in result if isinstance(one.get("values"), int)]
    # Native histograms have no "values", and a series may have none: both stay out. Values elsewhere need the slow way.
    is_plain = [one["values"] for one in chosen] == list(range(len(blocks))) and len(chosen) == sum(
        one.get("values") not in (None, []) for one in result
    )
    columns = _columns(blocks) if is_plain else None
    if columns is None:
        return _parse_slowly(body)
    counts = np.array([block.count(b"]") for block in blocks], dtype=np.int64)
    if counts.sum() != len(columns[0]):
        return _parse_slowly(body)
    return [_labels(one) for one in chosen], counts, *columns


def parse_export(lines: list[bytes]) -> Matrix:
    """Lines of VictoriaMetrics' export, each one series. ValueError for anything but whole lines of that format.

    As in `parse_matrix`, the numbers are cut out of the bytes; a line that does not fit goes through the JSON parser.
    """
    parts = [part for part in map(_cut, lines) if part[1] or part[2]]
    if not parts:
        return [], np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float64)
    counts = np.array([values.count(b",") + 1 for _, values, _ in parts], dtype=np.int64)
    widths = np.array([len(times) + 1 for _, _, times in parts])
    text = b",".join(times for _, _, times in parts)
    times_ms = _thirteen_digits(text + b",") if (widths == counts * _TIME_WIDTH).all() else None
    if times_ms is None:
        times_ms = _any_digits(text)
        if [times.count(b",") + 1 for _, _, times in parts] != counts.tolist():
            raise ValueError("a series has not as many values as timestamps")
    values = _values(b",".join(values for _, values, _ in parts))
    if not len(values) == len(times_ms) == counts.sum():
        raise ValueError("a value or a timestamp is missing")
    return [labels for labels, _, _ in parts], counts, times_ms, values


def metric_of(line: bytes) -> bytes:
    """The part of an exported line that names its series."""
    return line[: line.find(_VALUES)]


def _cut(line: bytes) -> tuple[dict[str, str], bytes, bytes]:
    """Of an exported line: the labels, the values and the milliseconds, both as text with commas."""
    values_at, times_at = line.find(_VALUES), line.rfind(_TIMESTAMPS)
    try:
        if line.startswith(_LINE) and line.endswith(_END) and 0 < values_at < times_at:
            values, times = line[values_at + len(_VALUES) : times_at], line[times_at + len(_TIMESTAMPS) : -len(_END)]
            return _labels({"metric": orjson.loads(line[len(_LINE) : values_at])}), values, times
        one = orjson.loads(line)
        if not isinstance(one["values"], list) or not isinstance(one["timestamps"], list):
            raise TypeError("no list")
        texts = ",".join("null" if value is None else str(value) for value in one["values"])
        return _labels(one), texts.encode(), ",".join(map(str, one["timestamps"])).encode()
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"not a line of an export: {line[:200].decode('utf-8', 'replace')}") from error


def _thirteen_digits(text: bytes) -> np.ndarray | None:
    """Milliseconds of `1696118400123,1696118415123,`: (n,) int64; None unless each is thirteen digits and a comma."""
    flat = np.frombuffer(text, np.uint8)
    table = flat.reshape(-1, _TIME_WIDTH)
    commas = np.count_nonzero(flat < ord("0"))
    if commas != len(table) or flat.max() > ord("9") or not (table[:, -1] == ord(",")).all():
        return None
    times = np.zeros(len(table), np.int64)
    for column in range(_TIME_WIDTH - 1):
        times *= 10
        times += table[:, column]
    times -= _ZEROS
    return times


def _any_digits(text: bytes) -> np.ndarray:
    times = orjson.loads(b"[" + text + b"]")
    if not all(isinstance(at, int) and abs(at) < 2**53 for at in times):
        raise ValueError(f"a timestamp is not a whole number: {text[:200].decode('utf-8', 'replace')}")
    return np.array(times, dtype=np.int64)


def _values(text: bytes) -> np.ndarray:
    """Numbers of `1,2.5,null,"Infinity",-Inf`: (n,) float64."""
    # NaN is null, infinities are "Infinity" or, up to VictoriaMetrics 1.79 at least, +Inf without quotes.
    if b"n" in text:
        text = text.replace(b"null", b"nan")
    if b'"' in text or b"+" in text:
        text = text.translate(None, b'"+')
    values: np.ndarray = _numbers(text.translate(_COMMAS_TO_LINES), {"value": pa.float64()})["value"].to_numpy()
    return values


def _columns(blocks: list[bytes]) -> tuple[np.ndarray, np.ndarray] | None:
    """Milliseconds and values of blocks like `1696118400.123,"1"],[1696118415.123,"+Inf"]`; None if they are not so."""
    if not blocks:
        return np.empty(0, np.int64), np.empty(0, np.float64)
    # The sign of +Inf and of exponents must go for Arrow's parser; the value is the same without.
    text = b",".join(blocks).translate(None, b'["+').replace(b"],", b"\n")
    try:
        table = _numbers(text[:-1], {"seconds": pa.float64(), "value": pa.float64()})
    except ValueError:
        return None
    return _milliseconds(table["seconds"].to_numpy()), table["value"].to_numpy()


def _numbers(lines: bytes, types: dict[str, pa.DataType]) -> pa.Table:
    """Lines of numbers with commas between them; pyarrow's ArrowInvalid, a ValueError, for anything else."""
    return pa_csv.read_csv(
        pa.py_buffer(lines),
        read_options=pa_csv.ReadOptions(column_names=list(types), use_threads=False),
        parse_options=pa_csv.ParseOptions(quote_char=False),
        convert_options=pa_csv.ConvertOptions(column_types=types, null_values=[]),
    )


def _parse_slowly(body: bytes) -> Matrix:
    series = [one for one in _result(body) if one.get("values")]
    try:
        samples = [(float(at), float(value)) for one in series for at, value in one["values"]]
        counts = [len(one["values"]) for one in series]
    except TypeError as error:
        raise ValueError(f"a sample is not a time and a value: {error}") from error
    return (
        [_labels(one) for one in series],
        np.array(counts, dtype=np.int64),
        _milliseconds(np.array([at for at, _ in samples], dtype=np.float64)),
        np.array([value for _, value in samples], dtype=np.float64),
    )


def _milliseconds(seconds: np.ndarray) -> np.ndarray:
    milliseconds: np.ndarray = np.rint(seconds * 1000).astype(np.int64)
    return milliseconds


def _labels(one: dict[str, Any]) -> dict[str, str]:
    metric = one.get("metric")
    if not isinstance(metric, dict) or not all(isinstance(value, str) for value in metric.values()):
        raise ValueError(f"a series has no labels, or other than texts: {str(metric)[:200]}")
    return {name: value for name, value in metric.items() if name != "__name__"}


def _result(body: bytes) -> list[dict[str, Any]]:
    data = data_of(orjson.loads(body))
    if not isinstance(data, dict) or data.get("resultType") != "matrix":
        kind = data.get("resultType") if isinstance(data, dict) else data
        raise ValueError(f"the result is not of type matrix but {shown(kind)}")
    result = data.get("result")
    if not isinstance(result, list) or not all(isinstance(one, dict) for one in result):
        raise ValueError("the result is no list of series")
    for one in result:
        _check_values(one)
    return result


def _check_values(one: dict[str, Any]) -> None:
    """A series may have no samples, or native histograms only. Samples under another name are an error."""
    values = one.get("values")
    is_without = values is None and ("histograms" in one or one.keys() <= {"metric", "values"})
    # While the numbers are cut out, the place of a series' values is an int.
    if not is_without and not isinstance(values, list | int):
        raise ValueError(f"a series has no list of values: {shown(orjson.dumps(one).decode(), 200)}")


def data_of(answer: object) -> object:
    """The data of a successful and complete answer; ValueError otherwise."""
    if not isinstance(answer, dict) or answer.get("status") != "success":
        reason = answer.get("error", "no status") if isinstance(answer, dict) else "not an object"
        raise ValueError(f"status is not success: {reason}")
    # Thanos warns like this when no store holds the window, which is a correct empty answer.
    warnings = [text for text in answer.get("warnings") or () if "No StoreAPIs matched" not in text]
    if warnings or answer.get("isPartial"):
        raise ValueError(f"the answer is partial: {'; '.join(warnings) or 'isPartial'}")
    return answer.get("data")
