"""What racks earn, through a booked day of which watts, tokens and prices are planted.

A day has 86,400 s. A board of 400 W takes 9.6 kWh, with the PUE of 1.25 12 kWh at the facility, 1.20 USD. A rented GPU
costs 2 USD an hour, 48 USD a day. 1,000 tokens/s are 86.4 million tokens a day.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.books import Book
from tests.planted import DAY, ENERGY, OUTPUT, Series, board, plant, pod, rising, vllm

EXACT = 1e-6  # relative
KWH_ROUNDED = 2e-5  # relative: the book rounds each five minutes, 0.042 kWh, to a millionth of a kWh
# Name of the model, its node and its pod -> site, rack, device type, watts, output tokens/s (None: no token telemetry).
PLANTED = {
    "contract": ("west", "r1", "rented", 400, 1_000),
    "listed": ("east", "r2", "owned", 400, 500),
    "both_a": ("north", "r3", "rented", 400, 300),
    "both_b": ("north", "r4", "rented", 200, 100),
    "silent": ("south", "r5", "rented", 400, None),
    "loose": ("south", None, "rented", 400, 1_000),
}
SITES = ("west", "east", "north", "south")


def series() -> Iterator[Series]:
    """One board and one engine of each name, and a free board in r2."""
    for name, (_, _, kind, watts, tokens) in PLANTED.items():
        labels = {} if tokens is None else pod(name)
        yield (
            ENERGY,
            {**board(f"GPU-{name}", f"n-{name}", **labels), "modelName": kind},
            rising(watts * 1_000, start=1e9),
        )
        if tokens is not None:
            yield OUTPUT, vllm(name, name.partition("_")[0]), rising(tokens)
    yield ENERGY, {**board("GPU-free", "n-listed"), "modelName": "owned"}, rising(100 * 1_000, start=1e9)


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Book:
    folder = tmp_path_factory.mktemp("racks")
    (folder / "prices.csv").write_text("model,input_usd_per_mtok,output_usd_per_mtok\nlisted,1,2\ncontract,90,90\n")
    planted = plant(
        folder,
        series(),
        sites=[{"name": site, "zone": "unknown", "pue": 1.25, "tariff": [{"usd_per_kwh": 0.1}]} for site in SITES],
        nodes=[
            {"name": f"n-{name}", "site": site, "host_watts": 0, **({"rack": rack} if rack else {})}
            for name, (site, rack, *_) in PLANTED.items()
        ],
        device_types=[{"name": kind, "power_limit_watts": 700.0} for kind in ("rented", "owned")],
        cost_rates=[
            {"device_type": "rented", "usd_per_gpu_hour": 2.0, "source": "rented"},
            {
                "device_type": "owned",
                "price_usd_per_gpu": 33_000.0,
                "residual_value_usd_per_gpu": 3_000.0,
                "life_years": 4.0,
                "cost_of_capital_ratio": 0.08,
                "source": "bought",
            },
        ],
        prices={"files": [{"path": "prices.csv", "source": "list", "as_of": "2026-10-01"}]},
        models=[
            {
                "name": "contract",
                "list_price": {"source": "list", "name": "contract"},
                "contract_prices": [
                    {"output_usd_per_mtok": 5.0, "valid_from": "2026-01-01"},
                    {"output_usd_per_mtok": 1.0, "valid_from": "2026-10-15"},
                    {"output_usd_per_mtok": 9.0, "valid_from": "2026-10-16"},
                ],
            },
            {"name": "listed", "list_price": {"source": "list", "name": "listed"}},
            {"name": "loose", "contract_prices": [{"output_usd_per_mtok": 0.5, "valid_to": "2027-01-01"}]},
            {"name": "both"},
        ],
        assignments=[{"device_uuid": "GPU-silent", "model": "silent", "start_at": "2026-01-01T00:00:00Z"}],
    )
    planted.run()
    assert planted.failed_tests("words_of_the_book_are_known", "dates_have_one_row_per_key") == set()
    return planted


def one(book: Book, columns: str, rack: str, basis: str = "allocation", site: str | None = None) -> tuple:
    """The row of a rack and basis."""
    (row,) = book.query(
        f"select {columns} from marts.rack_economics_daily where rack = ? and basis = ? and date = ?"
        " and site = coalesce(?, site)",
        [rack, basis, DAY, site],
    )
    return row


def test_a_rack_that_sells_by_contract_earns_its_price_less_its_cost(book: Book) -> None:
    """86.4 Mtok at 1 USD, the contract of that date; the list, the contract before and the one after do not count."""
    revenue, basis, cost, cash, margin = one(
        book,
        "revenue_usd::double, revenue_basis, cost_usd::double, cash_cost_usd::double, margin_usd::double",
        "r1",
    )
    assert (revenue, basis) == (pytest.approx(86.4, rel=EXACT), "contract")
    assert (cost, cash) == (pytest.approx(49.2, rel=EXACT), pytest.approx(49.2, rel=EXACT))
    assert margin == pytest.approx(37.2, rel=EXACT)


def test_the_margin_is_per_gpu_hour_and_per_mw(book: Book) -> None:
    """37.20 USD over 24 GPU-hours, and over 0.0005 MW at the facility."""
    per_hour, per_mw, tokens, ratio = one(
        book, "margin_usd_per_gpu_hour, margin_usd_per_mw, tokens_per_second_per_mw, gross_margin_ratio", "r1"
    )
    assert per_hour == pytest.approx(1.55, rel=EXACT)
    assert per_mw == pytest.approx(74_400, rel=KWH_ROUNDED)
    assert tokens == pytest.approx(1_000 / 0.0005, rel=KWH_ROUNDED)
    assert ratio == pytest.approx(37.2 / 86.4, rel=EXACT)


def test_revenue_is_cost_where_the_fixed_cost_is_earned(book: Book) -> None:
    """At the capacity, the highest load seen. 48 USD do not depend on tokens, 1.20 do: 48 / (86.40 − 1.20)."""
    sold, break_even = one(book, "sold_utilisation_ratio, break_even_sold_ratio", "r1")
    assert sold == pytest.approx(1, rel=1e-3)
    assert break_even == pytest.approx(0.56338 * sold, rel=1e-4)


def test_what_is_owned_is_paid_back_from_its_cash_margin(book: Book) -> None:
    """Two GPUs of 33,000 USD, one of them free at 100 W: 1.20 + 0.30 USD of cash a day against 43.2 Mtok at 2 USD.

    An annuity of 8 % over 4 years is 0.30192 of 30,000 USD a year, and the 3,000 USD that are left pay 240 USD of
    interest; a twelfth of it over the 31 days of October."""
    revenue, basis, cash, margin, capex, years, why, sold = one(
        book,
        "revenue_usd::double, revenue_basis, cash_cost_usd::double, margin_usd::double, capex_usd::double,"
        " payback_years, payback_basis, sold_utilisation_ratio",
        "r2",
        "fully_loaded",
    )
    assert (revenue, basis) == (pytest.approx(86.4, rel=EXACT), "list")
    assert cash == pytest.approx(1.5, rel=KWH_ROUNDED)
    assert margin == pytest.approx(86.4 - 1.5 - 2 * (0.30192 * 30_000 + 240) / 12 / 31, abs=1e-3)
    assert capex == pytest.approx(66_000, rel=EXACT)
    assert years == pytest.approx(66_000 / (84.9 * 365), rel=KWH_ROUNDED)
    assert why == "owned"
    assert sold == pytest.approx(0.5, rel=1e-3)  # the free board sells nothing
    # On the basis allocation the free board is in no model's cost: it is in the remainder.
    ((remainder,),) = book.query(
        "select cost_usd::double from marts.rack_economics_daily where site = 'east' and basis = 'allocation'"
        " and rack = '__remainder__'"
    )
    assert remainder == pytest.approx(0.3 + (0.30192 * 30_000 + 240) / 12 / 31, abs=1e-3)
    # The rented twin has nothing to pay back.
    assert one(book, "capex_usd, payback_years, payback_basis", "r1") == (None, None, "rented")


def test_racks_of_one_model_have_their_own_tokens_time_and_energy(book: Book) -> None:
    """300 and 100 tokens/s at 400 and 200 W. Without a price there is no revenue and no margin, and the reason."""
    found = [one(book, "tokens::double, cost_usd::double, facility_energy_kwh::double", rack) for rack in ("r3", "r4")]
    assert found == [
        (pytest.approx(25.92e6, rel=EXACT), pytest.approx(49.2, rel=EXACT), pytest.approx(12, rel=KWH_ROUNDED)),
        (pytest.approx(8.64e6, rel=EXACT), pytest.approx(48.6, rel=EXACT), pytest.approx(6, rel=KWH_ROUNDED)),
    ]
    for rack in ("r3", "r4"):
        assert one(
            book, "revenue_usd, revenue_basis, is_revenue_complete, margin_usd, break_even_sold_ratio", rack
        ) == (None, "no_price", False, None, None)


def test_a_model_without_token_telemetry_leaves_the_revenue_unknown_and_its_cost_known(book: Book) -> None:
    found = one(book, "tokens, revenue_usd, revenue_basis, cost_usd::double, margin_usd, sold_utilisation_ratio", "r5")
    assert found == (None, None, "tokens_not_reported", pytest.approx(49.2, rel=EXACT), None, None)


def test_a_node_without_a_rack_is_a_row_of_its_own(book: Book) -> None:
    """86.4 Mtok at 0.50 USD against 49.20 USD: a loss, and no utilisation at which it ends below 1."""
    revenue, margin, break_even = one(
        book, "revenue_usd::double, margin_usd::double, break_even_sold_ratio", "__unknown__"
    )
    assert (revenue, margin) == (pytest.approx(43.2, rel=EXACT), pytest.approx(-6.0, rel=KWH_ROUNDED))
    assert break_even is None


def test_racks_and_what_is_in_none_are_the_cost_of_the_fleet(book: Book) -> None:
    found = book.query(
        "select basis, site, sum(cost_usd)::double from marts.rack_economics_daily group by all order by all"
    )
    booked = book.query("select basis, site, sum(cost_usd)::double from marts.cost_daily group by all order by all")
    assert [row[:2] for row in found] == [row[:2] for row in booked]
    assert [row[2] for row in found] == pytest.approx([row[2] for row in booked], abs=1e-6)


def test_racks_have_the_tokens_energy_and_time_of_the_models(book: Book) -> None:
    ((racks, models),) = book.query(
        """
        select (select (sum(gpu_seconds), sum(energy_joules), sum(output_tokens)) from marts.rack_usage_daily),
            (select (sum(gpu_seconds), sum(energy_joules), sum(output_tokens)) from marts.model_daily)
        """
    )
    assert list(racks) == list(models)
