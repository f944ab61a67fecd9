"""Pictures: a PNG that a browser can show, with one bar per model."""

from __future__ import annotations

import base64
import re

import pandas as pd
from matplotlib.image import imread

from pipelines.pictures import ACCOUNTS, energy_accounts


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
