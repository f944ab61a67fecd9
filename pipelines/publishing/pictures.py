"""Pictures for asset metadata: small PNGs that the Dagster UI shows beside a materialisation.

Add one where a picture shows at a glance what takes ten rows of a table. Keep out new numbers: a picture draws columns
of the marts.
"""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING, Any

import pandas as pd

from pipelines.analysis.power_fits import fitted_watts

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Productive in blue, the idle accounts in warm tones, unknown in grey. They also differ in greyscale.
ACCOUNTS = {
    "productive_joules": ("productive", "#1f4e79"),
    "idle_floor_joules": ("idle floor", "#f2b134"),
    "parked_joules": ("parked", "#e07b39"),
    "asleep_joules": ("asleep", "#f7d9a0"),
    "unallocated_joules": ("unallocated", "#a63d40"),
    "unknown_joules": ("unknown", "#9a9a9a"),
}

# Colours that colour-blind readers can distinguish, too.
COLOURS = ("#1f4e79", "#e07b39", "#3a8f5c", "#a63d40", "#8064a2", "#7f7f7f")
CURVES = len(COLOURS)
SIZES = 12
NODES = 24


def energy_accounts(models: pd.DataFrame, title: str) -> str:
    """Markdown image of the energy accounts per model.

    `models` has one row per model: `model` and the joules of each account; drawn in kWh, largest first.
    """
    models = models.assign(total=models[list(ACCOUNTS)].sum(axis=1)).sort_values("total")
    figure = _figure(1.2 + 0.38 * len(models))
    axes = figure.subplots()
    names = models["model"].map(_literal)
    left = pd.Series(0.0, index=models.index)
    for account, (label, colour) in ACCOUNTS.items():
        kwh = models[account].fillna(0) / 3.6e6
        if kwh.any():
            axes.barh(names, kwh, left=left, color=colour, label=label)
        left += kwh
    axes.margins(x=0.03)
    axes.set_xlabel("kWh")
    axes.set_title(title, fontsize=10, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(ncols=3, fontsize=8, frameon=False, loc="lower right")
    return _markdown(figure, title)


def efficiency_curves(levels: pd.DataFrame, fits: pd.DataFrame, title: str) -> str:
    """Markdown image of J/token against tok/s: medians with p10 to p90 per load level, the fitted watts as a line.

    `levels` are rows of marts.efficiency_curve, `fits` of marts.efficiency_fit; the CURVES with the most energy are
    drawn. The line ends where the observed loads end. An empty text where nothing was observed.
    """
    if levels.empty:
        return ""
    key = ["deployment", "device_type", "meter_scope", "role", "site", "model"]
    most = levels.groupby(key)["joules"].sum().astype(float).nlargest(CURVES).index
    figure = _figure(5)
    axes = figure.subplots()
    handles: list[Any] = []  # matplotlib draws containers, too; its types leave them out
    labels: list[str] = []
    for colour, curve in zip(COLOURS, most, strict=False):
        seen = levels[(levels[key] == list(curve)).all(axis=1)].sort_values("tokens_per_second_per_gpu")
        load, median = seen["tokens_per_second_per_gpu"], seen["joules_per_token_p50"]
        # A level's mean load and its median J/token are two statistics: the bar may end slightly beside the point.
        below = (median - seen["joules_per_token_p10"]).clip(lower=0)
        above = (seen["joules_per_token_p90"] - median).clip(lower=0)
        labels.append(_literal(f"{seen['model'].iloc[0]}, {curve[1]}"))
        handles.append(axes.errorbar(load, median, yerr=[below, above], fmt="o", markersize=4, color=colour))
        best = seen[seen["is_best"]]
        axes.plot(best["tokens_per_second_per_gpu"], best["joules_per_token_p50"], "*", markersize=13, color=colour)
        for fit in fits[(fits[key] == list(curve)).all(axis=1) & (fits["reason_code"] == "ok")].to_dict("records"):
            watts = fitted_watts(fit, load.to_numpy())
            axes.plot(load, watts / load, linewidth=1, color=colour)
    axes.set(xscale="log", yscale="log", xlabel="tokens per second and accelerator", ylabel="joules per token")
    handles += axes.plot([], [], "*", markersize=10, color="#7f7f7f")
    labels.append("best observed load")
    axes.set_title(title, fontsize=10, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(handles, labels, fontsize=8, frameon=False)
    return _markdown(figure, title)


def sizes_before_and_after(rows: pd.DataFrame, title: str) -> str:
    """Markdown image of GPUs now and recommended, with the kWh that a month would save; the SIZES that save most.

    `rows` are rows of published.right_sizing. An empty text where nothing is recommended.
    """
    changes = rows[rows["is_preferred"] & (rows["saving_kwh_month"] > 0)].nlargest(SIZES, "saving_kwh_month")
    if changes.empty:
        return ""
    figure = _figure(1.4 + 0.38 * len(changes))
    axes = figure.subplots()
    places = range(len(changes), 0, -1)
    axes.barh(places, changes["current_gpus"], height=0.75, color="#f2b134", label="now")
    axes.barh(places, changes["recommended_gpus"], height=0.4, color="#1f4e79", label="recommended")
    for place, row in zip(places, changes.to_dict("records"), strict=True):
        saved = f" {row['kind']}: {row['saving_kwh_month']:,.0f} kWh/month"
        axes.text(row["current_gpus"], place, saved, va="center", fontsize=8)
    axes.set_yticks(places, changes["deployment"].map(_literal))
    axes.margins(x=0.45)
    axes.set_xlim(left=0)
    axes.set_xlabel("GPUs")
    axes.set_title(title, fontsize=10, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(ncols=2, fontsize=8, frameon=False, loc="outside lower right")
    return _markdown(figure, title)


def consolidation_plan(nodes: pd.DataFrame, title: str) -> str:
    """Markdown image of the GPUs that models hold on each node, now and in the plan.

    `nodes` has `node`, `model`, `gpus_before` and `gpus_after`; the NODES that change most are drawn, and the models
    that hold most of them by name. An empty text where no node is known.
    """
    if nodes.empty:
        return ""
    change = (nodes["gpus_before"] - nodes["gpus_after"]).abs().groupby(nodes["node"]).sum()
    shown = sorted(change.sort_values(ascending=False, kind="stable").index[:NODES], reverse=True)
    drawn = nodes[nodes["node"].isin(shown)]
    most = drawn.groupby("model")["gpus_before"].sum().sort_values(ascending=False, kind="stable").index
    names = list(most[: len(COLOURS) - 1]) if len(most) > len(COLOURS) else list(most)
    drawn = drawn.assign(model=drawn["model"].where(drawn["model"].isin(names), "other models"))
    figure = _figure(1.7 + 0.27 * len(shown))
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    bars: dict[str, Any] = {}  # containers, as above
    for axes, column, name in zip(panels, ("gpus_before", "gpus_after"), ("now", "in the plan"), strict=True):
        left = pd.Series(0.0, index=shown)
        for model, colour in zip([*names, "other models"], COLOURS, strict=False):
            gpus = drawn[drawn["model"] == model].groupby("node")[column].sum().reindex(shown, fill_value=0.0)
            if (drawn["model"] == model).any():
                place = [_literal(node) for node in shown]
                bar = axes.barh(place, gpus, left=left, color=colour, edgecolor="white", linewidth=0.5)
                bars.setdefault(_literal(model), bar)
            left += gpus
        axes.set_title(f"{name}: {nodes[column].sum():g} GPUs", fontsize=9, loc="left")
        axes.set_xlabel("GPUs")
        axes.spines[["top", "right"]].set_visible(False)
    hidden = change.size - len(shown)
    figure.suptitle(title + (f"; {hidden} nodes that change less are not drawn" if hidden else ""), fontsize=10)
    figure.legend(list(bars.values()), list(bars), loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    return _markdown(figure, title)


def _figure(height_inches: float) -> Figure:
    from matplotlib.figure import Figure  # noqa: PLC0415 (half a second that only a publication pays)

    return Figure(figsize=(8, height_inches), layout="constrained")


def _literal(name: str) -> str:
    """A name that matplotlib shows letter by letter: it would read text between two dollar signs as a formula. (It
    also leaves labels that begin with an underscore out of a legend, unless they are passed to it, as above.)
    """
    return name.replace("$", r"\$")


def _markdown(figure: Figure, title: str) -> str:
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=110)
    return f"![{title}](data:image/png;base64,{base64.b64encode(picture.getvalue()).decode()})"
