"""What a book of worlds has beside what is true of them: a sentence for each figure that is wrong.

Add here a figure that readers use. Keep out what is true (`worlds`) and what was seen (`sightings`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.books import Book
from tests.drawn.cells import Cell

# A gauge read once a minute is off by up to half a minute at each edge of its work.
TOLERANCE_RATIO = 0.02


def wrong_figures(book: Book, cells: Sequence[Cell]) -> Iterator[str]:
    """Joules, tokens, capacity cost and J/token of each model of each cell, where they are not the truth's."""
    rows = book.query(
        "select model, sum(energy_joules)::double, sum(output_tokens)::double, sum(input_tokens)::double,"
        " sum(capacity_cost_usd)::double, (sum(matched_joules) / nullif(sum(matched_output_tokens), 0))::double"
        " from marts.model_daily group by model"
    )
    booked = {model: figures for model, *figures in rows}
    names = ("joules", "output tokens", "input tokens", "USD of capacity", "J per output token")
    for cell in cells:
        for model, truth in cell.world.truths().items():
            true = (
                truth.joules,
                truth.output_tokens,
                truth.prompt_tokens,
                truth.gpu_hours_usd,
                truth.joules_per_output_token if truth.output_tokens else None,
            )
            for name, is_true, found in zip(names, true, booked.get(model, [None] * len(names)), strict=True):
                if not _is_near(found, is_true):
                    yield f"{cell}: {model} has {found} {name}, expected {is_true}"


def _is_near(found: float | None, true: float | None) -> bool:
    if not found or not true:
        return not found and not true
    return abs(found - true) <= TOLERANCE_RATIO * abs(true)
