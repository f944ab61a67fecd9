"""Sources in the fleet file: values by metric and column, and paths that start at the file and stay there."""

from __future__ import annotations

from pathlib import Path

import pytest

from collectors.samples import SourceError
from pipelines.fleet.fleet_file import Fleet
from tests.fleet.test_fleet import SMALLEST, files_source, load, problems


def with_values(values: str) -> str:
    return files_source("power.csv").replace("{wall_power_watts: w}", values)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ("{wall_power_watts: w}", {"wall_power_watts": "w"}),
        ("{wall_power_watts: wall_power_watts}", {"wall_power_watts": "wall_power_watts"}),
        ("{wall_power_watts: w, rack_power_watts: w}", {"wall_power_watts": "w", "rack_power_watts": "w"}),
    ],
)
def test_values_are_metric_to_column(
    tmp_path: Path, values: str, expected: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    fleet = load(tmp_path, with_values(values))
    assert fleet.sources[0].files[0].values == expected
    assert caplog.messages == []


def test_values_of_the_old_direction_are_turned_around_with_a_note(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fleet = load(tmp_path, with_values("{w: wall_power_watts, wall_energy_joules_total: j}"))
    assert fleet.sources[0].files[0].values == {"wall_power_watts": "w", "wall_energy_joules_total": "j"}
    assert fleet.collectors()[0].files[0].values == fleet.sources[0].files[0].values
    assert caplog.messages == [
        f"fleet.yaml: {tmp_path}/power.csv: values are written {{column: metric}}, which is deprecated and will be"
        " refused after 0.1. Write values: {wall_power_watts: w}"
    ]


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        (
            "{wall_power_watts: facility_power_watts}",
            "{wall_power_watts: facility_power_watts} names two metrics, expected {metric: column}."
            " It is unclear which is the column: rename the column in the file",
        ),
        (
            "{w: wall_power_wats}",
            "{w: wall_power_wats} names no known metric, expected {metric: column}; did you mean 'wall_power_watts'?",
        ),
        (
            "{w: x}",
            "{w: x} names no known metric, expected {metric: column} with a metric of those of"
            " dbt_project/seeds/metric_catalog.csv",
        ),
        (
            "{a: wall_power_watts, b: wall_power_watts}",
            "'wall_power_watts' is in two columns, expected one; add a second entry under `files`",
        ),
    ],
)
def test_values_that_name_two_metrics_or_none_are_refused(tmp_path: Path, values: str, problem: str) -> None:
    assert problems(tmp_path, with_values(values)) == [f"sources[wall].files[0].values: {problem}"]


