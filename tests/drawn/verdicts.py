"""What a book of worlds has beside what is true of them: each figure is right, or a check names its row.

Wrong and unflagged is the defect; flagged without a fault is a false alarm. Add here a figure that readers use. Keep
out what is true (`worlds`), what was seen (`sightings`) and what the checks name (`flags`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.books import Book
from tests.drawn.cells import Cell
from tests.drawn.flags import CELL, LOWER_BOUND, flags
from tests.drawn.worlds import SPAN_SECONDS, World

# Of a gauge: it is read up to half a step beside each edge of its work.
TOLERANCE_RATIO = {"counter": 0.015, "gauge": 0.03}
# A ratio leaves out up to so many intervals at the ends of a holding.
UNMATCHED_INTERVALS = 2
# The parked watts of a board in slices are read from an hour without work; else they are a reference's of its type.
PARKED_SECONDS, REFERENCE_RATIO = 3600, 0.1
MATCHED_RATIO = 0.9
PART_TOLERANCE_RATIO = 0.01
# What a board draws without work is an estimate: its own parked minutes, else those of its kind, else a reference.
IDLE_TOLERANCE_RATIO = 0.15
# What a reason of doubt is about, whatever was drawn: packages of a host that was renamed cannot be placed.
IN_DOUBT = {"second_name": {"joules of the site"}}
FIGURES = ("joules", "idle joules", "output tokens", "input tokens", "USD of capacity", "J per output token")


@dataclass(frozen=True)
class Verdict:
    """What is wrong with a cell (figure -> a sentence), which checks name it, and its rows of days.

    `marks` are the reasons of doubt that its rows have, or that name its engines and boards.
    """

    cell: Cell
    wrong: Mapping[str, str]
    checks: frozenset[str]
    marks: frozenset[str] = frozenset()
    rows: int = 0
    marked_rows: int = 0

    @property
    def kind(self) -> str:
        """`right`, `flagged`, `wrong` (and unflagged), or `false alarm`."""
        sighting, wrong = self.cell.sighting, set(self.wrong)
        in_doubt = set().union(*(IN_DOUBT.get(mark, ()) for mark in self.marks))
        if (
            wrong - sighting.hidden - sighting.unknown - in_doubt
            or (wrong & sighting.hidden and not (self.checks or self.marks))
            or (wrong & sighting.unknown - sighting.hidden and not self.marks)
        ):
            return "wrong"
        if self.cell.is_harmless and not wrong & in_doubt and (self.marks or self.checks - {LOWER_BOUND}):
            return "false alarm"
        return "flagged" if wrong else "right"

    def __str__(self) -> str:
        return (
            f"{self.cell}: {self.kind}: {'; '.join((*self.wrong.values(), *sorted(self.checks)))}"
            f"; marks: {', '.join(sorted(self.marks)) or 'none'}"
        )


def verdicts(book: Book, cells: Sequence[Cell]) -> list[Verdict]:
    """The verdict of each cell, in their order."""
    of_models = {
        model: figures
        for model, *figures in book.query(
            "select model, sum(energy_joules)::double, sum(idle_joules)::double,"
            " sum(output_tokens)::double, sum(input_tokens)::double,"
            " sum(capacity_cost_usd)::double, (sum(matched_joules) / nullif(sum(matched_output_tokens), 0))::double,"
            " sum(matched_output_tokens)::double from marts.model_daily group by model"
        )
    }
    of_sites = dict(book.query("select site, sum(energy_joules)::double from marts.fleet_daily group by site"))
    of_tenants = {
        tenant: figures
        for tenant, *figures in book.query(
            "select coalesce(names.tenant, used.tenant), sum(output_tokens)::double, sum(energy_joules)::double,"
            " sum(logged_output_tokens)::double from marts.tenant_usage_daily as used"
            " left join raw.tenant_names as names on used.tenant = tenant_key group by 1"
        )
    }
    checks, (marks, rows) = flags(book), _marks(book)
    return [
        Verdict(
            cell,
            dict([*_wrong(cell, of_models, of_sites, book.fleet.grid_seconds), *_wrong_parts(cell, of_tenants)]),
            frozenset(checks.get(cell.name, ())),
            frozenset(marks.get(cell.name, ())),
            len(rows.get(cell.name, ())),
            sum(bool(reasons) for reasons in rows.get(cell.name, ())),
        )
        for cell in cells
    ]


def _marks(book: Book) -> tuple[dict[str, set[str]], dict[str, list[str]]]:
    """Cell -> the reasons for which it is in doubt, and `doubt_reasons` of each of its models' days."""
    found, rows = defaultdict[str, set[str]](set), defaultdict[str, list[str]](list)
    query = "select model, site, coalesce(doubt_reasons, '') from marts.model_daily"
    for model, site, reasons in book.query(query):
        for cell in CELL.findall(model):
            rows[cell].append(reasons)
        # Of a site the row of what is not allocated has what it has beside its models.
        for cell in CELL.findall(f"{model} {site}"):
            found[cell].update(filter(None, reasons.split(",")))
    for entity, reason in book.query("select entity, reason from marts.doubts"):
        for cell in CELL.findall(entity):
            found[cell].add(reason)
    return found, rows


