"""A provider's FOCUS export as bills, rates and commitments.

October 2026 has 744 hours in UTC. An instance has 8 GPUs. On demand 100 hours of it cost 2,400 USD: 3 USD per
GPU-hour. A reservation of one instance, `ri-1`, was paid with 11,904 USD: 620 of its hours were used and 124 were not,
so that it is 8 GPUs at 2 USD. A credit of 100 USD, and a correction of 50 USD for September.
"""

from __future__ import annotations

import csv
import gzip
import io
from contextlib import closing
from datetime import UTC, date, datetime
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from collectors.samples import SourceError
from pipelines.fleet import plausibility
from pipelines.fleet.fleet_file import Fleet, FleetError, load_fleet
from pipelines.landing import bill_landing, fleet_landing
from pipelines.warehouse import database
from pipelines.warehouse.raw_tables import create_tables

OCTOBER, NOVEMBER = "2026-10-01T00:00:00Z", "2026-11-01T00:00:00Z"
TAGS = '{"cluster":"llm","owner":"x"}'
ROW = {
    "BilledCost": "0",
    "BillingAccountId": "payer",
    "BillingCurrency": "USD",
    "BillingPeriodStart": OCTOBER,
    "BillingPeriodEnd": NOVEMBER,
    "ChargeCategory": "Usage",
    "ChargeClass": "",
    "ChargePeriodStart": OCTOBER,
    "ChargePeriodEnd": NOVEMBER,
    "CommitmentDiscountId": "",
    "ConsumedQuantity": "",
    "ConsumedUnit": "",
    "EffectiveCost": "0",
    "PricingQuantity": "",
    "PricingUnit": "Hours",
    "SkuId": "p5",
    "SubAccountId": "inference",
    "Tags": TAGS,
}
ROWS = [
    {"BilledCost": "2400", "EffectiveCost": "2400", "ConsumedQuantity": "100", "ConsumedUnit": "Hours"},
    {"EffectiveCost": "9920", "CommitmentDiscountId": "ri-1", "ConsumedQuantity": "620", "ConsumedUnit": "Hrs"},
    {"EffectiveCost": "1984", "CommitmentDiscountId": "ri-1", "PricingQuantity": "124", "SkuId": ""},
    {"BilledCost": "11904", "ChargeCategory": "Purchase", "CommitmentDiscountId": "ri-1", "SkuId": "ri-fee"},
    {"BilledCost": "-100", "EffectiveCost": "-100", "ChargeCategory": "Credit"},
    {
        "BilledCost": "50",
        "EffectiveCost": "50",
        "ChargeClass": "Correction",
        "ChargePeriodStart": "2026-09-01T00:00:00Z",
        "ChargePeriodEnd": OCTOBER,
        "PricingQuantity": "1",
    },
    # None of the fleet: storage, another account, another cluster, a reservation of something else.
    {"BilledCost": "7", "SkuId": "disk", "PricingUnit": "GB-Mo"},
    {"BilledCost": "7", "SubAccountId": "training"},
    {"BilledCost": "7", "Tags": '{"cluster":"web"}'},
    {"BilledCost": "7", "CommitmentDiscountId": "ri-2", "SkuId": "db"},
]
ENTRY = (
    "{path: export, site: dc, skus: {p5: {device_type: h100-sxm5-80gb, gpus: 8}}, where: {SubAccountId: inference},"
    " tags: {cluster: llm}}"
)


def csv_of(rows: list[dict[str, str]], without: str = "") -> str:
    text = io.StringIO()
    columns = [column for column in ROW if column != without]
    writer = csv.DictWriter(text, columns, extrasaction="ignore")
    writer.writeheader()
    writer.writerows([ROW | row for row in rows])
    return text.getvalue()


def fleet_of(folder: Path, entries: str = ENTRY, more: str = "") -> Fleet:
    path = folder / "fleet.yaml"
    path.write_text(
        "fleet: tiny\nperiod: {start: 2026-10-01}\nsites: [{name: dc, zone: unknown, pue: 1.2}]\n"
        f"sources: [{{name: agents, kind: spool}}]\nfocus_exports: [{entries}]\n{more}"
    )
    return load_fleet(path, {"WATTLEDGER_DATA": str(folder / "data")})


