"""A headline figure as a tree: its parts, prices, meters and series, each with its rule and where it was stated.

The amounts are sums of published columns, and the branches of an amount add up to it. Add here what a branch opens.
Keep out which figures there are (dbt_project/figures.yml) and how a tree is printed (`trees`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import duckdb

from pipelines.fleet.fleet_file import Fleet
from pipelines.named_figures import fleet_lines, trees
from pipelines.named_figures.choices import Choice
from pipelines.named_figures.dictionary import HeadlineFigure
from pipelines.named_figures.trees import Amount, Node
from pipelines.warehouse import statements
from pipelines.warehouse.database import literal
from pipelines.warehouse.refusals import QuestionError

Row = Mapping[str, Any]
# Where joules of boards and of whole nodes are in one table: they are never added.
_SCOPED = {"energy_joules", "idle_energy_ratio", "joules_per_output_token", "joules_per_total_token"}

# How the energy of hosts is known. {:.2f}: over that of their accelerators.
HOSTS = {
    "measured": "the meter of the node less its accelerators",
    "measured_mean": "the node's mean of the date, where its meter had an outage",
    "stated_watts": "nodes[].host_watts of the fleet file",
    "assumed_watts": "{:.2f} × the accelerators, assumed by their limits: nodes[].host_watts or a meter replaces it",
    "assumed_ratio": "{:.2f} × the accelerators, a published share: nodes[].host_watts or a meter replaces it",
}


@dataclass(frozen=True)
class _Asked:
    """What is asked, and of whom."""

    connection: duckdb.DuckDBPyConnection
    fleet: Fleet
    choice: Choice
    scope: str | None = None
    has_meters: bool = True

    def rows(self, query: str) -> list[Row]:
        result = self.connection.execute(query)
        names = [column[0] for column in result.description or ()]
        return [dict(zip(names, row, strict=True)) for row in result.fetchall()]

    def read(self, name: str, **texts: str) -> list[Row]:
        """The rows of sql/<name>.sql, with conditions in the place of its names in braces."""
        return self.rows(statements.read(__file__, name).format(**texts))

    def condition(self, table: str) -> str:
        of_scope = f" and meter_scope = {literal(self.scope)}" if self.scope and table.startswith("marts.model") else ""
        return self.choice.condition(table) + of_scope

    def in_ledger(self, table: str) -> str:
        """The condition on rows of a ledger, whose intervals are of the month by their site's clock."""
        zones = " ".join(f"when {literal(site.name)} then {literal(site.time_zone)}" for site in self.fleet.sites)
        zone = f"case site {zones} else 'UTC' end" if zones else "'UTC'"
        of_month = f"date_trunc('month', interval_start_at at time zone {zone}) = date '{self.choice.month}'"
        of_scope = f" and meter_scope = {literal(self.scope)}" if self.scope else ""
        # A site's month begins and ends within a day of UTC's: other dates are not read.
        near = f"date between date '{self.choice.month}' - 1 and last_day(date '{self.choice.month}') + 1"
        return f"{near} and {of_month} and {self.choice.condition(table, has_month=False)}{of_scope}"


def explained(
    connection: duckdb.DuckDBPyConnection,
    fleet: Fleet,
    figure: HeadlineFigure,
    choice: Choice,
    *,
    has_meters: bool = True,
) -> list[Node]:
    """The figure as a tree; as several where joules of boards and of whole nodes would have to be added.

    Without meters it ends above them: those of a month are a scan of the month's intervals. QuestionError where the
    publication has no such row.
    """
    asked = _Asked(connection, fleet, choice, has_meters=has_meters)
    scopes: Sequence[str | None] = (None,)
    if figure.name in _SCOPED:
        found = asked.rows(
            f"select distinct meter_scope from {figure.table} where {asked.condition(figure.table)}"
            " and energy_joules is not null order by all"
        )
        scopes = [row["meter_scope"] for row in found] or (None,)
    return [_explained(replace(asked, scope=scope), figure) for scope in scopes]


def query_of(figure: HeadlineFigure, choice: Choice) -> str:
    """The query that gives the figure."""
    condition = f"{choice.condition(figure.table)}{_only(figure)}"
    return f"select {_sql(figure)} as {figure.name} from {figure.table} where {condition}"


def _only(figure: HeadlineFigure) -> str:
    return f" and {figure.only_with} > 0" if figure.only_with else ""


