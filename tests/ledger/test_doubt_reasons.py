"""The reasons of a doubt are in a seed, in the macro that marks rows and in the words of the table: a reason that one
of them lacks would mark nothing."""

from __future__ import annotations

import csv
import re

import yaml

from pipelines.fleet.places import DBT_PROJECT

# Reasons that mark no joule and no token: what is published is right, another column of the row has it, or they are of
# money and mark months and payers.
ALONE = {
    "bill_differs", "impossible_goodput", "limit_too_low", "missing_gpus", "no_grid_factor", "part_left_a_sum",
    "unusual_cost", "yearly_grid_factor",
}  # fmt: skip


def test_each_reason_is_in_the_seed_the_macro_and_the_words() -> None:
    with (DBT_PROJECT / "seeds/doubt_reasons.csv").open(encoding="utf-8") as file:
        seed = [row["reason"] for row in csv.DictReader(file)]
    macro = (DBT_PROJECT / "macros/model_facts.sql").read_text(encoding="utf-8")
    listed = re.findall(r"'(\w+)'", macro.partition("macro doubt_reasons()")[2].partition("endmacro")[0])
    table = yaml.safe_load((DBT_PROJECT / "models/doubts/listed/doubts.yml").read_text(encoding="utf-8"))["models"][0]
    words = {column["name"]: column for column in table["columns"]}["reason"]["config"]["meta"]["words"]
    assert seed == sorted(seed)
    assert words == seed
    assert listed == sorted(set(seed) - ALONE)
    models = "".join(path.read_text(encoding="utf-8") for path in DBT_PROJECT.glob("models/doubts/**/*.sql"))
    assert [reason for reason in seed if f"'{reason}'" not in models] == []
