"""The command `explain`: a headline figure of a month as a tree of what adds up to it.

Add here what the command prints. Keep out what a figure is made of (`pipelines.named_figures`).
"""

from __future__ import annotations

import json
from argparse import Namespace
from contextlib import closing

from collectors.samples import printable
from pipelines.fleet.fleet_file import Fleet
from pipelines.fleet.places import fleet_option
from pipelines.named_figures import dictionary, explanation, figures_in_doubt, intervals, trees
from pipelines.named_figures.choices import Choice
from pipelines.warehouse import database
from pipelines.warehouse.refusals import QuestionError, nothing_published


def explain(fleet: Fleet, options: Namespace) -> int:
    """Print the figure; returns the exit status. QuestionError where there is no such figure, month or row."""
    figure = dictionary.named(options.figure)
    if not fleet.snapshot.exists():
        raise nothing_published(fleet.fleet, fleet.path)
    with closing(database.connect(fleet.snapshot, read_only=True)) as connection:
        month = options.month
        if month is None:
            ((month,),) = connection.execute("select max(month) from marts.model_monthly").fetchall()
            if month is None:
                raise QuestionError("no month is published yet")
        choice = Choice(month, options.team, options.model, options.site)
        found = explanation.explained(connection, fleet, figure, choice)
        interval = intervals.line(connection, figure, choice)
        of_models = f"(from marts.model_monthly where {choice.condition('marts.model_monthly')})"
        in_doubt = {
            model: doubt
            for model, doubt in figures_in_doubt.of_models(connection, of_models).items()
            if doubt.concerns(f"{figure.numerator} {figure.denominator}")
        }
    query = explanation.query_of(figure, choice)
    if options.json:
        print(
            json.dumps(
                {
                    "figure": figure.name,
                    "query": query,
                    "interval": interval,
                    "in_doubt": {model: doubt.reasons for model, doubt in in_doubt.items()},
                    "trees": [trees.as_json(root) for root in found],
                }
            )
        )
        return 0
    for root in found:
        for line in trees.lines(root):
            print(printable(line))
        print()
    print(f"  what it is  {figure.definition}")
    print(f"  interval    {interval}")
    if in_doubt:
        print(printable(f"  ?           {figures_in_doubt.note(in_doubt)}"))
    print(f"  rule        {figure.formula} of {figure.table}; boundary: {figure.boundary} (docs/figures.md)")
    print(f'  query       wattledger sql{fleet_option(fleet.path)} "{query}"')
    return 0
