"""Price lists of models into raw.model_prices: each file of the fleet file replaces what was held of it.

Add here what has to hold for every list. Keep out how a list is read (`collectors.records.price_lists`) and what is
compared with it (model_list_prices). What a GPU-hour costs is in `cost_rates`; a tariff is in its site.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from collectors.records.price_lists import PRICES, read_price_list
from collectors.samples import SourceError
from pipelines.fleet.money.price_files import PriceFile
from pipelines.warehouse import database

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

logger = logging.getLogger(__name__)


def land_prices(connection: duckdb.DuckDBPyConnection, files: tuple[PriceFile, ...]) -> list[str]:
    """Replace raw.model_prices by these files; one line per file that was refused or has rejects.

    What was held of a file that cannot be read stays.
    """
    troubles = []
    connection.execute("create or replace temp table lists_named (source varchar, valid_from date)")
    for file in files:
        connection.execute("insert into lists_named values (?, ?)", [file.source, file.valid_from]).fetchall()
        try:
            read = read_price_list(file.path, file.limits.bad_rows_ratio)
            if read.prices.num_rows == 0:
                raise SourceError(file.path, None, "holds no price")
        except SourceError as failure:
            troubles.append(f"{file.source}: refused: {failure}")
            continue
        if read.rejects.rows:
            troubles.append(f"{file.source}: {read.rejects}")
        _replace(connection, file, read.prices)
    connection.execute(
        "delete from raw.model_prices where (source, valid_from) not in (select (source, valid_from) from lists_named)"
    ).fetchall()
    for trouble in troubles:
        logger.warning("%s", trouble)
    return troubles


def _replace(connection: duckdb.DuckDBPyConnection, file: PriceFile, prices: pa.Table) -> None:
    held = [file.source, file.valid_from]
    with database.registered(connection, prices_read=prices), database.transaction(connection):
        connection.execute("delete from raw.model_prices where source = ? and valid_from = ?", held).fetchall()
        connection.execute(
            f"insert into raw.model_prices select model, provider, {', '.join(PRICES)}, ?, ?, ? from prices_read",
            [*held, file.as_of],
        ).fetchall()
