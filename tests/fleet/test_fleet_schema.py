"""The schema and the page of the fleet file have every key, and what they show can be written so."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from pipelines.command_line.main import main
from pipelines.fleet import keys_page
from pipelines.fleet.fleet_file import load_fleet
from pipelines.fleet.fleet_keys import Fleet
from pipelines.fleet.fleet_schema import NOT_KEYS, fleet_schema, meaning, meanings, parts_of_the_file
from pipelines.fleet.places import PROJECT

# What docs/fleet_file.md begins with.
SMALLEST = re.findall(r"```yaml\n(.*?)```", keys_page.PATH.read_text(encoding="utf-8"), re.DOTALL)[0]
VARIABLES = {"PROMETHEUS_TOKEN": "t", "EMAPS_TOKEN": "t", "WATTLEDGER_POSTGRESQL": "postgresql://x"}


def plain(text: str) -> Any:
    """A YAML text as an editor sees it: dates are texts."""
    return json.loads(json.dumps(yaml.safe_load(text), default=str))


def wrong(text: str) -> list[str]:
    return [error.message for error in jsonschema.Draft202012Validator(fleet_schema()).iter_errors(plain(text))]


def examples() -> str:
    """All examples as one file."""
    found: dict[str, Any] = yaml.safe_load(SMALLEST)
    for text in meanings()["examples"].values():
        found |= yaml.safe_load(text)
    return yaml.safe_dump(found, sort_keys=False)


def test_each_key_has_a_meaning_and_each_meaning_a_key() -> None:
    used = set()
    for part in parts_of_the_file():
        for key in part.model_fields.keys() - (NOT_KEYS if part is Fleet else set()):
            assert meaning(part, key).endswith("."), f"{part.__name__}.{key}"
            names = [f"{one.__name__}.{key}" for one in part.__mro__] + [key]
            used.add(next(name for name in names if name in meanings()["keys"]))
    assert set(meanings()["keys"]) - used == set()


def test_the_examples_are_one_fleet_that_loads(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(examples(), encoding="utf-8")
    fleet = load_fleet(path, VARIABLES)
    assert (fleet.sites[0].tariff[0].usd_per_kwh, fleet.budgets[1].basis) == (0.15, "fully_loaded")
    assert set(meanings()["examples"]) <= set(Fleet.model_fields)


def test_the_smallest_fleet_of_the_page_loads(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(SMALLEST, encoding="utf-8")
    assert load_fleet(path, {}).fleet == "mine"


def test_the_page_has_every_key_and_its_beginning_those_of_the_file() -> None:
    page = keys_page.page()
    for part in parts_of_the_file():
        for key in part.model_fields.keys() - (NOT_KEYS if part is Fleet else set()):
            assert f"| `{key}` | " in page
    named = re.findall(r"`(\w+)", page.partition("The ten that matter first:")[2].partition("\n## ")[0])
    assert set(named) == Fleet.model_fields.keys() - NOT_KEYS | {"interval_seconds", "host_watts"}


@pytest.mark.parametrize("name", ["demo", "mlperf"])
def test_the_bundled_fleets_keep_to_the_schema(name: str) -> None:
    assert wrong((PROJECT / "fleets" / f"{name}.yaml").read_text(encoding="utf-8")) == []


def test_the_examples_keep_to_the_schema() -> None:
    assert wrong(examples()) == []


def test_what_a_fleet_may_not_have_the_schema_refuses() -> None:
    assert wrong(f"{SMALLEST}grid_second: 60\n") == [
        "Additional properties are not allowed ('grid_second' was unexpected)"
    ]
    assert wrong(f"{SMALLEST}path: /tmp\n") == ["Additional properties are not allowed ('path' was unexpected)"]
    assert wrong(SMALLEST.replace("fleet: mine", "fleet: My Fleet")) == ["'My Fleet' does not match '^[a-z0-9_-]+$'"]
    assert wrong(SMALLEST.replace("period: {start: 2026-11-01}", "")) == ["'period' is a required property"]


def test_the_schema_is_printed_with_what_each_key_means(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads(json.dumps(fleet_schema()))
    assert printed["$defs"]["Tariff"]["properties"]["usd_per_kwh"]["description"] == (
        "USD per kWh, 0.12 for 12 cents; below zero where a spot price is."
    )
