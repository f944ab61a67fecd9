"""Which figures are marked, and the faces that read a publication: `doubted` rests on doubts by 30 of 200 tokens or by
100 of 1,000 J, its innocent twin `clean` by less than a hundredth, `dark` has nothing booked that no counter has."""

from __future__ import annotations

import json
from contextlib import closing
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pipelines.command_line import model_headline, month_headline
from pipelines.command_line.main import main
from pipelines.fleet.fleet_file import Fleet, load_fleet
from pipelines.named_figures import figures_in_doubt
from pipelines.named_figures.figures_in_doubt import InDoubt
from pipelines.serving import published_day
from tests.books import environment
from tests.report import publications

DAY, NEXT = date(2026, 10, 1), date(2026, 10, 2)
NOTE = "in doubt by 1 % or more: {}: hidden_processes; `select * from marts.doubts` has the evidence and what to do"
FLEET = """
fleet: tiny
synthetic: true
period: {start: 2026-10-01, end: 2026-10-03}
sources: [{name: synthetic, kind: synthetic, scenario: demo, interval_seconds: 60}]
"""


def row(model: str, reasons: str | None, *, tokens: float = 0, joules: float = 0, **facts: Any) -> dict[str, Any]:
    """1,000 J, 50 output tokens and 200 of both kinds; so many in doubt."""
    return {
        **publications.KEYS, "date": DAY, "model": model, "energy_joules": 1000, "productive_joules": 1000,
        "matched_joules": 1000, "idle_joules": 0, "output_tokens": 50, "total_tokens": 200,
        "matched_output_tokens": 50, "matched_total_tokens": 200, "facility_energy_kwh": 1, "location_gco2e": 1000,
        "doubted_tokens": tokens or None, "doubted_joules": joules or None, "doubt_reasons": reasons,
        "doubted_tokens_ratio": tokens / 200, "doubted_energy_ratio": joules / 1000, **facts,
    }  # fmt: skip


ROWS = [
    row("doubted", "hidden_processes", tokens=30),
    row("doubted", "", date=NEXT),
    row("warm", "above_limit", joules=100),
    row("clean", "", tokens=1, joules=9),
    row("old", None),
    # A day of 3 tokens of 200 is marked, and its month of 3 of 400 is not.
    row("less", "hidden_processes", tokens=3),
    row("less", "", date=NEXT),
    row("late", "hidden_processes", tokens=30, date=NEXT),
    # What no counter has is not known.
    row("dark", "no_counter", output_tokens=None, total_tokens=None),
]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    """A fleet whose publication has these rows, of dates and of their month."""
    folder = tmp_path_factory.mktemp("doubted")
    (folder / "fleet.yaml").write_text(FLEET, encoding="utf-8")
    made = load_fleet(folder / "fleet.yaml", environment(folder / "data"))
    months = [{**one, "month": DAY, "date": None} for one in ROWS if one["date"] == DAY]
    months = [{key: value for key, value in one.items() if key != "date"} for one in months]
    # 120 of 1,000 tokens of the fleet's date, and of its joules too few.
    of_fleet = row("", "hidden_processes", tokens=120, joules=5, total_tokens=1000)
    of_fleet = {key: value for key, value in of_fleet.items() if key not in ("model", "role", "device_type")}
    intervals = [
        {"month": DAY, "site": "__all__", "model": "__all__", "meter_scope": "board", "figure": figure, "value": 5,
         "value_low": 4, "value_high": 6, "metered_ratio": 1}
        for figure in ("joules_per_output_token", "facility_energy_kwh", "known_cost_usd")
    ]  # fmt: skip
    publications.write(
        made.published / "first",
        marts_model_daily=ROWS,
        marts_model_monthly=months,
        marts_fleet_daily=[of_fleet],
        marts_figure_intervals=intervals,
    )
    (made.published / "latest").symlink_to("first")
    made.snapshot.hardlink_to(made.published / "first" / made.snapshot.name)
    return made


