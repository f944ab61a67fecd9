"""What `discover` asks a person: what is unusual has to be given twice, and a closed terminal leaves the rest out."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pipelines.command_line.main import main
from pipelines.discovery import questions
from pipelines.fleet.plausibility import range_of, usual_rate


def answering(monkeypatch: pytest.MonkeyPatch, *lines: str) -> Iterator[str]:
    left = iter(lines)

    def ask(_question: str) -> str:
        try:
            return next(left)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr("builtins.input", ask)
    return left


@pytest.mark.parametrize(
    ("lines", "key", "value"),
    [
        (["1,25"], "sites[].pue", 1.25),
        (["1"], "sites[].pue", 1.0),
        (["0.9", "125", "1.25"], "sites[].pue", 1.25),  # 0.9 is refused; 125 is doubted
        (["12", "0.12"], "sites[].tariff[].usd_per_kwh", 0.12),  # cents
        (["12", "12"], "sites[].tariff[].usd_per_kwh", 12.0),  # given twice: a genset in the desert
        (["0"], "sites[].tariff[].usd_per_kwh", 0.0),
        (["-0.02"], "sites[].tariff[].usd_per_kwh", -0.02),
        (["many", ""], "sites[].tariff[].usd_per_kwh", None),
        ([], "sites[].pue", None),  # the terminal was closed
    ],
)
def test_a_number(monkeypatch: pytest.MonkeyPatch, lines: list[str], key: str, value: float | None) -> None:
    left = answering(monkeypatch, *lines)
    least = 1 if key == "sites[].pue" else float("-inf")
    assert questions._number("?", range_of(key), least) == value
    assert list(left) == []


def test_what_is_usual_is_shown_with_its_unit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answering(monkeypatch, "11", "")
    assert questions._number("?", range_of("sites[].tariff[].usd_per_kwh")) is None
    assert capsys.readouterr().out == (
        "    usual is 0.005 to 1 USD per kWh (12 cents are 0.12, 80 USD per MWh are 0.08). If it is right, give it"
        " again\n"
    )


def test_a_rate_is_compared_with_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = usual_rate("a6000")
    assert usual.low < 0.6 < usual.high < 60
    left = answering(monkeypatch, "60", "0.6")
    assert questions._number("?", usual, 0) == 0.6
    assert list(left) == []


@pytest.mark.parametrize(
    ("lines", "zone"),
    [(["us-cal-ciso"], "US-CAL-CISO"), (["Nowhere", "DE"], "DE"), ([""], None), (["Nowhere"], None)],
)
def test_a_zone(monkeypatch: pytest.MonkeyPatch, lines: list[str], zone: str | None) -> None:
    answering(monkeypatch, *lines)
    assert questions._zone(["DE", "US-CAL-CISO"]) == zone


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("prometheus:9090", "got 'prometheus:9090', expected http://prometheus:9090, or https://\n"),
        (
            "http://prometheus:9090/graph",
            "got 'http://prometheus:9090/graph', expected the URL of the server alone, to which requests add"
            " /api/v1 and more: write http://prometheus:9090\n",
        ),
    ],
)
def test_an_address_has_its_url(capsys: pytest.CaptureFixture[str], place: str, expected: str) -> None:
    assert main(["discover", place]) == 2
    assert capsys.readouterr().err == expected