def wrong_figures(book: Book, cells: Sequence[Cell]) -> list[str]:
    """A sentence for each cell that is wrong and unflagged, or flagged without a fault."""
    return [str(one) for one in verdicts(book, cells) if one.kind in ("wrong", "false alarm")]


def counted(found: Sequence[Verdict]) -> str:
    """How many cells are of each kind, and how many rows of harmless ones are marked."""
    counts = Counter(one.kind for one in found)
    kinds = ", ".join(f"{counts[kind]} {kind}" for kind in ("right", "flagged", "false alarm", "wrong"))
    harmless = [one for one in found if one.cell.is_harmless]
    rows, marked = sum(one.rows for one in harmless), sum(one.marked_rows for one in harmless)
    return f"{kinds}; {marked} of {rows} rows of days of harmless worlds are marked"


def _wrong(
    cell: Cell, of_models: Mapping[str, list], of_sites: Mapping[str, float], grid_seconds: int
) -> Iterator[tuple[str, str]]:
    """Figure, and what is wrong with it."""
    sighting, world = cell.sighting, cell.world
    tolerance = TOLERANCE_RATIO["counter" if "counter" in sighting.reads else "gauge"]
    step_seconds = sighting.stated_seconds or sighting.step_seconds
    # At each end of a holding, at a fall and after a dropped scrape up to a step is seen of neither side; an odd sample
    # beside a dropped one makes a gap that a gauge does not fill (coverage_ratio).
    steps = 2 + (sighting.reset_at is not None) + 2 * (sighting.dropped_ratio > 0) + 2 * bool(sighting.stalls_at)
    steps += sighting.unseen_steps
    steps += 4 * len(sighting.odd_samples) * (sighting.dropped_ratio > 0)
    tolerance += steps * step_seconds / SPAN_SECONDS
    # At each end of a process's life, too, its tokens are in no counter. Crashes are a fault.
    unseen_seconds = (
        (2 + sighting.unseen_steps + (len(sighting.restarts_at) == 1))
        * step_seconds
        * (1 + (sighting.dropped_ratio > 0))
    )
    known_until = sighting.known_until(world)
    parked_seconds = _parked_seconds(world, min(known_until.values()), grid_seconds)
    floor_ratio = REFERENCE_RATIO * (parked_seconds < PARKED_SECONDS)
    host_watts = sighting.host_watts(world)
    known = world.truths(known_until, host_watts)
    for model, truth in world.truths(host_watts=host_watts).items():
        held = [one for one in world.holdings if world.engines[one.engine].model == model]
        lives = min(one.end - one.start for one in held)
        known_lives = min(min(one.end, known_until[one.engine]) - one.start for one in held)
        busy = [
            sum(last - first for first, last, _ in engine.output.pieces)
            for engine in world.engines.values()
            if engine.model == model and engine.output.pieces
        ]
        unseen_ratio = unseen_seconds / min(busy, default=unseen_seconds)
        true = (
            truth.joules,
            truth.idle_joules,
            truth.output_tokens,
            truth.prompt_tokens,
            truth.gpu_hours_usd,
            known[model].joules_per_output_token,
        )
        *figures, matched_tokens = of_models.get(model, [None] * (len(FIGURES) + 1))
        for name, is_true, found in zip(FIGURES, true, figures, strict=True):
            allowed = tolerance * SPAN_SECONDS / lives
            if name in ("output tokens", "input tokens"):
                allowed = max(allowed, unseen_ratio)
            if name == "joules":
                allowed += floor_ratio
            if name == "idle joules":
                allowed += IDLE_TOLERANCE_RATIO
            if name == "J per output token":
                # How much of what could be known it is of, its row shows (matched_output_tokens).
                left_out = 1 - (matched_tokens or 0) / (known[model].output_tokens or 1)
                if found is not None and left_out > 1 - MATCHED_RATIO:
                    continue
                # Too short for a whole interval.
                if found is None and known_lives < (UNMATCHED_INTERVALS + 1) * grid_seconds:
                    continue
                allowed = (tolerance * SPAN_SECONDS + UNMATCHED_INTERVALS * grid_seconds) / max(known_lives, 1.0)
                allowed = max(allowed, unseen_ratio) + max(left_out, 0.0) + floor_ratio
            is_unknown = found is None and name in sighting.unknown
            if not is_unknown and not _is_near(found, is_true, allowed):
                yield name, f"{model} has {found} {name}, expected {is_true}"
    joules, found = world.joules() + sum(host_watts.values()) * SPAN_SECONDS, of_sites.get(f"{cell.name}-site")
    if not _is_near(found, joules, tolerance):
        yield "joules of the site", f"the site has {found} J, expected {joules} of its boards"


