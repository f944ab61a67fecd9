"""The own fleet among published platforms: who serves the same model with how much throughput at which speed.

Add here a comparison with results of others. Keep out own figures without such a comparison.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from pipelines.report.axes import numeric
from pipelines.report.charts import SERIES, Line, Mark, lines, plot
from pipelines.report.figures import Drawn, Figure, Row
from pipelines.report.markup import NAME, TEXT, YES_NO, named, number, table, text
from pipelines.report.sentences import amount, counted

OWN = "own load tests"


def _platforms(found: Sequence[Row]) -> Drawn:
    own = [row for row in found if row["is_own"]]
    others = [row for row in found if not row["is_own"]]
    best: dict[str, float] = {}
    for row in others:
        best[row["platform"]] = max(best.get(row["platform"], 0), row["total_tokens_per_second_per_gpu"])
    shown = sorted(best, key=lambda platform: -best[platform])[: SERIES - 1]
    (left, right), (bottom, top) = plot()
    x = numeric([row["output_tokens_per_second_per_user"] for row in found], left, right, may_be_log=False)
    y = numeric([row["total_tokens_per_second_per_gpu"] for row in found], bottom, top)
    drawn = [
        Line(platform, [_point(row) for row in others if row["platform"] == platform], is_staircase=True)
        for platform in shown
    ]
    marks = []
    if own:
        drawn.append(Line(OWN, [_point(row) for row in own], is_dotted=True))
        marks = [Mark(*_point(row)[:2], len(drawn) - 1, f"{row['result_id']}: {_point(row)[2]}") for row in own]
    picture = lines(
        drawn, x, y, marks=marks, x_title="output tokens per second for a user",
        y_title="tokens per second per GPU" + (", log scale" if y.is_log else ""),
        description="Steps: the best published results of each platform, and the own load tests as circles. The table"
        " has the same numbers.",
    )  # fmt: skip
    columns = {
        "platform": NAME, "own": YES_NO, "result": NAME, "measured": TEXT, "tokens/s for a user": 1,
        "tokens/s per GPU": 1, "on the frontier": YES_NO, "USD per million tokens (hyperscaler)": 3,
        "USD per million tokens (own)": 3, "J per token (measured)": 3, "power": TEXT, "source": NAME,
    }  # fmt: skip
    numbers = [
        (
            row["platform"], row["is_own"], row["result_id"], row["measured_on"],
            row["output_tokens_per_second_per_user"], row["total_tokens_per_second_per_gpu"], row["is_on_frontier"],
            row["hyperscaler_usd_per_mtok"], row["own_usd_per_mtok"], row["measured_joules_per_token"],
            (row["power_basis"] or "").replace("_", " "), row["source"],
        )
        for row in found
    ]  # fmt: skip
    return Drawn(_platforms_sentence(own, others), picture, table("Platforms", columns, numbers))


def _platforms_sentence(own: Sequence[Row], others: Sequence[Row]) -> str:
    first = (own or others)[0]
    work = f"For {_work(first)}"
    on_frontier = [row for row in others if row["is_on_frontier"]] or list(others)
    if not on_frontier:
        return f"{work} {counted(len(own), 'own load test')} can be compared with no published result."
    leader = max(on_frontier, key=lambda row: row["total_tokens_per_second_per_gpu"])
    sentence = (
        f"{work} the highest published throughput is <b>{number(leader['total_tokens_per_second_per_gpu'], 0)}"
        " tokens/s per"
        f" GPU</b> on {named(leader['platform'])}, at {number(leader['output_tokens_per_second_per_user'], 1)}"
        " tokens/s for a"
        " user"
    )
    if not own:
        return f"{sentence}; the fleet has no load test of this work to compare."
    mine = max(own, key=lambda row: row["total_tokens_per_second_per_gpu"])
    return (
        f"{sentence}; the fleet's own best load test has {number(mine['total_tokens_per_second_per_gpu'], 0)} on"
        f" {named(mine['platform'])}, at {number(mine['output_tokens_per_second_per_user'], 1)}."
    )


def _work(row: Row) -> str:
    """The work that is compared: `DeepSeek-R1 (fp8), 1,024 input and 1,024 output tokens,`."""
    precision = text(row["precision"] or "precision unknown")
    lengths = f"{row['input_tokens']:,.0f} input and {row['output_tokens']:,.0f} output tokens"
    return f"{named(row['model'])} ({precision}), {lengths},"


def _point(row: Row) -> tuple[float, float, str]:
    x, y = row["output_tokens_per_second_per_user"], row["total_tokens_per_second_per_gpu"]
    return x, y, f"{y:,.4g} tokens/s per GPU at {x:,.4g} tokens/s for a user"


def _crossover(found: Sequence[Row]) -> Drawn:
    works = [list(of_work) for _, of_work in groupby(found, key=lambda row: [row[key] for key in WORK])]
    longest = max(works, key=len)
    first = longest[0]
    nearby = sum(bool(row["has_nearby_points"]) for row in longest)
    sentence = (
        f"For {_work(first)} the cheapest platform changes {counted(len(longest), 'time')} as users ask for more speed,"
        f" first from {named(first['from_platform'])} to {named(first['to_platform'])} above"
        f" {number(first['at_output_tokens_per_second_per_user'], 1)} tokens/s for a user{bounds(first)} (from"
        f" {amount(first['from_usd_per_mtok'], 'USD', 3)} to {amount(first['to_usd_per_mtok'], 'USD', 3)} per million"
        f" tokens); at {nearby:,} of them both platforms were measured nearby."
    )
    columns = {
        "model": NAME, "precision": TEXT, "input tokens": 0, "output tokens": 0, "cheapest until then": NAME,
        "cheapest from there": NAME, "above tokens/s for a user": 1, "at least": 1, "at most": 1,
        "USD per million before": 3, "USD per million after": 3, "measured nearby": YES_NO,
    }  # fmt: skip
    numbers = [
        (
            *(row[key] for key in WORK), row["from_platform"], row["to_platform"],
            row["at_output_tokens_per_second_per_user"], row["low"], row["high"],
            row["from_usd_per_mtok"], row["to_usd_per_mtok"],
            row["has_nearby_points"],
        )
        for row in found
    ]  # fmt: skip
    return Drawn(sentence, table("Where the cheapest platform changes", columns, numbers))


def bounds(row: Row) -> str:
    """Between which speeds it is, by what was measured."""
    low, high = (row[end] for end in ("low", "high"))
    if low is not None and high is not None:
        return f", between {number(low, 1)} and {number(high, 1)} by what was measured"
    ends = [f"{words} {number(end, 1)}" for words, end in (("at least", low), ("at most", high)) if end is not None]
    return f", {ends[0]} by what was measured" if ends else ", with no bound by what was measured"


WORK = ("model", "precision", "input_tokens", "output_tokens")
PLATFORMS = Figure(
    "platforms",
    "Own load tests among published platforms",
    "results that others published (benchmarks of the fleet file) and the fleet's own load tests of about the same"
    " lengths:"
    " input and output tokens per second and accelerator. A published price contains power and colocation. Production"
    " windows are not in it, because their lengths are not known. Steps are the best results of each platform:"
    " between two of them nothing was measured.",
    "No published result is in the fleet file (key benchmarks), and no load test can be compared.",
    _platforms,
)
CROSSOVER = Figure(
    "platform_crossover",
    "Where the cheapest platform changes",
    "prices per GPU-hour of hyperscaler-owned accelerators, power included, over published throughput; the cheapest"
    " result"
    " that is as fast or faster, without interpolation.",
    "Not compared: fewer than two platforms have comparable published results.",
    _crossover,
)
