"""docs/troubleshooting.md against the code: every check is on it, with what to do, and every known failure."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from pipelines.booking.alarms import ALARMS
from pipelines.fleet.places import DBT_PROJECT
from pipelines.fleet.plausibility import RANGES
from pipelines.troubleshooting import troubleshooting_page
from pipelines.troubleshooting.all_checks import Check, all_checks
from pipelines.troubleshooting.code_messages import messages
from pipelines.warehouse import mistakes


@pytest.fixture(scope="module")
def checks() -> dict[str, Check]:
    return all_checks()


@pytest.fixture(scope="module")
def page() -> str:
    return troubleshooting_page.PATH.read_text(encoding="utf-8")


def test_the_page_is_written_from_the_code(page: str) -> None:
    assert page == troubleshooting_page.page(page), (
        "docs/troubleshooting.md is old: run python -m pipelines.troubleshooting.troubleshooting_page"
    )


def test_every_check_is_on_the_page_once_with_what_to_do(page: str, checks: dict[str, Check]) -> None:
    stated = yaml.safe_load((DBT_PROJECT / "models/balance/invariants/invariants.yml").read_text(encoding="utf-8"))
    expected = {path.stem for path in (DBT_PROJECT / "tests").glob("*.sql")}
    expected |= {model["name"] for model in stated["models"]}
    expected |= {alarm.name for alarm in ALARMS}
    expected |= {
        *("source_NAME_answers", "requests_NAME_answers", "benchmark_NAME_is_read", "grid_files_are_sound"),
        *("bills_are_sound", "run_windows_are_sound", "price_lists_are_sound", "gpu_price_lists_are_sound"),
        *("series_are_healthy", "ratios_lie_between_zero_and_one", "fleet_file_entries_match"),
        *("dates_use_todays_settings", "every_part_is_made", "retention_is_kept"),
    }
    assert checks.keys() == expected
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
