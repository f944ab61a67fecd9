"""Reading answers of type matrix and lines of an export: exact, whole or not at all, whatever the labels hold."""

import math

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.protocols.matrix import metric_of, parse_export, parse_matrix
from tests.collectors.test_prometheus_answers import SAMPLE, matrix


def test_values_times_and_labels_are_exact():
    body = (
        b'{"status":"success","data":{"resultType":"matrix","result":['
        b'{"metric":{"__name__":"m","a":"\\"values\\":[[1,\\"2\\"]]"},'
        b'"values":[[1790812800.001,"1"],[1790812800.999,"-Inf"],[1790812801,"+Inf"],[1790812802.5,"1.5e+10"]]},'
        b'{"metric":{"values":"[["},"histograms":[[1790812800,{"count":"1"}]]},'
        b'{"metric":{},"values":[]},'
        b'{"metric":{"b":"\\u00e4]]\\n"},"values":[[1790812800,"NaN"]]}]}}'
    )
    for text in (body, body.replace(b'"values":[[', b'"values": [['), body.replace(b',"values":[[', b',"values":[[ ')):
        labels, counts, times_ms, values = parse_matrix(text)
        assert labels == [{"a": '"values":[[1,"2"]]'}, {"b": "ä]]\n"}]
        assert counts.tolist() == [4, 1]
        assert times_ms.tolist() == [1790812800001, 1790812800999, 1790812801000, 1790812802500, 1790812800000]
        assert values[:4].tolist() == [1.0, -math.inf, math.inf, 1.5e10]
        assert math.isnan(values[4])


def test_an_empty_matrix_and_the_honest_emptiness_of_thanos():
    assert parse_matrix(matrix())[0] == []
    warning = matrix()[:-1] + b',"warnings":["No StoreAPIs matched for this query"]}'
    assert [len(part) for part in parse_matrix(warning)] == [0, 0, 0, 0]


TEXT = st.text(st.sampled_from('ab"\\[]{},:1\n\u2028ä') | st.characters(codec="utf-8"), max_size=12)
NUMBERS = st.floats() | st.integers(-(10**6), 10**6).map(float)


@given(
    st.lists(
        st.tuples(
            st.dictionaries(TEXT | st.just("values"), TEXT | st.just('"values":[['), max_size=3),
            st.lists(st.tuples(st.integers(0, 4 * 10**12), NUMBERS), min_size=1, max_size=5),
        ),
        max_size=5,
    )
)
@settings(max_examples=200, deadline=None)
def test_every_matrix_comes_back_as_it_was(series):
    def text(value):
        return {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}.get(repr(value), repr(value))

    body = matrix(
        *(
            {"metric": {"__name__": "m", **labels}, "values": [[ms / 1000, text(value)] for ms, value in samples]}
            for labels, samples in series
        )
    )
    labels, counts, times_ms, values = parse_matrix(body)
    assert labels == [{name: value for name, value in one.items() if name != "__name__"} for one, _ in series]
    assert counts.tolist() == [len(samples) for _, samples in series]
    assert times_ms.tolist() == [ms for _, samples in series for ms, _ in samples]
    np.testing.assert_array_equal(values, [value for _, samples in series for _, value in samples])


@given(st.integers(0, len(SAMPLE) - 1))
@settings(max_examples=50, deadline=None)
def test_no_beginning_of_an_answer_is_taken_for_a_whole_one(length):
    with pytest.raises(ValueError):
        parse_matrix(SAMPLE[:length])


LINE = b'{"metric":{"__name__":"m","a":"b"},"values":[1.5,2],"timestamps":[1790812800001,1790812815001]}'


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (b"1,-2.5e3,0.1", [1.0, -2500.0, 0.1]),
        (b'null,"Infinity","-Infinity"', [math.nan, math.inf, -math.inf]),  # VictoriaMetrics today
        (b"NaN,+Inf,-Inf", [math.nan, math.inf, -math.inf]),  # up to 1.79 at least
    ],
)
@pytest.mark.parametrize("times", [[1790812800001, 1790812800999, 1790812801000], [-1, 0, 999_999_999_999]])
def test_values_and_times_of_an_exported_line_are_exact(values, expected, times):
    labels = b'{"__name__":"m","values":"\\"values\\":[1],\\"timestamps\\":[2]}","b":"\\u00e4]}"}'
    line = b'{"metric":%s,"values":[%s],"timestamps":[%s]}' % (labels, values, ",".join(map(str, times)).encode())
    found, counts, times_ms, numbers = parse_export([line, LINE])
    assert found == [{"values": '"values":[1],"timestamps":[2]}', "b": "ä]}"}, {"a": "b"}]
    assert counts.tolist() == [3, 2]
    assert times_ms.tolist() == [*times, 1790812800001, 1790812815001]
    np.testing.assert_array_equal(numbers, [*expected, 1.5, 2.0])
    assert metric_of(line) == b'{"metric":' + labels


