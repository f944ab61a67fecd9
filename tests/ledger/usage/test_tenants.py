"""Who pays: shares of a model's hours by logged tokens, and the cost of the date by them.

Every board draws 360 W all day, so an hour is 1,296,000 J and a day 31,104,000 J; every site has one. An
hour of a board costs 2 USD for capacity, 1 USD for the site's operations (744 USD over October's 744 hours) and 0.432
kWh at the facility's meter, of which 0.072 are what the PUE adds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.books import Book
from tests.planted import (
    DAY,
    DAY_SECONDS,
    ENERGY,
    HOURS,
    INPUT,
    OUTPUT,
    Series,
    board,
    name_keys,
    plant,
    pod,
    rising,
    steady,
    vllm,
)

HOUR_JOULES, DAY_JOULES = 1_296_000, 31_104_000
TEN = 10 * HOURS
# Model -> output and input tokens a second that its engine counts.
COUNTED = {"logged": (1, 4), "over": (1, 0), "silent": (1, 4), "uncounted": (0, 0), "sevenths": (1, 0)}
PLACES = [*COUNTED, "left", "right"]


def series() -> Iterator[Series]:
    """One board and engine per model; `twins` has an engine at each of two sites."""
    for model, counted in COUNTED.items():
        yield from engine(f"{model}-0", model, model, counted)
    for side, output in {"left": 3, "right": 1}.items():
        yield from engine(f"{side}-0", "twins", side, (output, 0))


def engine(name: str, model: str, site: str, counted: tuple[float, float]) -> Iterator[Series]:
    namespace = site if model == "twins" else "llm"
    yield ENERGY, board(f"GPU-{name}", f"n-{site}", **pod(name, namespace)), rising(360_000, start=1e9)
    labels = {**vllm(name, model), "namespace": namespace}
    if model == "uncounted":
        yield "vllm:num_requests_running", labels, steady(1)
        return
    output, computed = counted
    yield OUTPUT, labels, rising(output)
    if computed:
        yield INPUT, labels, rising(computed)


def asked(model: str, tenant: str | None, output: int, computed: int = 0, **more: object) -> dict[str, object]:
    """A line of the edge's log: a request at 10:05 that took a minute."""
    return {
        "id": f"{model}-{tenant}-{output}-{more}",
        "created": (datetime(2026, 10, 15, tzinfo=UTC) + timedelta(seconds=TEN + 300)).isoformat(),
        "seconds": 60,
        "status": 200,
        "model": model,
        "tenant": tenant,
        "usage": {"prompt_tokens": computed, "completion_tokens": output},
        **more,
    }


