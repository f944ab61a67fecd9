"""The full cost by basis and part: a site with every charge, and others like it in which one thing is different.

Each site has three A100 on nodes without a host draw: model `a` generates all day, model `b` until noon and then
reports zeros, the third board is free. A board draws 360 W: of a's 93 W are idle floor by reference, of b's all,
because it draws as much when it is parked. With a PUE of 1.2 a board's day is 8.64 kWh of its own and 10.368 kWh at
the facility's meter. October has 744 hours.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest

from tests.books import Book
from tests.planted import (
    DAY,
    DAY_SECONDS,
    ENERGY,
    HOURS,
    OUTPUT,
    Samples,
    Series,
    board,
    moment,
    plant,
    pod,
    rising,
    vllm,
)

A100_TYPE = "a100-sxm4-80gb"
BOARDS = ("a", "b", "free")
CHARGED = {
    "zone": "XX",
    "pue": 1.2,
    "tariff": [{"usd_per_kwh": 0.1}],
    "cooling_share_of_overhead": 0.7,
    "demand_charges": [{"usd_per_kw_month": 15.0}],
    "hosting": [{"usd_per_kw_month": 150.0, "provisioned_kw": 10.0}],
    "operations": [{"usd_per_month": 7440.0}],
    "licences": [{"usd_per_gpu_hour": 0.1}],
    "carbon_prices": [{"usd_per_tonne": 100.0}],
}
BY_ENERGY = {"energy", "cooling", "overhead", "demand_charge", "carbon_price"}
# What is different at a site -> the parts that cost something else there than at `base`.
VARIANTS: dict[str, tuple[dict[str, object], set[str]]] = {
    "base": ({}, set()),
    "twin": ({}, set()),
    "pue": ({"pue": 1.4}, BY_ENERGY - {"energy"}),
    "tariff": ({"tariff": [{"usd_per_kwh": 0.2}]}, {"energy", "cooling", "overhead"}),
    "cooling": ({"cooling_share_of_overhead": 0.5}, {"cooling", "overhead"}),
    "demand": ({"demand_charges": [{"usd_per_kw_month": 30.0}]}, {"demand_charge"}),
    "hosting": ({"hosting": [{"usd_per_kw_month": 150.0, "provisioned_kw": 20.0}]}, {"hosting"}),
    "operations": ({"operations": [{"usd_per_month": 1.0}]}, {"operations"}),
    "licences": ({"licences": [{"usd_per_gpu_hour": 0.3}]}, {"licences"}),
    "carbon": ({"carbon_prices": [{"usd_per_tonne": 50.0}]}, {"carbon_price"}),
    "committed": ({}, {"capacity"}),
    "unused": ({}, {"capacity"}),
    "spot": ({}, {"capacity"}),
    "busier": ({}, set()),
}
TYPES = {"rented": "NVIDIA H100 80GB HBM3", "owned": "NVIDIA RTX A6000", "bare": "NVIDIA A100-SXM4-80GB"}
SITES: list[dict] = [
    *({"name": name, **CHARGED, **changes} for name, (changes, _) in VARIANTS.items()),
    {"name": "rented", **CHARGED},
    {"name": "owned", "zone": "XX", "pue": 1.2, "tariff": [{"usd_per_kwh": 0.1}]},
    {"name": "bare", "zone": "unknown", "pue": 1.2},
    # The source's own: nothing is there, and still it pays.
    {
        "name": "west",
        "zone": "unknown",
        "pue": 1.2,
        "demand_charges": [{"usd_per_kw_month": 15.0}],
        "operations": [{"usd_per_month": 7440.0}],
    },
]


def boards(site: str) -> tuple[str, ...]:
    """The boards of a site."""
    return BOARDS if site in VARIANTS else () if site == "west" else ("a",)


def series() -> Iterator[Series]:
    """Boards and engines of every site."""
    for site in SITES:
        name = site["name"]
        for of in boards(name):
            labels = {} if of == "free" else pod(f"{of}-{name}")
            labels |= {"modelName": TYPES[name]} if name in TYPES else {}
            yield ENERGY, board(f"GPU-{of}-{name}", f"n-{of}-{name}", **labels), rising(360_000, 0, start=1e9)
            if of != "free":
                until = DAY_SECONDS if of == "a" or name == "busier" else 12 * HOURS
                yield OUTPUT, vllm(f"{of}-{name}", f"{of}-{name}"), served(until)


def served(until: float) -> Samples:
    """Ten tokens a second until then, and the same count to the end of the day."""
    busy = rising(10, 0, until)
    return busy + [(moment(second), busy[-1][1]) for second in range(int(until) + 60, DAY_SECONDS + 1, 60)]


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Book:
    folder = tmp_path_factory.mktemp("cost_stack")
    hours = [f"{DAY}T{hour:02}:00:00Z,500\n" for hour in range(24)]
    (folder / "grid.csv").write_text("at,g\n" + "".join(hours), encoding="utf-8")
    nodes = [
        {"name": f"n-{of}-{site['name']}", "site": site["name"], "host_watts": 0}
        for site in SITES
        for of in boards(site["name"])
    ]
    planted = plant(
        folder,
        series(),
        sites=SITES,
        nodes=nodes,
        devices=[{"device_uuid": f"GPU-free-{name}", "node": f"n-free-{name}"} for name in VARIANTS],
        cost_rates=[
            {"device_type": A100_TYPE, "usd_per_gpu_hour": 2.0, "source": "contract"},
            {
                "device_type": "h100-sxm5-80gb",
                "usd_per_gpu_hour": 3.0,
                "includes_energy": True,
                "includes": ["hosting"],
                "source": "all-in rental",
            },
            {
                "device_type": "a6000",
                "price_usd_per_gpu": 4_500.0,
                "residual_value_usd_per_gpu": 500.0,
                "life_years": 4.0,
                "cost_of_capital_ratio": 0.08,
                "source": "bought",
            },
        ],
        commitments=[
            {
                "commitment": site,
                "site": site,
                "device_type": A100_TYPE,
                "gpus": gpus,
                "usd_per_gpu_hour": 1.0,
                "valid_from": DAY,
            }
            for site, gpus in (("committed", 2.0), ("unused", 5.0))
        ],
        spot_rates=[
            {"site": "spot", "device_type": A100_TYPE, "gpus": 2.0, "usd_per_gpu_hour": usd, "start_at": start_at}
            for usd, start_at in (
                (1.0, "2026-01-01T00:00:00Z"),
                (1.5, f"{DAY}T12:15:00Z"),
                (9.0, "2026-12-01T00:00:00Z"),
            )
        ],
        grid_intensity={
            "files": [
                {"path": "grid.csv", "zone": "XX", "time": "at", "values": {"direct_gco2e_per_kwh": "g"}, "source": "g"}
            ]
        },
        marts=("cost_daily", "focus_cost_and_usage", "doubts", "model_daily", "tenant_daily", "token_class_cost_daily"),
    )
    planted.run()
    return planted


def costs(book: Book, site: str, deployment: str, basis: str) -> dict[str, float | None]:
    """Part -> USD of a deployment's day, to 6 digits."""
    found = book.query(
        "select part, round(cost_usd::double, 6) from marts.cost_daily where site = ? and basis = ? and"
        " (model = ? or deployment = ?)",
        [site, basis, deployment, deployment],
    )
    assert len(found) == len(dict(found))
    return dict(found)


