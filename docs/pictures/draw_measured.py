"""Draws the pictures of docs/measured.md from the recordings in fleets/measured, as the page's test works them out.

`.venv/bin/python -m docs.pictures.draw_measured`.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np

from tests.measured import figures

mpl.use("Agg")
import matplotlib.pyplot as plt  # the backend is chosen before

SOURCE = "One NVIDIA H200, driver 580.159.04, 29 November 2026; 8B model of random weights, bf16"


def efficiency() -> plt.Figure:
    """J per output token against output tokens per second, for both lengths of prompts, and decode alone."""
    windows = figures.windows()
    figure, axes = plt.subplots(figsize=(8, 4.2), layout="constrained")
    for prompt, colour in (("128", "tab:blue"), ("2048", "tab:orange")):
        rows = windows[windows.index.str.startswith(f"generate_{prompt}_at_")].sort_values("output_tokens_per_second")
        x, y = rows["output_tokens_per_second"], rows["joules_per_output_token"]
        axes.plot(x, y, "o-", color=colour, markersize=4, label=f"prompts of {prompt} tokens")
        for name in rows.index:
            axes.annotate(name.rpartition("_")[2], (x[name], y[name]), (4, 5), textcoords="offset points", fontsize=8)
    decode = windows.loc["decode_2048_at_16"]
    axes.plot(
        decode["output_tokens_per_second"],
        decode["joules_per_output_token"],
        "s",
        color="tab:green",
        label="decode alone, 2048 in the cache, at 16",
    )
    axes.set(xlabel="output tokens/s", ylabel="J per output token", xscale="log", yscale="log")
    return _titled(figure, axes, "Energy of an output token; the numbers are requests at a time")


def one_second() -> plt.Figure:
    """Counter, gauge and nvidia-smi over three seconds around the first warm-up: how long the gauge looks back."""
    at, joules = figures.changes("first")
    gauge_at, watts = figures.samples("first", "nvml_power_watts")
    smi = figures.log_of_nvidia_smi("first")
    rises = np.diff(joules) / np.diff(at)
    zero = at[1:][rises > 250][0]
    figure, axes = plt.subplots(figsize=(8, 3.8), layout="constrained")
    axes.step(at[1:] - zero, rises, where="pre", color="0.6", label="counter, from change to change (0.1 s)")
    axes.plot(gauge_at - zero, watts, color="tab:blue", label="gauge, by the agent")
    axes.plot(smi["at"] - zero, smi["watts"], ".", color="tab:red", markersize=4, label="power.draw of nvidia-smi")
    axes.set(xlabel="seconds", ylabel="W", xlim=(-1, 3), ylim=(0, 550))
    return _titled(figure, axes, "From idle to load: the gauge is the mean of the last second")


def _titled(figure: plt.Figure, axes: plt.Axes, title: str) -> plt.Figure:
    axes.set_title(title, fontsize=10, loc="left")
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8, frameon=False)
    figure.supxlabel(SOURCE, fontsize=7, color="0.4", x=0.99, ha="right")
    return figure


if __name__ == "__main__":
    for name, drawn in {"efficiency": efficiency(), "gauge": one_second()}.items():
        drawn.savefig(Path(__file__).parent / f"measured_{name}.png", dpi=110)