@given(
    st.lists(
        st.tuples(
            st.dictionaries(TEXT | st.just("timestamps"), TEXT | st.just('"timestamps":['), max_size=3),
            st.lists(st.tuples(st.integers(-(10**12), 4 * 10**13), NUMBERS), max_size=5),
        ),
        max_size=5,
    ),
    st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_every_export_comes_back_as_it_was(series, is_spaced):
    def text(value):
        return {"nan": "null", "inf": '"Infinity"', "-inf": '"-Infinity"'}.get(repr(value), repr(value))

    lines = []
    for labels, samples in series:
        values, times = ",".join(text(value) for _, value in samples), ",".join(str(ms) for ms, _ in samples)
        metric = orjson.dumps({"__name__": "m", **labels}).decode()
        lines.append(f'{{"metric":{metric},"values":[{values}],"timestamps":[{times}]}}'.encode())
        if is_spaced:  # JSON all the same, but not as VictoriaMetrics writes it
            lines[-1] = b" " + lines[-1]
    labels, counts, times_ms, values = parse_export(lines)
    held = [(one, samples) for one, samples in series if samples]
    assert labels == [{name: value for name, value in one.items() if name != "__name__"} for one, _ in held]
    assert counts.tolist() == [len(samples) for _, samples in held]
    assert times_ms.tolist() == [ms for _, samples in held for ms, _ in samples]
    np.testing.assert_array_equal(values, [value for _, samples in held for _, value in samples])


@pytest.mark.parametrize(
    "line",
    [
        LINE.replace(b"1.5,2", b"1.5"),
        LINE.replace(b"1.5,2", b"1.5,,2"),
        LINE.replace(b"1.5,2", b"1.5,watts"),
        LINE.replace(b"1790812800001", b"17908128000x1"),
        LINE.replace(b"1790812800001", b"17908-2800001"),
        LINE.replace(b"1790812800001", b"1790812800.01"),
        LINE.replace(b"1790812800001", b"1" * 30),
        LINE.replace(b"1790812800001,", b"1790812800001,,"),
        LINE.replace(b'"a":"b"', b'"a":"b'),
        LINE.replace(b"metric", b"series"),
        LINE.replace(b'"b"', b"[1]"),
        b'{"status":"error","error":"too many series"}',
        b"remoteAddr: cannot send data to remote client",
        b"[1,2]",
    ],
)
def test_a_line_that_is_none_is_refused(line):
    with pytest.raises(ValueError):
        parse_export([LINE, line])


@given(st.integers(0, len(LINE) - 1))
@settings(max_examples=50, deadline=None)
def test_no_beginning_of_a_line_is_taken_for_a_whole_one(length):
    with pytest.raises(ValueError):
        parse_export([LINE[:length]])


@pytest.mark.parametrize(
    "result",
    [
        b'[{"values":[[1,"2"]]}]',
        b'[{"metric":{"a":1},"values":[[1,"2"]]}]',
        b'[{"metric":["a"],"values":[[1,"2"]]}]',
        b'[{"metric":{},"values":[[1,"2"],[null,"3"]]}]',
        b'[{"metric":{},"values":[[1]]}]',
        b'[{"metric":{},"values":7}]',
        b'[{"metric":{},"values":{}}]',
        b'[{"metric":{},"value":[1,"2"]}]',
        b'[{"metric":{},"values":[[1,"2"]]},{"metric":{},"samples":[]}]',
        b'{"metric":{}}',
        b'["metric"]',
        b"null",
    ],
)
def test_a_matrix_of_another_shape_is_refused(result):
    with pytest.raises(ValueError):
        parse_matrix(b'{"status":"success","data":{"resultType":"matrix","result":%s}}' % result)
