"""A day that is booked with the commitment, the rate and the bill of a provider's FOCUS export, and written as FOCUS.

In October 2026 two A100 are committed at 1 USD, 1,488 GPU-hours; one is there all day. GPU-hours on demand are 3 USD.
"""

from __future__ import annotations

from pathlib import Path

from tests.fleet.test_focus_exports import csv_of
from tests.planted import ENERGY, OUTPUT, board, plant, pod, rising, vllm

A100 = "a100-sxm4-80gb"
ROWS = [
    {"EffectiveCost": "744", "CommitmentDiscountId": "r", "ConsumedQuantity": "744", "ConsumedUnit": "Hours"},
    {"EffectiveCost": "744", "CommitmentDiscountId": "r", "PricingQuantity": "744"},
    {"BilledCost": "1488", "ChargeCategory": "Purchase", "CommitmentDiscountId": "r", "SkuId": "fee"},
    {"BilledCost": "30", "EffectiveCost": "30", "ConsumedQuantity": "10", "ConsumedUnit": "Hours"},
]


def test_what_a_provider_exports_comes_out_as_the_fleets_own_commitment(tmp_path: Path) -> None:
    (tmp_path / "export.csv").write_text(csv_of(ROWS), encoding="utf-8")
    book = plant(
        tmp_path,
        [
            (ENERGY, board("GPU-a", "n", **pod("a")), rising(360_000, 0, start=1e9)),
            (OUTPUT, vllm("a", "a"), rising(10, 0)),
        ],
        sites=[{"name": "west", "zone": "unknown", "pue": 1.2}],
        focus_exports=[{"path": "export.csv", "site": "west", "skus": {"p5": {"device_type": A100}}}],
        marts=("cost_daily", "focus_cost_and_usage", "cost_reconciliation_monthly"),
    )
    book.run()
    # One board uses half of the commitment; the other half has no GPU.
    assert book.query(
        "select x_Deployment, CommitmentDiscountId, CommitmentDiscountStatus,"
        " round(CommitmentDiscountQuantity, 6)::double, round(EffectiveCost, 6)::double"
        " from marts.focus_cost_and_usage where x_Part = 'capacity' order by all"
    ) == [
        ("__unused_commitment__", f"site/west/{A100}/commitments/r", "Unused", 24.0, 24.0),
        ("llm/a", f"site/west/{A100}/commitments/r", "Used", 24.0, 24.0),
    ]
    assert book.query("select utilisation_ratio from finance.commitments") == [(0.5,)]
    assert book.query("select usd_per_gpu_hour, source from fleet.cost_rates") == [(3.0, "FOCUS export 2026-10")]
    assert book.query(
        "select billed_usd::double from marts.cost_reconciliation_monthly where kind = 'rental' and site = 'west'"
    ) == [(1518.0,)]
