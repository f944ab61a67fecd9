"""Rules of the book, each broken in one place: what the drawn worlds must find.

`make drawn ARGS='--files 0 --cells 0 --mutations'` books the same worlds by each broken rule and lists the rules that
break without a wrong figure. Add here a rule that worlds reach, with the text that makes it wrong. Keep out how a
project is broken (`tests.books.broken_project`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.books import Book, broken_project
from tests.drawn.cells import plant
from tests.drawn.verdicts import Verdict, verdicts
from tests.models import model


@dataclass(frozen=True)
class Mutation:
    """A rule, and the one place of the dbt project where `right` makes it and `wrong` breaks it."""

    rule: str
    file: str
    right: str
    wrong: str


MUTATIONS = (
    Mutation(
        "a slice weighs by the greater of its compute and its memory",
        model("int_mig_shares"),
        "greatest(cast(mig_slices as double) / compute_slices, own_memory_slices / memory_slices) / sharers",
        "cast(mig_slices as double) / compute_slices / sharers",
    ),
    Mutation(
        "copies of a counter are one reading",
        model("int_scrape_copies"),
        "{{ int_div('member_series.kept_series_id', '2') }}",
        "{{ int_div('member_series.series_id', '2') }}",
    ),
    Mutation(
        "a prompt that was handed over counts once",
        model("int_handed_over_tokens"),
        "least({{ ratio('max(prefilled.tokens)', 'sum(received.tokens)') }}, 1) as handed_ratio",
        "0.0 as handed_ratio",
    ),
    Mutation(
        "a worker's pod belongs to its group's engine",
        model("int_pod_groups"),
        "    where pods_with_metrics.pod is null",
        "    where pods_with_metrics.pod is null and false",
    ),
    Mutation(
        "a gap is longer than three intervals",
        "macros/quality.sql",
        "{% macro gap_cap_intervals() %}3{% endmacro %}",
        "{% macro gap_cap_intervals() %}1{% endmacro %}",
    ),
    Mutation(
        "a meter whose node is not known stands apart",
        model("int_claimed_energy"),
        "coalesce(choices.is_unplaced, false) as is_unplaced",
        "false as is_unplaced",
    ),
    Mutation(
        "the exporter's own pod claims nothing, another's does",
        model("int_board_labels"),
        "exporter_pods.name is not null\n        ) as is_bare_exporters",
        "exporter_pods.name is not null or true\n        ) as is_bare_exporters",
    ),
    Mutation(
        "an interval is matched if each board of the engine has energy",
        model("int_matched_intervals"),
        "when unpowered.engine is not null or powered.least_covered_seconds * 1000000 < 0.9"
        " * coalesce(engine_intervals.covered_us, 0)",
        "when false",
    ),
    Mutation(
        "energy is matched only while tokens are known",
        model("int_matched_intervals"),
        "coalesce(engine_intervals.covered_us, 0) < 0.9 * powered.most_covered_seconds * 1000000",
        "false",
    ),
    Mutation(
        "tokens are shared over an engine's rows by their joules",
        model("int_token_shares"),
        "{{ ratio('sum(weight) over place_window', 'sum(weight) over engine_window') }} as share_to",
        "least(1, 2 * {{ ratio('sum(weight) over place_window', 'sum(weight) over engine_window') }}) as share_to",
    ),
    Mutation(
        "a claim ends where its engine serves another model",
        model("int_claims"),
        "        and engine_models.slice_start_us < claimants.slice_end_us",
        "        and engine_models.slice_start_us < claimants.slice_end_us and false",
    ),
)


def not_found(right: Sequence[Verdict], grid_seconds: int) -> Iterator[str]:
    """Book the cells of these verdicts, which the unbroken project gave, by each broken rule; a sentence for each rule
    that breaks without a cell that becomes wrong or falsely flagged, and without a date that is held back."""
    cells = [one.cell for one in right]
    for mutation in MUTATIONS:
        with tempfile.TemporaryDirectory() as folder:
            project = broken_project(Path(folder, "project"), mutation.file, mutation.right, mutation.wrong)
            book: Book = replace(plant(Path(folder), cells, grid_seconds=grid_seconds), project=project)
            book.start_empty()
            book.run()
            broken = [
                now.kind for before, now in zip(right, verdicts(book, cells), strict=True) if now.kind != before.kind
            ]
            invariants = sorted({name for (name,) in book.query("select invariant from marts.held_back_dates")})
        wrong, alarms = broken.count("wrong"), broken.count("false alarm")
        print(
            f"mutation: {mutation.rule}: {wrong} more wrong, {alarms} more false alarms of {len(cells)};"
            f" held back by {', '.join(invariants) or 'nothing'}",
            flush=True,
        )
        if not (wrong or alarms or invariants):
            yield f"nothing shows that this rule was broken: {mutation.rule}"