def _wrong_parts(cell: Cell, of_tenants: Mapping[str, list]) -> Iterator[tuple[str, str]]:
    """Figure, and which tenant has another part of the tokens and joules of all of them than its requests are."""
    of_cell = {tenant: of_tenants.get(f"{cell.name}-{tenant}", [0.0, 0.0, 0.0]) for tenant in cell.sighting.tenants}
    outputs = [engine.output for engine in cell.world.engines.values()]
    asked = sum(output.total() for output in outputs)
    # What a gateway counted before its first scrape is not known: of a dropped one up to two steps more.
    first_seconds = cell.sighting.phase_seconds + 2 * cell.sighting.step_seconds * (cell.sighting.dropped_ratio > 0)
    fastest = max((rate for output in outputs for *_, rate in output.pieces), default=0.0)
    allowed = PART_TOLERANCE_RATIO + (first_seconds * fastest / asked if asked and cell.sighting.gateway else 0.0)
    for tenant, part in cell.sighting.tenants.items():
        if not _is_near(of_cell[tenant][2], part * asked, allowed):
            yield "tokens asked for", f"{tenant} asked for {of_cell[tenant][2]} tokens, expected {part * asked}"
    for place, figure in enumerate(("tokens of tenants", "joules of tenants")):
        total = sum(figures[place] or 0.0 for figures in of_cell.values())
        for tenant, part in cell.sighting.tenants.items():
            found = of_cell[tenant][place]
            if total and not _is_near(found, part * total, PART_TOLERANCE_RATIO):
                yield figure, f"{tenant} has {found} of {total} {figure}, expected {part:.3f} of them"
            if (
                not total
                and figure not in cell.sighting.unknown
                and any(engine.output.pieces for engine in cell.world.engines.values())
            ):
                yield figure, f"there are no {figure}"


def _parked_seconds(world: World, until: float, grid_seconds: int) -> float:
    """The least, over the boards in slices, of the time in which nothing works before `until`, in whole intervals well
    between two works; without end where no board is in slices."""
    found = [float("inf")]
    for board in {one.board for one in world.holdings if one.slice_id is not None}:
        engines = [world.engines[one.engine] for one in world.holdings if one.board == board]
        busy = [(first, min(last, until)) for engine in engines for first, last in engine.busy() if first < until]
        working = sum(last - first for first, last in busy)
        found.append(until - working - 2 * grid_seconds * (len(busy) + 1))
    return min(found)


def _is_near(found: float | None, true: float | None, allowed: float) -> bool:
    if not found or not true:
        return not found and not true
    return abs(found - true) <= allowed * abs(true)
