"""Tenants that an older version wrote into the book by their names, in a month that was closed with them.

The fleet of `closed_months`: in October acme pays 60 of 100 USD, zeta 40.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import duckdb
import pytest

from pipelines.fleet.fleet_file import Fleet, load_fleet
from pipelines.publishing import month_closing, tenant_erasure
from pipelines.warehouse import database
from pipelines.warehouse.raw_tables import create_tables
from pipelines.warehouse.refusals import QuestionError
from pipelines.warehouse.tenants import tenant_names
from tests.publishing.closed_months import (
    LAST,
    OCTOBER,
    adjustments,
    close_october,
    copied,
    in_state,
    months,
    publish,
    read,
)

pytestmark = pytest.mark.rest
CHARGED = "select tenant, closed_cost_usd::double from finance.chargeback where month = '2026-10-01' order by tenant"


def use_names(connection: duckdb.DuckDBPyConnection) -> None:
    """A warehouse of before there were keys."""
    connection.execute("drop table raw.tenant_names")
    connection.execute(
        "insert into marts.tenant_daily by name"
        " select * replace ('acme' as team, 'acme' as tenant, 60 as fully_loaded_cost_usd)"
        " from marts.tenant_daily where date = ?",
        [LAST],
    )
    connection.execute(
        "update marts.tenant_daily set tenant = 'zeta', fully_loaded_cost_usd = 40"
        " where tenant = '__no_requests__' and date = ?",
        [LAST],
    )
    connection.execute(
        "insert into marts.tenant_usage_daily by name select date, tenant from marts.tenant_daily where date = ?",
        [LAST],
    )
    connection.execute("insert into raw.requests (tenant) values ('acme'), ('zeta'), (null)")
    create_tables(connection)


@pytest.fixture(scope="module")
def closed_with_names(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("names")
    fleet = in_state("booked", tmp_path_factory, folder)
    with closing(database.connect(fleet.warehouse)) as connection:
        use_names(connection)
    publish(fleet)
    close_october(fleet)
    return folder / "booked"


@pytest.fixture
def closed(closed_with_names: Path, tmp_path: Path) -> Fleet:
    return copied(closed_with_names, tmp_path / "closed")


def warehouse(fleet: Fleet, query: str) -> list[tuple]:
    with closing(database.connect(fleet.warehouse, read_only=True)) as connection:
        return connection.execute(query).fetchall()


def test_names_of_an_older_version_stay_the_keys_and_no_closed_month_moves(closed: Fleet) -> None:
    names = "select tenant_key, tenant from raw.tenant_names order by tenant"
    assert warehouse(closed, names) == [("acme", "acme"), ("zeta", "zeta")]
    assert read(closed, CHARGED) == [("acme", 60), ("zeta", 40)]
    assert adjustments(closed, "chargeback_adjustments") == []


def test_erasing_one_gives_it_a_key_in_the_book_the_closings_and_the_publication(closed: Fleet) -> None:
    started = tenant_erasure.begin(closed, "acme")
    assert started.key.startswith("tenant-")
    # Until the copies are made again, what only the publication has is not taken from it.
    with pytest.raises(QuestionError, match=f"the erasure of tenant {started.key} is not over: wattledger erase"):
        month_closing.undo(closed, OCTOBER)
    publish(closed)
    changes = {change.what: change for change in tenant_erasure.finish(closed, started)}
    assert list(changes) == [
        "FOCUS file 2026-10",
        "finance.chargeback 2026-10",
        "finance.chargeback 2026-11",
        "published.closed_chargebacks 2026-10, closing 1",
    ]
    same = {what for what, change in changes.items() if change.before == change.after}
    assert same == {"FOCUS file 2026-10", "finance.chargeback 2026-11"}
    assert read(closed, CHARGED) == [(started.key, 60), ("zeta", 40)]
    assert read(closed, "select tenant, marts_key from published.closed_chargebacks order by 1") == [
        (started.key, f"west | acme | {started.key} | gpt"),
        ("zeta", "west | platform | zeta | gpt"),
    ]
    # Nothing is adjusted, nothing is there twice, and the month's closing holds.
    publish(closed)
    assert adjustments(closed, "chargeback_adjustments") == []
    assert months(closed)["2026-10"] == ("closed", 100, 0, 100)
    assert warehouse(closed, "select count(*) from raw.requests where tenant = 'acme'") == [(0,)]
    assert warehouse(closed, "select tenant_key, tenant, former_key from raw.tenant_names order by tenant") == [
        ("zeta", "zeta", None),
        (started.key, None, None),
    ]
    assert month_closing.undo(closed, OCTOBER) == "2026-10 is open again"


def test_a_tenant_that_the_fleet_file_names_is_not_erased(closed: Fleet) -> None:
    path = closed.path
    path.write_text(
        path.read_text() + "models: [{name: gpt, contract_prices: [{tenant: acme, output_usd_per_mtok: 1}]}]\n"
    )
    stated = load_fleet(path, {"WATTLEDGER_DATA": str(path.parent / "data")})
    with pytest.raises(
        QuestionError, match=r"^models\[gpt\].contract_prices\[0\].tenant of .* names the tenant 'acme'"
    ):
        tenant_erasure.begin(stated, "acme")
    assert tenant_erasure.begin(stated, "zeta").key.startswith("tenant-")


def test_a_lost_warehouse_takes_the_names_from_the_publication(closed: Fleet) -> None:
    with closing(database.connect(closed.warehouse)) as connection:
        connection.execute("delete from raw.tenant_names where tenant = 'zeta'")
        tenant_names.take_back(connection, closed.snapshot)
        # It has names of its own, so it takes none.
        assert connection.execute("select tenant from raw.tenant_names").fetchall() == [("acme",)]
        connection.execute("delete from raw.tenant_names")
        tenant_names.take_back(connection, closed.snapshot)
        names = connection.execute("select tenant_key, tenant from raw.tenant_names order by tenant").fetchall()
    assert names == [("acme", "acme"), ("zeta", "zeta")]
