"""The workbook: formulas that are sums over sums, texts that do nothing, and rows that are never dropped silently.

The marts are written by hand; tests/ledger/test_book_demo.py asks every question of a booked fleet.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import duckdb
import openpyxl
import pytest
from openpyxl.worksheet.worksheet import Worksheet

from pipelines.publishing.parts import Parts
from pipelines.publishing.workbook import sheets as workbook
from pipelines.publishing.workbook.questions import MONTHS, QUESTIONS

MARTS = """
set TimeZone = 'UTC';
create schema marts;
create schema published;
create table published.publication (publication_id varchar, published_at timestamptz, held_back_dates varchar);
insert into published.publication values ('20261005T000000000000Z-0badcafe', '2026-10-05 01:15:00+00', '2026-10-03');
create table marts.model_daily (
    date date, model varchar, meter_scope varchar, facility_energy_kwh decimal(28, 6), location_gco2e decimal(28, 6),
    compute_cost_usd decimal(28, 12), output_tokens decimal(28, 6), matched_joules decimal(28, 6),
    matched_output_tokens decimal(28, 6), matched_total_tokens decimal(28, 6),
    matched_compute_cost_usd decimal(28, 12), priced_output_tokens decimal(28, 6), doubt_reasons varchar
);
create schema finance;
create table finance.cost (
    month date, team varchar, model varchar, part varchar, is_cash boolean, closed_cost_usd decimal(28, 12),
    adjustment_usd decimal(28, 12), known_cost_usd decimal(28, 12), idle_cost_usd decimal(28, 12),
    allocation_cost_usd decimal(28, 12), usage_cost_usd decimal(28, 12), variable_cost_usd decimal(28, 12),
    billed_cost_usd decimal(28, 12)
);
create table finance.chargeback (
    month date, payer varchar, tenant varchar, model varchar, requests bigint, output_tokens decimal(28, 6),
    energy_kwh decimal(28, 6), location_kgco2e decimal(28, 6), closed_cost_usd decimal(28, 12),
    adjustment_usd decimal(28, 12), known_cost_usd decimal(28, 12), usage_cost_usd decimal(28, 12),
    doubt_reasons varchar
);
create table finance.savings (
    deployment varchar, model varchar, advice varchar, reason varchar, freed_accelerators double,
    saving_now_usd_per_month double, avoidable_now_usd_per_month double, energy_saving_usd_per_month double,
    avoidable_later_usd_per_month double, avoidable_from date, not_avoidable_usd_per_month double,
    saving_kwh_per_month double, saving_kwh_per_month_low double, saving_kwh_per_month_high double,
    saving_kgco2e_per_month double, confidence varchar
);
"""


@pytest.fixture
def made(tmp_path: Path) -> Callable[[str], Callable[[str], tuple[Worksheet, Worksheet]]]:
    """Writes the workbook of marts with rows; returns a sheet with its formulas, and the same with their values."""

    def make(rows: str) -> Callable[[str], tuple[Worksheet, Worksheet]]:
        with duckdb.connect(str(tmp_path / "wattledger.duckdb")) as connection:
            connection.execute(MARTS + rows)
        path = tmp_path / "wattledger.xlsx"
        workbook.write(tmp_path / "wattledger.duckdb", path, "tiny", True, Parts())
        formulas, values = openpyxl.load_workbook(path), openpyxl.load_workbook(path, data_only=True)
        return lambda sheet: (formulas[sheet], values[sheet])

    return make


TWO_MODELS = """
insert into marts.model_daily values
    ('2026-10-01', 'busy', 'board', 2, 500, 30, 4e6, 8e6, 4e6, 16e6, 30, 4e6, ''),
    ('2026-10-01', 'parked', 'board', 1, null, 10, 0, 4e6, 0, 0, 10, 0, ''),
    ('2026-10-01', 'silent', 'board', 1, 250, null, null, null, null, null, null, null, null);
