"""What a book of worlds has beside what is true of them: each figure is right, or a check names its row.

Wrong and unflagged is the defect; flagged without a fault is a false alarm. Add here a figure that readers use. Keep
out what is true (`worlds`), what was seen (`sightings`) and what the checks name (`flags`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.books import Book
from tests.drawn.cells import Cell
from tests.drawn.flags import flags
from tests.drawn.worlds import SPAN_SECONDS

# Of a gauge: it is read up to half a step beside each edge of its work.
TOLERANCE_RATIO = {"counter": 0.015, "gauge": 0.03}
# A ratio leaves out up to so many intervals at the ends of a holding.
UNMATCHED_INTERVALS = 2
MATCHED_RATIO = 0.9
FIGURES = ("joules", "output tokens", "input tokens", "USD of capacity", "J per output token")


@dataclass(frozen=True)
class Verdict:
    """What is wrong with a cell (figure -> a sentence), and which checks name it."""

    cell: Cell
    wrong: Mapping[str, str]
    checks: frozenset[str]

    @property
    def kind(self) -> str:
        """`right`, `flagged`, `wrong` (and unflagged), or `false alarm`."""
        sighting = self.cell.sighting
        if set(self.wrong) - sighting.hidden or (self.wrong and not self.checks):
            return "wrong"
        if self.checks and not (sighting.hidden or sighting.is_faulty):
            return "false alarm"
        return "flagged" if self.wrong else "right"

    def __str__(self) -> str:
        return f"{self.cell}: {self.kind}: {'; '.join((*self.wrong.values(), *sorted(self.checks)))}"


def verdicts(book: Book, cells: Sequence[Cell]) -> list[Verdict]:
    """The verdict of each cell, in their order."""
    of_models = {
        model: figures
        for model, *figures in book.query(
            "select model, sum(energy_joules)::double, sum(output_tokens)::double, sum(input_tokens)::double,"
            " sum(capacity_cost_usd)::double, (sum(matched_joules) / nullif(sum(matched_output_tokens), 0))::double,"
            " sum(matched_output_tokens)::double from marts.model_daily group by model"
        )
    }
    of_sites = dict(book.query("select site, sum(energy_joules)::double from marts.fleet_daily group by site"))
    checks = flags(book)
    return [
        Verdict(
            cell, dict(_wrong(cell, of_models, of_sites, book.fleet.grid_seconds)), frozenset(checks.get(cell.name, ()))
        )
        for cell in cells
    ]


def wrong_figures(book: Book, cells: Sequence[Cell]) -> list[str]:
    """A sentence for each cell that is wrong and unflagged, or flagged without a fault."""
    return [str(one) for one in verdicts(book, cells) if one.kind in ("wrong", "false alarm")]


def counted(found: Sequence[Verdict]) -> str:
    """How many cells are of each kind."""
    counts = Counter(one.kind for one in found)
    return ", ".join(f"{counts[kind]} {kind}" for kind in ("right", "flagged", "false alarm", "wrong"))


def _wrong(
    cell: Cell, of_models: Mapping[str, list], of_sites: Mapping[str, float], grid_seconds: int
) -> Iterator[tuple[str, str]]:
    """Figure, and what is wrong with it."""
    sighting, world = cell.sighting, cell.world
    tolerance = TOLERANCE_RATIO["counter" if "counter" in sighting.reads else "gauge"]
    # At each end of a holding, at a fall and after a dropped scrape up to a step is seen of neither side.
    steps = 2 + (sighting.reset_at is not None) + 2 * (sighting.dropped_ratio > 0) + 2 * bool(sighting.stalls_at)
    tolerance += steps * (sighting.stated_seconds or sighting.step_seconds) / SPAN_SECONDS
    known_until = sighting.known_until(world)
    known = world.truths(known_until)
    for model, truth in world.truths().items():
        lives = min(one.end - one.start for one in world.holdings if world.engines[one.engine].model == model)
        true = (
            truth.joules,
            truth.output_tokens,
            truth.prompt_tokens,
            truth.gpu_hours_usd,
            known[model].joules_per_output_token,
        )
        *figures, matched_tokens = of_models.get(model, [None] * (len(FIGURES) + 1))
        for name, is_true, found in zip(FIGURES, true, figures, strict=True):
            allowed = tolerance * SPAN_SECONDS / lives
            if name == "J per output token":
                allowed += UNMATCHED_INTERVALS * grid_seconds / lives
                # A ratio over fewer tokens than could be known: its row shows it (matched_output_tokens).
                if matched_tokens and matched_tokens < MATCHED_RATIO * known[model].output_tokens:
                    continue
            if not _is_near(found, is_true, allowed):
                yield name, f"{model} has {found} {name}, expected {is_true}"
    joules, found = world.joules(), of_sites.get(f"{cell.name}-site")
    if not _is_near(found, joules, tolerance):
        yield "joules", f"the site has {found} J, expected {joules} of its boards"


def _is_near(found: float | None, true: float | None, allowed: float) -> bool:
    if not found or not true:
        return not found and not true
    return abs(found - true) <= allowed * abs(true)
