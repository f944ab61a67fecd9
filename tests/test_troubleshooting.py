"""The page of checks and messages: every check of a run is on it, with what to do, and every known failure."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pipelines.code_location import definitions_of
from pipelines.fleet.fleet_file import load_fleet
from pipelines.fleet.plausibility import RANGES
from pipelines.troubleshooting import troubleshooting_page
from pipelines.troubleshooting.all_checks import FLEET, PLACEHOLDER, Check, all_checks
from pipelines.troubleshooting.code_messages import messages
from pipelines.warehouse import mistakes
from pipelines.warehouse.asset_keys import table_of


@pytest.fixture(scope="module")
def checks() -> dict[str, Check]:
    return all_checks()


@pytest.fixture(scope="module")
def page() -> str:
    return troubleshooting_page.page()


def test_what_a_reader_would_search_for_is_on_the_page(page: str) -> None:
    rows = re.findall(r"^\| .* \| (.*) \|$", page.partition("\n## ")[0], re.MULTILINE)
    names = re.findall(r"`([^`]+)`", " ".join(rows))
    assert len(names) > 50
    assert [name for name in names if f"\n### {name}\n" not in page] == []


def test_the_checks_are_those_of_a_run(checks: dict[str, Check], tmp_path: Path) -> None:
    (tmp_path / "fleet.yaml").write_text(FLEET, encoding="utf-8")
    graph = definitions_of(load_fleet(tmp_path / "fleet.yaml", {"EMAPS_TOKEN": "unused"})).resolve_asset_graph()
    specs = {PLACEHOLDER.sub("NAME", key.name): graph.get_check_spec(key) for key in sorted(graph.asset_check_keys)}
    assert checks.keys() == specs.keys()
    for name, spec in specs.items():
        check, has = checks[name], spec.metadata
        assert check.table in ("TABLE", table_of(spec.asset_key)), name
        assert (check.expected, check.remedy) == (has.get("expected", ""), has["remedy"]), name
        text = PLACEHOLDER.sub("NAME", " ".join((spec.description or "").split()))
        assert text.endswith(re.split("KIND|FILES", check.description)[-1]), name


def test_every_check_is_on_the_page_once_with_what_to_do(page: str, checks: dict[str, Check]) -> None:
    headings = re.findall(r"^### (.*)$", page, re.MULTILINE)
    assert {name: headings.count(name) for name in checks} == dict.fromkeys(checks, 1)
    assert [check.name for check in checks.values() if not check.remedy or check.remedy not in page] == []
    assert [check.name for check in checks.values() if not check.description or check.description not in page] == []


def test_a_line_begins_as_a_run_prints_it(checks: dict[str, Check]) -> None:
    errors = {name for name, check in checks.items() if check.is_error}
    assert {"power_and_tokens_meet", "every_metered_joule_is_booked_once", "source_NAME_answers"} <= errors
    assert errors & {"power_has_a_model", "costs_are_usual", "series_are_healthy", "gpu_price_lists_are_sound"} == set()


def test_every_known_failure_of_a_machine_is_on_the_page(page: str) -> None:
    shown = {remedy.__name__ for _, remedy in mistakes._KNOWN}
    assert len(shown) == 9
    # This one hands on the message of another module.
    places = ["pipelines.warehouse.refusals:busy"]
    places += [f"{mistakes.__name__}:{name}" for name in sorted(shown - {"_opened_elsewhere"})]
    assert [line for place in places for line in messages(place) if line not in page] == []
    assert "Raise WATTLEDGER_MEMORY_LIMIT (such as 12GB), lower WATTLEDGER_THREADS" in page


def test_every_doubt_and_every_range_is_on_the_page(page: str) -> None:
    assert [line for line in messages("pipelines.discovery.doubts") if line not in page] == []
    assert [usual.key for usual in RANGES if f"| `{usual.key}` |" not in page] == []
    assert "No engine is known here: the energy of all boards will be free or unknown, and J/token is empty." in page


def test_no_path_of_this_machine_is_on_the_page(page: str) -> None:
    assert re.findall(r"/tmp|/home|placeholder", page) == []


MODULE = '''
"""A text of a module is no message."""
LIMIT = 7
NOTE = "* part of it only"


def read(path, rows):
    """A text of a function is no message."""
    key = "sources"
    reason = f"holds {len(rows):,} rows"
    if len(rows) > LIMIT:
        raise ReadError(path, None, f"{reason}, expected at most {LIMIT}. {_fix(path)}")
    count = 0
    reason = f"row {count} is not a number"
    yield Finding(f"{key}[{path!r}]", "no sample at all", "samples of the date")
    raise ReadError(path, None, reason)


def described(rows):
    return "one row is left" if len(rows) == 1 else f"{len(rows)} rows are left"


def _fix(path):
    return path
'''


def test_messages_are_found_with_placeholders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "written_by_hand.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    assert messages("written_by_hand") == [
        "holds <N> rows, expected at most 7. <fix>",
        "sources['<path>']: got no sample at all, expected samples of the date",
        "row <N> is not a number",
    ]
    # What a function returns is a message where the page asks for this function, and a text where it is no message.
    assert messages("written_by_hand:described") == ["one row is left"]
    assert messages("written_by_hand:NOTE") == ["* part of it only"]
    for place in ("written_by_hand:_fix", "written_by_hand:LOST", "not_there"):
        with pytest.raises(LookupError, match=r"correct it in sections\.yml"):
            messages(place)
