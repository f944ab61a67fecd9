"""Reading a Prometheus answer of type matrix: exact, whole or not at all, whatever the labels hold."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.matrix import parse_matrix
from tests.test_prometheus_answers import SAMPLE, matrix


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