def test_each_part_is_what_its_price_and_its_share_make_of_it(book: Book) -> None:
    shared = {
        "energy": 0.864,  # 8.64 kWh × 0.10 USD
        "cooling": 0.12096,  # 8.64 kWh × 0.2 × 0.10 × 0.7
        "overhead": 0.05184,  # the other three tenths
        "demand_charge": 0.209032,  # 3 × 0.432 kW × 15 USD / 744 h × 24 h, a third of it
        "carbon_price": 0.5184,  # 10.368 kWh × 500 g × 100 USD/t
        "capacity": 48.0,  # 24 × 2.00 USD
        "hosting": 16.129032,  # 10 kW × 150 USD / 744 h × 24 h, a third of it
        "operations": 80.0,  # 7,440 USD / 744 h × 24 h, a third of it
        "licences": 2.4,  # 24 × 0.10 USD
    }
    assert costs(book, "base", "a-base", "allocation") == shared
    assert costs(book, "base", "b-base", "allocation") == shared
    assert costs(book, "base", "a-base", "usage") == shared
    # Of b's day half was idle: its energy is its own, its hours are not.
    halved = {part: round(usd / 2, 6) for part, usd in shared.items() if part not in BY_ENERGY}
    assert costs(book, "base", "b-base", "usage") == {**shared, **halved}
    # Half of what the free board costs.
    loaded = {part: pytest.approx(usd * 1.5, abs=2e-6) for part, usd in shared.items()}
    assert costs(book, "base", "a-base", "fully_loaded") == loaded
    # (360 − 93) / 360 of the energy is productive; nothing else is variable.
    variable = dict.fromkeys(shared, 0.0) | {
        "energy": 0.6408,
        "cooling": 0.089712,
        "overhead": 0.038448,
        "carbon_price": 0.38448,
    }
    assert costs(book, "base", "a-base", "variable") == variable


