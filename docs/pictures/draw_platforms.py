"""Draws the pictures of docs/platforms.md from published results, as the page's test books them.

`WATTLEDGER_VALIDATION_DATA` has the files; then `.venv/bin/python -m docs.pictures.draw_platforms`. Source of all
figures: SemiAnalysis InferenceX, as of 2026-06-11.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import matplotlib as mpl
import pandas as pd

from tests.books import Book
from tests.ledger.platforms.test_platforms import book_of, entry

mpl.use("Agg")
import matplotlib.pyplot as plt  # the backend is chosen before

WORK = (
    "model = 'DeepSeek-R1' and precision = 'fp8' and compared_input_length_tokens = 1024"
    " and compared_output_length_tokens = 1024"
)
TITLE = "DeepSeek-R1, fp8, 1024 tokens in and 1024 out"
SOURCE = "Source: SemiAnalysis InferenceX, 2026-06-11"
PLATFORMS = ("b200", "b300", "gb200", "gb300", "h100", "h200", "mi300x", "mi325x", "mi355x")
COLOURS = {platform: f"C{n}" for n, platform in enumerate(PLATFORMS)}


def table(book: Book, query: str) -> pd.DataFrame:
    """What a query of a book's warehouse gives."""
    with book.connection(read_only=True) as connection:
        return connection.execute(query).df()


def frontier(book: Book) -> plt.Figure:
    """Throughput per accelerator against the speed of a user: all results, and the frontier of each platform."""
    rows = table(
        book,
        "select platform, output_tokens_per_second_per_user as x, total_tokens_per_second_per_gpu as y,"
        f" is_on_platform_frontier from marts.platform_results where {WORK} and is_comparable order by platform, x",
    )
    figure, axes = plt.subplots(figsize=(8, 4.6), layout="constrained")
    for platform, of in rows.groupby("platform"):
        best = of[of["is_on_platform_frontier"].astype(bool)]
        axes.scatter(of["x"], of["y"], s=9, color=COLOURS[platform], alpha=0.35)
        axes.step(best["x"], best["y"], where="pre", color=COLOURS[platform], label=platform, marker="o", markersize=3)
    axes.set(xlabel="output tokens/s of a user", ylabel="tokens/s per accelerator", yscale="log")
    return _titled(figure, axes, f"{TITLE}: the frontier of each platform")


def staircase(book: Book) -> plt.Figure:
    """USD per million tokens of each platform's cheapest result that is as fast or faster."""
    rows = table(
        book,
        "select platform, output_tokens_per_second_per_user as x, hyperscaler_usd_per_mtok as y"
        f" from marts.platform_results where {WORK} and is_comparable and is_latest order by platform, x desc",
    )
    rows["y"] = rows.groupby("platform")["y"].cummin()
    changes = table(
        book,
        "select at_output_tokens_per_second_per_user as x from marts.platform_crossover where kind = 'interactivity'"
        f" and {WORK} and selection = 'all' and ownership = 'hyperscaler'",
    )
    figure, axes = plt.subplots(figsize=(8, 4.6), layout="constrained")
    for platform, of in rows.groupby("platform"):
        steps = of.sort_values("x")
        axes.step(steps["x"], steps["y"], where="pre", color=COLOURS[platform], label=platform)
    for x in changes["x"]:
        axes.axvline(x, color="0.6", linewidth=0.8, linestyle=":")
    axes.set(xlabel="output tokens/s that a user gets at least", ylabel="USD per million tokens", yscale="log")
    return _titled(figure, axes, f"{TITLE}: the price at a speed; dotted: the cheapest changes")


def history(book: Book) -> plt.Figure:
    """Throughput of one configuration over dates, and the best so far."""
    rows = table(
        book,
        "select measured_on as x, total_tokens_per_second_per_gpu as y, best_so_far_tokens_per_second_per_gpu as best"
        " from marts.configuration_history where platform = 'b200' and framework = 'sglang' and precision = 'fp4'"
        " and speculation = 'none' and configuration = 'tp 8, ep 8' and input_length_tokens = 8192"
        " and output_length_tokens = 1024 and concurrency = 4 order by measurement_number",
    )
    figure, axes = plt.subplots(figsize=(8, 3.6), layout="constrained")
    axes.step(rows["x"], rows["best"], where="post", color="0.6", label="best so far")
    axes.plot(rows["x"], rows["y"], "o", color="tab:blue", label="measured")
    axes.set(ylabel="tokens/s per accelerator", ylim=(0, None))
    return _titled(figure, axes, "B200, sglang, DeepSeek-R1 fp4, 8192 in and 1024 out, 4 requests at a time")


def _titled(figure: plt.Figure, axes: plt.Axes, title: str) -> plt.Figure:
    axes.set_title(title, fontsize=10, loc="left")
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8, ncols=3, frameon=False)
    figure.supxlabel(SOURCE, fontsize=7, color="0.4", x=0.99, ha="right")
    return figure


def draw(folder: Path) -> None:
    """Write platforms_frontier.png, platforms_crossover.png and platforms_history.png."""
    with tempfile.TemporaryDirectory() as made:
        now, earlier = (entry(name, f"inferencex/{name}.json") for name in ("benchmarks", "history"))
        published, both = book_of(Path(made, "now"), now), book_of(Path(made, "both"), now, earlier)
        for name, figure in {
            "frontier": frontier(published),
            "crossover": staircase(published),
            "history": history(both),
        }.items():
            figure.savefig(folder / f"platforms_{name}.png", dpi=110)


if __name__ == "__main__":
    draw(Path(__file__).parent)
