"""How sure a headline figure is, as a line of text: its interval, and which sources of error make it so wide.

Add here how an interval is written. Keep out how it is computed (dbt_project/models/uncertainty).
"""

from __future__ import annotations

import duckdb

from pipelines.named_figures.choices import NAMES_OF_MARTS, Choice
from pipelines.named_figures.dictionary import HeadlineFigure
from pipelines.named_figures.trees import DIGITS
from pipelines.warehouse.database import literal

COMPUTED = "figure_intervals"  # of the dictionary: the table has it
SOURCES = {
    "meters": "meters", "hosts": "hosts without a meter", "pue": "stated PUE", "grid_factors": "grid factors",
    "idle_floors": "idle floors", "shares": "shared accelerators", "gaps": "time without a meter",
    "sampling": "sampling",
}  # fmt: skip
LEAST_RATIO = 0.001  # of the value: less is not worth a word
ALL = "__all__"


def line(connection: duckdb.DuckDBPyConnection, figure: HeadlineFigure, choice: Choice) -> str:
    """The interval of a figure of `choice`, or why there is none; of joules one per scope of their meters."""
    if figure.interval != COMPUTED:
        return figure.interval
    if choice.team is not None:
        return "none is computed of one team: leave --team out"
    models = [ALL] if choice.model is None else list(NAMES_OF_MARTS.get(choice.model, (choice.model,)))
    # Half the interval that a source alone would give, as a part of the value; of a sum, what a gap at most adds to it.
    added = "0" if figure.unit == "ratio" else "gaps_uncertainty"
    half = f"(value_high - value - {added}) / nullif(standard_uncertainty, 0) / nullif(value, 0)"
    ratios = ", ".join(
        f"{added} / nullif(value, 0)" if source == "gaps" and added != "0" else f"{source}_uncertainty * {half}"
        for source in SOURCES
    )
    try:
        found = connection.execute(
            f"select meter_scope, value_low, value_high, interval_basis, metered_ratio, {ratios}"
            f" from marts.figure_intervals where month = date '{choice.month}' and figure = {literal(figure.name)}"
            f" and site = {literal(choice.site or ALL)} and model in ({', '.join(map(literal, models))})"
            " qualify row_number() over (partition by meter_scope order by value desc) = 1 order by meter_scope"
        ).fetchall()
    except duckdb.CatalogException:  # a publication of an older version
        found = []
    if not found:
        return "not known: the month was booked without the evidence of its energy; book it again"
    if len(found) == 1:
        return _written(figure, *found[0][1:])
    return "; ".join(f"metered by {scope}: {_written(figure, *rest)}" for scope, *rest in found)


def _written(
    figure: HeadlineFigure,
    low: float | None,
    high: float,
    basis: str,
    metered_ratio: float | None,
    *ratios: float | None,
) -> str:
    if low is None:
        return "not known: dates of the month were booked without the evidence of their energy; book them again"
    if basis == "exact":
        return "exact"
    digits = DIGITS.get(figure.unit, 4)
    unit = "" if figure.unit == "ratio" else f" {figure.unit}"
    parts = sorted(zip(ratios, SOURCES.values(), strict=True), key=lambda part: -(part[0] or 0))
    signs = {SOURCES["gaps"]: "±" if figure.unit == "ratio" else "up to +"}
    wide = [
        f"{name} {signs.get(name, '±')} {100 * ratio:.1f} %" for ratio, name in parts if ratio and ratio > LEAST_RATIO
    ]
    share = "" if metered_ratio is None else f"; {100 * metered_ratio:.1f} % of the electricity is metered"
    return f"{low:,.{digits}f} to {high:,.{digits}f}{unit} (95 %): {', '.join(wide) or 'sampling'}{share}"