EDGE = [
    # Of 3,600 + 14,400 × 0.25 = 7,200 in the hour each of them has 2,160, and 0 has nothing.
    asked("logged", "acme", 1_800, 1_440, team="search"),
    asked("logged", "zeta", 720, 5_760, team="ads"),
    asked("logged", "zero", 0, 0, team="ads"),
    # 6,000 of 3,600.
    asked("served-as-over", "acme", 4_000, team="search"),
    asked("served-as-over", None, 2_000),
    asked("uncounted", "acme", 300),
    asked("uncounted", "zeta", 100),
    asked("ghost", "acme", 50, 7, team="search"),
    # One names its engine; the other's 4,000 are 3,000 of the left and 1,000 of the right.
    asked("any", "zeta", 800, engine="right/right-0"),
    asked("twins", "acme", 4_000),
    # They asked in another order than that of their keys.
    *(
        asked("sevenths", tenant, 1_000, created=f"{DAY}T10:0{minute}:00Z")
        for minute, tenant in enumerate(("zero", "zeta", "delta", "acme"))
    ),
    asked("sevenths", "echo", 3_000),
]
# An engine's own log of the same requests, without names.
AUDIT = [asked("logged", None, 2_520, 7_200)]
GATEWAY = [
    {
        "request_id": f"g-{number}",
        "startTime": "2026-10-15T10:10:00Z",
        "endTime": "2026-10-15T10:11:00Z",
        "model": "logged",
        "team_id": "ads",
        "end_user": "zeta",
        "prompt_tokens": 1_000,
        "completion_tokens": 1_000,
        "cache_hit": "True",
        "status": "success",
    }
    for number in range(3)
]


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Book:
    folder = tmp_path_factory.mktemp("tenants")
    for name, lines in {"edge": EDGE, "audit": AUDIT, "gateway": GATEWAY}.items():
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    columns = {"duration_seconds": "seconds", "status": "status", "tenant": "tenant", "team": "team"}
    planted = plant(
        folder,
        series(),
        sites=[
            {
                "name": site,
                "zone": "US-CAL-CISO",
                "pue": 1.2,
                # The hour from ten costs ten times as much.
                "tariff": [
                    {"usd_per_kwh": 0.1, "local_hours": [0, 10]},
                    {"usd_per_kwh": 1.0, "local_hours": [10, 11]},
                    {"usd_per_kwh": 0.1, "local_hours": [11, 24]},
                ],
                "operations": [{"usd_per_month": 744.0}],
            }
            for site in [*PLACES, "west"]
        ],
        nodes=[{"name": f"n-{site}", "site": site, "host_watts": 0} for site in PLACES],
        models=[{"name": "over", "aliases": ["served-as-over"]}],
        teams={"llm": "platform"},
        cost_rates=[{"device_type": "a100-sxm4-80gb", "usd_per_gpu_hour": 2.0, "source": "contract"}],
        requests=[
            {"name": "edge", "kind": "access_log", "path": "edge.jsonl", "columns": {**columns, "engine": "engine"}},
            {"name": "audit", "kind": "access_log", "path": "audit.jsonl", "columns": columns},
            {"name": "gateway", "kind": "litellm", "path": "gateway.jsonl"},
        ],
    )
    name_keys(planted, "acme", "delta", "echo", "zeta", "zero")
    planted.run()
    return planted


def usage(book: Book, site: str) -> dict[str, tuple[float | None, ...]]:
    """Tenant -> requests, input and output tokens, joules of a site's model."""
    found = book.query(
        "select tenant, requests::double, input_tokens::double, output_tokens::double, energy_joules::double"
        " from marts.tenant_daily where site = ?",
        [site],
    )
    return {tenant: tuple(amounts) for tenant, *amounts in found}


def test_tenants_have_their_logged_tokens_and_an_hours_share_of_the_joules(book: Book) -> None:
    """As of 16 requests at once an input token takes 0.06883 of an output token's joules: 1,899.1 and 1,116.5 of the
    engine's 4,591.2. Nothing counts the requests or what a cache had: it may be 0.0003 to 2.443888."""
    assert usage(book, "logged") == {
        "acme": (1, 1_440, 1_800, pytest.approx(536_086.215, abs=0.01)),
        "zeta": (1, 5_760, 720, pytest.approx(315_156.892, abs=0.01)),
        "zero": (1, 0, 0, 0),
        # The rest of the hour, and the 23 others.
        "__unattributed__": (0, 24 * 14_400 - 7_200, 24 * 3_600 - 2_520, pytest.approx(DAY_JOULES - 851_243.107)),
    }
    ends = "select tenant, energy_joules_at_low_weight::double, energy_joules_at_high_weight::double"
    found = book.query(f"{ends} from marts.tenant_daily where site = 'logged' and requests > 0 order by 1")
    assert found == [
        ("acme", pytest.approx(647_378.666, abs=0.01), pytest.approx(177_708.904, abs=0.01)),
        ("zero", 0, 0),
        ("zeta", pytest.approx(259_510.667, abs=0.01), pytest.approx(494_345.548, abs=0.01)),
    ]