def test_a_basis_and_its_remainder_are_the_fleets_cost_of_each_part(book: Book) -> None:
    sums = book.query(
        "select count(*) from (select site, part, basis, sum(cost_usd) as usd from marts.cost_daily group by all)"
        " group by site, part having count(distinct usd) > 1 or count(*) <> 4"
    )
    assert sums == []
    # Three boards' days; the free board's is the remainder of allocation, and nothing is left of fully_loaded.
    assert costs(book, "base", "__remainder__", "allocation")["capacity"] == 48.0
    assert set(costs(book, "base", "__remainder__", "fully_loaded").values()) == {0.0}
    assert costs(book, "base", "__remainder__", "usage")["capacity"] == 72.0
    assert costs(book, "base", "__remainder__", "variable")["energy"] == pytest.approx(3 * 0.864 - 0.6408, abs=2e-6)


@pytest.mark.parametrize("site", VARIANTS)
def test_a_change_moves_the_parts_that_it_should_and_no_other(book: Book, site: str) -> None:
    base, changed = (
        dict(
            book.query(
                "select part, round(sum(cost_usd)::double, 6) from marts.cost_daily where site = ? and"
                " basis = 'allocation' group by part",
                [name],
            )
        )
        for name in ("base", site)
    )
    assert {part for part in base | changed if base.get(part) != changed.get(part)} == VARIANTS[site][1]


def test_utilisation_moves_usage_alone_and_by_the_idle_capacity_to_the_cent(book: Book) -> None:
    def idle(site: str) -> list[tuple]:
        return book.query(
            "select part, round(sum(case basis when 'allocation' then cost_usd when 'usage' then -cost_usd end), 2)"
            "::double from marts.cost_daily where site = ? and model = ? group by part order by part",
            [site, f"b-{site}"],
        )

    idle_parts = {"capacity": 24.0, "hosting": 8.06, "licences": 1.2, "operations": 40.0}
    assert {part: usd for part, usd in idle("base") if usd} == idle_parts
    assert [usd for _, usd in idle("busier")] == [0.0] * 9
    assert costs(book, "busier", "b-busier", "allocation") == costs(book, "base", "b-base", "allocation")


def idle_costs(book: Book, site: str, deployment: str, basis: str) -> dict[str, float | None]:
    """Part -> USD of a deployment's day that paid for idleness, to 6 digits, without those of 0."""
    found = book.query(
        "select part, round(idle_cost_usd::double, 6) from marts.cost_daily where site = ? and basis = ? and"
        " (model = ? or deployment = ?) and idle_cost_usd is distinct from 0",
        [site, basis, deployment, deployment],
    )
    return dict(found)


def test_what_idleness_costs_is_its_share_of_energy_and_of_time(book: Book) -> None:
    # Of a's 360 W are 93 idle floor, and it worked all day.
    by_energy = {
        "energy": 0.2232,  # 0.864 × 93 / 360
        "cooling": 0.031248,
        "overhead": 0.013392,
        "demand_charge": 0.054,
        "carbon_price": 0.13392,
    }
    assert idle_costs(book, "base", "a-base", "allocation") == by_energy
    # b draws as much parked as working: all its energy is idle, and half of its time.
    b = {
        "energy": 0.864,
        "cooling": 0.12096,
        "overhead": 0.05184,
        "demand_charge": 0.209032,
        "carbon_price": 0.5184,
        "capacity": 24.0,
        "hosting": 8.064516,
        "operations": 40.0,
        "licences": 1.2,
    }
    assert idle_costs(book, "base", "b-base", "allocation") == b
    # Usage charges for idle energy, not for idle time; variable for neither.
    assert idle_costs(book, "base", "b-base", "usage") == {part: usd for part, usd in b.items() if part in BY_ENERGY}
    assert idle_costs(book, "base", "b-base", "variable") == {}
    # The free board is idle all day; a carries half of it.
    free = costs(book, "base", "__remainder__", "allocation")
    assert idle_costs(book, "base", "__remainder__", "allocation") == free
    loaded = {part: pytest.approx(by_energy.get(part, 0) + usd / 2, abs=2e-6) for part, usd in free.items() if usd}
    assert idle_costs(book, "base", "a-base", "fully_loaded") == loaded
    # A model that works all day at its idle power: no idle time, all energy.
    assert "capacity" not in idle_costs(book, "busier", "b-busier", "allocation")


