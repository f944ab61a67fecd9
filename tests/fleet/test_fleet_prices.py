"""Rates and tariffs of the fleet file: one at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fleet.test_fleet import SMALLEST, load, problems


def bare(messages: list[str]) -> list[str]:
    """Warnings without how to silence them."""
    assert all('. If it is right: accepted: ["' in message for message in messages)
    return [message.partition(". If it is right: ")[0] for message in messages]


def test_a_device_type_has_one_rate_at_a_time(tmp_path: Path) -> None:
    stated = "cost_rates: [{device_type: h100, usd_per_gpu_hour: 2.0, source: contract}]\n"
    (listed,) = problems(
        tmp_path, SMALLEST + stated + "cost_rate_files: [{path: gpus.csv, source: list, device_types: {H100: h100}}]\n"
    )
    assert listed == (
        "cost_rate_files[0].device_types[H100] (list, from 1970-01-01): prices h100 on dates that cost_rates[0]"
        " (contract, from 1970-01-01) prices already, expected one rate per device type and date: keep one of them, or"
        " give one another valid_from"
    )


@pytest.mark.parametrize(
    ("rates", "problem"),
    [
        # Both hold in June: the first one ends in July.
        (
            ["valid_from: 2026-01-01, valid_to: 2026-07-01", "valid_from: 2026-06-01"],
            "cost_rates[1] (s1, from 2026-06-01): prices h100 on dates that cost_rates[0] (s0, from 2026-01-01 to"
            " 2026-07-01) prices already, expected one rate per device type and date: set valid_to of cost_rates[0] to"
            " 2026-06-01 or leave it out",
        ),
        # One within the other, in whatever order the file has them.
        (
            ["valid_from: 2026-03-01, valid_to: 2026-04-01", "valid_from: 2026-01-01, valid_to: 2027-01-01"],
            "cost_rates[0] (s0, from 2026-03-01 to 2026-04-01): prices h100 on dates that cost_rates[1] (s1, from"
            " 2026-01-01 to 2027-01-01) prices already, expected one rate per device type and date: set valid_to of"
            " cost_rates[1] to 2026-03-01 or leave it out",
        ),
        (
            ["valid_from: 2026-03-01, valid_to: 2026-03-01"],
            "cost_rates[0]: valid_to: got 2026-03-01, expected a date after valid_from 2026-03-01",
        ),
        # One day of overlap: valid_to is the first date that the rate does not hold.
        (
            ["valid_from: 2026-01-01, valid_to: 2026-06-02", "valid_from: 2026-06-01"],
            "cost_rates[1] (s1, from 2026-06-01): prices h100 on dates that cost_rates[0] (s0, from 2026-01-01 to"
            " 2026-06-02) prices already, expected one rate per device type and date: set valid_to of cost_rates[0] to"
            " 2026-06-01 or leave it out",
        ),
        # A new price: the open rate ends where the next one begins. So does one that ends on that date.
        (["valid_from: 2026-01-01", "valid_from: 2026-06-01", "valid_from: 2027-01-01"], None),
        (["valid_from: 2026-01-01, valid_to: 2026-06-01", "valid_from: 2026-06-01"], None),
    ],
)
def test_rates_of_a_device_type_do_not_overlap(tmp_path: Path, rates: list[str], problem: str | None) -> None:
    listed = ", ".join(
        f"{{device_type: h100, usd_per_gpu_hour: 2.0, source: s{n}, {dates}}}" for n, dates in enumerate(rates)
    )
    other = ", {device_type: a100, usd_per_gpu_hour: 1.0, source: another type}"
    text = f"{SMALLEST}cost_rates: [{listed}{other}]\n"
    if problem is None:
        assert len(load(tmp_path, text).cost_rates) == len(rates) + 1
    else:
        assert problems(tmp_path, text) == [problem]


@pytest.mark.parametrize(
    ("tariffs", "is_refused"),
    [
        # Two prices that meet: on a date, in an hour, in both.
        (["valid_to: 2026-06-01", "valid_from: 2026-06-01"], False),
        (["local_hours: [0, 7]", "local_hours: [7, 24]"], False),
        (["local_hours: [0, 8], valid_to: 2026-06-01", "local_hours: [7, 24], valid_from: 2026-06-01"], False),
        (["valid_to: 2026-06-02, local_hours: [0, 7]", "valid_from: 2026-06-01, local_hours: [7, 24]"], False),
        # One day, or one hour, too many. A tariff without an end does not end where the next one begins.
        (["valid_to: 2026-06-02", "valid_from: 2026-06-01"], True),
        (["local_hours: [0, 8]", "local_hours: [7, 24]"], True),
        (["valid_from: 2026-01-01", "valid_from: 2026-06-01"], True),
    ],
)
def test_tariffs_of_a_site_do_not_overlap(tmp_path: Path, tariffs: list[str], is_refused: bool) -> None:
    listed = ", ".join(f"{{usd_per_kwh: 0.{n + 1}, {dates}}}" for n, dates in enumerate(tariffs))
    sites = (
        f"{SMALLEST}sites: [{{name: w, zone: ES, pue: 1, tariff: [{listed}]}},"
        " {name: e, zone: ES, pue: 1, tariff: [{usd_per_kwh: 0.3}]}]\n"
    )
    if is_refused:
        (problem,) = problems(tmp_path, sites)
        assert problem.startswith("sites[w].tariff[1] (0.2 USD/kWh, hours ")
        assert "tariff[0] (0.1 USD/kWh, hours " in problem
    else:
        assert len(load(tmp_path, sites).sites) == 2


def test_a_list_of_rates_may_follow_a_stated_rate_and_not_overlap_it(tmp_path: Path) -> None:
    stated = "cost_rates: [{device_type: h100, usd_per_gpu_hour: 2.0, source: contract, %s}]\n"
    listed = "cost_rate_files: [{path: gpus.csv, source: list, valid_from: 2026-06-01, device_types: {H100: h100}}]\n"
    (found,) = problems(tmp_path, SMALLEST + stated % "valid_to: 2026-07-01" + listed)
    assert "cost_rate_files[0].device_types[H100] (list, from 2026-06-01)" in found
    assert "cost_rates[0] (contract, from 1970-01-01 to 2026-07-01)" in found
    assert load(tmp_path, SMALLEST + stated % "valid_from: 2026-01-01" + listed).cost_rate_files


SITE = "sites: [{{name: west, zone: unknown, pue: 1.2, {charges}}}]\n"


@pytest.mark.parametrize(
    ("charges", "problem"),
    [
        (
            "operations: [{usd_per_month: 1}, {usd_per_month: 2, valid_from: 2026-06-01}]",
            "sites[west].operations[1] (from 2026-06-01): prices dates that operations[0] (from 1970-01-01) prices"
            " already, expected one price per date: keep one of them, or end the earlier one (valid_to is the first"
            " date that is not priced)",
        ),
        ("operations: [{usd_per_month: 1, valid_to: 2026-06-01}, {usd_per_month: 2, valid_from: 2026-06-01}]", None),
        ("licences: [{usd_per_gpu_hour: 1, device_type: a}, {usd_per_gpu_hour: 2, device_type: b}]", None),
        (
            "licences: [{usd_per_gpu_hour: 1, device_type: a}, {usd_per_gpu_hour: 2}]",
            "sites[west].licences[1] (from 1970-01-01): prices dates that licences[0] (from 1970-01-01) prices already,"
            " expected one price per date: keep one of them, or end the earlier one (valid_to is the first date that is"
            " not priced)",
        ),
        (
            "demand_charges: [{usd_per_kw_month: 1, interval_minutes: 25}]",
            "sites[west].demand_charges[0]: interval_minutes: got 25, expected a divisor of 60, such as 15",
        ),
        (
            "carbon_prices: [{usd_per_tonne: 1, valid_from: 2026-06-01, valid_to: 2026-06-01}]",
            "sites[west].carbon_prices[0]: valid_to: got 2026-06-01, expected a date after valid_from 2026-06-01",
        ),
    ],
)
def test_charges_of_a_site_price_a_date_once(tmp_path: Path, charges: str, problem: str | None) -> None:
    text = SMALLEST + SITE.format(charges=charges)
    if problem is None:
        load(tmp_path, text)
    else:
        assert problems(tmp_path, text) == [problem]


@pytest.mark.parametrize(
    ("rate", "problem"),
    [
        ("", "cost_rates[0]: expected exactly one of usd_per_gpu_hour (rented) and price_usd_per_gpu (owned)"),
        (
            "usd_per_gpu_hour: 1, price_usd_per_gpu: 1, life_years: 4",
            "cost_rates[0]: expected exactly one of usd_per_gpu_hour (rented) and price_usd_per_gpu (owned)",
        ),
        (
            "price_usd_per_gpu: 30000",
            "cost_rates[0]: life_years: expected the years over which price_usd_per_gpu is written off",
        ),
        (
            "price_usd_per_gpu: 100, residual_value_usd_per_gpu: 200, life_years: 4",
            "cost_rates[0]: residual_value_usd_per_gpu: got 200, expected at most the price 100",
        ),
        (
            "price_usd_per_gpu: 30000, residual_value_usd_per_gpu: 2000, life_years: 4, cost_of_capital_ratio: 0.08",
            None,
        ),
    ],
)
def test_a_gpu_is_rented_or_owned(tmp_path: Path, rate: str, problem: str | None) -> None:
    text = f"{SMALLEST}cost_rates: [{{device_type: h100, source: s, {rate}}}]\n"
    if problem is None:
        load(tmp_path, text)
    else:
        assert problems(tmp_path, text) == [problem]


def test_a_commitment_is_for_a_site_of_the_fleet_and_has_a_name_of_its_own(tmp_path: Path) -> None:
    entry = "{commitment: c, site: east, device_type: h100, gpus: 8, usd_per_gpu_hour: 1}"
    assert problems(tmp_path, f"{SMALLEST}{SITE.format(charges='')}commitments: [{entry}, {entry}]\n") == [
        "commitments: 'c' is there more than once, expected unique names",
        "commitments[c].site: got 'east', expected one of the sites ['west']",
        "commitments[c].site: got 'east', expected one of the sites ['west']",
    ]


NODES = "nodes: [{name: n, site: west, gpus: [{device_type: h100, count: 16, valid_from: 2026-01-01}]}]\n"
COMMITTED = "{{commitment: {}, site: west, device_type: h100, gpus: 8, usd_per_gpu_hour: 1, {}}}"


@pytest.mark.parametrize(
    ("terms", "doubts"),
    [
        # Of different start, 16 together, and 16 are there.
        (["valid_from: 2026-01-01", "valid_from: 2026-02-01"], []),
        # One after the other they cover 8.
        (["valid_from: 2026-01-01, valid_to: 2026-02-01", "valid_from: 2026-02-01"] * 2, None),
        (
            ["valid_from: 2026-01-01", "valid_from: 2026-01-01"],
            [
                "commitments[c1]: has the site, device_type, gpus (8), usd_per_gpu_hour (1) and valid_from (2026-01-01)"
                " of commitments[c0], and both are paid: 16 h100 at west. Expected one entry per contract: remove one"
                " if it was entered twice"
            ],
        ),
        (
            ["valid_from: 2026-01-01", "valid_from: 2026-02-01", "valid_from: 2026-03-01, valid_to: 2026-04-01"],
            [
                "commitments[c0], commitments[c1], commitments[c2]: 24 h100 are committed at west from 2026-03-01,"
                " where nodes[].gpus has 16: 8 are paid and cannot be used. Correct gpus or the dates, or add the nodes"
            ],
        ),
        (["valid_from: 2026-02-01, valid_to: 2026-05-01"], []),
        (
            ["valid_from: 2026-02-15, valid_to: 2026-05-10"],
            [
                "commitments[c0]: begins on 2026-02-15 and ends on 2026-05-10, within a month: it is paid for the hours"
                " of a part of that month. Right if the contract has it so"
            ],
        ),
    ],
)
def test_a_doubtful_commitment_stays_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, terms: list[str], doubts: list[str] | None
) -> None:
    entries = ", ".join(COMMITTED.format(f"c{n}", term) for n, term in enumerate(terms))
    fleet = load(tmp_path, f"{SMALLEST}{SITE.format(charges='')}{NODES}commitments: [{entries}]\n")
    assert len(fleet.commitments) == len(terms)
    if doubts is None:  # twice the same two
        assert [line.partition(":")[2].partition("]")[0] for line in caplog.messages] == [
            " commitments[c2",
            " commitments[c3",
        ]
    else:
        assert bare(caplog.messages) == [f"fleet.yaml: {doubt}" for doubt in doubts]


def test_a_commitment_that_ends_before_it_begins_is_refused(tmp_path: Path) -> None:
    entry = COMMITTED.format("c", "valid_from: 2026-02-01, valid_to: 2026-02-01")
    assert problems(tmp_path, f"{SMALLEST}{SITE.format(charges='')}commitments: [{entry}]\n") == [
        "commitments[0]: valid_to: got 2026-02-01, expected a date after valid_from 2026-02-01"
    ]


def test_an_offer_is_of_a_site_of_the_fleet(tmp_path: Path) -> None:
    offer = "commitment_offers: [{{site: {}, device_type: h100, term_months: 12, usd_per_gpu_hour: 1}}]\n"
    assert (
        load(tmp_path, SMALLEST + SITE.format(charges="") + offer.format("west")).commitment_offers[0].provider is None
    )
    assert problems(tmp_path, SMALLEST + SITE.format(charges="") + offer.format("east")) == [
        "commitment_offers[0].site: got 'east', expected one of the sites ['west']"
    ]


@pytest.mark.parametrize(("word", "kept"), [("", "node"), ("rented_by: node", "node"), ("rented_by: board", "board")])
def test_accelerators_are_handed_back_by_node_or_board(tmp_path: Path, word: str, kept: str) -> None:
    assert load(tmp_path, SMALLEST + SITE.format(charges=word)).sites[0].rented_by == kept


def test_another_word_for_what_is_handed_back_is_refused(tmp_path: Path) -> None:
    assert problems(tmp_path, SMALLEST + SITE.format(charges="rented_by: gpu")) == [
        "sites[west].rented_by: got 'gpu', expected 'node' or 'board'"
    ]


SPOT = "{{site: west, device_type: h100, gpus: 8, usd_per_gpu_hour: 1, {times}}}"


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (["start_at: 2026-06-01T00:00:00Z", "start_at: 2026-06-01T00:20:00Z"], []),
        (["start_at: 2026-06-01T00:00:00Z, end_at: 2026-06-01T00:20:00Z", "start_at: 2026-06-01T00:20:00Z"], []),
        (
            ["start_at: 2026-06-01T01:00:00Z", "start_at: 2026-06-01T00:00:00Z, end_at: 2026-06-01T02:00:00Z"],
            [
                "spot_rates[0] (from 2026-06-01T01:00:00+00:00): prices h100 at west at times that spot_rates[1] (from"
                " 2026-06-01T00:00:00+00:00) prices already, expected one price at a time: keep one of them, or leave"
                " out end_at of the earlier one"
            ],
        ),
        (
            ["start_at: 2026-06-01T01:00:00Z, end_at: 2026-06-01T01:00:00Z"],
            [
                "spot_rates[0]: end_at: got 2026-06-01 01:00:00+00:00, expected a time after start_at"
                " 2026-06-01 01:00:00+00:00"
            ],
        ),
    ],
)
def test_spot_rates_price_a_moment_once(tmp_path: Path, times: list[str], expected: list[str]) -> None:
    entries = ", ".join(SPOT.format(times=of_entry) for of_entry in times)
    text = f"{SMALLEST}{SITE.format(charges='')}spot_rates: [{entries}]\n"
    if expected:
        assert problems(tmp_path, text) == expected
    else:
        assert len(load(tmp_path, text).spot_rates) == len(times)


def test_a_spot_rate_is_for_a_site_of_the_fleet(tmp_path: Path) -> None:
    entry = SPOT.format(times="start_at: 2026-06-01T00:00:00Z").replace("west", "east")
    assert problems(tmp_path, f"{SMALLEST}{SITE.format(charges='')}spot_rates: [{entry}]\n") == [
        "spot_rates[0].site: got 'east', expected one of the sites ['west']"
    ]


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (
            "site: west, gpus: [{device_type: h100, count: 8}, {device_type: h100, count: 4, valid_from: 2026-06-01}]",
            [
                "nodes[n].gpus[1] (from 2026-06-01): counts h100 on dates that gpus[0] (from 1970-01-01) counts"
                " already, expected one count per device type and date: keep one of them, or end the earlier one"
                " (valid_to is the first date on which it does not hold)"
            ],
        ),
        ("site: west, gpus: [{device_type: h100, count: 8, valid_to: 2026-06-01}, {device_type: h100, count: 4, "
         "valid_from: 2026-06-01}, {device_type: a100, count: 1}]", []),
        ("gpus: [{device_type: h100, count: 8}]", []),
        ("site: west, gpus: [{device_type: h100, count: 0}]",
         ["nodes[n].gpus[0].count: got 0, expected greater than 0"]),
    ],
)  # fmt: skip
def test_a_node_counts_each_type_once_on_a_date(tmp_path: Path, node: str, expected: list[str]) -> None:
    text = f"{SMALLEST}{SITE.format(charges='')}nodes: [{{name: n, {node}}}]\n"
    if expected:
        assert problems(tmp_path, text) == expected
    else:
        assert load(tmp_path, text).nodes[0].gpus


def test_a_node_with_gpus_needs_a_site(tmp_path: Path) -> None:
    assert problems(tmp_path, f"{SMALLEST}nodes: [{{name: n, gpus: [{{device_type: h100, count: 8}}]}}]\n") == [
        "nodes[n].site: expected one of the sites [] because the node has gpus, which are priced at their site"
    ]


def test_a_models_list_price_is_on_a_list_of_the_fleet(tmp_path: Path) -> None:
    stated = "models: [{name: gpt, list_price: {source: litellm, name: acme/gpt}}]\n"
    assert problems(tmp_path, SMALLEST + stated) == [
        "models[gpt].list_price.source: got 'litellm', expected one of the sources under prices.files []"
    ]


BUDGETS = f"{SMALLEST}{SITE.format(charges='')}teams: {{ns: chat}}\nmodels: [{{name: big, aliases: [org/big]}}]\n"


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("team: chat", None),
        ("model: big, basis: usage", None),
        ("site: west, valid_from: 2026-11-01, valid_to: 2027-01-01", None),
        ("team: chat, site: west", "budgets[0]: got team and site, expected exactly one of team, model, site"),
        (
            "team: chat, valid_from: 2026-11-15",
            "budgets[0]: valid_from: got 2026-11-15, expected the first day of a month: a budget is of whole months",
        ),
    ],
)
def test_a_budget_is_of_one_team_model_or_site(tmp_path: Path, entry: str, problem: str | None) -> None:
    text = f"{BUDGETS}budgets: [{{budget: b, usd_per_month: 10, {entry}}}]\n"
    if problem is None:
        # The basis of finance.chargeback, unless the entry names another one.
        assert load(tmp_path, text).budgets[0].basis == ("usage" if "basis" in entry else "fully_loaded")
    else:
        assert problems(tmp_path, text) == [problem]


@pytest.mark.parametrize(
    ("entry", "doubt"),
    [
        ("team: chat", None),
        (
            "team: chatt",
            "budgets[0].team (b): got 'chatt', which the fleet file does not have, so nothing may count against 10 USD"
            " a month; nearest: chat. Correct it, or add it under teams, engines or assignments",
        ),
        (
            "model: tiny",
            "budgets[0].model (b): got 'tiny', which the fleet file does not have, so nothing may count against 10 USD"
            " a month; known: big. Correct it, or add it under models",
        ),
        (
            "model: org/big",
            "budgets[0].model (b): got 'org/big', which the fleet file does not have, so nothing may count against 10"
            " USD a month; it is an alias of 'big', whose cost counts: write that",
        ),
        (
            "site: wets",
            "budgets[0].site (b): got 'wets', which the fleet file does not have, so nothing may count against 10 USD"
            " a month; nearest: west. Correct it, or add it under sites",
        ),
    ],
)
def test_a_budget_of_a_name_that_the_fleet_does_not_have_stays_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, entry: str, doubt: str | None
) -> None:
    fleet = load(tmp_path, f"{BUDGETS}budgets: [{{budget: b, usd_per_month: 10, {entry}}}]\n")
    assert len(fleet.budgets) == 1
    assert bare(caplog.messages) == [f"fleet.yaml: {doubt}"] * (doubt is not None)


def test_a_budget_is_raised_from_a_later_month_on(tmp_path: Path) -> None:
    entry = "{{budget: b, team: chat, usd_per_month: 10, valid_from: 2026-{}-01}}"
    load(tmp_path, f"{BUDGETS}budgets: [{entry.format('11')}, {entry.format('12')}]\n")
    assert problems(tmp_path, f"{BUDGETS}budgets: [{entry.format('11')}, {entry.format('11')}]\n") == [
        "budgets[1] (b from 2026-11-01): budgets[0] has the same name and valid_from, expected another name, or the"
        " month from which the new amount counts"
    ]


def contracts(*entries: str) -> str:
    return f"{SMALLEST}models: [{{name: gpt, contract_prices: [{', '.join(f'{{{entry}}}' for entry in entries)}]}}]\n"


def test_a_tenant_has_one_contract_price_from_each_date(tmp_path: Path) -> None:
    twice = "tenant: acme, output_usd_per_mtok: 2, valid_from: 2026-10-01"
    (wrong,) = problems(tmp_path, contracts(twice, twice))
    assert wrong == (
        "models[gpt].contract_prices: got two prices of tenant 'acme' from 2026-10-01, expected one from each date"
    )


def test_two_tenants_and_all_others_may_have_prices_from_one_date(tmp_path: Path) -> None:
    stated = contracts(
        "output_usd_per_mtok: 4", "tenant: acme, output_usd_per_mtok: 2", "tenant: bolt, output_usd_per_mtok: 3"
    )
    (model,) = load(tmp_path, stated).models
    assert [(price.tenant, price.output_usd_per_mtok) for price in model.contract_prices] == [
        (None, 4),
        ("acme", 2),
        ("bolt", 3),
    ]
