"""A tenant's statement as one page to print: no script, no picture from elsewhere, nothing of what it cost within.

Add here how a statement looks. Keep out its figures (`pipelines.receipts.tenant_statement`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from pipelines.receipts.tenant_statement import Statement
from pipelines.report.markup import MONEY, NAME, RATIO, cell, number, text

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_TITLES = {"open": "provisional: the month is not closed", "closed": "closed", "adjusted": "closed, and adjusted since"}
# Heading, column and digits of the figures of a model.
_USED = (
    ("requests", "requests", 0),
    ("input tokens, million", "input_tokens", 3),
    ("of them cached, million", "cached_input_tokens", 3),
    ("output tokens, million", "output_tokens", 3),
    ("electricity, kWh", "facility_energy_kwh", 2),
    ("CO₂e by location, kg", "location_kgco2e", 3),
    ("CO₂e by market, kg", "market_kgco2e", 3),
    ("at contract prices, USD", "revenue_usd", MONEY),
)
_MILLION = 1e6
_INTERNAL = (("cost within, USD", "known_cost_usd", MONEY), ("margin, USD", "margin_usd", MONEY))


def statement_page(statement: Statement) -> str:
    """The statement as HTML, in one file."""
    month = f"{statement.month:%B %Y}"
    title = f"{month}: {statement.tenant}"
    css = (Path(__file__).parent / "statement.css").read_text(encoding="utf-8")
    notice = (
        '<p class="synthetic">Synthetic telemetry: nothing here was measured.</p>' if statement.is_synthetic else ""
    )
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            '<meta name="referrer" content="no-referrer"><link rel="icon" href="data:,">',
            f"<title>{text(title)}</title><style>{css}</style></head><body>",
            f"<header><p>Statement of use</p><h1><bdi>{text(statement.tenant)}</bdi></h1>",
            f"<p>{month}, {_TITLES[statement.status]}{_part_of(statement)}</p>{notice}</header><main>",
            f'<ul class="tiles">{"".join(_tiles(statement))}</ul>',
            _table(statement),
            "<h2>How this was measured</h2><ul>",
            *(f"<li>{line}</li>" for line in _measured(statement)),
            "</ul></main>",
            f"<footer>Fleet <bdi>{text(statement.fleet)}</bdi>, publication {text(statement.publication_id)}, tenant"
            f" {text(statement.tenant_key)}. Made by Wattledger.</footer></body></html>\n",
        ]
    )


def _part_of(statement: Statement) -> str:
    ratio = statement.booked_ratio
    return "" if ratio is None or ratio > 0.9995 else f"; {100 * ratio:.1f}&nbsp;% of it are booked"


def _tiles(statement: Statement) -> Iterator[str]:
    whole = statement.whole
    for what, value, unit, more in (
        ("Output tokens", number(whole["output_tokens"], 0), "", f"in {number(whole['requests'], 0)} requests"),
        ("Electricity", number(whole["facility_energy_kwh"], 2), "kWh", _between(statement, "facility_energy_kwh", 2)),
        ("CO₂e by location", number(whole["location_kgco2e"], 3), "kg", _between(statement, "location_kgco2e", 3)),
        ("CO₂e by market", number(whole["market_kgco2e"], 3), "kg", "with the contracts of the site, if any"),
    ):
        known = f"&nbsp;{unit}" if unit and "unknown" not in value else ""
        yield f'<li><span class="what">{what}</span><b>{value}{known}</b><span class="more">{more}</span></li>'
    if whole["revenue_usd"] is not None:
        paid = f"{whole['revenue_usd']:,.2f}&nbsp;USD"
        yield f'<li><span class="what">At contract prices</span><b>{paid}</b><span class="more">without tax</span></li>'


def _between(statement: Statement, name: str, digits: int) -> str:
    low, high = statement.whole[f"{name}_low"], statement.whole[f"{name}_high"]
    return "interval not known" if low is None or high is None else f"{number(low, digits)} to {number(high, digits)}"


def _table(statement: Statement) -> str:
    columns = [*_USED, *(_INTERNAL if statement.has_internal else ())]
    if statement.whole["revenue_usd"] is None and not any(one["revenue_usd"] for one in statement.models.values()):
        columns = [one for one in columns if one[1] != "revenue_usd"]
    heads = "".join(f'<th scope="col">{heading}</th>' for heading, *_ in columns)
    lines = [
        f'<tr><th scope="row">{cell(model, NAME)}</th>'
        + "".join(_cell(figures, name, digits) for _, name, digits in columns)
        + "</tr>"
        for model, figures in statement.models.items()
    ]
    sums = "".join(_cell(statement.whole, name, digits) for _, name, digits in columns)
    return (
        '<div class="models"><table><caption>By model</caption>'
        f'<thead><tr><th scope="col">model</th>{heads}</tr></thead>'
        f'<tbody>{"".join(lines)}</tbody><tfoot><tr><th scope="row">total</th>{sums}</tr></tfoot></table></div>'
    )


def _cell(figures: Mapping[str, float | None], name: str, digits: int) -> str:
    value = figures[name]
    if value is not None and name.endswith("_tokens"):
        value /= _MILLION
    return f"<td>{cell(value, digits)}</td>"


def _measured(statement: Statement) -> Iterator[str]:
    metered = statement.metered_ratio
    yield (
        "Tokens are those that the inference engines counted, shared by the log of requests; where the log has fewer,"
        " the rest is on no statement."
    )
    share = "an unknown part" if metered is None else cell(metered, RATIO)
    yield (
        f"Electricity is your part of what the models drew in each hour, idle time included, with hosts, cooling and"
        f" overhead: {share} of it was metered, the rest follows from what the operator stated (PUE, hosts)."
    )
    yield (
        "CO₂e by location: each hour's electricity times the grid's intensity there. By market: with the operator's"
        " contracts and certificates, the rest at the residual mix, or at the grid's average where none is known (GHG"
        " Protocol, Scope 2, both methods). Manufacture is not in it."
    )
    if statement.interval_level is not None:
        yield (
            f"The intervals are of {100 * statement.interval_level:.0f}&nbsp;%: the error of meters, of what was stated"
            " and of the grid's factors. Sharing by tokens is a rule and has no error of its own."
        )
    for model, doubt in statement.in_doubt.items():
        yield f"Figures of <bdi>{text(model)}</bdi> are in doubt by a hundredth or more: {text(str(doubt))}."
    yield "It is an allocation, not a measurement of single answers, and no auditor has looked at it."