def test_the_fleets_idle_cost_is_one_amount_on_every_basis(book: Book) -> None:
    sums = book.query(
        "select count(*) from (select site, part, basis, sum(idle_cost_usd) as usd from marts.cost_daily group by all)"
        " group by site, part having count(distinct usd) > 1 or count(*) <> 4"
    )
    assert sums == []
    # What is paid for and not there is idle; so is the fee of a site at which nothing is.
    for basis in ("variable", "usage", "allocation", "fully_loaded"):
        assert idle_costs(book, "unused", "__unused_commitment__", basis) == {"capacity": 48.0}
    assert idle_costs(book, "west", "__remainder__", "fully_loaded") == {"operations": 240.0, "demand_charge": None}
    # Without a tariff only the idle time of capacity is known, and `a` has none.
    assert idle_costs(book, "bare", "a-bare", "allocation") == {"energy": None, "overhead": None}


def test_commitments_are_used_first_and_what_is_unused_is_a_row_of_its_own(book: Book) -> None:
    # Two of three boards are committed at 1 USD: (2 × 1 + 1 × 2) / 3 USD × 24 h.
    assert costs(book, "committed", "a-committed", "allocation")["capacity"] == 32.0
    # Three of five committed are there, one of them free; the free one is not an unused commitment.
    assert costs(book, "unused", "a-unused", "allocation")["capacity"] == 24.0
    for basis in ("variable", "usage", "allocation", "fully_loaded"):
        assert costs(book, "unused", "__unused_commitment__", basis) == {"capacity": 48.0}
    assert costs(book, "unused", "a-unused", "fully_loaded")["capacity"] == 36.0


def test_commitments_of_accelerators_that_are_not_there_are_named(book: Book) -> None:
    """Two of five are missing all day; of the two at `committed` three are there."""
    (result,) = book.dbt("test", "--select", "commitments_are_of_accelerators_that_are_there")
    found = book.query(f"select entity, doubted_usd::double, evidence from ({result.node.compiled_code})")
    assert found == [("unused", 48.0, f"2.0 {A100_TYPE}")]
    # The month of the site is marked, and who pays for them; what a model costs rests on none of it.
    marked = "select site, {} from finance.{} where doubt_reasons <> ''"
    assert book.query(marked.format("doubt_reasons", "months")) == [("unused", "missing_gpus")]
    assert book.query(marked.format("payer, doubt_reasons", "chargeback")) == [
        ("unused", "Unused commitment", "missing_gpus")
    ]


def test_a_spot_price_counts_from_its_moment_on_and_before_the_rate(book: Book) -> None:
    # Two of three boards: 12.25 h at 1 USD and 11.75 h at 1.50 USD, 29.875 USD each; the third costs 24 h × 2 USD.
    assert costs(book, "spot", "a-spot", "allocation")["capacity"] == pytest.approx(107.75 / 3, abs=1e-6)
    assert costs(book, "spot", "__unused_commitment__", "allocation") == {}


def test_what_a_rate_holds_is_nothing_on_every_basis_and_names_the_rate(book: Book) -> None:
    found = book.query(
        "select part, min(cost_usd)::double, max(cost_usd)::double, round(max(memo_cost_usd)::double, 6),"
        " max(included_in) from marts.cost_daily where site = 'rented' and model = 'a-rented' and"
        " memo_cost_usd is not null group by part"
    )
    assert {row[0]: row[1:] for row in found} == {
        "energy": (0.0, 0.0, 0.864, "all-in rental"),
        "cooling": (0.0, 0.0, 0.12096, "all-in rental"),
        "overhead": (0.0, 0.0, 0.05184, "all-in rental"),
        "demand_charge": (0.0, 0.0, 0.209032, "all-in rental"),
        "hosting": (0.0, 0.0, 48.387097, "all-in rental"),
    }
    assert costs(book, "rented", "a-rented", "allocation")["capacity"] == 72.0
    assert costs(book, "rented", "a-rented", "allocation")["operations"] == 240.0


