"""A line of a page that is no sample costs itself; a page of which most lines are none is no metrics page."""

import json
import logging

import pytest

from collectors.protocols.exposition import ExpositionPage, parse_page
from collectors.rows import Rejects
from collectors.samples import SourceError
from tests.collectors.test_exposition import OPENMETRICS, answering

OPEN = "application/openmetrics-text; version=1.0.0; charset=utf-8"
BAD_LINES = [
    "watts{gpu=0} 1",
    'watts{gpu="2"} 1x',
    'watts{gpu="2"} 1_000',
    'watts{gpu="2"} many',
    'watts{gpu="2"}',
    'watts{gpu="2} 5',
    'watts{gpu="2"} 5 1e300',
    'watts{gpu="2"} 5 NaN',
    '{"watts"',
    "upstream connect error",
    f'watts{{gpu="{"x" * 66_000}"}} 5',
]


def totals(samples):
    return [(sample.metric, sample.labels.get("gpu"), sample.value) for sample in samples]


@pytest.mark.parametrize("is_openmetrics", [False, True])
@pytest.mark.parametrize("line", BAD_LINES, ids=range(len(BAD_LINES)))
def test_a_bad_line_costs_itself(line, is_openmetrics):
    text = f'# TYPE watts gauge\nwatts{{gpu="0"}} 250.5\n{line}\nwatts{{gpu="1"}} 300\nother 7\n# EOF\n'
    rejects = Rejects()
    samples, unwanted = parse_page(text, rejects, {"watts"}, is_openmetrics=is_openmetrics)
    assert totals(samples) == [("watts", "0", 250.5), ("watts", "1", 300.0)]
    assert unwanted == {"other": 1}
    assert (rejects.rows, rejects.read) == (1, 3)
    assert rejects.first[0].startswith(f"a line begins with {line[:60]!r}: ")


@pytest.mark.parametrize("is_openmetrics", [False, True])
def test_a_line_that_is_not_utf8_costs_itself(is_openmetrics):
    page = b'watts{gpu="0"} 1\nwatts{gpu="\xff"} 2\nwatts{gpu="\xc3\xa9"} 3\n# EOF\n'
    with answering(page, OPEN if is_openmetrics else "text/plain") as url:
        sampler = ExpositionPage(url)
        readings = sampler.look()
    assert [(json.loads(reading.labels)["gpu"], reading.value) for reading in readings] == [("0", 1.0), ("é", 3.0)]
    assert sampler.problems == [
        "1 of 3 rows rejected: a line begins with 'watts{gpu=\"\ufffd\"} 2': it is not UTF-8 text"
    ]


def test_a_page_fails_where_more_than_half_of_its_lines_are_bad_and_not_at_half():
    good, bad = 'watts{gpu="0"} 1\n', "watts many\n"
    with answering(good + bad) as url:
        page = ExpositionPage(url)
        assert [reading.value for reading in page.look()] == [1.0]
        assert page.problems == ["1 of 2 rows rejected: a line begins with 'watts many': it is no sample"]
    with answering(good * 2 + bad * 5) as url, pytest.raises(SourceError) as caught:
        ExpositionPage(url).look()
    shown = "; ".join(["a line begins with 'watts many': it is no sample"] * 3)
    assert caught.value.reason == (f"not a metrics page; 5 of 7 rows rejected, expected at most 0.5 of all: {shown}; …")


def test_lines_of_metrics_that_are_not_kept_count_as_read():
    with answering("other 1\nother 2\nwatts 1x\n") as url:
        page = ExpositionPage(url, {"watts": "wall"})
        assert page.look() == []
        assert page.unknown == {"other": 2}
        assert page.problems[0].startswith("1 of 3 rows rejected: a line begins with 'watts 1x': ")


def test_the_next_look_at_a_mended_page_has_no_problem():
    pages = ["watts 1\nwatts many\n", "watts 1\n"]

    with answering(pages[0]) as url:
        sampler = ExpositionPage(url)
        sampler.look()
        assert len(sampler.problems) == 1
    with answering(pages[1]) as url:
        sampler._server = ExpositionPage(url)._server
        sampler.look()
        assert sampler.problems == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('_total{model_name="tiny"} 2520.0', '_total{model_name="tiny"} 2520.0x'),
        ('_bucket{le="0.5"} 3.0', '_bucket{le="0.5} 3.0'),
        ("other 1.0", "other one"),
    ],
)
def test_of_an_openmetrics_family_with_a_bad_line_the_others_are_read(old, new):
    """The parser checks a histogram whole, and allows an exemplar by the family's TYPE."""
    rejects = Rejects()
    whole, _ = parse_page(OPENMETRICS, Rejects(), is_openmetrics=True)
    samples, _ = parse_page(OPENMETRICS.replace(old, new), rejects, is_openmetrics=True)
    assert rejects.rows == 1
    assert rejects.read == len(samples) == len(whole) - 1 == 6
    assert all(sample in whole for sample in samples)


def test_a_bad_exemplar_costs_only_itself():
    rejects = Rejects()
    page = OPENMETRICS.replace('# {trace_id="a"} 12.0', '# {trace_id="a"} soon')
    samples, _ = parse_page(page, rejects, is_openmetrics=True)
    assert (samples[0].metric, samples[0].value) == ("vllm:generation_tokens_total", 2520.0)
    assert (rejects.rows, len(samples)) == (0, 7)


@pytest.mark.parametrize("is_openmetrics", [False, True])
def test_a_page_with_no_bad_line_is_as_it_was(is_openmetrics):
    rejects = Rejects()
    samples, unwanted = parse_page(OPENMETRICS, rejects, {"other"}, is_openmetrics=is_openmetrics)
    assert [(sample.metric, sample.value) for sample in samples] == [("other", 1.0)]
    assert (rejects.rows, rejects.read, sum(unwanted.values())) == (0, 7, 6)


@pytest.mark.parametrize("text", ["# TYPE watts gauge\n# EOF\n", "\n# EOF\n"])
def test_a_page_of_comments_still_holds_no_samples(text):
    for is_openmetrics in (False, True):
        with pytest.raises(ValueError, match="the page holds no samples"):
            parse_page(text, Rejects(), is_openmetrics=is_openmetrics)


def test_the_reasons_of_bad_lines_show_no_secret(monkeypatch, caplog):
    monkeypatch.setenv("PAGE_TOKEN", "s3cret-of-the-page")
    with answering("watts 1\nwatts s3cret-of-the-page\n") as url, caplog.at_level(logging.DEBUG):
        sampler = ExpositionPage(url, bearer_env="PAGE_TOKEN")
        sampler.look()
    assert "s3cret" not in sampler.problems[0]
    assert sampler.problems[0].startswith("1 of 2 rows rejected: ")
