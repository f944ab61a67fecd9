"""Pictures for asset metadata: small PNGs that the Dagster UI shows beside a materialisation.

Add one where a picture says in a glance what a table says in ten rows. Keep out numbers of its own: it draws columns
that the marts hold.
"""

from __future__ import annotations

import base64
import io

import pandas as pd

# Productive in blue, the idle accounts in warm tones, what nobody knows in grey; told apart in greyscale, too.
ACCOUNTS = {
    "productive_joules": ("productive", "#1f4e79"),
    "idle_floor_joules": ("idle floor", "#f2b134"),
    "parked_joules": ("parked", "#e07b39"),
    "asleep_joules": ("asleep", "#f7d9a0"),
    "unallocated_joules": ("unallocated", "#a63d40"),
    "unknown_joules": ("unknown", "#9a9a9a"),
}


def energy_accounts(models: pd.DataFrame, title: str) -> str:
    """Markdown image of the energy accounts per model.

    `models` has one row per model: `model` and the joules of each account; drawn in kWh, largest first.
    """
    from matplotlib.figure import Figure  # noqa: PLC0415 (half a second that only a publication pays)

    models = models.assign(total=models[list(ACCOUNTS)].sum(axis=1)).sort_values("total")
    figure = Figure(figsize=(8, 1.2 + 0.38 * len(models)), layout="constrained")
    axes = figure.subplots()
    left = pd.Series(0.0, index=models.index)
    for account, (label, colour) in ACCOUNTS.items():
        kwh = models[account].fillna(0) / 3.6e6
        if kwh.any():
            axes.barh(models["model"], kwh, left=left, color=colour, label=label)
        left += kwh
    axes.margins(x=0.03)
    axes.set_xlabel("kWh")
    axes.set_title(title, fontsize=10, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(ncols=3, fontsize=8, frameon=False, loc="lower right")
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=110)
    return f"![{title}](data:image/png;base64,{base64.b64encode(picture.getvalue()).decode()})"
