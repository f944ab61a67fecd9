"""Pictures: a PNG that a browser can show, with one bar per model."""

from __future__ import annotations

import base64
import io
import re

import numpy as np
import pandas as pd
import pytest
from matplotlib.image import imread

from pipelines.analysis.power_fits import fit_power
from pipelines.publishing.pictures import (
    ACCOUNTS,
    consolidation_plan,
    efficiency_curves,
    energy_accounts,
    sizes_before_and_after,
)

# matplotlib reads a formula between two dollar signs; this one is none (`_` asks for what is below the line).
FORMULA = "v$1_$2"


def test_the_energy_picture_grows_with_the_models_it_shows(tmp_path) -> None:
    def height(models: int) -> int:
        frame = pd.DataFrame({"model": [f"model-{n}" for n in range(models)]} | dict.fromkeys(ACCOUNTS, 3.6e6))
        image = re.fullmatch(r"!\[one day\]\(data:image/png;base64,(.+)\)", energy_accounts(frame, "one day"))
        assert image
        picture = tmp_path / "picture.png"
        picture.write_bytes(base64.b64decode(image[1]))
        return imread(picture).shape[0]

    # 110 dots per inch: 1.2 inches of frame and 0.38 per model
    assert (height(1), height(6)) == (int(110 * 1.58), int(110 * 3.48))


def test_the_curve_is_drawn_where_something_was_observed() -> None:
    loads = [1.0, 2.0, 4.0, 8.0, 16.0]
    key = {"site": "west", "deployment": "d", "model": "gpt", "device_type": "h100", "meter_scope": "board"}
    levels = pd.DataFrame(
        {
            **key,
            "role": "unified",
            "tokens_per_second_per_gpu": loads,
            "watts_per_gpu": [120.0, 140.0, 180.0, 260.0, 420.0],
            "joules_per_token": [120.0, 70.0, 45.0, 32.5, 26.25],
            "joules_per_token_p10": [110.0, 65.0, 40.0, 30.0, 25.0],
            "joules_per_token_p50": [120.0, 70.0, 45.0, 32.5, 26.25],
            "joules_per_token_p90": [130.0, 75.0, 50.0, 35.0, 27.0],
            "joules": 1e6,
            "is_best": [False] * 4 + [True],
        }
    )
    fits = fit_power(levels, [*key, "role"])
    image = re.fullmatch(r"!\[curve\]\(data:image/png;base64,(.+)\)", efficiency_curves(levels, fits, "curve"))
    assert image
    assert imread(io.BytesIO(base64.b64decode(image[1]))).shape[:2] == (550, 880)
    assert efficiency_curves(levels.iloc[:0], fits, "curve") == ""


def test_sizes_are_drawn_where_something_is_saved() -> None:
    sizes = {"deployment": ["d", "e"], "kind": ["fewer_gpus", "keep"], "is_preferred": True, "current_gpus": 8.0}
    rows = pd.DataFrame({**sizes, "recommended_gpus": [4.0, 8.0], "saving_kwh_month": [250.0, np.nan]})
    image = re.fullmatch(r"!\[sizes\]\(data:image/png;base64,(.+)\)", sizes_before_and_after(rows, "sizes"))
    assert image
    assert imread(io.BytesIO(base64.b64decode(image[1]))).shape[:2] == (int(110 * 1.78), 880)
    assert sizes_before_and_after(rows.iloc[1:], "sizes") == ""


def test_nodes_are_drawn_before_and_after_the_plan() -> None:
    def height(nodes: int) -> int:
        plan = pd.DataFrame({"node": [f"n{n}" for n in range(nodes)], "model": "m", "gpus_before": 8.0})
        image = re.fullmatch(
            r"!\[plan\]\(data:image/png;base64,(.+)\)", consolidation_plan(plan.assign(gpus_after=0.0), "plan")
        )
        assert image
        return imread(io.BytesIO(base64.b64decode(image[1]))).shape[0]

    # 110 dots per inch: 1.7 inches of frame and 0.27 per node, 24 nodes at most.
    assert (height(1), height(24), height(100)) == (int(110 * 1.97), int(110 * 8.18), int(110 * 8.18))
    nothing = pd.DataFrame(columns=["node", "model", "gpus_before", "gpus_after"])
    assert consolidation_plan(nothing, "plan") == ""


# --- names are data ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [FORMULA, "__base__", "_hidden", r"a\$b$", "gpt-oss-120b"])
def test_any_name_is_drawn_in_every_picture(name: str) -> None:
    accounts = pd.DataFrame({"model": [name]} | dict.fromkeys(ACCOUNTS, 3.6e6))
    assert energy_accounts(accounts, "energy").startswith("![energy]")
    key = {"site": "west", "deployment": name, "model": name, "device_type": "h100", "meter_scope": "board"}
    points = ["tokens_per_second_per_gpu", "joules", *(f"joules_per_token_p{n}" for n in (10, 50, 90))]
    levels = pd.DataFrame({**key, "role": "unified", **dict.fromkeys(points, 1.0), "is_best": [True]})
    fits = pd.DataFrame({**key, "role": "unified", "reason_code": ["too_few_load_levels"]})
    assert efficiency_curves(levels, fits, "curves").startswith("![curves]")
    sizes = {"deployment": [name], "kind": "keep", "is_preferred": True, "current_gpus": 8.0, "recommended_gpus": 4.0}
    assert sizes_before_and_after(pd.DataFrame({**sizes, "saving_kwh_month": [1.0]}), "sizes").startswith("![sizes]")
    nodes = pd.DataFrame({"node": [name], "model": name, "gpus_before": 8.0, "gpus_after": 4.0})
    assert consolidation_plan(nodes, "plan").startswith("![plan]")


def test_a_curve_without_a_fit_and_two_models_of_a_deployment_are_drawn() -> None:
    key = {"site": "west", "deployment": "d", "device_type": "h100", "meter_scope": "board", "role": "unified"}
    points = ["tokens_per_second_per_gpu", "joules", *(f"joules_per_token_p{n}" for n in (10, 50, 90))]
    levels = pd.DataFrame({**key, "model": ["a", "b"], **dict.fromkeys(points, 1.0), "is_best": True})
    fits = pd.DataFrame({**key, "model": ["a"], "reason_code": ["no_tokens_served"]})
    assert efficiency_curves(levels, fits, "curves").startswith("![curves]")
