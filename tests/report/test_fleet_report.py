"""How the report gets to its readers: two names, switched in one step, and a failure that changes nothing."""

from __future__ import annotations

import html
import re
from contextlib import closing
from pathlib import Path

import dagster as dg
import duckdb
import pytest

from pipelines.command_line.headline import _ways_in
from pipelines.fleet.fleet_file import Fleet, load_fleet
from pipelines.report.fleet_report import fleet_report_asset, write_report
from pipelines.warehouse.partitions import POOL
from tests.report import publications
from tests.report.publications import NEWEST, fleet_day

FLEET = """
fleet: tiny
synthetic: true
period: {start: 2026-10-01}
sources: [{name: synthetic, kind: synthetic, scenario: demo, interval_seconds: 60}]
"""


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    path = tmp_path / "tiny.yaml"
    path.write_text(FLEET)
    made = load_fleet(path, {"WATTLEDGER_DATA": str(tmp_path / "data")})
    made.published.mkdir(parents=True)
    return made


def publish(fleet: Fleet, name: str) -> Path:
    """A publication of this name, which readers see from now on."""
    publications.write(
        fleet.published / name,
        published_publication=[publications.publication(publication_id=name)],
        marts_fleet_daily=[fleet_day(NEWEST)],
    )
    latest = fleet.published / "latest"
    latest.unlink(missing_ok=True)
    latest.symlink_to(name)
    return fleet.published / name


def sections(folder: Path) -> dict[str, str]:
    """Anchor -> HTML of each section of a publication's page."""
    page = html.unescape((folder / "report.html").read_text(encoding="utf-8"))
    return dict(re.findall(r'<section[^>]* id="([\w-]+)"(.*?)</section>', page, re.DOTALL))


def run(fleet: Fleet) -> dg.ExecuteInProcessResult:
    # The asset's dependency has no asset of its own here.
    return dg.materialize([fleet_report_asset(fleet, POOL)], raise_on_error=False)


def test_the_newest_report_has_a_name_of_its_own(fleet: Fleet) -> None:
    first = publish(fleet, "first")
    assert run(fleet).success
    latest = fleet.published / "report.html"
    with latest.open(encoding="utf-8") as reader:
        begin = reader.read(100)
        second = publish(fleet, "second")
        done = run(fleet)
        # Whoever had it open reads the old page to its end.
        assert begin + reader.read() == (first / "report.html").read_text(encoding="utf-8")
    assert latest.read_text(encoding="utf-8") == (second / "report.html").read_text(encoding="utf-8")
    assert "Publication second," in latest.read_text(encoding="utf-8")
    assert sorted(path.name for path in fleet.published.iterdir()) == ["first", "latest", "report.html", "second"]
    assert sorted(path.name for path in second.iterdir()) == ["report.html", "wattledger.duckdb"]
    assert next(iter(_ways_in(fleet, latest))) == f"report: {latest}"
    (materialized,) = done.asset_materializations_for_node("published__fleet_report")
    assert materialized.metadata["path"].value == str(latest)


def test_a_page_that_cannot_be_made_changes_nothing(fleet: Fleet) -> None:
    publish(fleet, "first")
    write_report(fleet)
    before = (fleet.published / "report.html").read_bytes()
    broken = publish(fleet, "second") / "wattledger.duckdb"
    broken.write_bytes(b"no database")
    done = run(fleet)
    assert not done.success
    assert not any(line.startswith("report:") for line in _ways_in(fleet, broken))
    (failed,) = done.get_step_failure_events()
    reason = failed.step_failure_data.error.message
    assert "the fleet report could not be made" in reason
    assert "not a valid DuckDB database file" in reason
    assert (fleet.published / "report.html").read_bytes() == before
    assert sorted(path.name for path in fleet.published.iterdir()) == ["first", "latest", "report.html", "second"]


def test_a_figure_that_cannot_be_made_is_a_line_and_all_others_are_made(fleet: Fleet) -> None:
    made = publish(fleet, "first")
    assert run(fleet).get_asset_check_evaluations()[0].passed
    before = sections(made)
    with closing(duckdb.connect(str(made / "wattledger.duckdb"))) as connection:
        # The figure adds these kWh up: no sum of texts is known.
        connection.execute("alter table marts.idle_power alter idle_facility_kwh type varchar")
    done = run(fleet)
    assert done.success
    line = (
        "figure Idle energy by model and kind (query pipelines/report/sql/idle_energy.sql) could not be made:"
        " BinderException: Binder Error: No function matches the given name and argument types 'sum(VARCHAR)'."
    )
    (check,) = done.get_asset_check_evaluations()
    assert (check.check_name, check.passed, check.severity.value) == ("every_part_is_made", False, "ERROR")
    assert check.description.splitlines()[0] == "1 row"
    assert line in check.description.splitlines()[1]
    after = sections(made)
    assert f"The {line}" in after["idle-energy"]
    assert "select *\nfrom marts.idle_power" in after["idle-energy"].replace("    ", "")
    assert {name for name, shown in after.items() if shown != before[name]} == {"idle-energy"}


def test_the_same_publication_gives_the_same_page(fleet: Fleet) -> None:
    made = publish(fleet, "first")
    write_report(fleet)
    before = (made / "report.html").read_bytes()
    write_report(fleet)
    assert (made / "report.html").read_bytes() == before


def test_without_a_publication_there_is_no_report(fleet: Fleet) -> None:
    assert write_report(fleet) is None
    assert run(fleet).success
    assert list(fleet.published.iterdir()) == []
