"""The command `explain`: a headline figure of a month as a tree of what adds up to it.

Add here what the command prints. Keep out what a figure is made of (`pipelines.named_figures`).
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Mapping
from contextlib import closing
from datetime import date
from typing import NamedTuple

from collectors.samples import printable
from pipelines.fleet.fleet_file import Fleet
from pipelines.fleet.places import fleet_option
from pipelines.named_figures import dictionary, explanation, figures_in_doubt, intervals, trees
from pipelines.named_figures.choices import Choice
from pipelines.warehouse import database
from pipelines.warehouse.refusals import QuestionError, nothing_published


class Explained(NamedTuple):
    """A figure of a month, with the trees of what adds up to it; `in_doubt` has the models whose part is doubted."""

    figure: dictionary.HeadlineFigure
    query: str
    interval: str
    in_doubt: dict[str, figures_in_doubt.InDoubt]
    trees: list[trees.Node]

    def as_json(self) -> str:
        """For programs, with all digits."""
        return json.dumps(
            {
                "figure": self.figure.name,
                "query": self.query,
                "interval": self.interval,
                "in_doubt": {model: doubt.reasons for model, doubt in self.in_doubt.items()},
                "trees": [trees.as_json(root) for root in self.trees],
            }
        )


def explained(fleet: Fleet, name: str, month: date | None, of: Mapping[str, str | None]) -> Explained:
    """What a figure is of the month, or of the newest one; `of` may name a team, a model, a site. QuestionError where
    there is no such figure, month or row."""
    figure = dictionary.named(name)
    if not fleet.snapshot.exists():
        raise nothing_published(fleet.fleet, fleet.path)
    with closing(database.connect(fleet.snapshot, read_only=True)) as connection:
        if month is None:
            ((month,),) = connection.execute("select max(month) from marts.model_monthly").fetchall()
            if month is None:
                raise QuestionError("no month is published yet")
        choice = Choice(month, **of)
        found = explanation.explained(connection, fleet, figure, choice)
        interval = intervals.line(connection, figure, choice)
        of_models = f"(from marts.model_monthly where {choice.condition('marts.model_monthly')})"
        in_doubt = {
            model: doubt
            for model, doubt in figures_in_doubt.of_models(connection, of_models).items()
            if doubt.concerns(f"{figure.numerator} {figure.denominator}")
        }
    return Explained(figure, explanation.query_of(figure, choice), interval, in_doubt, found)


def explain(fleet: Fleet, options: Namespace) -> int:
    """Print the figure; returns the exit status. QuestionError as `explained` has it."""
    of = {"team": options.team, "model": options.model, "site": options.site}
    found = explained(fleet, options.figure, options.month, of)
    if options.json:
        print(found.as_json())
        return 0
    for root in found.trees:
        for line in trees.lines(root):
            print(printable(line))
        print()
    figure = found.figure
    print(f"  what it is  {figure.definition}")
    print(f"  interval    {found.interval}")
    if found.in_doubt:
        print(printable(f"  ?           {figures_in_doubt.note(found.in_doubt)}"))
    print(f"  rule        {figure.formula} of {figure.table}; boundary: {figure.boundary} (docs/figures.md)")
    print(f'  query       wattledger sql{fleet_option(fleet.path)} "{found.query}"')
    return 0
