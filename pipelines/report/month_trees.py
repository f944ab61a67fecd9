"""How the headline figures of the newest month add up: the trees that the command `explain` prints.

Add here which figures of the month have one. Keep out what a figure is made of: that is `pipelines.named_figures`.
"""

from __future__ import annotations

import duckdb

from pipelines.fleet.fleet_file import Fleet
from pipelines.named_figures import dictionary, explanation, trees
from pipelines.named_figures.choices import Choice
from pipelines.report.markup import opened, text
from pipelines.warehouse.refusals import QuestionError

# The tiles of the month that have a tree.
EXPLAINED = ("closed_cost_usd", "idle_cost_ratio", "facility_energy_kwh", "location_kgco2e")
ANCHOR = "adds-up-{}"


def html(connection: duckdb.DuckDBPyConnection, fleet: Fleet) -> str:
    """The trees of the newest month; empty where there is none."""
    ((month,),) = connection.execute("select max(month) from finance.months").fetchall()
    if month is None:
        return ""
    shown = []
    for name in EXPLAINED:
        try:
            # The month's meters would be a scan of its intervals in every run: the command has them.
            figure = dictionary.named(name)
            roots = explanation.explained(connection, fleet, figure, Choice(month), has_meters=False)
        except QuestionError:  # a month without this figure
            continue
        printed = "\n".join(text(line) for root in roots for line in trees.lines(root))
        command = f"wattledger explain {name} --month {month:%Y-%m}"
        of = f'id="{ANCHOR.format(name)}" tabindex="0" role="region" aria-label="How {name} adds up"'
        contents = f'<pre {of}><code>{printed}</code></pre><p class="boundary"><b>Command:</b> {text(command)}</p>'
        shown.append(opened(dictionary.named(name).title, contents))
    title = '<h3 id="adds-up-title">How the figures of the month add up</h3>'
    return f'<section id="adds-up" aria-labelledby="adds-up-title" class="screen">{title}{"".join(shown)}</section>'
