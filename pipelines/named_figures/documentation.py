"""Writes docs/figures.md from the dictionary: `python -m pipelines.named_figures.documentation`.

Add here what the page states of every figure. Keep out single figures: dbt_project/figures.yml.
"""

from __future__ import annotations

from pathlib import Path

from pipelines.fleet.places import PROJECT
from pipelines.named_figures import intervals
from pipelines.named_figures.dictionary import HeadlineFigure, figures

PATH: Path = PROJECT / "docs" / "figures.md"
_FREE = {
    "shared": "their cost is shared among the models",
    "own row": "in a row of their own",
    "none": "not in it",
}
_INTERVALS = {intervals.COMPUTED: "95 %, in `marts.figure_intervals` ([uncertainty.md](uncertainty.md))"}
_TABLE = "| name | figure | unit |\n|---|---|---|"


def page(held: str) -> str:
    """The page, whose part before the table of figures is written by hand and stays."""
    head, _, _ = held.partition(_TABLE)
    found = figures().values()
    rows = [f"| [`{figure.name}`](#{figure.name}) | {figure.title} | {figure.unit} |" for figure in found]
    return "\n\n".join(["\n".join([f"{head}{_TABLE}", *rows]), *map(_section, found)]) + "\n"


def _section(figure: HeadlineFigure) -> str:
    only = f" Only rows with `{figure.only_with}` above 0." if figure.only_with else ""
    metric = (
        f" `mf query --metrics {figure.metric}` has it at other grains ([metrics.md](metrics.md))."
        if figure.metric
        else ""
    )
    return "\n".join(
        [
            f"## {figure.name}",
            "",
            f"**{figure.title}** ({figure.unit}). {figure.definition}",
            "",
            f"- **Formula:** `{figure.formula}` of `{figure.table}`.{only}{metric}",
            *([f"- **Headings:** {', '.join(figure.headings)}."] if figure.headings else []),
            f"- **Interval:** {_INTERVALS.get(figure.interval, figure.interval)}.",
            f"- **Boundary:** {figure.boundary}. **Free accelerators:** {_FREE[figure.free]}.",
        ]
    )


if __name__ == "__main__":
    PATH.write_text(page(PATH.read_text(encoding="utf-8")), encoding="utf-8")
