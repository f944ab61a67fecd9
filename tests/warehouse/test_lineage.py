"""What a model reads: tables and steps, from a manifest written by hand."""

from __future__ import annotations

from typing import Any

from pipelines.warehouse.lineage import lineage, tables_read


def node(kind: str, schema: str, name: str, *reads: str) -> dict[str, Any]:
    return {"resource_type": kind, "schema": schema, "name": name, "depends_on": {"nodes": list(reads)}}


MANIFEST = {
    "nodes": {
        "seed.w.rates": node("seed", "reference", "rates"),
        "model.w.stg": node("model", "staging", "stg", "source.w.raw.samples", "source.w.raw.refused"),
        "model.w.int_a": node("model", "intermediate", "int_a", "model.w.stg", "seed.w.rates"),
        "model.w.int_b": node("model", "intermediate", "int_b", "model.w.int_a", "model.w.stg", "model.w.book"),
        "model.w.rule": node("model", "invariants", "rule", "model.w.int_a"),
        "model.w.book": node("model", "marts", "book", "model.w.stg"),
        "model.w.daily": node("model", "marts", "daily", "model.w.int_b", "model.w.rule", "model.w.int_a"),
        "model.w.fleet": node("model", "marts", "fleet", "model.w.daily"),
    },
    "sources": {
        "source.w.raw.samples": {"resource_type": "source", "schema": "raw", "name": "samples"},
        "source.w.raw.refused": {
            **{"resource_type": "source", "schema": "raw", "name": "refused"},
            "config": {"meta": {"written_by": "booking"}},
        },
    },
}


def read(model: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return lineage(MANIFEST, MANIFEST["nodes"][f"model.w.{model}"])


def test_a_mart_reads_tables_through_its_steps_each_after_those_that_it_reads() -> None:
    assert read("daily") == (
        ("model.w.stg", "model.w.int_a", "model.w.int_b", "model.w.rule"),
        ("model.w.book", "seed.w.rates", "source.w.raw.samples"),
    )


def test_what_the_booking_writes_itself_is_no_parent() -> None:
    assert read("book") == (("model.w.stg",), ("source.w.raw.samples",))


def test_a_mart_is_no_step() -> None:
    assert read("fleet") == ((), ("model.w.daily",))


def test_the_tables_of_several_models_are_listed_once() -> None:
    assert tables_read(MANIFEST, ["int_a", "book"]) == [("reference", "rates"), ("raw", "samples")]