def _sql(figure: HeadlineFigure) -> str:
    if figure.denominator is None:
        return f"sum({figure.numerator})"
    factor = f" * {figure.factor:.0f}" if figure.factor != 1 else ""
    return f"sum({figure.numerator})::double / nullif(sum({figure.denominator})::double, 0){factor}"


def _explained(asked: _Asked, figure: HeadlineFigure) -> Node:
    condition = f"{asked.condition(figure.table)}{_only(figure)}"
    (found,) = asked.rows(
        f"select count(*) as rows, {_sql(figure)} as amount, sum({figure.numerator}) as above,"
        f" sum({figure.denominator or 'null'}) as below from {figure.table} where {condition}"
    )
    if not found["rows"]:
        raise QuestionError(
            f'{figure.table} has no row of {asked.choice}: `sql "from {figure.table}"` shows those it has'
        )
    name = f"{figure.name} of {asked.choice}" + (f", metered by {asked.scope}" if asked.scope else "")
    if figure.denominator is None:
        children = [node for branch in figure.branches for node in BRANCHES[branch](asked, figure)]
        return Node(name, found["amount"], figure.unit, figure.title, children)
    above, below = _terms(figure)
    # What is not known has no parts: of tokens, the output where the input is not reported.
    branches = [
        () if found[side] is None else tuple(BRANCHES[branch](asked, figure))
        for side, branch in zip(("above", "below"), figure.branches, strict=False)
    ]
    terms = (
        Node(above[0], found["above"], above[1], "above the line", branches[0] if branches else ()),
        Node(below[0], found["below"], below[1], "below the line", branches[1] if len(branches) > 1 else ()),
    )
    return Node(name, found["amount"], figure.unit, figure.title, terms=terms)


def _terms(figure: HeadlineFigure) -> tuple[tuple[str, str], tuple[str, str]]:
    """Name and unit of what is above and below the line."""

    def unit(column: str) -> str:
        ends = {"_usd": "USD", "_joules": "J", "_tokens": "tokens", "_gco2e": "g", "_seconds": "s", "_hours": "h"}
        return next((unit for end, unit in ends.items() if column.endswith(end)), "")

    return (figure.numerator, unit(figure.numerator)), (str(figure.denominator), unit(str(figure.denominator)))


def _parts(asked: _Asked, figure: HeadlineFigure) -> Iterator[Node]:
    """The parts of the cost, each with its prices and its share of what no model held."""
    own = _priced(asked)
    for row in asked.rows(
        "select part, sum(known_cost_usd) as usd, sum(allocation_cost_usd) as own_usd from finance.cost"
        f" where {asked.condition('finance.cost')} group by part order by usd desc nulls last, part"
    ):
        children = own.get(row["part"], [])
        unpriced = _less(row["own_usd"], trees.total(children))
        if unpriced:
            children = [*children, Node("in no row of focus_cost_and_usage", unpriced, "USD")]
        share = _less(row["usd"], row["own_usd"])
        if share:
            word = "carried by the models" if share < 0 else "share of what no model held"
            children = [*children, Node(word, share, "USD", "by claimed accelerator-seconds of each hour")]
        yield Node(row["part"], row["usd"], "USD", "", children)


def _prices(asked: _Asked, figure: HeadlineFigure) -> Iterator[Node]:
    """The parts of the cost, each with its prices."""
    own = _priced(asked)
    for part in _by_part(asked, figure):
        yield replace(part, children=own.get(part.name, []))


def _priced(asked: _Asked) -> dict[str, list[Node]]:
    """Part -> its own cost by price: so much of a unit at so much."""
    found: dict[str, list[Node]] = {}
    for row in asked.read("prices", condition=asked.condition("marts.focus_cost_and_usage")):
        device_type, usd = row["device_type"], row["unit_price_usd"]
        line = fleet_lines.of_price(asked.fleet.path, row["part"], row["site"], device_type, float(usd))
        stated = "a mean of several prices" if row["is_blended"] else line
        name = f"{row['quantity']:,.3f} {row['unit']} × {float(usd):,.6g} USD" + (
            f" of {device_type}" if device_type else ""
        )
        found.setdefault(row["part"], []).append(Node(name, row["usd"], "USD", stated))
    return {part: list(trees.gathered(nodes, "USD")) for part, nodes in found.items()}