def test_what_is_owned_costs_its_depreciation_and_its_capital(book: Book) -> None:
    # 4,000 USD over 48 months, a 31st of October's 83.33; CRF(8 %, 4) = 0.30192: 0.30192 × 4 − 1 = 0.20768 of it. The
    # 500 USD that it is worth at the end pay 8 % a year, 3.33 a month.
    owned = costs(book, "owned", "a-owned", "allocation")
    assert owned["capacity"] == pytest.approx(83.333333 / 31, abs=1e-6)
    assert owned["cost_of_capital"] == pytest.approx((83.333333 * 0.207683 + 500 * 0.08 / 12) / 31, abs=1e-6)
    assert book.query(
        "select distinct part, is_cash from marts.cost_daily where site in ('owned', 'base') and not is_cash order by 1"
    ) == [("carbon_price", False), ("cost_of_capital", False)]


def test_a_missing_price_is_null_and_flagged_and_a_part_without_a_price_is_no_row(book: Book) -> None:
    found = book.query(
        "select part, round(cost_usd::double, 6), is_cost_complete from marts.cost_daily where site = 'bare' and"
        " model = 'a-bare' and basis = 'allocation' order by part"
    )
    assert found == [("capacity", 48.0, True), ("energy", None, False), ("overhead", None, False)]


def test_a_site_without_a_meter_pays_its_fees_and_does_not_know_its_demand_charge(book: Book) -> None:
    found = book.query(
        "select part, basis, deployment, round(cost_usd::double, 6), is_cost_complete from marts.cost_daily"
        " where site = 'west' and basis in ('variable', 'fully_loaded') order by part, basis"
    )
    assert found == [
        ("demand_charge", "fully_loaded", "__remainder__", None, False),
        ("demand_charge", "variable", "__remainder__", None, False),
        ("operations", "fully_loaded", "__remainder__", 240.0, True),
        ("operations", "variable", "__remainder__", 240.0, True),
    ]


def test_the_parts_that_models_know_add_up_to_their_own_costs(book: Book) -> None:
    assert (
        book.query(
            """
        with parts as (
            select site, model, basis, sum(cost_usd) as usd from marts.cost_daily
            where part in ('capacity', 'energy', 'cooling', 'overhead') and substr(model, 1, 2) <> '__' group by all
        )
        select site, model, basis, usd,
            case basis when 'allocation' then compute_cost_usd else variable_cost_usd end as of_model
        from parts join marts.model_daily using (site, model)
        where basis in ('variable', 'allocation') and site not in ('bare', 'rented') and usd is distinct from of_model
        """
        )
        == []
    )


def test_the_classes_of_tokens_add_up_to_each_basis(book: Book) -> None:
    key = "date, billing_month, site, deployment, model, basis"
    assert book.query(
        f"select count(*) from (select {key}, sum(cost_usd) as usd from marts.token_class_cost_daily group by all)"
        f" full outer join (select {key}, sum(cost_usd) as usd_of_parts from marts.cost_daily"
        " where deployment not in ('__remainder__', '__unused_commitment__') group by all)"
        f" using ({key}) where usd is distinct from usd_of_parts"
    ) == [(0,)]
    # Model a generates 864,000 tokens and reports no input: all of its cost is theirs.
    assert book.query(
        "select token_class, tokens::bigint, round(cost_usd_per_mtok, 2), price_method"
        " from marts.token_class_cost_daily where site = 'base' and model = 'a-base' and basis = 'allocation'"
    ) == [("output", 864_000, 171.64, "weights")]  # 148.293264 USD / 0.864


