"""Every headline figure as a tree, on four weeks of the demo: its branches add up to it, down to prices and meters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import date
from decimal import Decimal
from pathlib import Path

import duckdb
import pytest

from pipelines.named_figures import dictionary, documentation, explanation, trees
from pipelines.named_figures.choices import Choice
from pipelines.named_figures.trees import Node
from pipelines.warehouse import database
from pipelines.warehouse.refusals import QuestionError
from tests.books import Book
from tests.ledger.attribution.test_unplaced_meters import UNPLACED
from tests.planted import ENERGY, OUTPUT, Series, board, pod, rising, vllm
from tests.shapes import Seen, Shape, shape

OCTOBER = date(2026, 10, 1)
CHOICES = [
    Choice(OCTOBER),
    Choice(date(2026, 9, 1)),
    Choice(OCTOBER, model="Qwen3.5-397B"),
    Choice(OCTOBER, team="platform"),
    Choice(OCTOBER, model="Free accelerators"),
    Choice(OCTOBER, site="west"),
]


# Types of boards: a rate that includes electricity, and no rate.
KINDS = ("leased", "unrated")


def of_kinds() -> Iterator[Series]:
    """A board of 400 W and an engine of each kind."""
    for kind in KINDS:
        yield ENERGY, {**board(f"GPU-x-{kind}", f"x-{kind}", **pod(f"x-{kind}")), "modelName": kind}, rising(400_000)
        yield OUTPUT, vllm(f"x-{kind}", f"x-{kind}"), rising(10)


EXPLAINED = shape(
    "explained",
    of_kinds,
    nodes=[{"name": f"x-{kind}", "site": "explained", "host_watts": 100} for kind in KINDS],
    device_types=[{"name": kind, "power_limit_watts": 700.0} for kind in KINDS],
    cost_rates=[
        {"device_type": "leased", "usd_per_gpu_hour": 2.6, "includes_energy": True, "source": "provider"},
    ],
)


@pytest.fixture(scope="module")
def book(four_weeks: tuple[Book, str]) -> Book:
    return four_weeks[0]


@pytest.fixture
def published(book: Book) -> Iterator[duckdb.DuckDBPyConnection]:
    with closing(database.connect(book.fleet.snapshot, read_only=True)) as connection:
        yield connection


def tree(book: Book, connection: duckdb.DuckDBPyConnection, name: str, choice: Choice) -> Node:
    (root,) = explanation.explained(connection, book.fleet, dictionary.named(name), choice)
    return root


def every(node: Node) -> Iterator[Node]:
    yield node
    for child in [*node.children, *node.terms]:
        yield from every(child)


@pytest.mark.parametrize("choice", CHOICES, ids=str)
@pytest.mark.parametrize("name", dictionary.figures())
def test_the_branches_of_every_amount_add_up_to_it(
    book: Book, published: duckdb.DuckDBPyConnection, name: str, choice: Choice
) -> None:
    try:
        root = tree(book, published, name, choice)
    except QuestionError as refusal:
        table = dictionary.figures()[name].table
        # Not of every table: what is of a site alone, or what no model holds has no tokens.
        assert str(refusal).startswith(f"{table} has no"), refusal
        return
    (stated,) = published.execute(explanation.query_of(dictionary.figures()[name], choice)).fetchone() or (None,)
    assert root.amount == stated
    adds_up(root)


def adds_up(root: Node) -> None:
    for node in every(root):
        assert "in no row of" not in node.name
        assert "(now" not in node.note  # the fleet file has the prices that were booked
        if node.children:
            # Schema finance rounds kilograms to a milligram once per row.
            least = Decimal("0.0001") if node.unit == "kg" else Decimal("0.000000001")
            assert Decimal(trees.total(node.children) or 0) == pytest.approx(
                Decimal(node.amount or 0), abs=least, rel=0
            ), node.name


@pytest.mark.parametrize("shape_of", [UNPLACED, EXPLAINED], ids=lambda one: one.site)
def test_they_add_up_where_meters_have_no_place_and_prices_include_others(
    shared_book: Callable[[Shape], Seen], shape_of: Shape
) -> None:
    seen, explained = shared_book(shape_of), set[str]()
    with seen.connection(read_only=True) as connection:
        for name in dictionary.figures():
            for site in shape_of.sites:
                try:
                    found = explanation.explained(
                        connection, seen.fleet, dictionary.named(name), Choice(OCTOBER, site=site)
                    )
                except QuestionError:
                    continue
                explained.add(name)
                for root in found:
                    adds_up(root)
    assert {"facility_energy_kwh", "energy_joules"} <= explained


def test_a_rate_that_includes_electricity_is_all_of_the_compute_cost(shared_book: Callable[[Shape], Seen]) -> None:
    """24 hours at 2.60 USD. Its electricity is paid with the rate; what has no rate is in no compute cost."""
    seen = shared_book(EXPLAINED)
    choice = Choice(OCTOBER, site="explained")
    with seen.connection(read_only=True) as connection:
        (root,) = explanation.explained(connection, seen.fleet, dictionary.named("compute_cost_usd"), choice)
    assert round(root.amount or 0, 6) == Decimal("62.4")
    assert [(child.name, child.amount) for child in root.children] == [("accelerators", root.amount)]


def test_electricity_is_of_what_has_a_pue_and_a_place(shared_book: Callable[[Shape], Seen]) -> None:
    """South's storage host draws 400 W, u5 200 W and its host, of 0.2 × 400 W + 0.23 × 200 W; 10.0.7.1 is in none."""
    seen = shared_book(UNPLACED)
    with seen.connection(read_only=True) as connection:
        (root,) = explanation.explained(
            connection,
            seen.fleet,
            dictionary.named("facility_energy_kwh"),
            Choice(OCTOBER, site="south"),
        )
    amounts = {child.name: float(child.amount or 0) for child in root.children}
    assert amounts == pytest.approx(
        {"accelerators": 0.6 * 24, "hosts": 0.126 * 24, "cooling and other overhead": 0.726 * 24 / 5}, abs=1e-3
    )


