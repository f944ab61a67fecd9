"""The command `export`: prices per token as files of LiteLLM, Langfuse and a CSV, on a publication of a few rows.

Add here a file or a note of an export. Keep out what a token costs: that is a unit test of token_prices.

1 Mtok of even's output cost 100 USD, 10 of it variable, at a utilisation of 0.25: full 10 + 90 * 0.25 = 32.50. At a
target of 0.5: 10 + 22.5 / 0.5 = 55 USD, 0.000055 per token. Its input: 8 USD, 2 variable, full 2 + 6 * 0.25 = 3.50, at
0.5 2 + 1.5 / 0.5 = 5. Cached input: 0.8, 0.2, 0.35, at 0.5 0.2 + 0.15 / 0.5 = 0.5.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path

import duckdb
import pytest
import yaml

from pipelines.command_line.main import main

TINY = """
fleet: tiny
synthetic: true
period: {start: 2026-09-01, end: 2026-10-02}
sources: [{name: synthetic, kind: synthetic, scenario: demo, interval_seconds: 60}]
"""
TABLES = """
create schema marts;
create schema published;
create schema finance;
create table published.publication as select 'p1' as publication_id, true as is_synthetic;
create table marts.model_daily as select range::date as date from range(date '2026-09-10', date '2026-10-02',
    interval 1 day);
create table finance.months as select * from (values
    (date '2026-09-01', 'west', 'closed', timestamptz '2026-10-03 08:00Z', 1.0),
    (date '2026-09-01', 'east', 'adjusted', timestamptz '2026-10-03 08:00Z', 1.0),
    (date '2026-10-01', 'west', 'open', null, 0.032),
    (date '2026-10-01', 'east', 'closed', timestamptz '2026-10-03 08:00Z', 1.0)
) as months (month, site, status, closed_at, booked_ratio);
create table marts.token_prices as select * from (values
    ('month', date '2026-09-01', date '2026-10-01', 'fully_loaded', 'even', 'output', 1000000, 100.0, 100.0, 10.0,
        0.25, 32.5, true, true),
    ('month', date '2026-09-01', date '2026-10-01', 'fully_loaded', 'even', 'computed_input', 1000000, 8.0, 8.0, 2.0,
        0.25, 3.5, true, true),
    ('month', date '2026-09-01', date '2026-10-01', 'fully_loaded', 'even', 'cached_input', 1000000, 0.8, 0.8, 0.2,
        0.25, 0.35, true, true),
    ('month', date '2026-09-01', date '2026-10-01', 'fully_loaded', 'even', 'none', null, 70.0, null, null, null, null,
        null, true),
    ('month', date '2026-09-01', date '2026-10-01', 'fully_loaded', 'dark', 'output', 500000, 1.0, 2.0, null, null,
        null, null, false),
    ('month', date '2026-09-01', date '2026-10-01', 'fully_loaded', 'dark', 'computed_input', null, null, null, null,
        null, null, null, false),
    ('month', date '2026-09-01', date '2026-10-01', 'fully_loaded', 'quiet', 'none', null, 9.0, null, null, null, null,
        null, true),
    ('month', date '2026-10-01', date '2026-11-01', 'fully_loaded', 'even', 'output', 1000, 0.5, 500.0, 10.0, 0.05,
        34.5, false, true),
    ('lookback', date '2026-09-04', date '2026-10-02', 'fully_loaded', 'even', 'output', 1000, 0.2, 200.0, 10.0, 0.1,
        29.0, false, true),
    ('month', date '2026-09-01', date '2026-10-01', 'allocation', 'even', 'output', 1000000, 90.0, 90.0, 10.0, 0.25,
        30.0, true, true)
) as rows (period, start_date, end_date, basis, model, token_class, tokens, cost_usd, own_usd_per_mtok,
    variable_usd_per_mtok, utilisation_ratio, full_usd_per_mtok, is_capacity_lower_bound, is_cost_complete);