def test_a_model_is_marked_where_a_hundredth_of_all_its_rows_is_in_doubt(fleet: Fleet) -> None:
    energy, tokens = (True, False), (False, True)
    with closing(duckdb.connect(str(fleet.snapshot), read_only=True)) as book:
        assert figures_in_doubt.of_models(book) == {
            "dark": InDoubt(("no_counter",), *tokens),
            "doubted": InDoubt(("hidden_processes",), *tokens),
            "late": InDoubt(("hidden_processes",), *tokens),
            "warm": InDoubt(("above_limit",), *energy),
        }
        of_date = "(from marts.model_daily where date = ?)"
        assert {*figures_in_doubt.of_models(book, of_date, [DAY])} == {"dark", "doubted", "less", "warm"}
        assert {*figures_in_doubt.of_models(book, of_date, [NEXT])} == {"late"}


@pytest.mark.parametrize(
    ("name", "is_of_energy", "is_of_tokens"),
    [
        ("J/output token", True, True), ("kWh", True, False), ("kgCO2e", True, False), ("W now", True, False),
        ("USD compute/Mtok", False, True), ("output tokens", False, True), ("USD compute", False, False),
        ("idle time", False, False), ("matched_joules matched_output_tokens", True, True),
        ("facility_energy_kwh None", True, False), ("known_cost_usd None", False, False),
    ],
)  # fmt: skip
def test_a_figure_has_its_unit_in_its_name(*, name: str, is_of_energy: bool, is_of_tokens: bool) -> None:
    assert InDoubt(("a",), is_energy=True, is_tokens=False).concerns(name) == is_of_energy
    assert InDoubt(("a",), is_energy=False, is_tokens=True).concerns(name) == is_of_tokens


def test_the_first_table_of_a_run_marks_what_is_in_doubt(fleet: Fleet) -> None:
    with closing(duckdb.connect(str(fleet.snapshot), read_only=True)) as book:
        lines = model_headline.models(book, fleet).splitlines()
    shown = {line.split()[0]: line.split()[1:7] for line in lines if line}
    assert shown["doubted"] == ["5.0000?", "20.0000?", "0.0%", "–", "2.0", "2.0"]
    assert shown["warm"] == ["5.0000?", "20.0000?", "0.0%", "–", "1.0?", "1.0?"]
    assert shown["clean"] == ["5.0000", "20.0000", "0.0%", "–", "1.0", "1.0"]
    assert shown["fleet"] == ["–", "–", "–", "–", "9.0", "9.0"]
    (note,) = [line for line in lines if line.startswith("? ")]
    assert note.startswith("? in doubt by 1 % or more: dark: no_counter; doubted: hidden_processes; late:")


def test_the_intervals_of_the_month_are_marked_too(fleet: Fleet) -> None:
    """109 of 6,000 J of the month are in doubt, and 34 of 1,000 tokens. Its USD are not."""
    with closing(duckdb.connect(str(fleet.snapshot), read_only=True)) as book:
        assert month_headline._sure(book) == (
            "95 % intervals of the newest month: USD known 4.00 to 6.00, kWh? 4.0 to 6.0 (100.0% of it metered),"
            " J/output token? 4.0000 to 6.0000 (docs/uncertainty.md)"
        )


def test_the_last_booked_day_has_the_doubts_of_that_date(fleet: Fleet) -> None:
    last_day = published_day.read(fleet)
    assert last_day is not None and last_day.on == NEXT
    assert {one.model: str(one.doubt or "") for one in last_day.models} == {
        "doubted": "", "late": "hidden_processes", "less": "",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("figure", "model", "is_marked"),
    [
        ("joules_per_output_token", "doubted", True), ("output_tokens", "doubted", True),
        ("energy_joules", "doubted", False), ("joules_per_output_token", "clean", False),
    ],
)  # fmt: skip
def test_explain_names_the_reasons(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    *, figure: str, model: str, is_marked: bool,
) -> None:  # fmt: skip
    monkeypatch.setenv("WATTLEDGER_DATA", str(fleet.root.parent))
    asked = ["explain", figure, "--model", model, "--fleet", str(fleet.path)]
    assert main(asked) == 0
    marked = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  ?")]
    assert marked == ([f"  ?           {NOTE.format(model)}"] if is_marked else [])
    assert main([*asked, "--json"]) == 0
    expected = {model: ["hidden_processes"]} if is_marked else {}
    assert json.loads(capsys.readouterr().out)["in_doubt"] == expected


def test_a_publication_without_doubts_has_no_marks(tmp_path: Path) -> None:
    with closing(duckdb.connect(str(tmp_path / "old.duckdb"))) as book:
        book.execute("create schema marts; create table marts.model_daily (date date, model varchar)")
        assert figures_in_doubt.of_models(book) == {}