"""


def test_a_heading_of_cost_names_the_amount_that_the_sheet_adds_up() -> None:
    """Tables of dates have accelerators and electricity, those of months have all parts."""
    amounts = {
        "compute cost (USD)": "sum(compute_cost_usd)",
        "charged (USD)": "sum(closed_cost_usd)",
        "known now (USD)": "sum(known_cost_usd)",
        "of it adjustments (USD)": "sum(adjustment_usd)",
        "for what was used (USD)": "sum(usage_cost_usd)",
    }
    for question in QUESTIONS:
        headings = {column.heading for column in question.columns}
        assert [
            amount for heading, amount in amounts.items() if (heading in headings) != (amount in question.query)
        ] == []


def test_what_is_about_months_reads_schema_finance_alone() -> None:
    for question in MONTHS:
        read = re.findall(r"(?:from|join) (\w+)\.\w+", question.query)
        assert set(read) == {"finance"} == {table.partition(".")[0] for table in question.tables.split(", ")}


def test_totals_and_ratios_are_formulas_of_sums_over_sums(made: Callable) -> None:
    formulas, values = made(TWO_MODELS)("Models")
    assert [cell.value for cell in formulas[4]] == [
        "model",
        "meter",
        "kWh at the facility",
        "CO2e by location (kg)",
        "compute cost (USD)",
        "output tokens (million)",
        "joules with tokens known (J)",
        "output tokens with joules known",
        "all tokens with joules known",
        "cost of priced tokens (USD)",
        "priced output tokens (million)",
        "J per output token",
        "J per token",
        "USD per million output tokens, compute, where metered",
        "in doubt on some date",
    ]
    assert formulas.freeze_panes == "B5"
    assert formulas.auto_filter.ref == "A4:O7"
    assert [values.cell(row, 1).value for row in (3, 5, 6, 7)] == ["total", "busy", "parked", "silent"]
    # 12 MJ over 4 million output tokens: 3 J, where the mean of the rows would be 2 J.
    assert (formulas["L3"].value, values["L3"].value) == ("=SUBTOTAL(9,G5:G7)/SUBTOTAL(9,H5:H7)", 3.0)
    assert (formulas["L5"].value, values["L5"].value) == ('=IF(COUNT(G5,H5)=2,IFERROR(G5/H5,""),"")', 2.0)
    assert (formulas["N3"].value, values["N3"].value) == ("=SUBTOTAL(9,J5:J7)/SUBTOTAL(9,K5:K7)", 10.0)
    assert (formulas["E3"].value, values["E3"].value) == ("=SUBTOTAL(9,E5:E7)", 40.0)
    # Without tokens there is no ratio, and what is unknown is empty, not 0.
    assert values["L6"].value in (None, "")
    assert [values.cell(7, place).value for place in (5, 6, 7, 8)] == [None] * 4
    assert values["D6"].value is None
    assert values["D5"].value == 0.5


def test_a_model_in_doubt_has_the_reasons_of_its_dates_each_once(made: Callable) -> None:
    rows = ", ".join(
        f"('{on}', '{model}', 'board', {reasons})"
        for on, model, reasons in (
            ("2026-10-01", "busy", "'above_limit,hidden_processes'"),
            ("2026-10-02", "busy", "'hidden_processes'"),
            ("2026-10-01", "clean", "''"),
            ("2026-10-02", "clean", "null"),
            ("2026-10-01", "dark", "null"),
        )
    )
    _, values = made(f"insert into marts.model_daily (date, model, meter_scope, doubt_reasons) values {rows}")("Models")
    assert [(values[f"A{row}"].value, values[f"O{row}"].value) for row in (5, 6, 7)] == [
        ("busy", "above_limit, hidden_processes"),
        ("clean", "none"),
        ("dark", None),  # not assessed
    ]


def test_what_a_tenant_pays_and_a_token_costs_is_marked(made: Callable) -> None:
    sheets = made(
        "insert into finance.chargeback (month, payer, tenant, model, output_tokens, known_cost_usd, doubt_reasons)"
        " values ('2026-10-01', 'acme', 'acme', 'busy', 3, 2, 'hidden_processes'),"
        " ('2026-10-01', 'zeta', 'zeta', 'clean', 3, 1, '');"
        "create table finance.unit_cost as select month, model, 'output' as token_kind, output_tokens as tokens,"
        " known_cost_usd, null::decimal(28, 12) as list_cost_usd, doubt_reasons from finance.chargeback"
    )
    for name, place in (("Who pays", "B"), ("Output tokens", "B"), ("Kinds of tokens", "B")):
        _, values = sheets(name)
        headings = [cell.value for cell in values[4]]
        assert headings[-1] == "in doubt"
        assert [(values[f"{place}{row}"].value, values.cell(row, len(headings)).value) for row in (5, 6)] == [
            ("acme" if name == "Who pays" else "busy", "hidden_processes"),
            ("zeta" if name == "Who pays" else "clean", "none"),
        ]


def test_a_share_is_a_cell_over_its_columns_total(made: Callable) -> None:
    formulas, values = made(
        "insert into finance.cost (month, part, is_cash, closed_cost_usd, known_cost_usd) values"
        " ('2026-10-01', 'capacity', true, 70, 75), ('2026-10-01', 'energy', true, 25, 25)"
    )("Parts")
    assert (formulas["I5"].value, values["I5"].value) == ('=IF(COUNT(F5,F$3)=2,IFERROR(F5/F$3,""),"")', 0.75)
    assert (values["F3"].value, formulas["F3"].value, values["I3"].value) == (100.0, "=SUBTOTAL(9,F5:F6)", 1.0)
    assert values["I5"].number_format == "0.0%"
    # A month is one, and amounts and headings have the room that they need.
    assert (values["A5"].number_format, formulas.page_setup.orientation) == ("yyyy-mm", "landscape")
    assert (formulas.sheet_properties.pageSetUpPr.fitToPage, int(formulas.page_setup.fitToHeight)) == (True, 0)
    assert formulas.print_title_rows == "$3:$4"
    assert formulas.row_dimensions[4].height >= 3 * 15


def test_only_what_is_saved_now_has_a_total_and_is_first(made: Callable) -> None:
    formulas, values = made(
        "insert into finance.savings (deployment, freed_accelerators, saving_now_usd_per_month,"
        " avoidable_now_usd_per_month, energy_saving_usd_per_month, avoidable_later_usd_per_month, avoidable_from,"
        " not_avoidable_usd_per_month) values"
        " ('committed', 16, 30, 0, 30, 11680, '2027-07-01', 0), ('on demand', 8, 5850, 5840, 10, 0, null, 2920)"
    )("What to do")
    headings = {cell.value: cell.column_letter for cell in formulas[4]}
    shown = {name: [values[f"{letter}{row}"].value for row in (3, 5, 6)] for name, letter in headings.items()}
    assert shown["deployment"][1:] == ["on demand", "committed"]
    assert shown["accelerators, now (USD)"] == [5840, 5840, 0]
    assert shown["electricity, now (USD)"] == [40, 10, 30]
    assert shown["accelerators, at a date (USD)"] == [None, 0, 11680]
    assert shown["accelerators, never (USD)"] == [None, 2920, 0]
    assert [str(value)[:10] for value in shown["all of it from"][1:]] == ["None", "2027-07-01"]


NAMES = [
    '=HYPERLINK("http://x","y")',
    "+1+1",
    "-1+1",
    "@SUM(A1)",
    "<script>alert(1)</script>",
    "http://example.org/x",
    "12",
    "مرحبا",
    "🙂",
    "x" * 300,
]


def test_no_name_of_a_model_is_a_formula_a_link_or_a_number(made: Callable) -> None:
    values = ", ".join(f"('2026-10-01', '{name}', 'board')" for name in [*NAMES, "\u202ea\x1b"])
    formulas, _ = made(f"insert into marts.model_daily (date, model, meter_scope) values {values}")("Models")
    cells = {cell.value: cell for (cell,) in formulas.iter_rows(min_row=5, max_col=1)}
    assert set(cells) == {*NAMES, "\\u202ea\\x1b"}
    assert {cell.data_type for cell in cells.values()} == {"s"}
    assert [cell.hyperlink for cell in cells.values() if cell.hyperlink] == []
    assert {name for name, cell in cells.items() if cell.quotePrefix} == set(NAMES[:4])


def test_rows_beyond_the_limit_are_added_up_in_one_that_is_named(
    made: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workbook, "SHOWN_ROWS", 1)
    formulas, values = made(TWO_MODELS)("Models")
    assert values["A2"].value.endswith(" The 1 first of 3 rows; the last row is the sum of all others.")
    assert [values.cell(row, 1).value for row in (5, 6, 7)] == ["busy", "… and 2 more", None]
    # 1 + 1 kWh; only one of the two has a cost.
    assert [values.cell(6, place).value for place in (2, 3, 5)] == [None, 2.0, 10.0]
    assert (formulas["C3"].value, values["C3"].value) == ("=SUBTOTAL(9,C5:C6)", 4.0)


def test_joules_of_boards_and_of_whole_servers_have_no_total(made: Callable) -> None:
    formulas, values = made(TWO_MODELS.replace("'parked', 'board'", "'parked', 'node'"))("Models")
    assert [formulas.cell(3, place).value for place in (7, 8, 9, 12, 13)] == [None] * 5
    assert values["C3"].value == 4.0
    assert values["L5"].value == 2.0


def test_the_first_sheet_names_the_publication_and_every_question(made: Callable) -> None:
    about, _ = made(TWO_MODELS)("About")
    rows = list(about.iter_rows(values_only=True))
    assert rows[:6] == [
        ("fleet", "tiny"),
        ("telemetry", "SYNTHETIC telemetry: nothing here was measured"),
        ("booked dates", "2026-10-01 to 2026-10-01"),
        ("publication", "20261005T000000000000Z-0badcafe"),
        ("published at", "2026-10-05 01:15 UTC"),
        ("held-back dates", "2026-10-03"),
    ]
    asked = [question for question in QUESTIONS if question.sheet != "Currency"]  # the fleet states none
    assert rows[-len(asked) :] == [(question.sheet, question.asks) for question in asked]
    assert len(asked) == 18


def test_a_question_without_its_tables_has_the_reason_in_its_sheet(made: Callable) -> None:
    sheets = made("")
    assert sheets("Carbon")[0]["A2"].value.startswith("This publication cannot answer it: Catalog Error: Table with")
    # A table without rows is another thing.
    assert sheets("Models")[0]["A2"].value.startswith("tiny, no date is booked: SYNTHETIC telemetry")
    assert [cell.value for cell in sheets("Models")[0][3]] == [None] * 15


def test_a_sheet_that_fails_has_the_reason_and_the_others_are_complete(tmp_path: Path) -> None:
    snapshot, path, parts = tmp_path / "wattledger.duckdb", tmp_path / "wattledger.xlsx", Parts()
    with duckdb.connect(str(snapshot)) as connection:
        connection.execute(MARTS + TWO_MODELS)
        # A table of which the second row cannot be read.
        connection.execute(
            "drop table finance.chargeback;"
            " create view finance.chargeback as select case when n = 2 then error('broken page') else 'a' end as payer,"
            " null::date as month, null::varchar as model, null::varchar as tenant, 1 as requests, 1 as output_tokens,"
            " 1 as energy_kwh, 1 as location_kgco2e, 1 as closed_cost_usd, 1 as adjustment_usd, 1 as known_cost_usd,"
            " 1 as usage_cost_usd, '' as doubt_reasons from range(1, 3) as rows(n)"
        )
    workbook.write(snapshot, path, "tiny", True, parts)
    sheets = openpyxl.load_workbook(path, data_only=True)
    line = (
        "sheet Who pays of the workbook (query in pipelines/publishing/workbook) could not be made:"
        " InvalidInputException: Invalid Input Error: broken page"
    )
    assert parts.failed == [line]
    assert list(sheets["Who pays"].iter_rows(values_only=True)) == [("Who pays?",), (f"The {line}",)]
    assert [row[0] for row in sheets["Models"].iter_rows(min_row=5, values_only=True)] == ["busy", "parked", "silent"]
    assert len(sheets.sheetnames) == len(QUESTIONS)  # About, and all but Currency


def test_a_sheet_without_rows_has_a_line_instead(made: Callable) -> None:
    _, values = made("")("What to do")
    assert [values["A5"].value, values["A6"].value, values.auto_filter.ref] == [
        "There is none in these dates.",
        None,
        None,
    ]