def landed(fleet: Fleet) -> duckdb.DuckDBPyConnection:
    connection = database.connect(":memory:")
    create_tables(connection)
    fleet_landing.write_fleet(connection, fleet)
    bill_landing.write_bills(connection, fleet)
    return connection


@pytest.fixture
def export(tmp_path: Path) -> Path:
    folder = tmp_path / "export"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "parquet", "parts"])
def test_an_export_is_bills_rates_and_commitments(
    tmp_path: Path, export: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    text = csv_of(ROWS)
    if kind == "csv":
        (export / "a.csv").write_text(text)
    elif kind == "csv.gz":
        (export / "a.csv.gz").write_bytes(gzip.compress(text.encode()))
    elif kind == "parquet":
        table = pa.Table.from_pylist([{k: v or None for k, v in (ROW | row).items()} for row in ROWS])
        # As providers write it: times are timestamps, tags are a map.
        times = pa.array([datetime(2026, 10, 1, tzinfo=UTC)] * len(ROWS), pa.timestamp("us", "UTC"))
        tags = pa.array(
            [[("cluster", "web" if "Tags" in row else "llm")] for row in ROWS], pa.map_(pa.string(), pa.string())
        )
        table = table.set_column(table.schema.get_field_index("BillingPeriodStart"), "BillingPeriodStart", times)
        pq.write_table(table.set_column(table.schema.get_field_index("Tags"), "Tags", tags), export / "a.parquet")
    else:
        (export / "1.csv").write_text(csv_of(ROWS[3:]))
        (export / "2.csv").write_text(csv_of(ROWS[:3]))
        (export / "manifest.json").write_text("{}")
    caplog.set_level("INFO")
    with closing(landed(fleet_of(tmp_path))) as connection:
        assert connection.execute("select site, kind, start_at, end_at, usd, source from raw.bills").fetchall() == [
            (
                "dc",
                "rental",
                datetime(2026, 10, 1, tzinfo=UTC),
                datetime(2026, 11, 1, tzinfo=UTC),
                14254,
                "focus_exports[0]",
            )
        ]
        assert connection.execute(
            "select device_type, usd_per_gpu_hour, includes, source, valid_from, valid_to from fleet.cost_rates"
        ).fetchall() == [
            (
                "h100-sxm5-80gb",
                3,
                "cooling demand_charge energy overhead",
                "FOCUS export 2026-10",
                date(2026, 10, 1),
                None,
            )
        ]
        assert connection.execute("from fleet.commitments").fetchall() == [
            ("ri-1", "dc", "h100-sxm5-80gb", 8, 2, date(2026, 10, 1), date(2026, 11, 1))
        ]
    assert caplog.messages == [
        f"{tmp_path / 'export'}: 4 of 10 rows are left out, because they have another SKU, account or tag than the"
        " entry of focus_exports"
    ]


def test_gpu_hours_another_currency_and_a_month_in_progress(tmp_path: Path, export: Path) -> None:
    """Two GPUs of a reservation from 11 to 21 October, 240 hours, at 1 EUR, which is 1.10 USD; 10 hours at 2 EUR."""
    part = {
        "BillingCurrency": "EUR",
        "ChargePeriodStart": "2026-10-11T00:00:00Z",
        "ChargePeriodEnd": "2026-10-21T00:00:00Z",
    }
    rows = [
        {
            **part,
            "EffectiveCost": "480",
            "CommitmentDiscountId": "r",
            "PricingQuantity": "480",
            "PricingUnit": "GPU-Hours",
        },
        {**part, "BilledCost": "20", "EffectiveCost": "20", "PricingQuantity": "10", "PricingUnit": "1 GPU hour"},
    ]
    (export / "a.csv").write_text(csv_of(rows))
    entry = ENTRY.removesuffix("}") + ", usd_per_unit: {EUR: 1.1}, includes_energy: false}"
    with closing(landed(fleet_of(tmp_path, entry))) as connection:
        assert connection.execute("select usd from raw.bills").fetchall() == [(22,)]
        assert connection.execute("select usd_per_gpu_hour, includes from fleet.cost_rates").fetchall() == [(2.2, "")]
        assert connection.execute(
            "select gpus, usd_per_gpu_hour, valid_from, valid_to from fleet.commitments"
        ).fetchall() == [(2, 1.1, date(2026, 10, 11), date(2026, 10, 21))]


@pytest.mark.parametrize(
    ("usd", "more", "line"),
    [
        # 240,000 USD for 100 hours of eight GPUs are 300 each; an H100 costs 5 on demand, and 25 is five times it.
        (
            240_000,
            "",
            "focus_exports[0].skus: got 300 for h100-sxm5-80gb by FOCUS export 2026-10, expected 0.26 to 25 USD",
        ),
        (240_000, 'accepted: ["focus_exports[0].skus"]\n', None),
        (2_400, "", None),
    ],
    ids=["odd", "accepted", "usual"],
)
def test_an_imported_rate_beyond_reason_is_named(
    tmp_path: Path, export: Path, usd: int, more: str, line: str | None
) -> None:
    row = {"BilledCost": "1", "EffectiveCost": str(usd), "PricingQuantity": "100"}
    (export / "a.csv").write_text(csv_of([row]))
    fleet = fleet_of(tmp_path, ENTRY, more)
    with closing(duckdb.connect()) as connection:
        create_tables(connection)
        _, found = bill_landing.write_bills(connection, fleet)
    assert (found or "").startswith(line or "") and (found is None) == (line is None)
    assert [str(one) for one in plausibility.doubts(fleet) if "accepted" in one.key] == []


@pytest.mark.parametrize(
    ("counted", "usd"),
    [
        # 2,400 USD for 100 hours of an instance with 8 GPUs: 3.00; for 100 hours of one GPU: 24.
        (("", "", "1", "100 Hours"), 3),
        (("", "", "0.1", "1K Hours"), 3),
        (("", "", "0.1", "1,000 Hours"), 3),
        (("360000", "seconds", "100", "hour"), 3),
        (("6000", "Minutes", "", ""), 3),
        (("", "", "4.16666666666666666667", "Days"), 3),
        (("9600", "vCPU-Hours", "100", "Hours"), 3),
        (("9600", "Units", "1", "100 Node-Hours"), 3),
        (("", "", "100", "GPU Per Hour"), 24),
        (("100", "GPU/hour", "9600", "vCPU-Hours"), 24),
    ],
)
def test_what_is_counted_in_other_units_is_the_same_rate(
    tmp_path: Path, export: Path, counted: tuple[str, str, str, str], usd: float
) -> None:
    names = ("ConsumedQuantity", "ConsumedUnit", "PricingQuantity", "PricingUnit")
    row = {"BilledCost": "2400", "EffectiveCost": "2400", **dict(zip(names, counted, strict=True))}
    (export / "a.csv").write_text(csv_of([row]))
    with closing(landed(fleet_of(tmp_path, ENTRY))) as connection:
        assert connection.execute("select usd_per_gpu_hour from fleet.cost_rates").fetchall() == [(usd,)]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            csv_of(ROWS, without="EffectiveCost"),
            r"/a.csv: no column EffectiveCost; there are BilledCost, BillingAccountId",
        ),
        (csv_of(ROWS, without="SubAccountId"), r"/a.csv: no column SubAccountId; there are"),
        (
            csv_of(ROWS, without="ChargeCategory").replace("ChargeClass", "ChargeType", 1),
            r"/a.csv: is FOCUS 0.5 \(column ChargeType\), expected 1.0 to 1.2. Export FOCUS 1.0, 1.1 or 1.2",
        ),
        (
            csv_of(ROWS).replace("ChargeClass", "HostProviderName", 1),
            r"/a.csv: is FOCUS 1.3 or later \(column HostProviderName\), expected 1.0 to 1.2.",
        ),
        (
            csv_of([{"BillingCurrency": "CHF"}]),
            r"/a.csv: BillingCurrency: got 'CHF' without a rate, expected USD, or usd_per_unit: \{CHF: …\}, what one",
        ),
        (
            csv_of([{"PricingQuantity": "1", "PricingUnit": "GB-Mo"}]),
            r"/a.csv: a SKU of `skus` is counted in 'GB-Mo', expected time of an instance or of a GPU, such as Hours",
        ),
        (
            csv_of([{"PricingQuantity": "9600", "PricingUnit": "vCPU-Hours"}]),
            r"is counted in 'vCPU-Hours', expected time .* leave the SKU out of `skus`, and state what it costs",
        ),
        (
            csv_of([{"PricingQuantity": "744", "PricingUnit": "1 GiB Hour"}]),
            r"is counted in '1 GiB Hour', expected time of an instance or of a GPU",
        ),
        (
            csv_of([{"BilledCost": "free"}]),
            r"1 of 1 rows rejected, expected at most 0.5 of all \(limits.bad_rows_ratio\): .*BilledCost: got 'free'",
        ),
        (
            csv_of([{"ChargePeriodStart": "yesterday"}]),
            r"ChargePeriodStart: got 'yesterday', expected an ISO time such as 2026-10-01T00:00:00Z",
        ),
    ],
)
def test_what_cannot_be_read_is_one_line(tmp_path: Path, export: Path, text: str, problem: str) -> None:
    (export / "a.csv").write_text(text)
    with pytest.raises(SourceError, match=problem):
        fleet_of(tmp_path).focus_exports[0].figures()