def _by_part(asked: _Asked, figure: HeadlineFigure) -> Iterator[Node]:
    """The parts of the cost."""
    for row in asked.rows(
        f"select part, sum({figure.numerator}) as usd from finance.cost where {asked.condition('finance.cost')}"
        " group by part having usd is not null order by usd desc, part"
    ):
        yield Node(row["part"], row["usd"], "USD")


def _charges(asked: _Asked, figure: HeadlineFigure) -> Iterator[Node]:
    """Of a closed month what it was closed with; of an open one what is known now, and its adjustments."""
    condition = asked.condition("finance.cost")
    (closed,) = asked.rows(
        "select max(closed_at) as closed_at, max(figures_hash) as figures_hash from finance.months"
        f" where month = date '{asked.choice.month}'"
    )
    if closed["closed_at"] is not None:
        note = f"closed on {closed['closed_at']:%Y-%m-%d}, digest {closed['figures_hash']}"
        yield from (replace(part, note=note) for part in _by_part(asked, figure))
        return
    (known,) = asked.rows(
        f"select sum(known_cost_usd) as usd, sum(adjustment_usd) as adjusted from finance.cost where {condition}"
    )
    yield Node("known_cost_usd", known["usd"], "USD", "as known now", tuple(_parts(asked, figure)))
    if known["adjusted"]:
        changes = asked.rows(
            "select month, reason, sum(adjustment_usd) as usd from published.adjustments"
            f" where booked_month = date '{asked.choice.month}'"
            f" and {asked.choice.condition('finance.cost', has_month=False)} group by all order by all"
        )
        children = [Node(f"{row['month']:%Y-%m}: {row['reason']}", row["usd"], "USD") for row in changes]
        yield Node("adjustments of closed months", known["adjusted"], "USD", "published.adjustments", children)


def _compute(asked: _Asked, figure: HeadlineFigure) -> Iterator[Node]:
    """Electricity by tariff and accelerator-hours by rate."""
    rows = asked.read("compute", condition=asked.condition("marts.cost_drivers_hourly"))
    for kind, part, name in (("kWh", "energy", "electricity"), ("GPU-hours", "capacity", "accelerators")):
        nodes = []
        for row in (row for row in rows if row["unit"] == kind and row["usd"] is not None):
            price = "at several prices" if row["price_usd"] is None else f"× {row['price_usd']:,.6g} USD"
            line = fleet_lines.of_price(asked.fleet.path, part, row["site"], row["device_type"], row["price_usd"])
            of = f" of {row['device_type']}" if row["device_type"] else ""
            note = ", ".join(filter(None, (row["source"], line)))
            nodes.append(Node(f"{row['quantity']:,.3f} {kind} {price}{of}", row["usd"], "USD", note))
        if nodes:  # none where the rate includes it
            yield Node(name, trees.total(nodes), "USD", "", trees.gathered(nodes, "USD"))


def _electricity(asked: _Asked, figure: HeadlineFigure) -> Iterator[Node]:
    """Accelerators, hosts, and what the PUE adds, of what has a PUE. An unplaced wall meter is in no total: what it
    measures is in the hosts of the boards beside it."""
    known = f"{asked.condition('marts.model_hourly')} and facility_energy_kwh is not null"
    hours = "(site, meter_scope, date_trunc('hour', interval_start_at)) in"
    has_pue = f"{hours} (select (site, meter_scope, hour_start_at) from marts.model_hourly where {known})"
    sites = asked.read("electricity", known=known, ledger=f"{asked.in_ledger('marts.energy_ledger')} and {has_pue}")
    devices, hosts, facility = (
        trees.total([Node("", row[column], "") for row in sites]) for column in ("device_joules", "host_joules", "kwh")
    )
    accelerators, hosts = _in_kwh(devices), _in_kwh(hosts)
    placed = f"unknown_reason is distinct from 'unplaced_meter' and {has_pue}"
    meters = [
        replace(node, amount=_in_kwh(node.amount), unit="kWh") for node in _metered(asked, "energy_joules", placed)
    ]
    yield Node("accelerators", accelerators, "kWh", "as their meters measured", meters)
    yield Node("hosts", hosts, "kWh", "CPU, memory, fans", tuple(_hosts(asked, placed)))
    notes = [
        f"{row['site']}: PUE {row['pue']:.4g}, {fleet_lines.of_site(asked.fleet.path, row['site'], 'pue', row['pue'])}"
        for row in sites
        if row["pue"] is not None
    ]
    over = _less(facility, trees.total([Node("", accelerators, "kWh"), Node("", hosts, "kWh")]))
    yield Node("cooling and other overhead", over, "kWh", "; ".join(note.rstrip(", ") for note in notes))


