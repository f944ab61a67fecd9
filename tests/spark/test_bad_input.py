"""What cannot work is reported at once, in one error, before any work: no Java, no master, no lake;
and a build that fails leaves the job's readers with what they had."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from pipelines.spark import driver
from pipelines.spark.cluster import SparkError, check
from tests.books import command, demo_fleet
from tests.spark.cluster import free_port

START, END = date(2026, 10, 1), date(2026, 10, 2)


def build(lake: Path) -> driver.Build:
    return driver.build(lake, {}, lake, START, END, dbt_vars={})


@pytest.mark.needs("pyspark")
def test_no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(SparkError, match=r"Spark needs Java 17 or newer .*nowhere/bin/java does not run"):
        build(tmp_path / "lake")
    assert not (tmp_path / "lake").exists()


@pytest.mark.needs("pyspark")
def test_an_old_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SparkError, match=r'is openjdk version "11\.0\.2"'):
        build(tmp_path / "lake")


@pytest.mark.needs("pyspark", "java")
def test_an_unreachable_master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    monkeypatch.setenv("WATTLEDGER_SPARK_MASTER", f"spark://127.0.0.1:{port}")
    with pytest.raises(SparkError, match=rf"spark://127\.0\.0\.1:{port} cannot be reached .*Connection refused"):
        build(tmp_path / "lake")


@pytest.mark.needs("pyspark", "java")
def test_a_lake_without_rights(tmp_path: Path) -> None:
    # Rights do not bind root, who runs the tests in a container; a file in the way binds everybody.
    (tmp_path / "file").touch()
    with pytest.raises(SparkError, match=r"the lake .*file/lake cannot be written: .*Not a directory"):
        build(tmp_path / "file" / "lake")


@pytest.mark.needs("pyspark", "java")
def test_two_builds_of_one_lake(tmp_path: Path) -> None:
    check(tmp_path)
    with driver.one_at_a_time(tmp_path), pytest.raises(SparkError, match="another build holds the lake"):
        build(tmp_path)


def fleet_on_spark(folder: Path) -> Path:
    return demo_fleet(folder, START, END, landing={"target": "lake", "path": "lake/", "engine": "spark"})


@pytest.mark.needs("pyspark")
def test_the_job_without_java_lands_nothing(tmp_path: Path) -> None:
    done = command(fleet_on_spark(tmp_path), tmp_path / "data", JAVA_HOME=str(tmp_path / "nowhere"))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "fleet.yaml: landing.engine: Spark needs Java 17 or newer " in done.stderr
    assert [path for path in (tmp_path / "data").rglob("*") if path.is_file()] == []


@pytest.mark.needs("pyspark", "java")
def test_a_build_that_fails_fails_its_asset_in_one_line_and_nothing_is_published(tmp_path: Path) -> None:
    data = tmp_path / "data" / "demo"
    check(data / "lake")
    with driver.one_at_a_time(data / "lake"):
        done = command(fleet_on_spark(tmp_path), tmp_path / "data")
    assert done.returncode == 1
    failed = [line for line in done.stderr.splitlines() if line.startswith("step ")]
    assert len(failed) == 1
    assert f"another build holds the lake {data / 'lake'} (Spark's own output: {data / 'spark.log'})" in failed[0]
    assert list((data / "lake" / "raw" / "_landed").rglob("*.json")) != []
    assert not (data / "published").exists()
    assert not (data / "lake" / "marts" / "_committed.json").exists()
