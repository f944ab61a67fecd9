"""A metrics page as an unknown place: what it has at this moment. It has no history: an agent has to sample it.

Keep out how a page is read: that is `collectors.protocols.exposition`.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from collectors.probes.observed_series import Observed, ObservedSeries
from collectors.protocols.exposition import ExpositionPage

PRODUCT = "a metrics page, of this moment alone"


def unknown_page(url: str, at: datetime, **secrets: Any) -> ObservedSeries:
    """Every series of the page. Keywords are those of ExpositionPage. SourceError where it is no page, or none that
    answers."""
    page = ExpositionPage(url, None, **secrets)
    series = [Observed(one.metric, json.loads(one.labels), one.observed_us, one.observed_us, 1) for one in page.look()]
    return ObservedSeries(page.url, at, PRODUCT, series)