def test_a_month_counts_once(tmp_path: Path, export: Path) -> None:
    for run in ("run-1", "run-2"):
        (export / run).mkdir()
        (export / run / "a.csv").write_text(csv_of(ROWS))
    with pytest.raises(
        SourceError,
        match=r"billing month 2026-10 of account payer is in .*run-1 and in .*run-2, expected each month in one",
    ):
        fleet_of(tmp_path).focus_exports[0].figures()
    entry = ENTRY.replace("path: export", "path: export/run-1")
    bill = "{site: dc, kind: rental, start_at: 2026-10-15T00:00:00Z, end_at: 2026-10-16T00:00:00Z, usd: 1}"
    with pytest.raises(
        SourceError, match=r"rental of dc for 2026-10 is billed by fleet file already, expected each month"
    ):
        landed(fleet_of(tmp_path, entry, f"bills: {{inline: [{bill}]}}\n"))


def test_a_commitment_of_several_sizes_is_stated(tmp_path: Path, export: Path) -> None:
    rows = [{"CommitmentDiscountId": "r", "SkuId": sku, "PricingQuantity": "1"} for sku in ("p5", "p4")]
    (export / "a.csv").write_text(csv_of(rows))
    entry = ENTRY.replace("skus: {", "skus: {p4: {device_type: a100-sxm4-80gb, gpus: 8}, ")
    with pytest.raises(
        SourceError,
        match="commitment r pays for 8 a100-sxm4-80gb and 8 h100-sxm5-80gb, expected SKUs of one size: leave",
    ):
        fleet_of(tmp_path, entry).focus_exports[0].figures()


def test_a_rate_is_stated_once(tmp_path: Path) -> None:
    rate = "cost_rates: [{device_type: h100-sxm5-80gb, usd_per_gpu_hour: 2, source: contract}]\n"
    other = ENTRY.replace("site: dc", "site: east")
    with pytest.raises(FleetError) as wrong:
        fleet_of(tmp_path, f"{ENTRY}, {other}", rate)
    assert [line.partition(": ")[0] for line in wrong.value.problems] == [
        "focus_exports[0].skus",
        "focus_exports[1].site",
        "focus_exports[1].skus",
    ]
    assert wrong.value.problems[0] == (
        "focus_exports[0].skus: prices h100-sxm5-80gb, which cost_rates[0] prices already, expected one rate per device"
        " type: leave that out, or `rates` out of `reads`"
    )
