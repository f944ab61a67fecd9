"""The FOCUS files of the demo: what FOCUS' own validator finds, and that they are the cost of the marts."""

from __future__ import annotations

import re
import shutil
import subprocess
from contextlib import closing
from datetime import date
from pathlib import Path

import pytest

from pipelines.publishing.focus import cost_and_usage
from pipelines.warehouse import database
from tests import optional
from tests.books import Book
from tests.planted import DAY, ENERGY, OUTPUT, board, plant, pod, rising, vllm

# What this fleet supports of FOCUS' conditional rules. Not among them: zones, capacity reservations, prices in other
# currencies, public price lists.
SUPPORTED = (
    "ACCOUNT_NAMING",
    "BILLING_BASED_ON_PROVISIONED_RESOURCES",
    "MULTIPLE_BILLING_ACCOUNT_TYPES",
    "MULTIPLE_PRICING_CATEGORIES",
    "MULTIPLE_SUB_ACCOUNT_TYPES",
    "NEGOTIATED_PRICING",
    "REGION",
    "RESOURCE_TYPE_ASSIGNMENT",
    "SUB_ACCOUNT",
    "TAGGING",
    "UNIT_PRICING",
    "USAGE_MEASUREMENT",
)


def found_by_validator(file: Path, folder: Path, *options: str) -> tuple[dict[str, int], set[str]]:
    """How many rules passed, failed and were skipped, and the rules that failed."""
    (validator,) = optional.required("focus")
    # It reads this list relative to where it runs.
    (currencies,) = validator.parents[1].glob("lib/python*/site-packages/focus_validator/rules/currency_codes.csv")
    rules = folder / "focus_validator/rules"
    rules.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(currencies, rules / "currency_codes.csv")
    command = [validator, "--data-file", file, "--block-download", "--validate-version", "1.2"]
    done = subprocess.run(
        [*command, "--focus-dataset", "CostAndUsage", *options],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    # It exits 0 whatever it finds.
    counts = re.findall(r"^Total: (\d+) \| Pass: (\d+) \| Fail: (\d+) \| Skipped: (\d+)$", done.stdout, re.MULTILINE)
    assert done.returncode == 0 and len(counts) == 1, done.stdout[-2000:] + done.stderr[-2000:]
    names = ("total", "passed", "failed", "skipped")
    return dict(zip(names, map(int, counts[0]), strict=True)), set(
        re.findall(r"^❌ ([\w-]+): FAIL", done.stdout, re.MULTILINE)
    )


@pytest.mark.slow
@pytest.mark.needs("focus")
@pytest.mark.parametrize("month", ["2026-09", "2026-10"])
def test_the_validator_finds_nothing_but_a_rule_that_contradicts_another(
    four_weeks: tuple[Book, str], tmp_path: Path, month: str
) -> None:
    """InvoiceId-C-005 wants an invoice in every row, InvoiceId-C-004 none where a charge is on no invoice."""
    file = four_weeks[0].fleet.published / f"latest/focus/cost_and_usage_{month}.csv"
    assert found_by_validator(file, tmp_path) == (
        {"total": 578, "passed": 136, "failed": 1, "skipped": 441},
        {"InvoiceId-C-005-C"},
    )
    listed = ",".join(f"{name}_SUPPORTED" for name in SUPPORTED)
    assert found_by_validator(file, tmp_path, "--applicability-criteria", listed) == (
        {"total": 578, "passed": 253, "failed": 1, "skipped": 324},
        {"InvoiceId-C-005-C"},
    )


@pytest.mark.slow
@pytest.mark.needs("focus")
def test_the_validator_is_not_asked_in_vain(four_weeks: tuple[Book, str], tmp_path: Path) -> None:
    """The same file with a currency that does not exist."""
    file = four_weeks[0].fleet.published / "latest/focus/cost_and_usage_2026-09.csv"
    (tmp_path / "wrong.csv").write_text(file.read_text().replace(",USD,", ",USX,"), encoding="utf-8")
    _, failed = found_by_validator(tmp_path / "wrong.csv", tmp_path)
    assert failed > {"InvoiceId-C-005-C"}


@pytest.mark.slow
def test_the_files_are_the_allocated_cost_of_the_marts(four_weeks: tuple[Book, str]) -> None:
    book, _ = four_weeks
    files = book.fleet.published / "latest/focus/*.csv"
    assert book.query(
        "select sum(EffectiveCost::decimal(28, 12))"
        " - (select sum(cost_usd) from marts.cost_daily where basis = 'allocation')"
        f" from read_csv('{files}', all_varchar = true)"
    ) == [(0,)]
    # A date in three tariffs has three rows of each model's energy, in the order of their prices.
    assert book.query(
        "select SkuPriceId, ListUnitPrice::double, PricingUnit, ChargePeriodStart, ChargePeriodEnd, BillingPeriodStart"
        f" from read_csv('{files}', all_varchar = true) where ChargePeriodStart = '2026-10-10T00:00:00Z'"
        " and x_Model = 'Kimi-K2.5' and x_Part = 'energy' order by 1"
    ) == [
        (f"energy/{price}", price, "kWh", "2026-10-10T00:00:00Z", "2026-10-11T00:00:00Z", "2026-10-01T07:00:00Z")
        for price in (0.11, 0.14, 0.23)
    ]


@pytest.mark.rest
@pytest.mark.slow
@pytest.mark.needs("focus")
def test_the_validator_finds_no_more_where_commitments_pay(tmp_path: Path) -> None:
    """Two boards of a model: five committed, or one of two beside a spot price or the rate, which is of a bought type.

    Rule C-004 of the status, and so C-002 and C-000 that have it, is about rows with a CommitmentDiscountId. The
    validator asks it of the rows without one, where C-003 wants the contrary.
    """
    of_site = {"zone": "US-CAL-CISO", "pue": 1.2, "tariff": [{"usd_per_kwh": 0.1}]}
    sites = [{"name": name, **of_site} for name in ("unused", "spot", "rate")]
    series = [
        (ENERGY, board(f"GPU-{n}-{site['name']}", f"n-{site['name']}", **pod(site["name"])), rising(360_000, 0))
        for site in sites
        for n in range(2)
    ]
    engines = [(OUTPUT, vllm(site["name"], site["name"]), rising(10, 0)) for site in sites]
    contract = {"device_type": "a100-sxm4-80gb", "usd_per_gpu_hour": 1.0}
    book = plant(
        tmp_path,
        [*series, *engines],
        sites=[*sites, {"name": "west", **of_site}],
        nodes=[{"name": f"n-{site['name']}", "site": site["name"], "host_watts": 0} for site in sites],
        cost_rates=[
            {
                "device_type": "a100-sxm4-80gb",
                "price_usd_per_gpu": 20_000.0,
                "life_years": 4.0,
                "cost_of_capital_ratio": 0.08,
                "source": "bought",
            }
        ],
        commitments=[
            {"commitment": site, "site": site, "gpus": gpus, "valid_from": DAY, **contract}
            for site, gpus in (("unused", 5.0), ("spot", 1.0), ("rate", 1.0))
        ],
        spot_rates=[{"site": "spot", "gpus": 1.0, "start_at": "2026-01-01T00:00:00Z", **contract}],
        marts=("cost_daily", "focus_cost_and_usage"),
    )
    book.run()
    with closing(database.connect(":memory:")) as connection:
        connection.execute(f"attach {database.literal(book.fleet.warehouse)} as booked (read_only)")
        file = tmp_path / cost_and_usage.export(connection, "booked", tmp_path, date(2026, 10, 1)).path
    assert book.query(
        "select distinct PricingCategory, CommitmentDiscountStatus from read_csv(?, all_varchar = true) order by all",
        [str(file)],
    ) == [
        ("Committed", "Unused"),
        ("Committed", "Used"),
        ("Dynamic", None),
        ("Standard", None),
    ]
    of_status = {f"CommitmentDiscountStatus-C-{number}-C" for number in ("000", "002", "004")}
    for supported, beside in ((SUPPORTED, set()), ((*SUPPORTED, "COMMITMENT_DISCOUNT"), of_status)):
        listed = ",".join(f"{name}_SUPPORTED" for name in supported)
        _, failed = found_by_validator(file, tmp_path, "--applicability-criteria", listed)
        assert failed == {"InvoiceId-C-005-C"} | beside