def test_who_has_the_last_digit_follows_the_requests_and_not_the_random_keys(book: Book) -> None:
    """A seventh of the hour's 1,296,000 J is 185,142.857142857… J: the first four have 740,571.428571."""
    found = {tenant: amounts[3] for tenant, amounts in usage(book, "sevenths").items()}
    assert found["zero"] == found["zeta"] == found["delta"] == 185_142.857143
    assert found["acme"] == 185_142.857142


def test_what_a_gateways_cache_answered_and_what_a_second_log_repeats_is_left_out(book: Book) -> None:
    assert book.query("select count(*) from raw.requests where is_gateway_cached") == [(3,)]
    assert book.query(
        "select tenant, logged_output_tokens::double from marts.tenant_usage_daily where model = 'logged' order by 1"
    ) == [("__unattributed__", 0), ("acme", 1_800), ("zero", 0), ("zeta", 720)]


def test_logs_with_more_than_the_engines_counted_are_scaled_down(book: Book) -> None:
    """An alias of the model; two thirds and one third, and who asked for the latter is not known."""
    assert usage(book, "over") == {
        "acme": (1, None, 2_400, HOUR_JOULES * 2 / 3),
        "__unknown__": (1, None, 1_200, HOUR_JOULES / 3),
        "__unattributed__": (0, None, 23 * 3_600, 23 * HOUR_JOULES),
    }


def test_where_the_engine_counts_no_tokens_the_logs_alone_share_the_hour(book: Book) -> None:
    assert usage(book, "uncounted") == {
        "acme": (1, None, None, HOUR_JOULES * 3 / 4),
        "zeta": (1, None, None, HOUR_JOULES / 4),
        "__unattributed__": (0, None, None, 23 * HOUR_JOULES),
    }


def test_a_request_is_the_engines_that_it_names_else_divided_by_the_engines_tokens(book: Book) -> None:
    # Of 3 × 3,600 = 10,800 tokens 3,000; of 3,600 tokens 1,000 and 800.
    assert usage(book, "left")["acme"] == (0.75, None, 3_000, pytest.approx(HOUR_JOULES / 3.6))
    assert usage(book, "right") == {
        "acme": (0.25, None, 1_000, HOUR_JOULES / 3.6),
        "zeta": (1, None, 800, HOUR_JOULES / 4.5),
        "__unattributed__": (0, None, 86_400 - 1_800, DAY_JOULES - HOUR_JOULES / 2),
    }


def test_without_requests_the_namespace_and_its_team_are_shown_the_cost(book: Book) -> None:
    assert usage(book, "silent") == {"__no_requests__": (0, 24 * 14_400, 24 * 3_600, DAY_JOULES)}
    assert book.query(
        "select namespace, team, request_team, round(allocation_cost_usd, 4)::double from marts.tenant_daily"
        " where model = 'silent'"
    ) == [("llm", "platform", None, 73.4256)]


def test_requests_that_no_deployment_served_are_listed_and_cost_nothing(book: Book) -> None:
    assert book.query(
        "select model, deployment, request_team, tenant, requests::int, logged_input_tokens::int, energy_joules,"
        " compute_cost_usd from marts.tenant_usage_daily where not is_served"
    ) == [("ghost", "__unknown__", "search", "acme", 1, 7, None, None)]
    assert book.query("select count(*) from marts.tenant_daily where model = 'ghost'") == [(0,)]


def test_the_dates_cost_is_shared_by_what_the_hours_cost(book: Book) -> None:
    found = book.query(
        "select tenant, round(variable_cost_usd, 6)::double, round(allocation_cost_usd, 6)::double, is_cost_complete"
        " from marts.tenant_daily where site = 'logged' order by tenant"
    )
    # Variable: (360 − 93) W × 1.2 × 3.3 USD/kWh a day, of which the hour from ten has 1.0.
    # Allocation: 48 + 1.4256 + 24 USD a day, of which the hour has (2 + 0.432) / (48 + 1.4256).
    assert found == [
        ("__unattributed__", 0.86508, 71.257844, True),
        ("acme", 0.09612, 1.083878, True),
        ("zero", 0.0, 0.0, True),
        ("zeta", 0.09612, 1.083878, True),
    ]