def test_focus_has_the_allocated_cost_of_each_part_and_price_times_quantity_is_the_cost(book: Book) -> None:
    """Every price of the file: rented, owned, all-in, committed, unused, fees of a site without a meter."""
    key = "date, billing_month, site, deployment, device_type, part"
    assert (
        book.query(
            f"""
        with costs as (
            select {key}, sum(cost_usd) as usd from marts.cost_daily
            where basis = 'allocation' and cost_usd is not null group by all
        ),
        focus as (
            select date, billing_month, BillingAccountId as site, x_Deployment as deployment,
                x_DeviceType as device_type, x_Part as part, sum(EffectiveCost) as usd
            from marts.focus_cost_and_usage group by all
        )
        select {key}, costs.usd, focus.usd from costs full join focus using ({key})
        where costs.usd is distinct from focus.usd and not (costs.usd = 0 and focus.usd is null)
        """
        )
        == []
    )
    # Decimals times decimals. Readings of meters are rounded to a millionth of a kWh each.
    assert book.query(
        """
        select count(*) filter (abs(ListUnitPrice * PricingQuantity - ListCost) > 1e-6),
            count(*) filter (BilledCost not in (0, EffectiveCost) or EffectiveCost <> ListCost),
            count(*) filter (ListCost <> ContractedCost),
            count(*) filter (abs(PricingQuantity - ConsumedQuantity) > 1e-3 and ListUnitPrice > 0), count(*) > 200
        from marts.focus_cost_and_usage
        """
    ) == [(0, 0, 0, 0, True)]
    # What has no price is no row: cost_daily has three parts of `bare`, of which capacity has one.
    assert book.query(
        "select part, count(*) from marts.cost_daily where basis = 'allocation' and cost_usd is null"
        " group by part order by part"
    ) == [("demand_charge", 1), ("energy", 2), ("overhead", 2)]
    assert book.query("select distinct x_Part from marts.focus_cost_and_usage where BillingAccountId = 'bare'") == [
        ("capacity",)
    ]


def test_the_price_of_a_sku_is_that_of_the_fleet_file_or_stated_as_blended(book: Book) -> None:
    def skus(site: str, deployment: str) -> list[tuple]:
        return book.query(
            "select SkuPriceId, ListUnitPrice::double, PricingQuantity::double, PricingCategory"
            " from marts.focus_cost_and_usage where BillingAccountId = ? and x_Model = ? order by 1",
            [site, deployment],
        )

    assert [sku[0] for sku in skus("base", "a-base")] == [
        f"capacity/{A100_TYPE}/2",
        "carbon_price/100",
        "cooling/0.1",
        "demand_charge/15",
        "energy/0.1",
        "hosting/150",
        f"licences/{A100_TYPE}/0.1",
        "operations/7440",
        "overhead/0.1",
    ]
    # Two of three boards are committed at 1 USD: of a's 24 GPU-hours 16, and 8 are at the rate of 2 USD.
    committed = skus("committed", "a-committed")
    assert committed[:2] == [
        (f"capacity/{A100_TYPE}/2", 2.0, pytest.approx(8.0, abs=1e-9), "Standard"),
        (f"capacity/{A100_TYPE}/commitments/committed/1", 1.0, pytest.approx(16.0, abs=1e-9), "Committed"),
    ]
    # Of five committed GPUs two are not there.
    assert skus("unused", "__unused_commitment__") == [
        (f"capacity/{A100_TYPE}/commitments/unused/1", 1.0, 48.0, "Committed")
    ]
    # In the hour of the change a quarter is at 1 USD: 1.375 USD is its mean. A third of 36 spot GPU-hours is a's.
    assert [(sku[0].rsplit("/", 2)[1:], sku[2]) for sku in skus("spot", "a-spot") if sku[3] == "Dynamic"] == [
        (["spot", "1"], pytest.approx(8.0, abs=1e-6)),
        (["spot", "1.375"], pytest.approx(2 / 3, abs=1e-6)),
        (["spot", "1.5"], pytest.approx(22 / 3, abs=1e-6)),
    ]
    # Over the 744 hours of October: 4,000 USD over 48 months, and (83.33 × 0.207683 + 500 × 0.08 / 12) USD of capital.
    owned = {sku[0].split("/")[0]: sku for sku in skus("owned", "a-owned")}
    assert owned["capacity"][:3] == ("capacity/a6000/0.112007168", 0.112007168, pytest.approx(24.0, abs=1e-6))
    assert owned["cost_of_capital"][1:3] == (pytest.approx(0.027742, abs=1e-6), pytest.approx(24.0, abs=1e-6))
    rented = {sku[0]: sku[1:] for sku in skus("rented", "a-rented")}
    assert rented["energy/included"] == (0.0, pytest.approx(8.64, abs=1e-3), "Standard")


