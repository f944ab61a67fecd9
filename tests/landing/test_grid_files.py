"""Files of grid intensity: a row that cannot be costs itself, a file that is something else is refused by name."""

import gzip
from datetime import date

import pytest

from pipelines.landing.telemetry_landing import Landing
from tests.landing.test_grid import DAY, DST_DAY, MIDNIGHT, fleet_of, held, land, rows

__all__ = ["held"]


def in_file(held, tmp_path, text: str, day: date = DAY, **more: object) -> Landing:
    (tmp_path / "grid.csv").write_text(text, encoding="utf-8")
    shape = {"time": "at", "values": {"direct_gco2e_per_kwh": "direct"}} if "format" not in more else {}
    (landed,) = land(held, fleet_of(tmp_path, files=[{"path": "grid.csv", "zone": "ES", **shape, **more}]), day)
    return landed


EXPORT = (
    "Datetime (UTC),Country,Zone name,Zone id,Carbon intensity gCO₂eq/kWh (direct),"
    "Carbon intensity gCO₂eq/kWh (Life cycle),Data source,Data estimated\n"
)


def test_both_spellings_of_an_export_are_read(held, tmp_path):
    row = "2026-10-01 00:00:00,Spain,Spain,ES,82.99,114.42,ree.es,true\n"
    assert in_file(held, tmp_path, EXPORT + row, format="electricity_maps").detail is None
    held_now = rows(held, "zone, start_at, direct_gco2e_per_kwh, lifecycle_gco2e_per_kwh, is_estimated")
    older = EXPORT.replace("Carbon intensity", "Carbon Intensity").replace("Life cycle", "LCA").replace("id,", "Id,")
    assert in_file(held, tmp_path, older + row, format="electricity_maps").outcome == "unchanged"
    assert held_now == [("ES", MIDNIGHT, 82.99, 114.42, True)]


def test_the_mean_of_a_day_is_of_each_of_its_hours(held, tmp_path):
    days = "".join(f"2026-{at} 00:00:00,Spain,Spain,ES,{g},{g + 100},x,false\n"
                   for at, g in (("09-30", 301), ("10-01", 320), ("10-02", 303)))  # fmt: skip
    landed = in_file(held, tmp_path, EXPORT + days, format="electricity_maps")
    assert landed.detail is None
    found = held.execute(
        "select (start_at at time zone 'UTC')::date::varchar, count(*), min(direct_gco2e_per_kwh),"
        " max(direct_gco2e_per_kwh), min(lifecycle_gco2e_per_kwh), sum(date_diff('minute', start_at, end_at)),"
        " bool_and(is_estimated) from raw.grid_intensity group by 1 order by 1"
    ).fetchall()
    assert found == [
        ("2026-09-30", 24, 301, 301, 401, 1440, True),
        ("2026-10-01", 24, 320, 320, 420, 1440, True),
        ("2026-10-02", 24, 303, 303, 403, 1440, True),
    ]


def test_hours_of_an_export_stay_hours_although_some_are_missing(held, tmp_path):
    text = EXPORT + "".join(
        f"2026-10-0{day} {hour:02}:00:00,Spain,Spain,ES,80,110,x,false\n" for day in (1, 3) for hour in (0, 1)
    )
    in_file(held, tmp_path, text, format="electricity_maps")
    found = rows(held, "day(start_at), hour(start_at), date_diff('minute', start_at, end_at), is_estimated")
    assert found == [(1, 0, 60, False), (1, 1, 60, False), (3, 0, 60, False), (3, 1, 60, False)]


def test_a_file_is_checked_as_an_api_is(held, tmp_path):
    text = "at,direct\n2026-10-01 00:00:00,100\n2026-10-01 01:00,-1\n2026-10-01 02:00,x\n2026-10-01 03:00,nan\n"
    landed = in_file(held, tmp_path, text + '2026-10-01 04:00,\nsoon,100\n2026-10-01 02:00:00+02:00,110\n,"\n5,5,5\n')
    assert landed.outcome == "failed"
    assert landed.detail.startswith("6 of 9 rows rejected, expected at most 0.5 of all (limits.bad_rows_ratio): ")
    landed = in_file(
        held, tmp_path, text + "2026-10-01 04:00,\nsoon,100\n2026-10-01 02:00:00+02:00,110\n2026-10-01 05:00,\n"
    )
    # The third last row is 00:00 UTC again. Four of eight rows are bad.
    path = tmp_path / "grid.csv"
    assert landed.detail == (
        "rejected: 3 outside 0 to 2500 g/kWh, 1 repeated, 1 without a UTC time"
        f" ({path}:3: outside 0 to 2500 g/kWh: 2026-10-01 01:00, -1;"
        f" {path}:4: outside 0 to 2500 g/kWh: 2026-10-01 02:00, x;"
        f" {path}:5: outside 0 to 2500 g/kWh: 2026-10-01 03:00, nan)"
    )
    assert rows(held, "start_at, direct_gco2e_per_kwh") == [(MIDNIGHT, 110.0)]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (
            "2026-10-01 01:00,5,5",
            "1 not readable ({path}:3: has 3 cells, the header 2: is a comma in a cell not quoted?)",
        ),
        ('2026-10-01 01:00,"5', "1 not readable ({path}:3: is not CSV: unexpected end of data)"),
        ("290000-01-01 00:00,5", "1 without a UTC time ({path}:3: without a UTC time: 290000-01-01 00:00, 5)"),
        ("1969-12-31 23:00,5", "1 without a UTC time ({path}:3: without a UTC time: 1969-12-31 23:00, 5)"),
    ],
)
def test_a_row_that_is_not_csv_or_of_no_time_of_this_century_costs_itself(held, tmp_path, row, reason):
    landed = in_file(held, tmp_path, f"at,direct\n2026-10-01 00:00,100\n{row}\n2026-10-01 02:00,120\n")
    assert (landed.outcome, landed.rows) == ("landed", 2)
    assert landed.detail == "rejected: " + reason.format(path=tmp_path / "grid.csv")