alter table marts.token_prices add column held_back_dates varchar;
"""
NO_CACHE = (
    "dark: no price of cached input: the period has no cached input tokens, or the engine does not report its cache"
)
OPEN_AGAIN = "update finance.months set status = 'open', closed_at = null"


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fleet file whose snapshot has a few rows that were written by hand."""
    path = tmp_path / "fleet.yaml"
    path.write_text(TINY, encoding="utf-8")
    (tmp_path / "data/tiny/published").mkdir(parents=True)
    monkeypatch.setenv("WATTLEDGER_DATA", str(tmp_path / "data"))
    change(path, TABLES)
    return path


def change(tiny: Path, sql: str) -> None:
    with duckdb.connect(str(tiny.parent / "data/tiny/published/wattledger.duckdb")) as connection:
        connection.execute(sql)


def exported(tiny: Path, *options: str) -> Path:
    assert main(["export", "--fleet", str(tiny), "--target", "0.5", *options]) == 0
    return tiny.parent / "data/tiny/exports"


def model_list(path: Path) -> dict[str, dict[str, float]]:
    listed = yaml.safe_load(path.read_text(encoding="utf-8"))["model_list"]
    assert all(one["litellm_params"] == {"model": f"hosted_vllm/{one['model_name']}"} for one in listed)
    return {one["model_name"]: one["model_info"] for one in listed}


JUDGED = """
alter table marts.model_daily add column model varchar;
alter table marts.model_daily add column energy_joules double;
alter table marts.model_daily add column doubted_joules double;
alter table marts.model_daily add column total_tokens double;
alter table marts.model_daily add column output_tokens double;
alter table marts.model_daily add column doubted_tokens double;
alter table marts.model_daily add column unbooked_tokens double;
alter table marts.model_daily add column doubted_energy_ratio double;
alter table marts.model_daily add column doubted_tokens_ratio double;
alter table marts.model_daily add column doubt_reasons varchar;
insert into marts.model_daily values
    (date '2026-09-11', 'even', 1000, null, 1000, 200, 30, null, 0, 0.03, 'hidden_processes'),
    (date '2026-09-12', 'even', 1000, null, 1000, 200, null, null, 0, 0, ''),
    (date '2026-09-11', 'dark', 1000, null, 1000, 200, null, null, 0, 0, '');
"""
WHY = "a hundredth of it or more is in doubt (hidden_processes; what to do is in marts.doubts)"


