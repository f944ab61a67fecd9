"""What the tests on Spark share: one cluster, as its processes take seconds to start, and one driver."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.spark import IS_WHOLE, cluster

# Three builds of four weeks, each of which plans every model for minutes.
collect_ignore = [] if IS_WHOLE else ["test_demo.py"]


@pytest.fixture(scope="session")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[cluster.Cluster]:
    """A master and two one-core workers."""
    with cluster.running(tmp_path_factory.mktemp("cluster") / "cluster", workers=2) as running:
        yield running


@pytest.fixture(scope="session")
def spark_driver(spark_cluster: cluster.Cluster) -> Iterator[cluster.Driver]:
    """The process in which the tests build, one after the other."""
    with spark_cluster.driver() as driver:
        yield driver