@pytest.mark.parametrize("separator", [";", "\t"])
def test_a_file_without_commas_in_its_header_has_other_separators(held, tmp_path, separator):
    landed = in_file(held, tmp_path, f"at{separator}direct\n2026-10-01 00:00{separator}100.5\n")
    assert (landed.detail, rows(held, "direct_gco2e_per_kwh")) == (None, [(100.5,)])


def test_another_key_of_the_fleet_file_sets_how_many_rows_may_be_bad(held, tmp_path):
    text = "at,direct\n2026-10-01 00:00,100\n2026-10-01 01:00,100\n2026-10-01 02:00,-1\n"
    failed = in_file(held, tmp_path, text, limits={"bad_rows_ratio": 0.2})
    assert failed.detail.startswith("1 of 3 rows rejected, expected at most 0.2 of all (limits.bad_rows_ratio): ")
    assert in_file(held, tmp_path, text).rows == 2


def test_rows_of_other_zones_are_not_bad(held, tmp_path):
    row = "2026-10-01 00:00:00,{zone},{zone},{zone},1,1,x,false\n"
    text = EXPORT + "".join(row.format(zone=zone) for zone in ("FR", "DE", "ES", "PT"))
    landed = in_file(held, tmp_path, text, format="electricity_maps")
    assert (landed.outcome, landed.rows, landed.detail) == ("landed", 1, "rejected: 3 of another zone")


def test_local_times_without_an_offset_show_as_the_hour_that_repeats_in_autumn(held, tmp_path):
    hours = [f"2026-10-25 {h:02}:00,{100 + h}\n" for h in (0, 1, 2, 2, 3)]
    landed = in_file(held, tmp_path, "at,direct\n" + "".join(hours), DST_DAY)
    assert (landed.rows, landed.detail) == (4, "rejected: 1 repeated")
    offsets = [f"2026-10-25T0{h}:00:00{o},{v}\n" for h, o, v in ((2, "+02:00", 1), (2, "+01:00", 2), (3, "+01:00", 3))]
    landed = in_file(held, tmp_path, "at,direct\n" + "".join(offsets), DST_DAY)
    assert (landed.rows, landed.detail) == (3, None)
    assert rows(held, "hour(start_at), direct_gco2e_per_kwh") == [(0, 1.0), (1, 2.0), (2, 3.0)]


@pytest.mark.parametrize(
    ("text", "more", "reason"),
    [
        ("when,direct\n2026-10-01,1\n", {}, "no column 'at'; there are 'when', 'direct'"),
        ("<html>log in</html>\n", {"format": "electricity_maps"}, "not an export of Electricity Maps"),
        (EXPORT + "2026-10-01 00:00:00,F,F,FR,1,1,x,false\n", {"format": "electricity_maps"}, "1 of another zone"),
        ("at,direct\n", {}, "no value of zone ES; it is empty"),
        ("at,direct\n1,2,3\n", {}, "no value of zone ES; rejected: 1 not readable ("),
        (
            "at,direct\n1.10.2026 00:00,100\n1.10.2026 01:00,100\n",
            {},
            "the first row has 'at' '1.10.2026 00:00', 'direct' '100';"
            " expected a time such as 2026-10-01 00:00 (UTC) and 0 to 2500 g/kWh",
        ),
        (
            "at,direct\n2026-10-01 00:00,Spain\n",
            {},
            "the first row has 'at' '2026-10-01 00:00', 'direct' 'Spain'",
        ),
    ],
)
def test_a_file_that_is_something_else_fails_and_what_was_held_stays(held, tmp_path, text, more, reason):
    in_file(held, tmp_path, "at,direct\n2026-10-01,100\n")
    failed = in_file(held, tmp_path, text, **more)
    assert (failed.outcome, failed.rows_before) == ("failed", 1)
    assert reason in failed.detail
    assert rows(held, "direct_gco2e_per_kwh") == [(100.0,)]


def test_a_file_that_is_not_there_fails_and_of_a_broken_archive_its_beginning_lands(held, tmp_path):
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(b"at,direct\n" + b"2026-10-01,1\n" * 9999)[:-20])
    (tmp_path / "good.csv").write_text("at,direct\n2026-10-01,100\n")
    shape = {"time": "at", "values": {"direct_gco2e_per_kwh": "direct"}, "zone": "ES"}
    files = [{"path": path, **shape} for path in ("none.csv", "cut.csv.gz", "good.csv")]
    outcomes = [(one.source.rpartition("/")[2], one.outcome) for one in land(held, fleet_of(tmp_path, files=files))]
    assert outcomes == [("none.csv", "failed"), ("cut.csv.gz", "landed"), ("good.csv", "landed")]
    assert rows(held, "source") == [("cut.csv.gz",), ("good.csv",)]
    detail = held.execute("select detail from raw.landings where source = 'cut.csv.gz'").fetchone()[0]
    assert "1 not readable" in detail
    assert "cannot be read from line" in detail


def test_a_file_that_the_fleet_no_longer_names_is_forgotten_and_an_apis_days_are_not(held, tmp_path):
    in_file(held, tmp_path, "at,direct\n2026-10-01,100\n")
    held.execute("insert into raw.grid_intensity (zone, source, source_kind) values ('GB', 'neso', 'x')").fetchall()
    assert land(held, fleet_of(tmp_path)) == []
    assert rows(held, "source") == [("neso",)]
