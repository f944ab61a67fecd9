"""The dictionary of headline figures beside what else states them: MetricFlow's metrics, and the published columns."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from pipelines.fleet.places import PROJECT
from pipelines.named_figures import dictionary
from pipelines.named_figures.dictionary import HeadlineFigure
from pipelines.named_figures.explanation import BRANCHES
from tests.report import publications

MODEL_DAYS = PROJECT / "bi/metricflow/models/model_days.yml"
OF_METRICFLOW = [figure for figure in dictionary.figures().values() if figure.metric]


@pytest.fixture(scope="module")
def metrics() -> dict[str, Any]:
    stated = yaml.safe_load(MODEL_DAYS.read_text(encoding="utf-8"))
    (semantic,) = stated["semantic_models"]
    measures = {one["name"]: one.get("expr", one["name"]) for one in semantic["measures"]}
    ratios = {one["name"]: one for one in stated["metrics"]}
    return {"measures": measures, "ratios": ratios}


@pytest.mark.parametrize("figure", OF_METRICFLOW, ids=lambda figure: figure.name)
def test_metricflow_has_the_same_sums_under_the_same_name(figure: HeadlineFigure, metrics: dict[str, Any]) -> None:
    measures, ratios = metrics["measures"], metrics["ratios"]
    if figure.denominator is None:
        assert measures[figure.metric] == figure.numerator
        return
    ratio = ratios[figure.metric]
    assert ratio["label"] == figure.title
    millions = " * 0.000001" if figure.factor == 1e6 else ""
    parts = [measures[ratio["type_params"][part]] for part in ("numerator", "denominator")]
    assert parts == [figure.numerator, f"{figure.denominator}{millions}"]


@pytest.mark.parametrize("figure", dictionary.figures().values(), ids=lambda figure: figure.name)
def test_a_figure_is_made_of_published_columns(figure: HeadlineFigure) -> None:
    columns = publications.columns()[figure.table]
    named = " ".join(filter(None, (figure.numerator, figure.denominator, figure.only_with)))
    assert set(re.findall(r"[a-z_][a-z_0-9]+", named)) <= columns.keys()
    assert set(figure.branches) <= BRANCHES.keys()