def test_a_price_that_the_fleet_file_has_no_more_is_named_beside_that_of_today(
    book: Book, published: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    """The month was booked at 0.45 USD for an A6000 and a PUE of 1.2, on lines that have 0.5 and 1.3 now."""
    changed = tmp_path / "demo.yaml"
    text = book.fleet.path.read_text(encoding="utf-8")
    assert (text.count("usd_per_gpu_hour: 0.45"), text.count("pue: 1.2")) == (1, 1)
    changed.write_text(
        text.replace("usd_per_gpu_hour: 0.45", "usd_per_gpu_hour: 0.5").replace("pue: 1.2", "pue: 1.3"), "utf-8"
    )
    now = Book(book.fleet.model_copy(update={"path": changed}))
    cost = tree(now, published, "known_cost_usd", Choice(OCTOBER))
    electricity = tree(now, published, "facility_energy_kwh", Choice(OCTOBER))
    notes = [node.note for node in [*every(cost), *every(electricity)] if "(now" in node.note]
    assert [note.partition(", line ")[2] for note in notes] == ["60 (now 0.5)", "18 (now 1.3)"]


def test_the_capacity_of_a_month_is_boards_times_hours_times_rates(
    book: Book, published: duckdb.DuckDBPyConnection
) -> None:
    """20 A100 and 6 A6000 for 665 hours of October, at 1.20 and 0.45 USD: the fleet file states both."""
    root = tree(book, published, "known_cost_usd", Choice(OCTOBER))
    capacity = next(part for part in root.children if part.name == "capacity")
    assert capacity.amount == Decimal("17755.5")
    assert [(node.name, node.amount, node.note.partition("fleets/")[2]) for node in capacity.children] == [
        ("13,300.000 GPU-Hours × 1.2 USD of a100-sxm4-80gb", Decimal(15960), "demo.yaml, line 61"),
        ("3,990.000 GPU-Hours × 0.45 USD of a6000", Decimal("1795.5"), "demo.yaml, line 60"),
    ]


def test_electricity_is_meters_hosts_and_what_the_pue_adds(book: Book, published: duckdb.DuckDBPyConnection) -> None:
    """Hosts: 210 W for each of two nodes, 620 W for each of two and 430 W for one are 2090 W, for 665 hours. PUE 1.2
    adds a fifth of accelerators and hosts."""
    root = tree(book, published, "facility_energy_kwh", Choice(OCTOBER))
    accelerators, hosts, over = root.children
    assert float(hosts.amount or 0) == pytest.approx(2.09 * 665, rel=0.001)
    assert float(over.amount or 0) == pytest.approx((float(accelerators.amount or 0) + float(hosts.amount or 0)) / 5)
    assert over.note.startswith("west: PUE 1.2, ")
    assert over.note.endswith("demo.yaml, line 18")
    assert len(accelerators.children) == trees.SHOWN
    assert accelerators.children[-1].name == "15 more"  # of 26 boards
    assert "DCGM_FI_DEV_POWER_USAGE of synthetic, series " in accelerators.children[0].note


def test_a_ratio_has_what_is_above_and_below_the_line(book: Book, published: duckdb.DuckDBPyConnection) -> None:
    root = tree(book, published, "joules_per_total_token", Choice(OCTOBER, model="gpt-oss-120b"))
    above, below = root.terms
    assert (above.unit, below.unit) == ("J", "tokens")
    assert root.amount == pytest.approx(float(above.amount or 0) / float(below.amount or 1))
    assert [child.name.rpartition(", ")[2] for child in below.children] == ["input", "input", "output", "output"]


def test_a_cost_that_no_price_explains_is_named(book: Book, tmp_path_factory: pytest.TempPathFactory) -> None:
    """10 USD of a row are taken out of focus_cost_and_usage: the tree does not hide that in a share."""
    copied = book.copy(tmp_path_factory.mktemp("broken"))
    with closing(database.connect(":memory:")) as connection:
        connection.execute(f"attach {database.literal(copied.fleet.snapshot.resolve())} as published (read_only)")
        for schema in ("marts", "finance", "published"):
            connection.execute(f"create schema {schema}")
        for table in ("finance.cost", "finance.months", "marts.model_monthly", "marts.focus_cost_and_usage"):
            connection.execute(f"create table {table} as from published.{table}")
        connection.execute(
            "update marts.focus_cost_and_usage set EffectiveCost = EffectiveCost - 10 where rowid = ("
            " select min(rowid) from marts.focus_cost_and_usage where x_Part = 'capacity'"
            " and billing_month = '2026-10-01' and x_Model = 'Qwen3.5-397B')"
        )
        root = tree(book, connection, "known_cost_usd", Choice(OCTOBER))
    assert [(node.name, node.amount) for node in every(root) if "in no row of" in node.name] == [
        ("in no row of focus_cost_and_usage", Decimal(10))
    ]


def test_what_cannot_be_asked_is_refused_in_one_line(book: Book, published: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(QuestionError, match=r"no headline figure is named 'idle_costs'.*idle_cost_usd"):
        dictionary.named("idle_costs")
    with pytest.raises(QuestionError, match=r"^finance.months has no team: leave --team out$"):
        tree(book, published, "forecast_usd", Choice(OCTOBER, team="platform"))
    with pytest.raises(QuestionError, match=r"finance.cost has no row of 2025-01: "):
        tree(book, published, "known_cost_usd", Choice(date(2025, 1, 1)))


def test_the_page_is_written_from_the_dictionary() -> None:
    held = documentation.PATH.read_text(encoding="utf-8")
    assert held == documentation.page(held), (
        "docs/figures.md is old: run python -m pipelines.named_figures.documentation"
    )