def test_a_price_in_doubt_is_not_exported(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(tiny, JUDGED)  # 30 of 2,000 tokens of even: more than a hundredth
    folder = exported(tiny)
    assert model_list(folder / "litellm_actual.yaml") == {"dark": {"output_cost_per_token": 2e-06}}
    assert f"even: no price of output: {WHY}" in capsys.readouterr().out
    # 15 of 2,000.
    change(tiny, "update marts.model_daily set doubted_tokens = 15 where doubted_tokens = 30")
    assert "even" in model_list(exported(tiny) / "litellm_actual.yaml")
    # Nothing of it is booked, so that no share can be stated.
    change(tiny, "update marts.model_daily set doubted_tokens = null, doubted_tokens_ratio = 0 where model = 'even'")
    assert "even" not in model_list(exported(tiny, "--basis", "allocation") / "litellm_actual.yaml")


CHARGED = """
create table finance.unit_cost as select * from (values
    (date '2026-09-01', 'west', 'even', 2.0, 'bill_differs'),
    (date '2026-09-01', 'east', 'even', 98.0, ''),
    (date '2026-09-01', 'west', 'dark', 0.5, 'bill_differs'),
    (date '2026-09-01', 'east', 'dark', 99.5, null),
    (date '2026-08-01', 'west', 'dark', 99.5, 'bill_differs')
) as rows (month, site, model, known_cost_usd, doubt_reasons);
"""


def test_a_price_that_a_bill_contradicts_is_not_exported(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of even 2 USD of 100 are of a site whose bill differs; of dark half a USD, and a month before."""
    change(tiny, CHARGED)
    assert list(model_list(exported(tiny) / "litellm_actual.yaml")) == ["dark"]
    assert f"even: no price of output: {WHY.replace('hidden_processes', 'bill_differs')}" in capsys.readouterr().out
    change(tiny, JUDGED)
    exported(tiny)
    why = WHY.replace("hidden_processes", "hidden_processes, bill_differs")
    assert f"even: no price of output: {why}" in capsys.readouterr().out
    change(tiny, "update finance.unit_cost set doubt_reasons = ''")
    change(tiny, "update marts.model_daily set doubt_reasons = ''")
    assert "even" in model_list(exported(tiny) / "litellm_actual.yaml")


def test_the_last_price_that_was_not_in_doubt_stays_with_its_date(
    tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exported(tiny)
    state = tiny.parent / "data/tiny/exports/last_fully_loaded.json"
    held = json.loads(state.read_text(encoding="utf-8"))
    state.write_text(json.dumps({**held, "exported_on": "2026-10-03"}), encoding="utf-8")
    change(tiny, JUDGED)
    change(tiny, "update marts.token_prices set own_usd_per_mtok = own_usd_per_mtok / 2")
    capsys.readouterr()
    for _ in range(2):  # it stays in the export after the next one, too
        folder = exported(tiny)
        prices = model_list(folder / "litellm_actual.yaml")
        assert {name: one["output_cost_per_token"] for name, one in prices.items()} == {"even": 1e-04, "dark": 1e-06}
        printed = capsys.readouterr()
        assert f"even: its prices are those of 2026-10-03. The newest is not exported: {WHY}" in printed.out
        assert "even" not in printed.err
        rows = list(csv.DictReader((folder / "token_prices.csv").open(encoding="utf-8")))
        dates = {row["model"]: row["priced_on"] for row in rows if row["token_class"] == "output"}
        assert dates == {"even": "2026-10-03", "dark": rows[0]["exported_on"], "quiet": ""}
        (langfuse,) = [
            one
            for one in json.loads((folder / "langfuse_target.json").read_text(encoding="utf-8"))["models"]
            if one["modelName"] == "even"
        ]
        assert langfuse["startDate"] == "2026-10-03T00:00:00Z"
    # A price at another target is another one.
    assert model_list(exported(tiny, "--target", "0.6") / "litellm_target.yaml") == {}
    change(tiny, "update marts.model_daily set doubt_reasons = '' where model = 'even'")
    assert model_list(exported(tiny) / "litellm_actual.yaml")["even"]["output_cost_per_token"] == 5e-05


def test_litellm_gets_the_price_of_each_class_at_both_utilisations(tiny: Path) -> None:
    folder = exported(tiny)
    assert model_list(folder / "litellm_actual.yaml") == {
        "even": {
            "input_cost_per_token": 8e-06,
            "output_cost_per_token": 1e-04,
            "cache_read_input_token_cost": 8e-07,
        },
        # No price is unknown, and 0 would be free.
        "dark": {"output_cost_per_token": 2e-06},
    }
    assert model_list(folder / "litellm_target.yaml") == {
        "even": {
            "input_cost_per_token": 5e-06,
            "output_cost_per_token": 5.5e-05,
            "cache_read_input_token_cost": 5e-07,
        }
    }


@pytest.mark.parametrize("name", ["*", "llama/*"])
def test_a_name_that_litellm_reads_as_a_pattern_is_left_out_of_its_files(
    tiny: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would be the price of every model without one of its own."""
    change(tiny, f"update marts.token_prices set model = '{name}' where model = 'even'")
    folder = exported(tiny)
    note = f"{name}: not in LiteLLM's files, which would take it for a pattern of models"
    assert note in capsys.readouterr().out.splitlines()
    for utilisation in ("actual", "target"):
        assert name not in model_list(folder / f"litellm_{utilisation}.yaml")
        assert f"# {note}" in (folder / f"litellm_{utilisation}.yaml").read_text(encoding="utf-8").splitlines()
    models = json.loads((folder / "langfuse_actual.json").read_text(encoding="utf-8"))["models"]
    assert name in [one["modelName"] for one in models]


def test_each_file_states_its_date_period_basis_and_what_is_absent(tiny: Path) -> None:
    folder = exported(tiny)
    lines = (folder / "litellm_target.yaml").read_text(encoding="utf-8").splitlines()
    comments = [line for line in lines if line.startswith("#")]
    assert comments[1:] == [
        "# fleet: tiny (synthetic, not for use)",
        "# period: month 2026-09, 2026-09-01 to 2026-09-30, closed on 2026-10-03",
        "# basis: fully_loaded",
        "# utilisation: a target of 0.5",
        "# unit: USD per token",
        "# publication: p1",
        "# dark: no price of input: no part of its cost has a known price (cost_rates, sites[].tariff)",
        "# dark: no price of output: its variable cost is not known: no meter, or no tariff",
        f"# {NO_CACHE}",
        "# even: its dates without a token cost 70.00 USD, which are in no price",
        "# even: its capacity is a lower bound, so the price at the target may be lower still",
        "# quiet: no price, it served no token; it cost 9.00 USD",
    ]
    held = json.loads((folder / "langfuse_actual.json").read_text(encoding="utf-8"))
    assert (held["period"], held["basis"], held["utilisation"]) == (
        "month 2026-09, 2026-09-01 to 2026-09-30, closed on 2026-10-03",
        "fully_loaded",
        "as it was in the period",
    )
    assert held["notes"] == [
        "dark: no price of input: no part of its cost has a known price (cost_rates, sites[].tariff)",
        NO_CACHE,
        "dark: some of its cost has no known price, so these prices are too low",
        "even: its dates without a token cost 70.00 USD, which are in no price",
        "quiet: no price, it served no token; it cost 9.00 USD",
    ]


def test_langfuse_gets_one_default_tier_from_the_day_of_the_export_on(tiny: Path) -> None:
    held = json.loads((exported(tiny) / "langfuse_target.json").read_text(encoding="utf-8"))
    assert held["models"] == [
        {
            "modelName": "even",
            "matchPattern": "(?i)^(hosted_vllm/)?(even)$",
            "startDate": f"{held['exported_on']}T00:00:00Z",
            "unit": "TOKENS",
            "pricingTiers": [
                {
                    "name": "Standard",
                    "isDefault": True,
                    "priority": 0,
                    "conditions": [],
                    "prices": {
                        "input": 5e-06,
                        "output": 5.5e-05,
                        "input_cached_tokens": 5e-07,
                        "input_cache_read": 5e-07,
                        "cache_read_input_tokens": 5e-07,
                    },
                }
            ],
        }
    ]


def test_the_csv_has_each_class_with_its_price_or_the_reason(tiny: Path) -> None:
    with (exported(tiny) / "token_prices.csv").open(encoding="utf-8", newline="") as file:
        rows = [*csv.DictReader(file)]
    assert [(row["model"], row["token_class"], row["usd_per_token"], row["target_usd_per_token"]) for row in rows] == [
        ("dark", "computed_input", "", ""),
        ("dark", "output", "0.000002", ""),
        ("dark", "cached_input", "", ""),
        ("even", "computed_input", "0.000008", "0.000005"),
        ("even", "output", "0.0001", "0.000055"),
        ("even", "cached_input", "0.0000008", "0.0000005"),
        ("quiet", "computed_input", "", ""),
        ("quiet", "output", "", ""),
        ("quiet", "cached_input", "", ""),
    ]
    assert all(
        (row["start_date"], row["end_date"], row["basis"]) == ("2026-09-01", "2026-10-01", "fully_loaded")
        for row in rows
    )
    assert all(bool(row["usd_per_token"]) != bool(row["usd_per_token_absent_because"]) for row in rows)
    assert all(bool(row["target_usd_per_token"]) != bool(row["target_usd_per_token_absent_because"]) for row in rows)


@pytest.mark.parametrize(
    ("options", "usd_per_token", "period"),
    [
        # October is closed at one of its two sites, so September is the newest closed one.
        ([], 1e-04, "month 2026-09, 2026-09-01 to 2026-09-30, closed on 2026-10-03"),
        (["--month", "2026-10"], 5e-04, "month 2026-10, 2026-10-01 to 2026-10-31, open, 3.2% of it booked"),
        (["--lookback"], 2e-04, "28 dates, 2026-09-04 to 2026-10-01, 22 of them booked"),
        (["--basis", "allocation"], 9e-05, "month 2026-09, 2026-09-01 to 2026-09-30, closed on 2026-10-03"),
    ],
)
def test_a_period_and_a_basis_can_be_chosen(tiny: Path, options: list[str], usd_per_token: float, period: str) -> None:
    folder = exported(tiny, *options)
    assert model_list(folder / "litellm_actual.yaml")["even"]["output_cost_per_token"] == usd_per_token
    assert json.loads((folder / "langfuse_actual.json").read_text(encoding="utf-8"))["period"] == period


def test_without_a_closed_month_it_is_the_lookback(tiny: Path) -> None:
    change(tiny, OPEN_AGAIN)
    assert model_list(exported(tiny) / "litellm_actual.yaml") == {"even": {"output_cost_per_token": 2e-04}}


def test_dates_of_the_lookback_that_are_held_back_are_stated(tiny: Path) -> None:
    change(tiny, "update marts.token_prices set held_back_dates = '2026-09-20'")
    held = json.loads((exported(tiny, "--lookback") / "langfuse_actual.json").read_text(encoding="utf-8"))
    assert held["period"] == "28 dates, 2026-09-04 to 2026-10-01, 22 of them booked, held back: 2026-09-20"


def test_a_closed_month_that_is_not_booked_whole_states_its_share(tiny: Path) -> None:
    """The fleet's first month is closed from its first hour on."""
    change(tiny, "update finance.months set booked_ratio = 0.0097 where month = '2026-09-01' and site = 'west'")
    held = json.loads((exported(tiny) / "langfuse_actual.json").read_text(encoding="utf-8"))
    assert held["period"] == "month 2026-09, 2026-09-01 to 2026-09-30, closed on 2026-10-03, 1.0% of it booked"


def test_a_damaged_last_export_is_a_warning_and_is_written_anew(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    last = exported(tiny) / "last_fully_loaded.json"
    last.write_text('{"usd_per', encoding="utf-8")
    exported(tiny)
    assert capsys.readouterr().err == (
        f"warning: {last} is damaged: no price was compared with the last export. This export writes it anew\n"
    )
    exported(tiny)
    assert capsys.readouterr().err == ""


def test_a_price_that_moved_is_a_warning_and_one_within_the_share_is_not(
    tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exported(tiny)
    assert capsys.readouterr().err == ""
    exported(tiny)
    assert capsys.readouterr().err == ""
    # Output rises by a quarter at the actual utilisation and not at the target, input by 15 %, dark is gone.
    change(
        tiny,
        "update marts.token_prices set own_usd_per_mtok = 125 where own_usd_per_mtok = 100;"
        "update marts.token_prices set own_usd_per_mtok = 9.2 where own_usd_per_mtok = 8;"
        "delete from marts.token_prices where model = 'dark'",
    )
    exported(tiny, "--out", str(tiny.parent / "elsewhere"))
    moved = [
        line.rpartition(" since ")[0] or line.partition(" on ")[0] for line in capsys.readouterr().err.splitlines()
    ]
    assert moved == [
        "warning: dark: output at the actual utilisation cost 2e-06 USD per token",
        "warning: even: output at the actual utilisation moved from 0.0001 to 0.000125 USD per token (+25.0%)",
    ]
    assert model_list(tiny.parent / "elsewhere/litellm_actual.yaml")["even"]["output_cost_per_token"] == 1.25e-04
    # What was exported last is known wherever the files went.
    exported(tiny)
    assert capsys.readouterr().err == ""
    exported(tiny, "--basis", "allocation")  # another basis has prices of its own
    exported(tiny, "--target", "0.9")  # and a price at another target is another price
    assert capsys.readouterr().err == ""
    change(tiny, "update marts.token_prices set own_usd_per_mtok = 130 where own_usd_per_mtok = 125")
    exported(tiny, "--moved", "0.03")
    assert "0.000125 to 0.00013 USD per token (+4.0%)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--month", "2026-08"], "month 2026-08 has no price of a token. Months that have one: 2026-09, 2026-10"),
        (["--month", "2026-10", "--basis", "allocation"], "Months that have one: 2026-09"),
    ],
)
def test_a_month_without_a_price_is_refused(
    tiny: Path, capsys: pytest.CaptureFixture[str], options: list[str], words: str
) -> None:
    assert main(["export", "--fleet", str(tiny), *options]) == 2
    assert words in capsys.readouterr().err
    assert not (tiny.parent / "data/tiny/exports").exists()


def test_a_publication_of_an_older_version_is_refused(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(tiny, "drop table marts.token_prices")
    assert main(["export", "--fleet", str(tiny)]) == 2
    assert "run `wattledger run --fleet" in capsys.readouterr().err