def test_values_of_grid_files_have_the_same_direction(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def grid(values: str) -> str:
        return f"{SMALLEST}\ngrid_intensity: {{files: [{{path: g.csv, zone: ES, time: at, values: {values}}}]}}\n"

    held = {"direct_gco2e_per_kwh": "co2"}
    assert load(tmp_path, grid("{direct_gco2e_per_kwh: co2}")).grid_intensity.files[0].values == held
    assert caplog.messages == []
    assert load(tmp_path, grid("{co2: direct_gco2e_per_kwh}")).grid_intensity.files[0].values == held
    assert len(caplog.messages) == 1
    assert problems(tmp_path, grid("{co2: grams}")) == [
        "grid_intensity.files[0].values: {co2: grams} names no known metric, expected {metric: column} with a metric of"
        " direct_gco2e_per_kwh, lifecycle_gco2e_per_kwh, marginal_gco2e_per_kwh"
    ]


def path_of(fleet: Fleet) -> str:
    return fleet.sources[0].files[0].path


def test_paths_start_at_the_fleet_file_and_stay_there(tmp_path: Path) -> None:
    assert path_of(load(tmp_path, files_source("power/*.csv"))) == str(tmp_path / "power" / "*.csv")
    for outside in ("../power.csv", "/etc/passwd", "power/*/../../../x.csv", "data/../../x.csv"):
        assert len(problems(tmp_path, files_source(outside))) == 1
    assert problems(tmp_path, files_source("../power.csv"))[0].startswith(
        "sources[wall].files[0].path: got '../power.csv', must stay inside "
    )


def test_a_symbolic_link_does_not_lead_out(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "link").symlink_to(tmp_path)
    assert len(problems(home, files_source("link/power.csv"))) == 1


def test_an_environment_variable_names_another_root(tmp_path: Path) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.mkdir()
    environ = {"MEASUREMENTS": str(elsewhere)}
    fleet = load(home, files_source("${MEASUREMENTS}/a/power.csv"), environ)
    assert path_of(fleet) == str(elsewhere / "a" / "power.csv")
    assert len(problems(home, files_source("${MEASUREMENTS}/../power.csv"), environ)) == 1
    assert len(problems(home, files_source("a/${MEASUREMENTS}/power.csv"), environ)) == 1
    assert problems(home, files_source("${UNSET}/power.csv"))[0].endswith(
        "environment variable UNSET is not set; it must name the folder to read from"
    )


def prometheus_with(auth: str) -> str:
    url = 'url: "http://prometheus:9090"'
    return f"""
fleet: mine
period: {{start: 2026-10-01}}
sources:
  - {{name: cluster, kind: prometheus, {url}, interval_seconds: 15, auth: {auth}}}
"""


def test_a_token_in_a_file_is_beside_the_fleet_file_or_below_a_variable(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    (secrets / "..1").mkdir(parents=True)
    (secrets / "..1" / "token").write_text("a")
    (secrets / "..data").symlink_to("..1")
    (secrets / "token").symlink_to("..data/token")
    folder = tmp_path / "fleets"
    folder.mkdir()
    # The link stays: Kubernetes puts the next token behind it.
    (source,) = load(folder, prometheus_with('{bearer_file: "${SECRETS}/token"}'), {"SECRETS": str(secrets)}).sources
    assert source.auth.bearer_file == str(secrets / "token")
    # It need not be there yet: whoever reads a publication has no token.
    (source,) = load(folder, prometheus_with("{bearer_file: token}")).sources
    assert source.auth.bearer_file == str(folder / "token")
    (problem,) = problems(folder, prometheus_with('{bearer_file: "/etc/shadow"}'))
    assert problem.startswith("sources[cluster].auth.bearer_file: must stay inside ")
    (folder / "link").symlink_to(secrets)
    (problem,) = problems(folder, prometheus_with("{bearer_file: link/token}"))
    assert problem.startswith("sources[cluster].auth.bearer_file: must stay inside ")


@pytest.mark.parametrize(
    "auth",
    [
        "{bearer_file: token, bearer_env: TOKEN}",
        "{bearer_file: token, username_env: TOKEN, password_env: TOKEN}",
        "{username_env: TOKEN}",
        "{}",
    ],
)
def test_there_is_one_way_to_log_in(tmp_path: Path, auth: str) -> None:
    (problem,) = problems(tmp_path, prometheus_with(auth), {"TOKEN": "a"})
    assert "expected one of bearer_env, bearer_file, or username_env with password_env" in problem


def test_the_collector_of_a_source_reads_the_file(tmp_path: Path) -> None:
    (collector,) = load(tmp_path, prometheus_with("{bearer_file: token}")).collectors()
    with pytest.raises(SourceError) as refused:
        collector.server.ask("/api/v1/query", [])
    reason = f"bearer_file {tmp_path / 'token'} cannot be read: No such file or directory"
    assert str(refused.value) == f"http://prometheus:9090: {reason}"


def test_a_spool_lies_beside_the_warehouse_or_at_a_url(tmp_path: Path) -> None:
    text = "fleet: mine\nperiod: {start: 2026-10-01}\nsources: [{name: agents, kind: spool%s}]\n"
    data = tmp_path / "data" / "mine"
    assert load(tmp_path, text % "").sources[0].path == str(data / "spool")
    assert load(tmp_path, text % ", path: s3://bucket/spool").sources[0].path == "s3://bucket/spool"
    assert len(problems(tmp_path, text % ", path: file:///etc")) == 1