def test_used_and_unused_hours_of_a_commitment_are_its_utilisation(book: Book) -> None:
    """Three of five committed GPUs are there at `unused`; `committed` has a third GPU at the rate."""
    shares = (
        "select BillingAccountId, CommitmentDiscountId,"
        " round(sum(CommitmentDiscountQuantity) filter (CommitmentDiscountStatus = 'Used')::double, 6),"
        " round(sum(CommitmentDiscountQuantity)::double, 6) from marts.focus_cost_and_usage"
        " where CommitmentDiscountId is not null group by all order by all"
    )
    assert book.query(shares) == [
        (site, f"site/{site}/{A100_TYPE}/commitments/{site}", used, hours)
        for site, used, hours in (("committed", 48.0, 48.0), ("unused", 72.0, 120.0))
    ]
    assert book.query(
        "select month, site, committed_gpu_hours::double, utilisation_ratio from finance.commitments order by all"
    ) == [(date(2026, 10, 1), "committed", 48.0, 1.0), (date(2026, 10, 1), "unused", 120.0, 0.6)]


def test_what_is_bought_and_what_is_notional_is_not_billed(book: Book) -> None:
    """At `owned` model a's boards are written off; every other site rents."""
    found = book.query(
        "select x_Part, sum(BilledCost) = 0, sum(EffectiveCost) > 0, sum(ContractedCost) = sum(EffectiveCost)"
        " from marts.focus_cost_and_usage"
        " where not x_IsCash or (BillingAccountId = 'owned' and SkuId = 'capacity/a6000') group by all order by 1"
    )
    assert found == [(part, True, True, True) for part in ("capacity", "carbon_price", "cost_of_capital")]
    assert book.query(
        "select count(*) from marts.focus_cost_and_usage where BilledCost <> EffectiveCost"
        " and x_Part not in ('carbon_price', 'cost_of_capital') and BillingAccountId <> 'owned'"
    ) == [(0,)]


@pytest.mark.rest
def test_months_of_every_length_charge_all_of_a_monthly_fee(tmp_path: Path) -> None:
    # Hourly readings from 15 October to 2 March in Los Angeles; the board is gone on 20 November, its site is not.
    days = 138
    seen = [(moment(hour * HOURS), 1e9 + 360_000 * hour * HOURS) for hour in range(36 * 24)]
    planted = plant(
        tmp_path,
        [
            (ENERGY, board("GPU-a", "n-a", **pod("a-0")), seen),
            (ENERGY, board("GPU-z", "n-z"), [(moment(hour * HOURS), 1e9 + hour) for hour in range(days * 24 + 1)]),
        ],
        days=days,
        sites=[
            {
                "name": "west",
                "zone": "unknown",
                "time_zone": "America/Los_Angeles",
                "pue": 1.2,
                "operations": [{"usd_per_month": 1_000.0}],
                "hosting": [{"usd_per_kw_month": 10.0, "provisioned_kw": 20.0}],
                "demand_charges": [{"usd_per_kw_month": 10.0}],
            }
        ],
        nodes=[{"name": name, "site": "west", "host_watts": 0} for name in ("n-a", "n-z")],
        cost_rates=[{"device_type": A100_TYPE, "usd_per_gpu_hour": 2.0, "source": "contract"}],
    )
    planted.run()
    months = planted.query(
        "select billing_month::varchar, round(sum(cost_usd) filter (part = 'operations')::double, 6),"
        " round(sum(cost_usd) filter (part = 'hosting')::double, 6), count(distinct date) from marts.cost_daily"
        " where basis = 'allocation' and billing_month between '2026-11-01' and '2027-02-01' group by 1 order by 1"
    )
    # Of 721 (the clocks go back), 744, 744 and 672 hours; a local month touches one more UTC date than it has days.
    assert months == [
        ("2026-11-01", 1000.0, 200.0, 31),
        ("2026-12-01", 1000.0, 200.0, 32),
        ("2027-01-01", 1000.0, 200.0, 32),
        ("2027-02-01", 1000.0, 200.0, 29),
    ]
