"""The reasons of a doubt are in a seed, in the macro that marks rows and in the words of the table: a reason that one
of them lacks would mark nothing."""

from __future__ import annotations

import csv
import re

import yaml

from pipelines.fleet.places import DBT_PROJECT


def test_each_reason_is_in_the_seed_the_macro_and_the_words() -> None:
    with (DBT_PROJECT / "seeds/doubt_reasons.csv").open(encoding="utf-8") as file:
        seed = [row["reason"] for row in csv.DictReader(file)]
    macro = (DBT_PROJECT / "macros/model_facts.sql").read_text(encoding="utf-8")
    listed = re.findall(r"'(\w+)'", macro.partition("macro doubt_reasons()")[2].partition("endmacro")[0])
    table = yaml.safe_load((DBT_PROJECT / "models/doubts/doubts.yml").read_text(encoding="utf-8"))["models"][0]
    words = {column["name"]: column for column in table["columns"]}["reason"]["config"]["meta"]["words"]
    assert seed == sorted(seed)
    assert listed == words == seed
    spans = (DBT_PROJECT / "models/doubts/steps/int_doubt_spans.sql").read_text(encoding="utf-8")
    assert [reason for reason in seed if f"'{reason}'" not in spans] == []