def test_tenants_add_up_to_models_and_costs_to_the_last_digit(book: Book) -> None:
    keys = "date, site, deployment, namespace, team, model, device_type, meter_scope, role"
    tokens = ["input_tokens", "cached_input_tokens", "computed_input_tokens", "output_tokens"]
    facts = [*tokens, "energy_joules", "location_gco2e"]
    bases = ["variable", "usage", "allocation", "fully_loaded"]
    for table, columns in {
        "tenant_daily": facts,
        "tenant_usage_daily": [*facts, "active_seconds", "variable_cost_usd", "compute_cost_usd"],
    }.items():
        models = f"select {keys}, {', '.join(columns)} from marts.model_daily"
        summed = ", ".join(f"sum({column})" for column in columns)
        where = "where is_served" if table == "tenant_usage_daily" else ""
        tenants = f"select {keys}, {summed} from marts.{table} {where} group by {keys}"
        assert book.query(f"({models} except all {tenants}) union all ({tenants} except all {models})") == []
    costs = ", ".join(f"sum(cost_usd) filter (basis = '{basis}')" for basis in bases)
    paid = ", ".join(f"sum({basis}_cost_usd)" for basis in bases)
    assert (
        book.query(
            f"select {keys}, billing_month, {costs} from marts.cost_daily where deployment <> '__remainder__'"
            f" group by all except all select {keys}, billing_month, {paid} from marts.tenant_daily group by all"
        )
        == []
    )
    assert book.query("select count(*) from marts.tenant_daily where allocation_cost_usd is not null") == [(22,)]


def test_the_tests_of_the_marts_hold(book: Book) -> None:
    assert book.broken() == {}
    assert book.failed_tests("words_of_the_book_are_known") == set()


@pytest.mark.long
def test_any_order_of_dates_gives_the_same_shares(tmp_path: Path) -> None:
    """The site's peak is on the second date, so the demand charge of the first follows it, and what its tenants pay."""
    lines = [asked("logged", "acme", 1_800), asked("logged", "zeta", 900)]
    later = [{**line, "created": str(line["created"]).replace("-15T", "-16T")} for line in lines[:1]]
    two_days = 2 * DAY_SECONDS
    watts = rising(360_000, last=DAY_SECONDS, start=1e9, step=300)
    watts += rising(500_000, DAY_SECONDS, two_days, start=watts[-1][1], step=300)[1:]
    books = []
    for order in ([(0, 2)], [(1, 2), (0, 1)]):
        folder = tmp_path / str(len(books))
        folder.mkdir()
        (folder / "edge.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines + later), encoding="utf-8")
        planted = plant(
            folder,
            [
                (ENERGY, board("GPU-a", "n-a", **pod("logged-0")), watts),
                (OUTPUT, vllm("logged-0", "logged"), rising(1, last=two_days)),
            ],
            days=2,
            sites=[
                {
                    "name": "west",
                    "zone": "unknown",
                    "pue": 1.2,
                    "tariff": [{"usd_per_kwh": 0.1}],
                    "demand_charges": [{"usd_per_kw_month": 15.0}],
                }
            ],
            nodes=[{"name": "n-a", "site": "west", "host_watts": 0}],
            requests=[{"name": "edge", "kind": "access_log", "path": "edge.jsonl", "columns": {"tenant": "tenant"}}],
        )
        name_keys(planted, "acme", "zeta")
        for first, last in order:
            planted.run(DAY + timedelta(days=first), DAY + timedelta(days=last))
        books.append(planted)
    at_once, backwards = ({mart: of for mart, of in book.hashes().items() if "tenant" in mart} for book in books)
    assert at_once == backwards
    assert {mart: rows for mart, (rows, *_) in at_once.items()} == {"tenant_daily": 5, "tenant_usage_daily": 5}