def _hosts(asked: _Asked, only: str) -> Iterator[Node]:
    """What hosts drew, by how it is known."""
    if not asked.has_meters:
        return
    for row in asked.rows(
        "select host_basis, sum(host_overhead_joules) as joules, sum(energy_joules) as board_joules"
        f" from marts.energy_ledger where {asked.in_ledger('marts.energy_ledger')} and host_overhead_joules > 0"
        f" and {only}"
        " group by host_basis order by joules desc, host_basis"
    ):
        basis, kwh = str(row["host_basis"]), _in_kwh(row["joules"])
        yield Node(basis.replace("_", " "), kwh, "kWh", HOSTS[basis].format(row["joules"] / row["board_joules"]))


def _joules_of(column: str, only: str = "true") -> Callable[[_Asked, HeadlineFigure], Iterator[Node]]:
    def nodes(asked: _Asked, figure: HeadlineFigure) -> Iterator[Node]:
        yield from _metered(asked, column, only)

    return nodes


def _metered(asked: _Asked, column: str, only: str = "true") -> tuple[Node, ...]:
    """The joules of the meters that drew most, with the series that they were booked from, and of all others."""
    if not asked.has_meters:
        return ()
    rows = asked.read("meters", column=column, condition=asked.in_ledger("marts.energy_ledger"), only=only)
    series: dict[str, list[str]] = {}
    meters = ", ".join(literal(row["meter"]) for row in rows[: trees.SHOWN])
    for row in asked.read("series", month=f"date '{asked.choice.month}'", meters=meters) if meters else ():
        shown = f"{row['metric']} of {row['source']}, series {row['series_id']}"
        series.setdefault(row["booked_for"], []).append(shown)
    nodes = [
        Node(
            f"{row['meter']} ({row['node'] or 'unknown node'})",
            row["joules"],
            "J",
            "; ".join([str(row["sources"]), *series.get(row["meter"], [])[:2]]),
        )
        for row in rows
    ]
    return trees.gathered(nodes, "J")


def _tokens(classes: str, only: str = "true") -> Callable[[_Asked, HeadlineFigure], Iterator[Node]]:
    def nodes(asked: _Asked, figure: HeadlineFigure) -> Iterator[Node]:
        rows = asked.read("tokens", classes=classes, condition=asked.in_ledger("marts.token_ledger"), only=only)
        found = [
            Node(f"{row['engine']}, {row['token_class']}", row["tokens"], "tokens", row["metrics"]) for row in rows
        ]
        yield from trees.gathered(found, "tokens")

    return nodes


def _grams(asked: _Asked, figure: HeadlineFigure) -> Iterator[Node]:
    for row in asked.read("grams", condition=asked.condition("marts.model_hourly")):
        kwh, intensity = (trees.shown(Node("", row[column], unit)) for column, unit in _INTENSITY)
        name = f"{kwh} × {intensity} in {row['zone'] or 'no zone'}"
        note = f"{row['carbon_basis'] or 'not known'}: {row['carbon_source'] or 'no intensity'}"
        yield Node(name, None if row["grams"] is None else Decimal(row["grams"]) / 1000, "kg", note)


_INTENSITY = (("kwh", "kWh"), ("gco2e_per_kwh", "g per kWh"))


def _in_kwh(joules: Amount) -> Amount:
    return None if joules is None else Decimal(joules) / 3_600_000


def _less(one: Amount, other: Amount) -> Amount:
    return None if one is None else Decimal(one) - Decimal(other or 0)


BRANCHES: dict[str, Callable[[_Asked, HeadlineFigure], Iterator[Node]]] = {
    "parts": _parts,
    "prices": _prices,
    "by_part": _by_part,
    "charges": _charges,
    "compute": _compute,
    "electricity": _electricity,
    "joules": _joules_of("energy_joules"),
    "idle_joules": _joules_of("idle_joules"),
    "matched_joules": _joules_of("energy_joules", "is_matched"),
    "output_tokens": _tokens("'output'"),
    "matched_output_tokens": _tokens("'output'", "is_matched"),
    "matched_total_tokens": _tokens("'input', 'output'", "is_matched"),
    "grams": _grams,
}
