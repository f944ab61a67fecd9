"""Hosts that nothing measures: the interval of a site holds what published nodes draw beside their boards.

A board has an eighth of its node's host. A node of 8 × H200 that waits draws 2,350 W (MLPerf Inference 4.1, entry
4.1-0049), its boards 82 W each without a process and 130 W with a model (docs/measured.md); 8 × H100 at full load draw
8.48 kW (arXiv 2412.08602), their boards 5.6 kW. An idle A100 of 70 W has a host of 0.795 of it.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.planted import WATTS, Series, board, steady
from tests.shapes import Seen, Shape, shape

H200, H100 = {"modelName": "NVIDIA H200"}, {"modelName": "NVIDIA H100 80GB HBM3"}
PUE = 1.3


def by_site() -> dict[str, list[Series]]:
    return {
        "host_waits": [(WATTS, {**board("GPU-host-waits", "host_waits"), **H200}, steady(82))],
        "host_loaded": [(WATTS, {**board("GPU-host-loaded", "host_loaded"), **H200}, steady(130))],
        "host_full": [(WATTS, {**board("GPU-host-full", "host_full"), **H100}, steady(700))],
        "host_idle": [(WATTS, board("GPU-host-idle", "host_idle"), steady(70))],
    }


HOSTS = shape("assumed_hosts", by_site, sites=[{"name": site, "zone": "US-CAL-CISO", "pue": PUE} for site in by_site()])


@pytest.mark.parametrize(
    ("site", "board_watts", "assumed_watts", "host_watts"),
    [
        ("host_waits", 82, 0.2 * 700 + 0.23 * 82, 2_350 / 8 - 82),
        ("host_loaded", 130, 0.2 * 700 + 0.23 * 130, 2_350 / 8 - 130),
        ("host_full", 700, 0.43 * 700, 8_480 / 8 - 700),
        ("host_idle", 70, 0.2 * 400 + 0.23 * 70, 0.795 * 70),
    ],
)
def test_the_interval_holds_what_hosts_draw(
    shared_book: Callable[[Shape], Seen], site: str, board_watts: float, assumed_watts: float, host_watts: float
) -> None:
    day = 24 / 1000 * PUE  # kWh of a watt
    ((low, kwh, high),) = shared_book(HOSTS).query(
        "select value_low, value, value_high from marts.figure_intervals"
        " where figure = 'facility_energy_kwh' and site = ? and model = '__all__'",
        [site],
    )
    assert kwh == pytest.approx((board_watts + assumed_watts) * day, abs=1e-3)
    assert low <= (board_watts + host_watts) * day <= high
